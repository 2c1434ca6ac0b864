package vectors_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
)

const javascript = "../../examples/js"

var tally = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed, (\d+) topics not implemented: ([a-z_]+(?:, [a-z_]+)*)$`)

// node is the program; where it is not installed the test is skipped, but not in CI.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("node is not installed")
	}
	require.NoError(t, err)
	return path
}

// counted is what the runner says at its end.
type counted struct {
	passed, failed int
	missing        []string
}

// run runs the JavaScript runner with nothing on its path but node, and tells what it counted and how it ended.
func run(t *testing.T, vectors ...string) (counted, error) {
	t.Helper()
	return runIn(t, javascript, vectors...)
}

func runIn(t *testing.T, folder string, vectors ...string) (counted, error) {
	t.Helper()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(node(t), filepath.Join(bin, "node")))
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), append([]string{filepath.Join(folder, "run.mjs")}, vectors...)...)
	cmd.Env = []string{"PATH=" + bin}
	out, err := cmd.CombinedOutput()
	counts := tally.FindSubmatch(out)
	require.NotNil(t, counts, string(out))
	c := counted{missing: strings.Split(string(counts[4]), ", ")}
	c.passed, _ = strconv.Atoi(string(counts[1]))
	c.failed, _ = strconv.Atoi(string(counts[2]))
	assert.Equal(t, strconv.Itoa(len(c.missing)), string(counts[3]))
	return c, err
}

// S10: the second implementation, which is not written in Go, passes the same vectors.
func TestJavaScript(t *testing.T) {
	c, err := run(t)
	require.NoError(t, err)
	assert.Zero(t, c.failed)
	assert.Greater(t, c.passed, 700)
	t.Logf("%d passed", c.passed)

	topics, err := confirmexec.Vectors.ReadDir("testdata/vectors/v1")
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(javascript, "README.md"))
	require.NoError(t, err)
	_, told, found := strings.Cut(string(readme), "are not implemented: ")
	require.True(t, found)
	told, _, _ = strings.Cut(told, ".\n")
	assert.Equal(t, c.missing, strings.FieldsFunc(told, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }),
		"what README.md says is not implemented")
	assert.Contains(t, string(readme), "those twelve topics")
	assert.Equal(t, 12, len(topics)-len(c.missing))
}

// The runner finds the vectors wherever the repository is.
func TestJavaScriptInAnyFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a b%20c", "examples", "js")
	require.NoError(t, os.CopyFS(folder, os.DirFS(javascript)))
	vectors, err := fs.Sub(confirmexec.Vectors, "testdata/vectors/v1")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(filepath.Join(folder, "..", "..", "testdata", "vectors", "v1"), vectors))
	c, err := runIn(t, folder)
	require.NoError(t, err)
	assert.Greater(t, c.passed, 700)
}

// S10: its runner fails when an expected value is another one: it compares what it reads.
func TestJavaScriptSeesAFlip(t *testing.T) {
	for file, change := range map[string][2]string{
		"digests/digests.json":       {`"digest": "`, `"digest": "0`},
		"tallies/tallies.json":       {`"ambiguous": 4`, `"ambiguous": 3`},
		"staleness/table.json":       {`"stale": true`, `"stale": false`},
		"retry_table/table.json":     {`"effect": "unknown"`, `"effect": "none"`},
		"canonical/canonical.json":   {`"canonical": "`, `"canonical": "0`},
		"confirmations/invalid.json": {`"malformed": true`, `"malformed": false`},
	} {
		folder := t.TempDir()
		vectors, err := fs.Sub(confirmexec.Vectors, "testdata/vectors/v1")
		require.NoError(t, err)
		require.NoError(t, os.CopyFS(folder, vectors))
		path := filepath.Join(folder, file)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		changed := bytes.Replace(data, []byte(change[0]), []byte(change[1]), 1)
		require.NotEqual(t, data, changed, file)
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		c, err := run(t, folder)
		assert.Error(t, err, file)
		assert.Equal(t, 1, c.failed, file)
	}
}

// It stays a worked example that can be read in one sitting.
func TestJavaScriptIsShort(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(javascript, "*.mjs"))
	require.NoError(t, err)
	lines := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		lines += bytes.Count(data, []byte("\n"))
		assert.NotRegexp(t, `from '[^.n]`, string(data), "%s imports a package", file)
	}
	assert.Less(t, lines, 400)
	assert.NoFileExists(t, filepath.Join(javascript, "package.json"))
}
