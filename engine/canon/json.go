package canon

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Envelopes are the levels that a batch and an event add around the data and
// the metadata within them, which may each be MaxDepth deep.
const envelopes = 2

// JSON returns the canonical text of one JSON value: no insignificant space,
// object keys sorted by their bytes, numbers as [Number] writes them, strings
// with the fewest escapes and no Unicode normalisation.
//
// It refuses invalid UTF-8, lone surrogates, NUL in strings, an object that
// repeats a key, more than [MaxDepth] levels and anything after the value. Its
// errors are *sdk.Error with tag invalid and never hold input.
func JSON(raw []byte) ([]byte, error) {
	s := scanner{in: raw, limit: MaxDepth, keep: true, out: make([]byte, 0, len(raw))}
	if err := s.whole(); err != nil {
		return nil, err
	}
	return s.out, nil
}

// Check reports what [JSON] would refuse.
func Check(raw []byte) error {
	s := scanner{in: raw, limit: MaxDepth}
	return s.whole()
}

// Kind is the kind of a JSON value.
type Kind byte

// The kinds, by the first byte of a value's text.
const (
	Null   Kind = 'n'
	Bool   Kind = 't'
	Num    Kind = '0'
	String Kind = '"'
	Array  Kind = '['
	Object Kind = '{'
)

// KindOf tells the kind of a value's text as this package's functions return
// it; of anything else it is a guess.
func KindOf(raw []byte) Kind {
	if len(raw) == 0 {
		return Null
	}
	switch c := raw[0]; c {
	case 'n', '"', '[', '{':
		return Kind(c)
	case 't', 'f':
		return Bool
	default:
		return Num
	}
}

// Member is one member of a JSON object, its value as it was written.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members reads an object and returns its members in order, after checking all
// of it as [JSON] does (two levels more are allowed). The values are parts of
// raw. An error within a member names it, if it is [Nameable].
func Members(raw []byte) ([]Member, error) {
	s := scanner{in: raw, limit: MaxDepth + envelopes}
	if s.peek() != '{' {
		return nil, s.expected("a JSON object")
	}
	out := make([]Member, 0, fewMembers)
	var seen map[string]struct{}
	err := s.members(func(key string) error {
		if known(out, seen, key) {
			return s.fail("no key twice in one JSON object")
		}
		if len(out) == fewMembers {
			seen = make(map[string]struct{}, 4*fewMembers)
			for _, m := range out {
				seen[m.Name] = struct{}{}
			}
		}
		if seen != nil {
			seen[key] = struct{}{}
		}
		start := s.pos
		if err := s.value(); err != nil {
			if Nameable(key) {
				err = within(key, err)
			}
			return err
		}
		out = append(out, Member{Name: key, Value: s.in[start:s.pos:s.pos]})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, s.end()
}

// fewMembers is up to how many members a search beats a map.
const fewMembers = 12

func known(members []Member, seen map[string]struct{}, key string) bool {
	if seen != nil {
		_, ok := seen[key]
		return ok
	}
	return slices.ContainsFunc(members, func(m Member) bool { return m.Name == key })
}

// structureDepth bounds the recursion where only the structure is read.
const structureDepth = 512

// Elements reads an array of at most limit elements and returns their texts,
// which are parts of raw. It looks at the structure only, so that what [JSON]
// refuses in one element is that element's fault alone.
func Elements(raw []byte, limit int) ([]json.RawMessage, error) {
	s := scanner{in: raw, limit: structureDepth, lenient: true}
	if s.peek() != '[' {
		return nil, s.expected("a JSON array")
	}
	var out []json.RawMessage
	err := s.array(func(element []byte) error {
		if len(out) == limit {
			return ErrTooMany
		}
		out = append(out, slices.Clip(element))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, s.end()
}

// Nameable reports whether an error may repeat a name that came from outside:
// it is short and holds letters, digits, "_", "-" and "." only.
func Nameable(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// ErrTooMany is what [Elements] answers for more elements than its limit.
var ErrTooMany = errors.New("more elements than the limit")

// errFound ends a walk early.
var errFound = errors.New("found")

// expected tells a wrong kind of value from text that is no JSON at all.
func (s *scanner) expected(what string) error {
	if err := s.whole(); err != nil {
		return err
	}
	return sdk.Invalid("", what)
}

// Text returns what a JSON string says. ok is false if raw is not one.
func Text(raw []byte) (text string, ok bool) {
	if KindOf(raw) != String {
		return "", false
	}
	s := scanner{in: raw, limit: MaxDepth}
	b, err := s.text()
	if err != nil || s.end() != nil {
		return "", false
	}
	return string(b), true
}

// Step is one step of a path into JSON data: the member Key of an object or, if
// IsIndex is set, the element Index of an array.
type Step struct {
	Key     string
	Index   int
	IsIndex bool
}

// Find returns the value that path leads to, a part of raw. found is false if
// raw has none, or a step meets the wrong kind of value. It fails as [JSON] on
// the text that it has to read; what lies behind the value is not looked at.
func Find(raw []byte, path []Step) (value json.RawMessage, found bool, err error) {
	for _, step := range path {
		if raw, found, err = child(raw, step); err != nil || !found {
			return nil, false, err
		}
	}
	s := scanner{in: raw, limit: MaxDepth}
	s.space()
	start := s.pos
	if err := s.value(); err != nil {
		return nil, false, err
	}
	return s.in[start:s.pos:s.pos], true, nil
}

// child returns what follows the beginning of the value that step leads to.
func child(raw []byte, step Step) ([]byte, bool, error) {
	s := scanner{in: raw, limit: MaxDepth}
	var hit []byte
	var err error
	switch c := s.peek(); {
	case c == 0:
		return nil, false, s.syntax()
	case c == '[' && step.IsIndex:
		n := 0
		err = s.array(func(element []byte) error {
			if n++; n > step.Index {
				hit = element
				return errFound
			}
			return nil
		})
	case c == '{' && !step.IsIndex:
		err = s.members(func(key string) error {
			if key == step.Key {
				hit = s.in[s.pos:]
				return errFound
			}
			return s.value()
		})
	}
	if errors.Is(err, errFound) {
		return hit, true, nil
	}
	return nil, false, err
}
