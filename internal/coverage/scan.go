package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// test is a place that says what it proves.
type test struct {
	numbers []string
	file    string
	line    int
}

func (t test) String() string { return fmt.Sprintf("%s:%d", t.file, t.line) }

// pkg is the files of one directory that can hold tests.
type pkg struct {
	root  string
	fset  *token.FileSet
	files []*ast.File
}

// scan finds what the tests under root name, in the order of files and lines.
func scan(root string) ([]test, error) {
	var tests []test
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root && ignored(d.Name()) {
			return filepath.SkipDir
		}
		p, err := parse(root, path)
		if err != nil {
			return err
		}
		tests = append(tests, p.tests()...)
		return nil
	})
	slices.SortStableFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return tests, err
}

// ignored says which directories go itself passes over.
func ignored(dir string) bool {
	return dir == "testdata" || dir == "vendor" || dir == "node_modules" || strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_")
}

func parse(root, dir string) (pkg, error) {
	p := pkg{root: root, fset: token.NewFileSet()}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return p, err
	}
	for _, e := range entries {
		if e.IsDir() || !holdsTests(dir, e.Name()) {
			continue
		}
		f, err := parser.ParseFile(p.fset, filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return p, err
		}
		p.files = append(p.files, f)
	}
	return p, nil
}

// holdsTests says whether a file is of tests, or of a suite that others run: a package whose name ends in test.
func holdsTests(dir, file string) bool {
	return strings.HasSuffix(file, "_test.go") ||
		strings.HasSuffix(file, ".go") && strings.HasSuffix(strings.TrimSuffix(filepath.Base(dir), "s"), "test")
}

func (p pkg) test(pos token.Pos, numbers []string) test {
	at := p.fset.Position(pos)
	file, err := filepath.Rel(p.root, at.Filename)
	if err != nil {
		file = at.Filename
	}
	return test{numbers, filepath.ToSlash(file), at.Line}
}

// tests are the tests with a comment, the cases with a name, and the functions of those cases whose name has no number.
func (p pkg) tests() []test {
	cases := p.cases()
	tests := cases.tests
	for _, f := range p.files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil {
				continue
			}
			numbers := numbersBefore(fn.Doc.Text())
			if p.isTest(fn) {
				numbers = numbersIn(fn.Doc.Text())
			} else if cases.named[fn.Name.Name] {
				continue
			}
			if len(numbers) > 0 {
				tests = append(tests, p.test(fn.Pos(), numbers))
			}
		}
	}
	return tests
}

// isTest says whether go runs a function.
func (p pkg) isTest(fn *ast.FuncDecl) bool {
	if fn.Recv != nil || !strings.HasSuffix(p.fset.Position(fn.Pos()).Filename, "_test.go") {
		return false
	}
	return slices.ContainsFunc([]string{"Test", "Fuzz", "Example", "Benchmark"}, func(prefix string) bool {
		return strings.HasPrefix(fn.Name.Name, prefix)
	})
}
