package confirmexec_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needsServer and needsTest are why go test cannot check the output of an example.
const (
	needsServer = "it needs a server: pgstore's TestExamplesOnAServer runs its example and compares what that prints"
	needsTest   = "it takes what only a test or a benchmark has: the package's own tests, or internal/traps, run it"
)

// uncheckedExamples are the entry points that have an example without checked output, with the reason.
var uncheckedExamples = map[string]string{
	"contract/contracttest.Run":           needsTest,
	"fencing/fencetest.Run":               needsTest,
	"store/storetest.Run":                 needsTest,
	"store/storetest.RunBenchmarks":       needsTest,
	"store/pgstore.Check":                 needsServer,
	"store/pgstore.EnableRowSecurity":     needsServer,
	"store/pgstore.Migrate":               needsServer,
	"store/pgstore.MigrateDown":           needsServer,
	"store/pgstore.MigrateDownDiscarding": needsServer,
	"store/pgstore.New":                   needsServer,
}

// A newcomer finds, for each exported function and each method of the broker, an example whose output is checked: one of its name, or
// one in the same package that calls it. Generated code, and the programs under examples, have none.
func TestEveryEntryPointHasAnExample(t *testing.T) {
	unchecked, n := map[string]bool{}, 0
	for _, pkg := range packages(t) {
		if strings.Contains(pkg.ImportPath, "/internal/") || strings.HasPrefix(pkg.ImportPath, module+"/examples") {
			continue
		}
		p := parsePackage(t, pkg.Dir)
		for _, entry := range p.entryPoints() {
			name := strings.TrimPrefix(pkg.ImportPath, module+"/") + "." + entry
			checked, shown := p.shows(entry)
			assert.True(t, shown, "%s has no example", name)
			assert.True(t, checked || !shown || uncheckedExamples[name] != "", "the output of the example of %s is not checked", name)
			unchecked[name] = shown && !checked
			n++
		}
	}
	require.Greater(t, n, 100)
	for name, reason := range uncheckedExamples {
		assert.True(t, unchecked[name], "%s needs no reason any more: %s", name, reason)
	}
}

// parsed is a package: its files that people have written, and the examples of its tests.
type parsed struct {
	files    []*ast.File
	examples []*doc.Example
}

func parsePackage(t *testing.T, dir string) (p parsed) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		switch {
		case strings.HasSuffix(name, "_test.go"):
			p.examples = append(p.examples, doc.Examples(f)...)
		case f.Name.Name != "main" && !ast.IsGenerated(f):
			p.files = append(p.files, f)
		}
	}
	return p
}

// entryPoints are the exported functions, and the exported methods of Broker as Broker.Method.
func (p parsed) entryPoints() (all []string) {
	for _, f := range p.files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || !fn.Name.IsExported():
			case fn.Recv == nil:
				all = append(all, fn.Name.Name)
			case receiver(fn) == "Broker":
				all = append(all, "Broker."+fn.Name.Name)
			}
		}
	}
	return all
}

// receiver is the name of the type that a method is of, without its parameters.
func receiver(fn *ast.FuncDecl) (name string) {
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// shows tells whether one of the examples is the entry point's, and whether the output of one that is is checked.
func (p parsed) shows(entry string) (checked, shown bool) {
	name := strings.ReplaceAll(entry, ".", "_")
	for _, e := range p.examples {
		if e.Name == name || strings.HasPrefix(e.Name, name+"_") || p.calls(e.Code, entry) {
			shown = true
			checked = checked || e.Output != "" || e.EmptyOutput
		}
	}
	return checked, shown
}

// calls tells whether what an example shows calls the function through the package's name, or a method of the method's name.
func (p parsed) calls(code ast.Node, entry string) (found bool) {
	_, method, isMethod := strings.Cut(entry, ".")
	ast.Inspect(code, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !found
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			of, isName := sel.X.(*ast.Ident)
			found = found || isMethod && sel.Sel.Name == method ||
				isName && of.Name == p.files[0].Name.Name && sel.Sel.Name == entry
		}
		return !found
	})
	return found
}
