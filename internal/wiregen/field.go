package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
	"unicode"
)

const (
	storagePath = "github.com/fencepost/fencepost/plugins/sdk/storage"
	decimalPath = "github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// readField says how a field of a type travels. A type that it does not know is
// an error: whoever adds one to the contract decides how it travels.
func (c *contract) readField(in, name string, t types.Type) (*field, error) {
	f := &field{GoName: name, GoType: c.typeName(t), Name: snake(name), Shape: one}
	elem := t
	switch u := t.(type) {
	case *types.Pointer:
		f.Shape, elem = pointer, u.Elem()
	case *types.Slice:
		f.Shape, elem = list, u.Elem()
		if p, ok := elem.(*types.Pointer); ok {
			f.Shape, elem = pointers, p.Elem()
		}
		if slices.Contains(nullableLists, in+"."+name) {
			f.Shape = nullable
		}
	case *types.Map:
		if u.Key() != types.Typ[types.String] {
			return nil, fmt.Errorf("%s.%s: a map by %s", in, name, u.Key())
		}
		f.Shape, elem = dict, u.Elem()
		if s, ok := elem.(*types.Slice); ok {
			f.Shape, elem = lists, s.Elem()
		}
	}
	if err := c.base(f, elem); err != nil {
		return nil, fmt.Errorf("%s.%s: %w", in, name, err)
	}
	if (f.Shape == nullable || f.Shape == pointers || f.Shape == dict || f.Shape == lists) && f.Base != "text" {
		return nil, fmt.Errorf("%s.%s: %s of %s", in, name, f.Shape, f.Base)
	}
	return f, nil
}

func (c *contract) base(f *field, t types.Type) error {
	switch t.String() {
	case "string":
		f.Base = "text"
	case "bool", "int", "int64":
		f.Base = t.String()
	case "time.Time":
		f.Base = "time"
	case "time.Duration":
		f.Base = "duration"
	case "encoding/json.RawMessage":
		f.Base = "json"
	case decimalPath + ".Decimal":
		f.Base = "decimal"
	case storagePath + ".Hash":
		f.Base = "hash"
	default:
		named, ok := t.(*types.Named)
		if !ok {
			return fmt.Errorf("no way to send a %s", t)
		}
		if b, ok := named.Underlying().(*types.Basic); ok && b.Kind() == types.String {
			f.Base, f.Ref = "enum", named.Obj().Name()
			return nil
		}
		m, err := c.structMessage(t)
		if err != nil {
			return err
		}
		f.Base, f.Ref = "message", m.Name
	}
	return nil
}

// typeName writes a type as the generated files name it.
func (c *contract) typeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Name() })
}

// wire is the type in the schema, which may never change.
func (f *field) wire() string {
	scalar := map[string]string{
		"text": "string", "enum": "string", "decimal": "string", "bool": "bool", "int": "int64", "int64": "int64",
		"time": "int64", "duration": "int64", "hash": "bytes", "json": "bytes", "message": f.Ref,
	}[f.Base]
	switch {
	case f.Shape == pointers:
		return "repeated OptionalText"
	case f.Shape == nullable:
		return "TextList"
	case f.Shape == dict:
		return "map<string, string>"
	case f.Shape == lists:
		return "map<string, TextList>"
	case f.Shape == list:
		return "repeated " + scalar
	case f.Base != "message" && (f.Shape == pointer || f.Base == "time"):
		return "optional " + scalar
	}
	return scalar
}

// many reports whether the field needs a limit.
func (f *field) many() bool { return f.Shape != one && f.Shape != pointer }

// wireType is the number in the tag.
func (f *field) wireType() int {
	packed := f.Shape == list && (f.Base == "int64" || f.Base == "time")
	if packed || f.many() {
		return 2
	}
	switch f.Base {
	case "bool", "int", "int64", "time", "duration":
		return 0
	}
	return 2
}

// upper makes a parameter's name a field's.
func upper(s string) string {
	switch s {
	case "id", "ttl":
		return strings.ToUpper(s)
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// snake turns ItemID into item_id.
func snake(s string) string {
	var b strings.Builder
	all := []rune(s)
	for i, r := range all {
		if unicode.IsUpper(r) && i > 0 {
			after := i+1 < len(all) && unicode.IsLower(all[i+1])
			if unicode.IsLower(all[i-1]) || after {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
