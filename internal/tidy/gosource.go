// Package tidy holds the house rules that no linter of ours knows, as functions
// from a file to its violations. Its test runs them over the whole tree.
package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// The budgets. A file between the two file limits wants a second look, above
// the hard one it fails.
const (
	LinesPerFile        = 800
	LinesPerFunction    = 70
	MethodsPerInterface = 5
	LinesOfMakefile     = 60
)

// Module is the path of the repository's module.
const Module = "github.com/fencepost/fencepost"

// vagueNames are package names that say nothing about what is inside.
var vagueNames = []string{"base", "common", "helper", "helpers", "lib", "misc", "model", "models", "shared", "type", "types", "util", "utils"}

// GoFile is a parsed source file.
type GoFile struct {
	// Path is relative to the root of the repository, with slashes.
	Path string
	// Package is the name in the package clause.
	Package string

	src  []byte
	fset *token.FileSet
	tree *ast.File
}

// ParseGo parses a source file. The error is the parser's.
func ParseGo(name string, src []byte) (*GoFile, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return &GoFile{Path: name, Package: tree.Name.Name, src: src, fset: fset, tree: tree}, nil
}

// IsTest reports whether only tests compile the file.
func (f *GoFile) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// IsGenerated reports whether a program wrote the file.
func (f *GoFile) IsGenerated() bool { return ast.IsGenerated(f.tree) }

// HasPackageComment reports whether the file documents its package.
func (f *GoFile) HasPackageComment() bool { return f.tree.Doc != nil }

// Check returns the violations in one file, each as "path:line: what". The map
// gives the package name of each of our import paths, where it differs from the
// last element of the path.
func (f *GoFile) Check(names map[string]string) []string {
	if f.IsGenerated() {
		return nil
	}
	var out []string
	report := func(pos token.Pos, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: ", f.Path, f.fset.Position(pos).Line)+fmt.Sprintf(format, args...))
	}
	if n := bytes.Count(f.src, []byte("\n")); n > LinesPerFile {
		report(f.tree.Package, "the file has %d lines, at most %d are allowed", n, LinesPerFile)
	}
	for _, vague := range vagueNames {
		if strings.TrimSuffix(f.Package, "_test") == vague {
			report(f.tree.Package, "package %s: a name says what the package holds", f.Package)
		}
	}
	for _, spec := range f.tree.Imports {
		f.checkImport(spec, names, report)
	}
	if f.IsTest() {
		return out
	}
	for _, decl := range f.tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			f.checkFunction(d, report)
		case *ast.GenDecl:
			f.checkDeclaration(d, report)
		}
	}
	return out
}

type reporter func(pos token.Pos, format string, args ...any)

// checkImport refuses another name for one of our packages: a reader then has
// to look up which is meant, and the alias is a sign of a name that says too
// little.
func (f *GoFile) checkImport(spec *ast.ImportSpec, names map[string]string, report reporter) {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil || spec.Name == nil || spec.Name.Name == "_" || !strings.HasPrefix(name, Module+"/") {
		return
	}
	own, ok := names[name]
	if !ok {
		own = path.Base(name)
	}
	if spec.Name.Name != own {
		report(spec.Pos(), "import of %s as %s: our packages keep their name, %s", name, spec.Name.Name, own)
	}
}

func (f *GoFile) checkFunction(d *ast.FuncDecl, report reporter) {
	if n := f.codeLines(d); n > LinesPerFunction {
		report(d.Pos(), "func %s has %d lines, at most %d are allowed", d.Name.Name, n, LinesPerFunction)
	}
	if d.Recv == nil && d.Name.Name == "init" {
		report(d.Pos(), "func init: what a package does when it is imported cannot be seen or tested")
	}
	if f.Package != "main" && d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
		report(d.Pos(), "func %s is exported and has no comment", d.Name.Name)
	}
}

// codeLines counts the lines of a function that are not comments.
func (f *GoFile) codeLines(d *ast.FuncDecl) int {
	from, to := f.fset.Position(d.Pos()).Offset, f.fset.Position(d.End()).Offset
	n := 0
	for line := range strings.SplitSeq(string(f.src[from:to]), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "//") {
			n++
		}
	}
	return n
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func (f *GoFile) checkDeclaration(d *ast.GenDecl, report reporter) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if i, ok := s.Type.(*ast.InterfaceType); ok {
				if n := methods(i); n > MethodsPerInterface {
					report(s.Pos(), "interface %s has %d methods, at most %d are allowed", s.Name.Name, n, MethodsPerInterface)
				}
			}
			if f.Package != "main" && s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				report(s.Pos(), "type %s is exported and has no comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if f.Package != "main" && name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					report(name.Pos(), "%s %s is exported and has no comment", d.Tok, name.Name)
				}
			}
		}
	}
}

// methods counts what an implementer of the interface itself has to write;
// embedded interfaces count for themselves.
func methods(i *ast.InterfaceType) int {
	n := 0
	for _, m := range i.Methods.List {
		n += len(m.Names)
	}
	return n
}
