package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// statementLists returns the lists of statements in a file.
func statementLists(f *ast.File) (lists [][]ast.Stmt) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			lists = append(lists, n.List)
		case *ast.CaseClause:
			lists = append(lists, n.Body)
		case *ast.CommClause:
			lists = append(lists, n.Body)
		}
		return true
	})
	return lists
}

// locked returns what a statement locks, such as "d.mu", and the name of the unlocking
// method; "" if it locks nothing.
func locked(s ast.Stmt) (what, unlock string) {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return "", ""
	}
	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Lock" && method.Sel.Name != "RLock" {
		return "", ""
	}
	return types.ExprString(method.X), strings.Replace(method.Sel.Name, "Lock", "Unlock", 1)
}

// A contained panic releases every lock: no Lock is without the deferred Unlock in the
// next statement.
func TestLocksAreReleasedByDefer(t *testing.T) {
	locks := 0
	check := func(path string) error {
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, list := range statementLists(f) {
			for i, s := range list {
				what, unlock := locked(s)
				if what == "" {
					continue
				}
				locks++
				if i+1 < len(list) {
					if d, ok := list[i+1].(*ast.DeferStmt); ok && types.ExprString(d.Call) == what+"."+unlock+"()" {
						continue
					}
				}
				t.Errorf("%s: %s is locked without a deferred %s: a panic would leave it locked", files.Position(s.Pos()), what, unlock)
			}
		}
		return nil
	}
	for _, area := range []string{"hostd", "netdev", "vmm", "hostapi"} {
		err := filepath.WalkDir(filepath.Join("../..", area), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return check(path)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if locks < 50 {
		t.Errorf("found %d locks", locks)
	}
}
