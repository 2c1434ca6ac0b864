package fencing_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// compiler type-checks snippets that import this package, as a service's code does.
type compiler struct {
	files   *token.FileSet
	imports types.Importer
	fencing *types.Package
}

func newCompiler(t *testing.T) compiler {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".").Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	pkg, err := imports.Import("github.com/confirmexec/confirmexec/fencing")
	require.NoError(t, err)
	return compiler{files, imports, pkg}
}

// check compiles the body of a function that has a Space, values and a Fence.
func (c compiler) check(body string) error {
	file, err := parser.ParseFile(c.files, "service.go", `package service

import (
	"context"

	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

func write(ctx context.Context, space fencing.Space, values store.Values, fence fencing.Fence) {
	`+body+`
}
`, 0)
	if err != nil {
		return err
	}
	_, err = (&types.Config{Importer: c.imports}).Check("service", c.files, []*ast.File{file}, nil)
	return err
}

// methods are the exported methods of one of this package's types.
func (c compiler) methods(name string) (all []*types.Func) {
	for m := range types.NewMethodSet(c.fencing.Scope().Lookup(name).Type()).Methods() {
		if f, ok := m.Obj().(*types.Func); ok && f.Exported() {
			all = append(all, f)
		}
	}
	return all
}

// R112, R118: a write without its fence does not compile. The methods that write are those of a Fence alone, and nobody but
// Space.Hold makes one: outside this package there is the zero Fence, which writes nothing.
func TestAnUnfencedWriteDoesNotCompile(t *testing.T) {
	c := newCompiler(t)
	require.NoError(t, c.check(`fence, err := space.Hold(ctx, values, fencing.EpochIs("dispatcher", "e"))
		if err == nil { _, err = fence.Reserve(ctx, "line-1", "r1", "a1") }`), "the fenced write compiles")
	for _, m := range c.methods("Fence") {
		require.NoError(t, c.check("_ = fence."+m.Name()), m.Name())
		assert.ErrorContains(t, c.check("_ = space."+m.Name()), "has no field or method "+m.Name())
		assert.ErrorContains(t, c.check("_ = values."+m.Name()), "has no field or method "+m.Name())
		assert.ErrorContains(t, c.check("_ = fencing."+m.Name()), "undefined: fencing."+m.Name())
	}
	for body, problem := range map[string]string{
		`_ = fencing.Fence{space, values, 7}`:       "implicit assignment to unexported field",
		`_ = fencing.Fence{values: values}`:         "cannot refer to unexported field values",
		`fence.held = 7`:                            "has no field or method held",
		`fence.values = values`:                     "cannot refer to unexported field values",
		`_ = fencing.Fence(space)`:                  "cannot convert space",
		`_ = fencing.Check{}.hold`:                  "cannot refer to unexported field hold",
		`_, _ = space.Hold(ctx, values, "a check")`: "cannot use \"a check\"",
		`type mine struct { space fencing.Space; values store.Values; held uint8 }
		_ = fencing.Fence(mine{})`: "cannot convert mine{}",
	} {
		assert.ErrorContains(t, c.check(body), problem, body)
	}
}

// R109, R111, R118: what takes a transaction's values and no Fence reads, or moves a fence itself.
func TestWhatNeedsNoFence(t *testing.T) {
	c := newCompiler(t)
	var found []string
	add := func(prefix string, f *types.Func) {
		signature := f.Signature()
		for p := range signature.Params().Variables() {
			if strings.HasSuffix(p.Type().String(), "/store.Values") {
				found = append(found, prefix+f.Name())
			}
		}
	}
	scope := c.fencing.Scope()
	for _, name := range scope.Names() {
		switch o := scope.Lookup(name).(type) {
		case *types.Func:
			if o.Exported() {
				add("", o)
			}
		case *types.TypeName:
			if o.Exported() {
				for _, m := range c.methods(name) {
					add(name+".", m)
				}
			}
		}
	}
	moves := []string{"Space.JoinSession", "Space.LeaveSession", "Space.TakeOffice"}
	reads := []string{"Space.Admission", "Space.Office", "Space.Permit", "Space.PermitMark", "Space.Reservation", "Space.Session", "Space.Task"}
	assert.ElementsMatch(t, slices.Concat(moves, reads, []string{"Space.Hold"}), found)
}
