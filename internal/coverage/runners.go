package main

import "go/ast"

// runners are the functions that run a case, and which of their arguments are its name: t.Run, and whatever hands an argument of
// its own on to one of them.
type runners map[string]map[int]bool

// function is a declared function or a variable that holds one.
type function struct {
	name   string
	params map[string]int
	body   *ast.BlockStmt
}

func runnersOf(files []*ast.File) runners {
	var functions []function
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			functions = append(functions, functionsAt(n)...)
			return true
		})
	}
	found := runners{"Run": {0: true}}
	for more := true; more; {
		more = false
		for _, fn := range functions {
			more = found.learn(fn) || more
		}
	}
	return found
}

func functionsAt(n ast.Node) (found []function) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Body != nil {
			found = append(found, function{n.Name.Name, paramsOf(n.Type), n.Body})
		}
	case *ast.AssignStmt:
		for i, value := range n.Rhs {
			lit, isFunc := value.(*ast.FuncLit)
			if name := nameOf(n.Lhs[i]); isFunc && name != "" {
				found = append(found, function{name, paramsOf(lit.Type), lit.Body})
			}
		}
	}
	return found
}

func paramsOf(fn *ast.FuncType) map[string]int {
	params, i := map[string]int{}, 0
	for _, field := range fn.Params.List {
		for _, name := range field.Names {
			params[name.Name] = i
			i++
		}
		i += max(0, 1-len(field.Names))
	}
	return params
}

// learn adds fn if it hands an argument on as the name of a case, and says whether that is news.
func (r runners) learn(fn function) (news bool) {
	ast.Inspect(fn.body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for i, arg := range call.Args {
			if r[nameOf(call.Fun)][i] {
				news = r.pass(fn, arg) || news
			}
		}
		return true
	})
	return news
}

// pass adds those parameters of fn that a case's name is made of.
func (r runners) pass(fn function, name ast.Expr) (news bool) {
	ast.Inspect(name, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		if i, isParam := fn.params[id.Name]; isParam && !r[fn.name][i] {
			if r[fn.name] == nil {
				r[fn.name] = map[int]bool{}
			}
			r[fn.name][i], news = true, true
		}
		return true
	})
	return news
}

// nameOf is the name of what is called, or assigned to; a method's is without its receiver.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	}
	return ""
}
