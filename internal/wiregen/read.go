package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// contract is what the generator knows of package storage.
type contract struct {
	pkg        *types.Package
	interfaces []*iface
	messages   []*message          // in the order of their names
	enums      map[string][]string // type name to the names of its constants
	docs       map[string]string   // "Event" or "Event.Tenant"
	byName     map[string]*message
}

// iface is an interface of the contract whose methods are operations.
type iface struct {
	Name       string
	Operations []*operation
}

// operation is one method: request and answer are messages, or nil.
type operation struct {
	Name            string
	Interface       string
	Params          []param
	Request, Answer *message
	// Wrapped says that the request (or answer) was made for this operation
	// of its parameters (or result).
	WrappedRequest, WrappedAnswer bool
	// Partial: the answer has the error beside the result.
	Partial     bool
	Result      string // Go type of the result, empty for none
	ResultField string
}

type param struct{ Name, Type string }

// message is a struct that travels.
type message struct {
	Name   string
	Go     string // "storage.Event", or the name of a struct made here
	Made   bool
	Doc    string
	Fields []*field
}

// shape says how many values a field holds, and how.
type shape string

const (
	one      shape = "one"
	pointer  shape = "pointer"
	list     shape = "list"
	nullable shape = "nullable" // a list whose nil is not its emptiness
	pointers shape = "pointers" // a list of pointers
	dict     shape = "dict"     // by text
	lists    shape = "lists"    // lists by text
)

// field is one field of a message.
type field struct {
	GoName string
	GoType string
	Name   string
	Doc    string
	Base   string // text, enum, decimal, bool, int, int64, time, duration, hash, json or message
	Ref    string // of an enum or a message
	Shape  shape
	Number int
	Max    int // of a list
}

// nullableLists are the lists of which the contract says what nil means.
var nullableLists = []string{"Feature.Buckets"}

// open are the enumerations that a later version may extend: what a reader does
// not know of them is ignored by whoever looks at it.
var open = []string{"Capability"}

// base are the interfaces that every adapter has or that are no operations.
var base = []string{"Adapter", "Partial"}

// readContract loads package storage from its sources.
func readContract(dir string) (*contract, error) {
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check(storagePath, fset, files, nil)
	if err != nil {
		return nil, err
	}
	c := &contract{pkg: pkg, enums: map[string][]string{}, docs: docsOf(files), byName: map[string]*message{}}
	c.readEnums()
	return c, c.readInterfaces()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// docsOf collects the comments of types and their fields.
func docsOf(files []*ast.File) map[string]string {
	docs := map[string]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				doc := spec.Doc
				if doc == nil {
					doc = decl.Doc
				}
				docs[spec.Name.Name] = doc.Text()
				if body, ok := spec.Type.(*ast.StructType); ok {
					fieldDocs(docs, spec.Name.Name, body)
				}
			}
			return false
		})
	}
	return docs
}

func fieldDocs(docs map[string]string, name string, body *ast.StructType) {
	for _, f := range body.Fields.List {
		doc := f.Doc.Text() + f.Comment.Text()
		for _, n := range f.Names {
			docs[name+"."+n.Name] = doc
		}
	}
}

func (c *contract) readEnums() {
	scope := c.pkg.Scope()
	for _, name := range scope.Names() {
		k, ok := scope.Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		named, ok := k.Type().(*types.Named)
		if ok && !slices.Contains(open, named.Obj().Name()) && named.Obj().Pkg() == c.pkg {
			c.enums[named.Obj().Name()] = append(c.enums[named.Obj().Name()], name)
		}
	}
}

func (c *contract) readInterfaces() error {
	scope := c.pkg.Scope()
	for _, name := range scope.Names() {
		t, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || slices.Contains(base, name) {
			continue
		}
		if _, ok := t.Type().Underlying().(*types.Interface); !ok {
			continue
		}
		i := &iface{Name: name}
		body, _ := t.Type().Underlying().(*types.Interface)
		for m := range body.Methods() {
			op, err := c.readOperation(name, m)
			if err != nil {
				return fmt.Errorf("%s.%s: %w", name, m.Name(), err)
			}
			i.Operations = append(i.Operations, op)
		}
		c.interfaces = append(c.interfaces, i)
	}
	if err := c.readLifecycle(); err != nil {
		return err
	}
	slices.SortFunc(c.messages, func(a, b *message) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// readLifecycle adds the messages of opening: those of no interface.
func (c *contract) readLifecycle() error {
	scope := c.pkg.Scope()
	if _, err := c.structMessage(scope.Lookup("Opening").Type()); err != nil {
		return err
	}
	m := &message{
		Name: "Description", Go: "Description", Made: true,
		Doc: "Description is what a plugin answers when it is opened or described: what it is, and the numbers of the operations that it has.",
	}
	for _, f := range []struct {
		name string
		typ  types.Type
	}{
		{"Manifest", scope.Lookup("Manifest").Type()},
		{"Operations", types.NewSlice(types.Typ[types.Int64])},
	} {
		made, err := c.readField(m.Name, f.name, f.typ)
		if err != nil {
			return err
		}
		m.Fields = append(m.Fields, made)
	}
	c.add(m)
	return nil
}

func (c *contract) add(m *message) {
	c.messages = append(c.messages, m)
	c.byName[m.Name] = m
}

// readOperation demands (ctx, parameters...) (result, error) or error alone.
func (c *contract) readOperation(in string, m *types.Func) (*operation, error) {
	sig := m.Signature()
	params, results := sig.Params(), sig.Results()
	if params.Len() < 1 || params.At(0).Type().String() != "context.Context" || results.Len() < 1 || results.Len() > 2 {
		return nil, errors.New("an operation takes a context and answers at most one value and an error")
	}
	op := &operation{Name: m.Name(), Interface: in}
	made := &message{
		Name: op.Name + "Request", Go: op.Name + "Request", Made: true,
		Doc: fmt.Sprintf("%sRequest holds the parameters of [storage.%s].%s.", op.Name, in, op.Name),
	}
	for i := 1; i < params.Len(); i++ {
		p := params.At(i)
		op.Params = append(op.Params, param{p.Name(), c.typeName(p.Type())})
		f, err := c.readField(made.Name, upper(p.Name()), p.Type())
		if err != nil {
			return nil, err
		}
		made.Fields = append(made.Fields, f)
	}
	switch {
	case len(made.Fields) == 1 && made.Fields[0].Base == "message" && made.Fields[0].Shape == one:
		op.Request = c.byName[made.Fields[0].Ref]
	case len(made.Fields) > 0:
		op.Request, op.WrappedRequest = made, true
		c.add(made)
	}
	if results.Len() == 1 {
		return op, nil
	}
	return op, c.readResult(op, results.At(0).Type())
}

// partial are the operations whose result counts beside an error, too.
var partial = []string{"MigrationStatus"}

// rawMessage is the type of a JSON document.
func (c *contract) rawMessage() types.Type {
	i := slices.IndexFunc(c.pkg.Imports(), func(p *types.Package) bool { return p.Path() == "encoding/json" })
	return c.pkg.Imports()[i].Scope().Lookup("RawMessage").Type()
}

func (c *contract) readResult(op *operation, t types.Type) error {
	op.Result = c.typeName(t)
	made := &message{
		Name: op.Name + "Answer", Go: op.Name + "Answer", Made: true,
		Doc: fmt.Sprintf("%sAnswer holds the result of [storage.%s].%s.", op.Name, op.Interface, op.Name),
	}
	f, err := c.readField(made.Name, "Result", t)
	if err != nil {
		return err
	}
	if f.Base == "message" && f.Shape == one {
		op.Answer = c.byName[f.Ref]
		return nil
	}
	made.Fields = []*field{f}
	if op.Partial = slices.Contains(partial, op.Name); op.Partial {
		problem, err := c.readField(made.Name, "Problem", c.rawMessage())
		if err != nil {
			return err
		}
		made.Doc += " Problem is the error beside it, as a JSON object with its tag, code, field, rule and hint."
		made.Fields = append(made.Fields, problem)
	}
	op.Answer, op.WrappedAnswer, op.ResultField = made, true, f.GoName
	c.add(made)
	return nil
}

// structMessage returns the message of a struct of the contract.
func (c *contract) structMessage(t types.Type) (*message, error) {
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() != c.pkg {
		return nil, fmt.Errorf("%s is not a struct of the contract", t)
	}
	name := named.Obj().Name()
	if m, ok := c.byName[name]; ok {
		return m, nil
	}
	body, ok := named.Underlying().(*types.Struct)
	if !ok {
		return nil, fmt.Errorf("%s is not a struct", t)
	}
	m := &message{Name: name, Go: "storage." + name, Doc: c.docs[name]}
	c.add(m)
	for f := range body.Fields() {
		if !f.Exported() {
			return nil, fmt.Errorf("%s.%s: an unexported field cannot travel", name, f.Name())
		}
		made, err := c.readField(name, f.Name(), f.Type())
		if err != nil {
			return nil, err
		}
		made.Doc = c.docs[name+"."+f.Name()]
		m.Fields = append(m.Fields, made)
	}
	return m, nil
}
