package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// maxNesting bounds brackets within brackets; the parser's time grows with the
// square of it.
const maxNesting = 64

// whole is the field of an error about the file as a whole.
const whole = "config"

// decode reads one YAML document into c, over what c holds.
func decode(b []byte, c *Config) error {
	return document(b, whole, c, func(file *ast.File) error {
		if n := fraction(file); n != nil {
			return wrong(n, "no fraction: every number of a configuration is whole")
		}
		return nil
	})
}

// Document reads one YAML document of somebody's making into a struct: bounded,
// without unknown keys, and without aliases, of which a few lines make
// gigabytes. The error has tag invalid and names the key; where it is about the
// text as a whole, name.
func Document(b []byte, name string, into any) error {
	return document(b, name, into, func(file *ast.File) error {
		for _, d := range file.Docs {
			if d.Body != nil && len(ast.Filter(ast.AliasType, d.Body)) > 0 {
				return sdk.Invalid(name, "no aliases")
			}
		}
		return nil
	})
}

// document decodes after a look at the whole. The library panics on some texts
// (a tag before a list's place is one); they are no YAML of ours.
func document(b []byte, name string, into any, look func(*ast.File) error) (err error) {
	defer func() {
		if recover() != nil {
			err = sdk.Invalid(name, "valid YAML of the documented shape")
		}
	}()
	switch {
	case !utf8.Valid(b):
		return sdk.Invalid(name, "UTF-8 text")
	case nesting(b) > maxNesting:
		return sdk.Invalid(name, fmt.Sprintf("at most %d levels", maxNesting))
	}
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		return yamlError(err, nil, name)
	}
	switch documents(file) {
	case 0:
		return nil // decoding nothing would set everything to nothing
	case 1:
	default:
		return sdk.Invalid(name, "one YAML document; what follows a --- would be ignored")
	}
	if err := look(file); err != nil {
		return err
	}
	err = yaml.NewDecoder(bytes.NewReader(b), yaml.DisallowUnknownField()).Decode(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return yamlError(err, file, name)
	}
	return nil
}

// fraction finds a number with a fraction: the library would cut it off where a
// whole number belongs.
func fraction(file *ast.File) ast.Node {
	for _, d := range file.Docs {
		if d.Body != nil {
			for _, n := range ast.Filter(ast.FloatType, d.Body) {
				if !anyNumber.MatchString(n.GetPath()) {
					return n
				}
			}
		}
	}
	return nil
}

// anyNumber are the places of which the shape is not ours.
var anyNumber = regexp.MustCompile(`\.mapping\.version$|\.settings\b`)

// nesting is the most that levels can be: of brackets within brackets, of
// indentation, and of lists within lists on one line.
func nesting(b []byte) int {
	depth, deepest := 0, 0
	for _, c := range b {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	for line := range bytes.Lines(b) {
		text := bytes.TrimLeft(line, " ")
		lists := 0
		for rest := text; len(rest) > 1 && (rest[0] == '-' || rest[0] == '?') && rest[1] == ' '; rest = bytes.TrimLeft(rest[1:], " ") {
			lists++
		}
		// A level takes one space at least; people take two and more.
		deepest = max(deepest, lists, (len(line)-len(text))/4)
	}
	return deepest
}

func documents(f *ast.File) int {
	n := 0
	for _, d := range f.Docs {
		if d.Body != nil {
			n++
		}
	}
	return n
}

// yamlError turns the library's error into ours. The library prints the lines
// around the fault, which may hold a secret somebody pasted; kept are only the
// path of the key, the position and what should be there.
func yamlError(err error, file *ast.File, name string) error {
	if tagged, ok := errors.AsType[*sdk.Error](err); ok { // of one of our own types
		return tagged
	}
	e := sdk.Invalid(name, "valid YAML of the documented shape")
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return e
	}
	e.Rule = expectation(ye.GetMessage())
	t := ye.GetToken()
	if t == nil || t.Position == nil {
		return e
	}
	e.Err = fmt.Errorf("line %d, column %d", t.Position.Line, t.Position.Column)
	if file != nil {
		if path := pathOf(file, t); path != "" {
			e.Field = path
		}
	}
	return e
}

// shapes are what the library says, and what a person should do instead.
var shapes = []struct {
	said *regexp.Regexp
	rule string
}{
	{regexp.MustCompile(`^unknown field `), "no unknown keys"},
	{regexp.MustCompile(`^mapping key .* already defined`), "no key twice"},
	{regexp.MustCompile(` where sequence is expected`), "a list"},
	{regexp.MustCompile(` where mapping is expected`), "a mapping of keys to values"},
	{regexp.MustCompile(` of type u?int.*overflow`), "a smaller whole number"},
	{regexp.MustCompile(` of type u?int`), "a whole number"},
	{regexp.MustCompile(` of type bool`), "true or false"},
	{regexp.MustCompile(` of type string`), "text"},
}

func expectation(message string) string {
	for _, s := range shapes {
		if s.said.MatchString(message) {
			return s.rule
		}
	}
	return "valid YAML of the documented shape"
}

// pathOf returns the path of the key or value that a token begins, such as
// "exporters[0].rate", or "" if it begins none.
func pathOf(file *ast.File, t *token.Token) string {
	f := &finder{offset: t.Position.Offset}
	for _, d := range file.Docs {
		if d.Body != nil {
			ast.Walk(f, d.Body)
		}
	}
	return f.found
}

type finder struct {
	offset int
	found  string
}

// Visit implements [ast.Visitor]. A later, deeper node with the same beginning
// says more.
func (f *finder) Visit(n ast.Node) ast.Visitor {
	begin := n.GetToken()
	if pair, ok := n.(*ast.MappingValueNode); ok {
		begin = pair.Key.GetToken()
	}
	if begin != nil && begin.Position != nil && begin.Position.Offset == f.offset {
		f.found = fieldOf(n)
	}
	return f
}

// fieldOf is the path of a node as errors name it. Keys come from the file, so
// what looks like a secret among them is masked.
func fieldOf(n ast.Node) string {
	path := strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), ".")
	if path = grant.Sanitize(path); path == "" {
		return whole
	}
	return path
}

// wrong is the error of one of our own types.
func wrong(n ast.Node, rule string) error {
	e := sdk.Invalid(fieldOf(n), rule)
	if t := n.GetToken(); t != nil && t.Position != nil {
		e.Err = fmt.Errorf("line %d, column %d", t.Position.Line, t.Position.Column)
	}
	return e
}

// scalar is the text of a node that is a single value.
func scalar(n ast.Node) string {
	if s, ok := n.(ast.ScalarNode); ok {
		return strings.TrimSpace(fmt.Sprint(s.GetValue()))
	}
	return ""
}
