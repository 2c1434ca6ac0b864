package confirmexec_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each package has one package comment, in one of its files.
func TestPackageComments(t *testing.T) {
	for _, pkg := range packages(t) {
		var with []string
		for _, file := range pkg.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			require.NoError(t, err)
			if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
				with = append(with, file)
			}
		}
		if len(pkg.GoFiles) > 0 {
			assert.Len(t, with, 1, "%s has its package comment in %v", pkg.ImportPath, with)
		}
	}
}

// The program that README.md shows is the one that the tests compile and run.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("examples/quickstart/main.go")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	_, code, found := strings.Cut(string(program), "package main")
	require.True(t, found)
	assert.Equal(t, "package main"+code, block)
}

// The lines of README.md about gRPC are those of an example that the tests run.
func TestReadmeGRPC(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("grpcerr/example_test.go")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "## Over gRPC\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []string
	for line := range strings.SplitSeq(section, "\n") {
		if code, is := strings.CutPrefix(line, "    "); is {
			lines = append(lines, "\t"+code+"\n")
		}
	}
	require.Len(t, lines, 3)
	assert.Contains(t, string(example), strings.Join(lines, ""))
}

// The versions of PostgreSQL that are called supported are from the oldest to the newest that the workflow tests with.
func TestSupportedPostgres(t *testing.T) {
	workflow, err := os.ReadFile(".github/workflows/ci.yml")
	require.NoError(t, err)
	tested := regexp.MustCompile(`postgres: \["(\d+)", "(\d+)"\]`).FindStringSubmatch(string(workflow))
	require.NotNil(t, tested)
	for _, file := range []string{"README.md", "store/pgstore/doc.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), "Supported are PostgreSQL "+tested[1]+" to "+tested[2], file)
	}
}

// The program of docs/fencing.md is the example that the tests run.
func TestFencingProgram(t *testing.T) {
	page, err := os.ReadFile("docs/fencing.md")
	require.NoError(t, err)
	example, err := os.ReadFile("fencing/example_test.go")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(page), "```go\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "\n```")
	_, body, found := strings.Cut(string(example), "func Example() {\n")
	require.True(t, found)
	body, _, _ = strings.Cut(body, "\n\t// Output:")
	assert.Equal(t, strings.TrimPrefix(strings.ReplaceAll(body, "\n\t", "\n"), "\t"), block)
}
