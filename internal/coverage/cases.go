package main

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// cases are the subtests of a package that name what they prove, and the functions that those are made of.
type cases struct {
	pkg     pkg
	runners runners
	tests   []test
	named   map[string]bool
}

// cases finds the names of subtests where they are passed to t.Run, or to a function that does so, and where they stand in a table:
// as a map's key, or as the first field of a struct.
func (p pkg) cases() *cases {
	c := &cases{pkg: p, runners: runnersOf(p.files), named: map[string]bool{}}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				c.call(n)
			case *ast.CompositeLit:
				c.table(n)
			}
			return true
		})
	}
	return c
}

func (c *cases) call(call *ast.CallExpr) {
	for i, arg := range call.Args {
		if c.runners[nameOf(call.Fun)][i] {
			c.add(arg, call.Args[i+1:]...)
		}
	}
}

func (c *cases) table(lit *ast.CompositeLit) {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			c.pair(kv)
		}
	}
	if len(lit.Elts) == 0 {
		return
	}
	switch lit.Type.(type) {
	case *ast.ArrayType, *ast.MapType: // of elements, not of fields
	default:
		c.label(lit.Elts[0], lit.Elts[1:]...)
	}
}

func (c *cases) pair(kv *ast.KeyValueExpr) {
	if field, ok := kv.Key.(*ast.Ident); ok && strings.EqualFold(field.Name, "name") {
		c.label(kv.Value)
		return
	}
	c.label(kv.Key, kv.Value)
}

// label adds a name that is nothing but a string.
func (c *cases) label(name ast.Expr, made ...ast.Expr) {
	if lit, ok := name.(*ast.BasicLit); ok {
		c.add(lit, made...)
	}
}

// add adds a name, of which a part may be computed, and what its case is made of.
func (c *cases) add(name ast.Expr, made ...ast.Expr) {
	numbers := c.numbers(name)
	if len(numbers) == 0 {
		return
	}
	c.tests = append(c.tests, c.pkg.test(name.Pos(), numbers))
	for _, m := range made {
		ast.Inspect(m, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				c.named[id.Name] = true
			}
			return true
		})
	}
}

// numbers are those of the first string that has any.
func (c *cases) numbers(name ast.Expr) (numbers []string) {
	ast.Inspect(name, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && len(numbers) == 0 {
			text, _ := strconv.Unquote(lit.Value) // the parser accepted it
			numbers = numbersBefore(strings.TrimLeft(text, "/"))
		}
		return true
	})
	return numbers
}
