package canon

import (
	"strings"
	"unicode/utf16"
)

const (
	escapeChars = `"\/bfnrt`
	escapeMeans = "\"\\/\b\f\n\r\t"
	hexDigits   = "0123456789abcdef"
)

// escape reads one escape, which in begins with, and returns its rune and how
// many bytes it took.
func (s *scanner) escape(in []byte) (rune, int, error) {
	if len(in) < 2 {
		return 0, 0, s.syntax()
	}
	if i := strings.IndexByte(escapeChars, in[1]); i >= 0 {
		return rune(escapeMeans[i]), 2, nil
	}
	r, ok := codeUnit(in)
	if !ok {
		return 0, 0, s.syntax()
	}
	if r == 0 {
		return 0, 6, s.refuse("no NUL character")
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	low, ok := codeUnit(in[6:])
	pair := utf16.DecodeRune(r, low)
	if !ok || pair == '\uFFFD' {
		return '\uFFFD', 6, s.refuse("no lone surrogate")
	}
	return pair, 12, nil
}

// codeUnit reads \uXXXX.
func codeUnit(in []byte) (rune, bool) {
	if len(in) < 6 || in[0] != '\\' || in[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range in[2:6] {
		d := strings.IndexByte(hexDigits, c|0x20)
		if c < '0' || d < 0 || (c > '9' && c < 'A') {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// appendString writes text as a JSON string with the fewest escapes: quote,
// backslash and control characters only, the short form where there is one.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	plain := 0
	for i := range len(text) {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[plain:i]...)
		plain = i + 1
		if j := strings.IndexByte(escapeMeans, c); j >= 0 {
			dst = append(dst, '\\', escapeChars[j])
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, text[plain:]...), '"')
}
