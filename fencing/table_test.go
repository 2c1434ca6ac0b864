package fencing

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// rewrite writes the tables anew: go test ./fencing -update, or CONFIRMEXEC_UPDATE=1 as in the other packages.
var rewrite = flag.Bool("update", os.Getenv("CONFIRMEXEC_UPDATE") != "", "write testdata anew")

// table is a whole decision, for people to read: state and request on the left, what comes of it on the right.
type table struct{ rows []string }

// row adds one row of cells, or an empty line without any.
func (b *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	b.rows = append(b.rows, strings.Join(texts, "\t"))
}

// compare requires that the table is what testdata/name.txt says. The title is its first line.
func (b *table) compare(t *testing.T, name, title string) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# %s Made by %s.\n\n", title, t.Name())
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range b.rows {
		fmt.Fprintln(w, row)
	}
	require.NoError(t, w.Flush())
	got := trimLines(text.String())
	path := "testdata/" + name + ".txt"
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// answer is what a decision says: "ok", or the code, the last word of the reason or the path, and the number that stands.
func answer(err error) string {
	var invalid *contract.InvalidError
	switch f, ok := contract.FailureOf(err); {
	case err == nil:
		return "ok"
	case errors.As(err, &invalid):
		return "INVALID_ARGUMENT " + invalid.Path
	case !ok:
		return err.Error()
	default:
		reason := string(f.Reason)
		text := string(f.Code) + " " + reason[strings.LastIndex(reason, ".")+1:]
		if f.Current != 0 {
			text += fmt.Sprintf(" (current %d)", f.Current)
		}
		return text
	}
}
