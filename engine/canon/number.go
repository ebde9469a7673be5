package canon

import (
	"strconv"
	"strings"
)

// Bounds of canonical numbers: within plainDigits on both sides of the point a
// number is written without an exponent; an exponent of more than
// exponentDigits digits is refused, so that arithmetic on it fits an int64.
const (
	plainDigits    = 38
	exponentDigits = 17
)

// Number returns the canonical text of a JSON number: equal values have equal
// text, whatever their notation. Up to 38 digits before and after the point it
// is plain ("1500", "0.015", "0" for any zero); beyond, it is the significant
// digits as an integer with an exponent ("1e400"), so that no input expands.
//
// ok is false if literal is not a JSON number or its exponent has more than 17
// digits.
func Number(literal string) (text string, ok bool) {
	negative := strings.HasPrefix(literal, "-")
	rest := strings.TrimPrefix(literal, "-")
	whole, rest := leadingDigits(rest)
	if whole == "" || (len(whole) > 1 && whole[0] == '0') {
		return "", false
	}
	var fraction string
	if strings.HasPrefix(rest, ".") {
		fraction, rest = leadingDigits(rest[1:])
		if fraction == "" {
			return "", false
		}
	}
	exponent, ok := exponentOf(rest)
	if !ok {
		return "", false
	}
	all := strings.TrimLeft(whole+fraction, "0")
	digits := strings.TrimRight(all, "0")
	if digits == "" {
		return "0", true
	}
	exponent += int64(len(all)-len(digits)) - int64(len(fraction))
	text = layOut(digits, exponent)
	if negative {
		text = "-" + text
	}
	return text, true
}

// layOut writes digits × 10^exponent; digits has no zero at either end.
func layOut(digits string, exponent int64) string {
	point := int64(len(digits)) + exponent
	switch {
	case exponent < -plainDigits || point > plainDigits:
		return digits + "e" + strconv.FormatInt(exponent, 10)
	case exponent >= 0:
		return digits + strings.Repeat("0", int(exponent))
	case point > 0:
		return digits[:point] + "." + digits[point:]
	default:
		return "0." + strings.Repeat("0", int(-point)) + digits
	}
}

func leadingDigits(s string) (head, tail string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// exponentOf reads "", "e3", "E+12" or "e-7".
func exponentOf(s string) (int64, bool) {
	if s == "" {
		return 0, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, false
	}
	s = s[1:]
	negative := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		negative = s[0] == '-'
		s = s[1:]
	}
	digits, tail := leadingDigits(s)
	if digits == "" || tail != "" {
		return 0, false
	}
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > exponentDigits {
		return 0, false
	}
	var v int64
	for _, c := range []byte(digits) {
		v = v*10 + int64(c-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}
