package api

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// decodeInput reads a JSON object into a struct, strictly: its keys are those of
// the struct's tags, letter for letter, each at most once, and a value of another
// kind is an error that names it. fields are the keys, for people. An empty body
// is an empty object.
//
// encoding/json is not used for the objects: it takes "STATE" for "state" and the
// last of two equal keys, so that what was reviewed need not be what is done.
func decodeInput(body io.Reader, into any, fields string) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	return decodeText(raw, into, fields)
}

// decodeText is decodeInput of what was read, and does not take an empty body.
func decodeText(raw []byte, into any, fields string) error {
	raw = bytes.TrimSpace(raw)
	if err := canon.Check(raw); err != nil {
		return place(raw, "", err)
	}
	if canon.KindOf(raw) != canon.Object {
		return sdk.Invalid("body", "one JSON object with only "+fields)
	}
	return decodeObject(raw, reflect.ValueOf(into).Elem(), "", fields)
}

// decodeObject reads the members of an object, which canon has checked. path
// leads to it, empty for the body.
func decodeObject(raw []byte, into reflect.Value, path, fields string) error {
	members, err := canon.Members(raw)
	if err != nil {
		return place(raw, path, err)
	}
	known := map[string]reflect.Value{}
	fieldsOf(into, known)
	for _, m := range members {
		field, ok := known[m.Name]
		if !ok {
			return sdk.Invalid(orBody(path), "only the keys "+orKeys(fields, known)+unknownKey(m.Name))
		}
		if err := decodeValue(m.Value, field, join(path, m.Name)); err != nil {
			return err
		}
	}
	return nil
}

// unknownKey names a key that nobody knows, if it may be repeated.
func unknownKey(name string) string {
	if !canon.Nameable(name) {
		return ""
	}
	return ", not " + name
}

func orKeys(fields string, known map[string]reflect.Value) string {
	if fields != "" {
		return fields
	}
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// fieldsOf collects the fields of a struct by their keys, those of embedded
// structs with them.
func fieldsOf(v reflect.Value, into map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			fieldsOf(v.Field(i), into)
		case name != "":
			into[name] = v.Field(i)
		}
	}
}

// decodeValue reads one value. null leaves what is there, as in encoding/json.
func decodeValue(raw []byte, into reflect.Value, path string) error {
	kind := canon.KindOf(raw)
	if kind == canon.Null {
		return nil
	}
	if _, own := reflect.TypeAssert[json.Unmarshaler](into.Addr()); own {
		return decodeLeaf(raw, into, path)
	}
	if _, own := reflect.TypeAssert[encoding.TextUnmarshaler](into.Addr()); own {
		return decodeLeaf(raw, into, path)
	}
	switch into.Kind() {
	case reflect.Pointer:
		v := reflect.New(into.Type().Elem())
		if err := decodeValue(raw, v.Elem(), path); err != nil {
			return err
		}
		into.Set(v)
		return nil
	case reflect.Struct:
		if kind != canon.Object {
			return sdk.Invalid(path, "a JSON object")
		}
		return decodeObject(raw, into, path, "")
	case reflect.Slice:
		return decodeArray(raw, into, path)
	case reflect.Map:
		return decodeMap(raw, into, path)
	default:
		return decodeLeaf(raw, into, path)
	}
}

func decodeArray(raw []byte, into reflect.Value, path string) error {
	if canon.KindOf(raw) != canon.Array {
		return sdk.Invalid(path, "a JSON array")
	}
	elements, err := canon.Elements(raw, len(raw))
	if err != nil {
		return place(raw, path, err)
	}
	out := reflect.MakeSlice(into.Type(), len(elements), len(elements))
	for i, e := range elements {
		if err := decodeValue(bytes.TrimSpace(e), out.Index(i), element(path, i)); err != nil {
			return err
		}
	}
	into.Set(out)
	return nil
}

// decodeMap reads an object whose keys are the caller's.
func decodeMap(raw []byte, into reflect.Value, path string) error {
	if canon.KindOf(raw) != canon.Object {
		return sdk.Invalid(path, "a JSON object")
	}
	members, err := canon.Members(raw)
	if err != nil {
		return place(raw, path, err)
	}
	out := reflect.MakeMapWithSize(into.Type(), len(members))
	for _, m := range members {
		at := path
		if canon.Nameable(m.Name) {
			at = join(path, m.Name)
		}
		v := reflect.New(into.Type().Elem()).Elem()
		if err := decodeValue(m.Value, v, at); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(m.Name), v)
	}
	into.Set(out)
	return nil
}

// decodeLeaf reads a value that has no keys of ours within it.
func decodeLeaf(raw []byte, into reflect.Value, path string) error {
	if json.Unmarshal(raw, into.Addr().Interface()) == nil {
		return nil
	}
	return sdk.Invalid(path, kindRule(into))
}

// kindRule says what a field takes.
func kindRule(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Time:
		return "an RFC 3339 time"
	case seqNumber:
		return "a whole number from 0"
	}
	switch v.Kind() {
	case reflect.String:
		return "a JSON string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	default:
		return "JSON of the documented shape"
	}
}

// seqNumber is a cursor, which may be sent as a string or a number.
type seqNumber int64

// UnmarshalJSON is [json.Unmarshaler].
func (n *seqNumber) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if t, ok := canon.Text(raw); ok {
		text = t
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		return sdk.Invalid("", "a whole number from 0")
	}
	*n = seqNumber(v)
	return nil
}

// place adds to an error of canon where in a body it is, as far as the names on
// the way may be repeated.
func place(raw []byte, path string, err error) error {
	raw = bytes.TrimSpace(raw)
	switch canon.KindOf(raw) {
	case canon.Object:
		var parts map[string]json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if inner := canon.Check(parts[name]); inner != nil && canon.Nameable(name) {
				return place(parts[name], join(path, name), inner)
			}
		}
	case canon.Array:
		elements, broken := canon.Elements(raw, len(raw))
		if broken != nil {
			break
		}
		for i, e := range elements {
			if inner := canon.Check(e); inner != nil {
				return place(e, element(path, i), inner)
			}
		}
	default:
	}
	all := meter.AsErrors(err)
	if len(all) == 0 {
		return fmt.Errorf("body: %w", err)
	}
	rule := all[0].Rule
	if path != "" { // the byte is counted from the beginning of the part
		rule, _, _ = strings.Cut(rule, " (at byte")
	}
	return sdk.Invalid(orBody(path), rule)
}

func orBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// renamed gives the fields of an error the names that they have in a request: the
// engine names those of its own structs. names holds pairs of old and new.
func renamed(err error, names ...string) error {
	all := meter.AsErrors(err)
	if len(all) != 1 {
		return err
	}
	for i := 0; i+1 < len(names); i += 2 {
		if all[0].Field == names[i] {
			e := *all[0]
			e.Field = names[i+1]
			return &e
		}
	}
	return err
}
