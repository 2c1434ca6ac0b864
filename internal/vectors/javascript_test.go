package vectors_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
)

const javascript = "../../examples/js"

var tally = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed$`)

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

// run runs the JavaScript runner with nothing on its path but node, and tells what it counted and how it ended.
func run(t *testing.T, vectors ...string) (passed, failed int, err error) {
	t.Helper()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(node(t), filepath.Join(bin, "node")))
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), append([]string{filepath.Join(javascript, "run.mjs")}, vectors...)...)
	cmd.Env = []string{"PATH=" + bin}
	out, err := cmd.CombinedOutput()
	counts := tally.FindSubmatch(out)
	require.NotNil(t, counts, string(out))
	passed, _ = strconv.Atoi(string(counts[1]))
	failed, _ = strconv.Atoi(string(counts[2]))
	return passed, failed, err
}

// S10: the second implementation, which is not written in Go, passes the same vectors.
func TestJavaScript(t *testing.T) {
	passed, failed, err := run(t)
	require.NoError(t, err)
	assert.Zero(t, failed)
	assert.Greater(t, passed, 700)
	t.Logf("%d passed", passed)
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
		_, failed, err := run(t, folder)
		assert.Error(t, err, file)
		assert.Equal(t, 1, failed, file)
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
