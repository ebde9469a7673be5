package canon

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// MaxDepth is how many arrays and objects may lie within each other.
const MaxDepth = 32

// scanner reads one JSON value and, if keep is set, writes its canonical text
// to out as it goes. It never builds a tree: its memory is the output, the keys
// of the objects that are open and nothing else, so that a megabyte of "[[],"
// costs no more than a megabyte of text.
//
// encoding/json is not used because it accepts what must be refused here:
// invalid UTF-8, lone surrogates and repeated keys.
type scanner struct {
	in    []byte
	pos   int
	depth int
	limit int
	out   []byte
	keep  bool
	// lenient looks at structure only: it finds where the elements of a batch
	// end without judging one by another's faults.
	lenient bool
}

// member is one member of an open object: its key and where out holds it.
type member struct {
	key        string
	start, end int
}

func (s *scanner) fail(rule string) error {
	return sdk.Invalid("", rule+" (at byte "+strconv.Itoa(s.pos)+")")
}

// refuse is fail, except when only the structure matters.
func (s *scanner) refuse(rule string) error {
	if s.lenient {
		return nil
	}
	return s.fail(rule)
}

func (s *scanner) syntax() error { return s.fail("well-formed JSON") }

func (s *scanner) emit(text ...byte) {
	if s.keep {
		s.out = append(s.out, text...)
	}
}

func (s *scanner) space() {
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte after space, 0 at the end of the input.
func (s *scanner) peek() byte {
	s.space()
	if s.pos >= len(s.in) {
		return 0
	}
	return s.in[s.pos]
}

// whole reads the one value of a document.
func (s *scanner) whole() error {
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

func (s *scanner) end() error {
	if s.space(); s.pos != len(s.in) {
		return s.fail("one JSON value and nothing after it")
	}
	return nil
}

func (s *scanner) value() error {
	switch c := s.peek(); c {
	case '{':
		return s.object()
	case '[':
		return s.array(nil)
	case '"':
		return s.stringValue()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.in[s.pos:], []byte(w)) {
		return s.syntax()
	}
	s.pos += len(w)
	s.emit([]byte(w)...)
	return nil
}

func (s *scanner) number() error {
	start := s.pos
	for s.pos < len(s.in) && strings.IndexByte("+-.0123456789Ee", s.in[s.pos]) >= 0 {
		s.pos++
	}
	if start == s.pos {
		return s.syntax()
	}
	text, ok := Number(string(s.in[start:s.pos]))
	if !ok {
		return s.refuse("well-formed JSON, numbers with at most 17 digits of exponent")
	}
	s.emit([]byte(text)...)
	return nil
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > s.limit {
		return s.fail("at most " + strconv.Itoa(MaxDepth) + " levels of JSON")
	}
	s.pos++
	return nil
}

// array reads an array; each, if not nil, is called with every element's text.
func (s *scanner) array(each func(element []byte) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	s.emit('[')
	for first := true; ; first = false {
		c := s.peek()
		if c == ']' && first {
			break
		}
		start := s.pos
		if err := s.value(); err != nil {
			return err
		}
		if each != nil {
			if err := each(s.in[start:s.pos]); err != nil {
				return err
			}
		}
		if c = s.peek(); c == ']' {
			break
		}
		if c != ',' {
			return s.syntax()
		}
		s.pos++
		s.emit(',')
	}
	s.pos++
	s.depth--
	s.emit(']')
	return nil
}

func (s *scanner) object() error {
	open := len(s.out)
	var members []member
	err := s.members(func(key string) error {
		m := member{key: key, start: len(s.out)}
		if s.keep {
			s.out = appendString(s.out, key)
			s.out = append(s.out, ':')
		}
		if err := s.value(); err != nil {
			return err
		}
		m.end = len(s.out)
		members = append(members, m)
		return nil
	})
	if err != nil {
		return err
	}
	byKey := func(a, b member) int { return strings.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(members, byKey) {
		slices.SortStableFunc(members, byKey)
	}
	for i := 1; i < len(members); i++ {
		if members[i].key == members[i-1].key {
			return s.refuse("no key twice in one JSON object")
		}
	}
	s.arrange(open, members)
	return nil
}

// arrange rewrites out from open on as an object with its members in order.
func (s *scanner) arrange(open int, members []member) {
	if !s.keep {
		return
	}
	object := make([]byte, 0, len(s.out)-open+len(members)+2)
	object = append(object, '{')
	for i, m := range members {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(object, s.out[m.start:m.end]...)
	}
	object = append(object, '}')
	s.out = append(s.out[:open], object...)
}

// members reads an object; value is called after each key and must read the
// member's value.
func (s *scanner) members(value func(key string) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		c := s.peek()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return s.syntax()
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.syntax()
		}
		s.pos++
		s.space()
		if err := value(string(key)); err != nil {
			return err
		}
		if c = s.peek(); c == '}' {
			break
		}
		if c != ',' {
			return s.syntax()
		}
		s.pos++
	}
	s.pos++
	s.depth--
	return nil
}

func (s *scanner) stringValue() error {
	text, err := s.text()
	if err == nil && s.keep {
		s.out = appendString(s.out, string(text))
	}
	return err
}

// text reads a string and returns what it says: a part of the input if it has
// no escapes.
func (s *scanner) text() ([]byte, error) {
	s.pos++
	start := s.pos
	for i := start; i < len(s.in); i++ {
		switch c := s.in[i]; {
		case c == '"':
			s.pos = i + 1
			return s.valid(s.in[start:i])
		case c == '\\':
			return s.escaped(start, i)
		case c < 0x20:
			s.pos = i
			return nil, s.syntax()
		}
	}
	s.pos = len(s.in)
	return nil, s.syntax()
}

func (s *scanner) valid(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return text, s.refuse("valid UTF-8")
	}
	return text, nil
}

// escaped goes on with a string that began at start and has its first escape
// at i.
func (s *scanner) escaped(start, i int) ([]byte, error) {
	text := append(make([]byte, 0, i-start+32), s.in[start:i]...)
	for i < len(s.in) {
		s.pos = i
		switch c := s.in[i]; {
		case c == '"':
			s.pos = i + 1
			return s.valid(text)
		case c < 0x20:
			return nil, s.syntax()
		case c != '\\':
			text = append(text, c)
			i++
		default:
			r, n, err := s.escape(s.in[i:])
			if err != nil {
				return nil, err
			}
			text = utf8.AppendRune(text, r)
			i += n
		}
	}
	s.pos = len(s.in)
	return nil, s.syntax()
}
