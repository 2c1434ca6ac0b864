package dispatch

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// some are the methods whose rows every test plays: what originates, and what settles it afterwards.
var some = []string{"ExecuteAuthorized", "Execute", "CompleteUpload", "GetBootstrap", "(settle what crashed)", "(reconcile a lost reply)"}

// R33, R55, R60, R61: both processes killed before and after each commit of what originates, and of what settles it afterwards. The
// whole matrix is `go run ./internal/killmatrix`; README.md of the examples has it, and CONFIRMEXEC_UPDATE=1 writes it there.
func TestKillMatrix(t *testing.T) {
	var out bytes.Buffer
	o := MatrixOptions{Methods: some, Workers: 2, Out: &out}
	update := os.Getenv("CONFIRMEXEC_UPDATE") == "1"
	if update {
		o.Methods = nil
	}
	rows, err := Matrix(t.Context(), o)
	require.NoError(t, err, out.String())
	assert.Regexp(t, `(?m)^ExecuteAuthorized +agent +2 `, out.String())
	if update {
		writeTable(t, rows)
	}
	table := readTable(t)
	for _, r := range rows {
		assert.Contains(t, table, rowOf(r))
	}
}

// Every row of the matrix that README.md shows is a scene's, with the commits that it must have, and with none twice.
func TestMatrixOfReadme(t *testing.T) {
	table := readTable(t)
	require.Len(t, table, len(scenes()))
	for i, sc := range scenes() {
		kills := 2 * sc.commits
		assert.Regexp(t, fmt.Sprintf(`^\| %s \| %s \| %d \| %d \| %d \| \d+ \| 0 \|$`,
			regexp.QuoteMeta(sc.method), sc.victim, sc.commits, kills, kills), table[i])
	}
}

const (
	pageOfExamples         = "../README.md"
	tableBegins, tableEnds = "<!-- the kill matrix -->\n", "<!-- its end -->\n"
	tableHead              = "| Method | Killed | Commits | Kills | Restarts | Adapter calls | Twice |\n|---|---|---|---|---|---|---|\n"
)

func rowOf(r MatrixRow) string {
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d |", r.Method, r.Victim, r.Commits, r.Kills, r.Restarts, r.Invocations, r.Double)
}

// readTable returns the rows that README.md shows.
func readTable(t *testing.T) []string {
	t.Helper()
	_, text, _ := partsOfPage(t)
	rows, found := strings.CutPrefix(text, tableHead)
	require.True(t, found)
	return strings.Split(strings.TrimSuffix(rows, "\n"), "\n")
}

func writeTable(t *testing.T, rows []MatrixRow) {
	t.Helper()
	head, _, rest := partsOfPage(t)
	text := tableHead
	for _, r := range rows {
		text += rowOf(r) + "\n"
	}
	require.NoError(t, os.WriteFile(pageOfExamples, []byte(head+text+rest), 0o600))
}

// partsOfPage cuts the page before and after the table.
func partsOfPage(t *testing.T) (head, table, rest string) {
	t.Helper()
	page, err := os.ReadFile(pageOfExamples)
	require.NoError(t, err)
	head, rest, begins := strings.Cut(string(page), tableBegins)
	table, rest, ends := strings.Cut(rest, tableEnds)
	require.True(t, begins && ends)
	return head + tableBegins, table, tableEnds + rest
}

// R60: an adapter that is invoked twice, and an answer that does not agree with the ledger, are found.
func TestMatrixFindsDoubles(t *testing.T) {
	s := newTestStage(t, newTestSet(t))
	var mu sync.Mutex
	for range 2 {
		require.NoError(t, appendLine(&mu, s.ledger(), entry{Kind: invoked, Execution: "e-1"}))
	}
	require.NoError(t, appendLine(&mu, s.ledger(), entry{Kind: sealed, Execution: "e-2"}))
	row := MatrixRow{Method: "Execute", Victim: roleAgent}
	s.count(&row)
	assert.Equal(t, 1, row.Double)
	assert.Equal(t, 2, row.Invocations)
	require.Len(t, s.differences, 1)
	row.Differences = s.differences
	var out bytes.Buffer
	require.ErrorIs(t, tellMatrix(&out, []MatrixRow{row}), ErrDiffers)
	assert.Contains(t, out.String(), "DIFFERS: Execute, agent killed the adapter was invoked 2 times for e-1")

	s.ready()
	s.applied("issued", s.issue("e-3", "+49301"))
	s.differences = nil
	checkExecution(s) // of e-1, which nobody issued
	assert.NotEmpty(t, s.differences)
}

// A scenario that differs, or that cannot be carried out, is told, and is the error of the walk.
func TestWalkDiffers(t *testing.T) {
	set := newTestSet(t)
	r, err := set.play(t.Context(), scenario{"wrong", "calls that nobody made", expectation{"applied", 2}, func(s *stage) {
		s.ready()
		s.decide("issued", s.issue("e-1", "+49301"))
		s.want("a query", "applied", s.ask(s.dispatcher, order{Do: "query", Execution: "e-2"}))
		s.ask(s.dispatcher, order{Do: "no such order"})
		s.agent.kill()
		s.ask(s.agent, order{Do: "status"})
	}})
	require.NoError(t, err)
	told := strings.Join(r.differences, "\n")
	assert.Contains(t, told, "adapter calls: 1, not 2")
	assert.Contains(t, told, `a query: the answer is "no_mutation", not "applied"`)
	assert.Contains(t, told, "could not be carried out: the process has ended: the agent (signal: killed)")
	var out, notes bytes.Buffer
	Options{JSON: true, Out: &out, Notes: &notes}.tell(r)
	assert.JSONEq(t, `{"scenario":"wrong","answer":"applied","adapter_calls":1,"ok":false}`, out.String())
	assert.Contains(t, notes.String(), "wrong differs: adapter calls: 1, not 2")
	out.Reset()
	Options{Out: &out}.tell(r)
	assert.Contains(t, out.String(), "  DIFFERS         adapter calls: 1, not 2\n")
}
