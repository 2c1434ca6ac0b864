package traps

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of reports has every number of its parts and no other, and every test that it names exists.
func TestTablesAreTrue(t *testing.T) {
	tests := testsOf(t, "../..")
	require.Len(t, parts, 4)
	for name, p := range parts {
		for n := p.first; n <= p.last; n++ {
			row, found := p.rows[n]
			assert.True(t, found, "%s: %d is missing", name, n)
			assert.True(t, len(row.by) > 0 || row.because != "", "%s: %d has neither a test nor a reason", name, n)
			for _, test := range row.by {
				assert.True(t, exists(tests, test), "%s: %d: no test %s", name, n, test)
			}
		}
		assert.Len(t, p.rows, p.last-p.first+1, name)
	}
	assert.False(t, exists(tests, "TestTablesAreTru"), "one that does not exist is seen")
}

// testsOf reads the code of every test and of the suites, without comments, and without the table.
func testsOf(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		suite := strings.Contains(filepath.ToSlash(path), "/store/storetest/") && strings.HasSuffix(path, ".go")
		if err != nil || d.IsDir() || !suite && !strings.HasSuffix(path, "_test.go") || d.Name() == "incidents_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				all.WriteString(line)
			}
		}
		return err
	})
	require.NoError(t, err)
	return all.String()
}

// exists looks for a test function, or for a string that begins so, as a subtest's name does.
func exists(tests, named string) bool {
	if strings.HasPrefix(named, "Test") {
		return strings.Contains(tests, "func "+named+"(t *testing.T)")
	}
	return strings.Contains(tests, `"`+named)
}
