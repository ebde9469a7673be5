package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// nesting follows the brackets of JSON text, byte by byte. It believes the text
// to be JSON; whether it is, others decide.
type nesting struct {
	depth  int
	quoted bool // inside a string
	escape bool // after a backslash inside a string
}

func (n *nesting) step(b byte) {
	switch {
	case n.escape:
		n.escape = false
	case n.quoted:
		n.escape = b == '\\'
		n.quoted = b != '"'
	case b == '"':
		n.quoted = true
	case b == '{', b == '[':
		n.depth++
	case b == '}', b == ']':
		n.depth = max(0, n.depth-1)
	}
}

// arrayReader splits a JSON array, whose opening bracket is read, into its
// elements. A broken element does not take the next with it as long as its
// brackets and quotes are whole. It never holds more than one element.
type arrayReader struct {
	in    *bufio.Reader
	some  bool  // an element was read
	over  bool  // the array has ended
	fault error // to be told once, after the last element
}

// Faults of an array as a whole. They are outcomes of a position in it: what
// was read before them stands.
var (
	errOpenArray = sdk.Invalid("array", "a JSON array that ends with ]; is the file whole?")
	errAfter     = sdk.Invalid("array", "nothing after the ] that ends it; what follows was not read")
	errNoElement = sdk.Invalid("event", "one JSON object between two commas")
	errTooLong   = sdk.Invalid("event", "at most 1 MiB")
)

// next returns the text of the next element. The error is io.EOF at the end, an
// error about this element, or that of the input.
func (a *arrayReader) next() ([]byte, error) {
	if a.over {
		return nil, a.end()
	}
	text, last, long, err := a.element()
	if err != nil {
		return nil, err
	}
	a.over = last != ','
	switch {
	case last == 0:
		a.fault = errOpenArray
	case last == ']':
		if err := a.checkRest(); err != nil {
			return nil, err
		}
	}
	empty := len(text) == 0
	if empty && a.over && (!a.some || last == 0) {
		return nil, a.end() // an empty array, or nothing after the last comma of a cut one
	}
	a.some = true
	switch {
	case long:
		return nil, errTooLong
	case empty:
		return nil, errNoElement
	}
	return text, nil
}

// end tells what is wrong with the array, once, and then that it is over.
func (a *arrayReader) end() error {
	if err := a.fault; err != nil {
		a.fault = nil
		return err
	}
	return io.EOF
}

// checkRest looks for text after the array.
func (a *arrayReader) checkRest() error {
	_, next, err := skipSpace(a.in)
	if err != nil {
		return err
	}
	if next != 0 {
		a.fault = errAfter
	}
	return nil
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// element reads up to the comma or bracket that ends an element and returns
// which, zero at the end of the input, and whether the element is too long.
func (a *arrayReader) element() (text []byte, last byte, long bool, _ error) {
	var n nesting
	for {
		b, err := a.in.ReadByte()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, false, readError(err)
		}
		if err == nil && (n.quoted || n.depth > 0 || (b != ',' && b != ']')) {
			n.step(b)
			switch {
			case len(text) == 0 && isSpace(b): // any amount may stand between elements
			case len(text) < lineMax:
				text = append(text, b)
			case !isSpace(b):
				long = true
			}
			continue
		}
		return bytes.TrimSpace(text), b, long, nil // b is zero at the end
	}
}
