package traps

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	row  = regexp.MustCompile(`(?m)^//\tincident \d+: (.+)$`)
	name = regexp.MustCompile(`Test\w+|"[^"]+"`)
)

// Every test that the tables of this package name as the proof of a report still exists, under that name.
func TestTablesAreTrue(t *testing.T) {
	tests := testsOf(t, "../..")
	tables, err := filepath.Glob("incidents_*_test.go")
	require.NoError(t, err)
	rows := 0
	for _, table := range tables {
		text, err := os.ReadFile(table)
		require.NoError(t, err)
		for _, r := range row.FindAllStringSubmatch(string(text), -1) {
			rows++
			for _, named := range name.FindAllString(r[1], -1) {
				assert.True(t, exists(tests, named), "%s: %s", table, named)
			}
		}
	}
	assert.Greater(t, rows, 20)
}

// testsOf reads the code of every test and of the suites, without comments.
func testsOf(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		suite := strings.Contains(filepath.ToSlash(path), "/store/storetest/") && strings.HasSuffix(path, ".go")
		if err != nil || d.IsDir() || !suite && !strings.HasSuffix(path, "_test.go") {
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

// exists looks for a test function, or for a subtest: a string, of which a prefix up to a slash may be put together at run
// time.
func exists(tests, named string) bool {
	if strings.HasPrefix(named, "Test") {
		return strings.Contains(tests, "func "+named+"(t *testing.T)")
	}
	if strings.Contains(tests, named) {
		return true
	}
	_, rest, found := strings.Cut(named, "/")
	return found && strings.Contains(tests, `"`+rest)
}
