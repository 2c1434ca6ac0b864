package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever form a name has, it is found where it stands, and nothing else is.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	good, err := run(&out, filepath.Join("testdata", "tree"), false)
	require.NoError(t, err)
	assert.False(t, good)
	assert.Equal(t, `S1      2  tree_test.go:6
S2a     8  tree_test.go:14
R1      6  tree_test.go:6
R2      1  tree_test.go:60
R3      0  OPEN: open
R4      4  suitetest/suite.go:12
R5      1  tree_test.go:63
tree_test.go:63: 5 numbers, at most 4 to a test
tree_test.go:66: there is no R12
tree_test.go:66: there is no S2
docs/coverage.md:7: R2 needs no explanation, it has a test: tree_test.go:60
docs/coverage.md:8: R5 needs no explanation, it has a test: tree_test.go:63
docs/coverage.md:9: there is no R99
7 numbers, 6 tested, 0 explained, 1 open
`, out.String())
}

// Each place is found once, with all of its numbers.
func TestScan(t *testing.T) {
	tests, err := scan(filepath.Join("testdata", "tree"))
	require.NoError(t, err)
	var found []string
	for _, place := range tests {
		found = append(found, fmt.Sprint(place, " ", place.numbers))
	}
	assert.Equal(t, []string{
		"suitetest/suite.go:12 [R4]", "suitetest/suite.go:20 [R4]",
		"tree_test.go:6 [S1 R1]", "tree_test.go:14 [S2a]", "tree_test.go:15 [S2a]", "tree_test.go:23 [S2a]", "tree_test.go:25 [R1]",
		"tree_test.go:30 [S2a R1]", "tree_test.go:31 [S2a]", "tree_test.go:43 [R1]", "tree_test.go:53 [S2a]", "tree_test.go:55 [S2a]",
		"tree_test.go:60 [R1 R2 R4]", "tree_test.go:63 [S1 S2a R1 R4 R5]", "tree_test.go:66 [R12 S2]",
	}, found)
}

func TestGoodReport(t *testing.T) {
	var out bytes.Buffer
	good, err := run(&out, filepath.Join("testdata", "clean"), false)
	require.NoError(t, err)
	assert.True(t, good)
	assert.Equal(t, `S1      1  clean_test.go:6
R1      0  explained: it is a promise; instead: people
2 numbers, 1 tested, 1 explained, 0 open
`, out.String())
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	good, err := run(&out, filepath.Join("testdata", "clean"), true)
	require.NoError(t, err)
	assert.True(t, good)
	var told report
	require.NoError(t, json.Unmarshal(out.Bytes(), &told))
	assert.Equal(t, report{Numbers: 2, Tested: 1, Explained: 1, Problems: []string{}, Rows: []row{
		{Number: "S1", Summary: "named", Tests: 1, First: "clean_test.go:6"},
		{Number: "R1", Summary: "explained", Explained: "it is a promise; instead: people"},
	}}, told)
}

// Every fault of a file is told with its place, and there is no report then.
func TestFaults(t *testing.T) {
	const table = "\n| Number | Why | Instead |\n| --- | --- | --- |\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"no requirements":      {requirementsFile, "", "requirements.txt"},
		"no number":            {requirementsFile, "S1 one\nA1 two", "requirements.txt:2: not a new number"},
		"no summary":           {requirementsFile, "S1", "requirements.txt:1: not a new number"},
		"a number twice":       {requirementsFile, "S1 one\n\nS1 two", "requirements.txt:3: not a new number"},
		"no explanations":      {explanationsFile, "", "coverage.md"},
		"a row without a cell": {explanationsFile, table + "| R1 | why |", "coverage.md:4: not a new number"},
		"an empty cell":        {explanationsFile, table + "| R1 | why | |", "coverage.md:4: not a new number"},
		"a row twice":          {explanationsFile, table + "| R1 | a | b |\n| R1 | a | b |", "coverage.md:5: not a new number"},
		"no Go":                {"some_test.go", "package p\n\nfunc {", "some_test.go:3:6"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join("testdata", "clean"))))
			if file := filepath.Join(root, c.file); c.text == "" {
				require.NoError(t, os.Remove(file))
			} else {
				require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			}
			var out bytes.Buffer
			_, err := run(&out, root, false)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, out)
		})
	}
}

// The numbers of this module are all there, in their order.
func TestRequirements(t *testing.T) {
	reqs, err := readRequirements("requirements.txt")
	require.NoError(t, err)
	var want, got []string
	for i := 1; i <= 33; i++ {
		want = append(want, fmt.Sprint("S", i))
		if i == 28 {
			want = append(want, "S28a", "S28b")
		}
	}
	for i := 1; i <= 122; i++ {
		want = append(want, fmt.Sprint("R", i))
	}
	for _, q := range reqs {
		got = append(got, q.number)
	}
	assert.Equal(t, want, got)
}
