// Package decimal holds the exact decimal that every quantity and total is.
//
// A quantity has at most 26 integer digits and 12 decimals (numeric(38,12)); a
// total is wider. Nothing here rounds: what does not fit is refused. There is
// no way from or to a float.
package decimal

import (
	"errors"
	"math/big"
	"strings"

	"github.com/quagmt/udecimal"
)

// Limits of a quantity as it enters the system (promise P5).
const (
	MaxIntegerDigits = 26
	MaxDecimals      = 12
	// maxText bounds the text before anything is expanded: sign, digits,
	// point and an exponent of at most three digits.
	maxText = 64
)

// Errors that Parse returns; the text says the rule and never the value.
var (
	ErrSyntax        = errors.New("a decimal number in digits, such as 12.5")
	ErrIntegerDigits = errors.New("at most 26 integer digits")
	ErrDecimals      = errors.New("at most 12 decimals")
)

// Decimal is an exact decimal number. The zero value is 0. Values are
// immutable and safe for concurrent use.
type Decimal struct{ d udecimal.Decimal }

// One is the quantity of a counted event.
var One = MustParse("1")

// Parse reads a quantity: an optional minus, digits, an optional fraction and
// an optional exponent ("1e3", "2.50E-2"), as JSON writes numbers. Leading
// zeros, a leading plus, an empty integer or fraction part, unicode digits,
// NaN and infinities are refused, as is anything beyond 26 integer digits or
// 12 decimals after insignificant zeros are dropped. "-0" is 0.
//
// The exponent is bounded before the number is expanded, so no input makes it
// allocate more than a few dozen bytes.
func Parse(s string) (Decimal, error) {
	n, err := scan(s)
	if err != nil {
		return Decimal{}, err
	}
	if n.digits == "" {
		return Decimal{}, nil
	}
	point := len(n.digits) + n.exp // digits before the point
	if point > MaxIntegerDigits {
		return Decimal{}, ErrIntegerDigits
	}
	if -n.exp > MaxDecimals {
		return Decimal{}, ErrDecimals
	}
	return assemble(n, point)
}

// number is the parts of a scanned decimal: value = ±digits × 10^exp, digits
// without leading or trailing zeros, empty for zero.
type number struct {
	negative bool
	digits   string
	exp      int
}

func scan(s string) (number, error) {
	var n number
	if len(s) == 0 || len(s) > maxText*4 {
		return n, ErrSyntax
	}
	if s[0] == '-' {
		n.negative = true
		s = s[1:]
	}
	intPart, rest := digits(s)
	if intPart == "" || (len(intPart) > 1 && intPart[0] == '0') {
		return n, ErrSyntax
	}
	var frac string
	if strings.HasPrefix(rest, ".") {
		frac, rest = digits(rest[1:])
		if frac == "" {
			return n, ErrSyntax
		}
	}
	exp, err := exponent(rest)
	if err != nil {
		return n, err
	}
	all := strings.TrimLeft(intPart+frac, "0")
	trimmed := strings.TrimRight(all, "0")
	n.digits = trimmed
	n.exp = exp - len(frac) + len(all) - len(trimmed)
	return n, nil
}

// digits splits s after its leading ASCII digits.
func digits(s string) (head, tail string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// exponent reads "", "e3", "E+12" or "e-7". More than three digits cannot
// belong to a number within the limits, whatever the mantissa, unless the
// mantissa is zero; that too is refused.
func exponent(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, ErrSyntax
	}
	s = s[1:]
	neg := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		neg = s[0] == '-'
		s = s[1:]
	}
	d, tail := digits(s)
	if d == "" || tail != "" {
		return 0, ErrSyntax
	}
	d = strings.TrimLeft(d, "0")
	if len(d) > 3 {
		if neg {
			return 0, ErrDecimals
		}
		return 0, ErrIntegerDigits
	}
	v := 0
	for _, c := range []byte(d) {
		v = v*10 + int(c-'0')
	}
	if neg {
		v = -v
	}
	return v, nil
}

// assemble writes the plain notation of n and hands it to the library.
func assemble(n number, point int) (Decimal, error) {
	var b strings.Builder
	b.Grow(maxText)
	if n.negative {
		b.WriteByte('-')
	}
	switch {
	case point <= 0:
		b.WriteString("0.")
		b.WriteString(strings.Repeat("0", -point))
		b.WriteString(n.digits)
	case point >= len(n.digits):
		b.WriteString(n.digits)
		b.WriteString(strings.Repeat("0", point-len(n.digits)))
	default:
		b.WriteString(n.digits[:point])
		b.WriteByte('.')
		b.WriteString(n.digits[point:])
	}
	d, err := udecimal.Parse(b.String())
	if err != nil {
		return Decimal{}, ErrSyntax
	}
	return Decimal{d}, nil
}

// ParseTotal reads a sum of quantities as this package's String wrote it. It
// accepts up to 38 integer digits, because a total is wider than an event.
func ParseTotal(s string) (Decimal, error) {
	n, err := scan(s)
	if err != nil {
		return Decimal{}, err
	}
	if n.digits == "" {
		return Decimal{}, nil
	}
	point := len(n.digits) + n.exp
	if point > 38 {
		return Decimal{}, errors.New("at most 38 integer digits")
	}
	if -n.exp > MaxDecimals {
		return Decimal{}, ErrDecimals
	}
	return assemble(n, point)
}

// MustParse is Parse for constants; it panics on a malformed literal.
func MustParse(s string) Decimal {
	d, err := Parse(s)
	if err != nil {
		panic("decimal: " + err.Error())
	}
	return d
}

// Add returns d + e, exactly.
func (d Decimal) Add(e Decimal) Decimal { return Decimal{d.d.Add(e.d)} }

// Sub returns d − e, exactly.
func (d Decimal) Sub(e Decimal) Decimal { return Decimal{d.d.Sub(e.d)} }

// Neg returns −d.
func (d Decimal) Neg() Decimal { return Decimal{d.d.Neg()} }

// Abs returns |d|.
func (d Decimal) Abs() Decimal { return Decimal{d.d.Abs()} }

// Cmp returns −1, 0 or +1 as d is less than, equal to or greater than e.
func (d Decimal) Cmp(e Decimal) int { return d.d.Cmp(e.d) }

// Equal reports whether d and e are the same number. The operator == does not:
// one number has several representations.
func (d Decimal) Equal(e Decimal) bool { return d.Cmp(e) == 0 }

// Sign returns −1, 0 or +1.
func (d Decimal) Sign() int { return d.d.Sign() }

// IsZero reports whether d is 0.
func (d Decimal) IsZero() bool { return d.d.IsZero() }

// String returns the canonical text: plain notation, no exponent, no
// insignificant zeros, "0" for zero of any sign. Equal numbers have equal text.
func (d Decimal) String() string {
	if d.d.IsZero() {
		return "0"
	}
	return d.d.String()
}

// SignificantDigits returns how many digits the number needs, leading and
// trailing zeros not counted; 0 for zero. Stripe refuses more than 15.
func (d Decimal) SignificantDigits() int {
	s := strings.TrimPrefix(d.String(), "-")
	if strings.Contains(s, ".") {
		s = strings.Replace(s, ".", "", 1)
		return len(strings.TrimLeft(s, "0"))
	}
	return len(strings.Trim(s, "0"))
}

// Scale returns the number of decimals of the canonical text.
func (d Decimal) Scale() int {
	s := d.String()
	if i := strings.IndexByte(s, '.'); i >= 0 {
		return len(s) - i - 1
	}
	return 0
}

// MarshalJSON writes the canonical text as a JSON string.
func (d Decimal) MarshalJSON() ([]byte, error) { return []byte(`"` + d.String() + `"`), nil }

// UnmarshalJSON reads a JSON string or number from its literal text; no float
// is involved.
func (d *Decimal) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := Parse(s)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// Small returns d as mantissa × 10^−scale where the mantissa is at most 2^40 in
// size, and whether it is. Counters that add up many small quantities can then
// do so on machine words, exactly.
func (d Decimal) Small() (mantissa int64, scale int, ok bool) {
	negative, hi, lo, places, ok := d.d.ToHiLo()
	if !ok || hi != 0 || lo > 1<<40 {
		return 0, 0, false
	}
	mantissa = int64(lo)
	if negative {
		mantissa = -mantissa
	}
	return mantissa, int(places), true
}

// FromScaled returns mantissa × 10^−scale. A scale outside 0 to MaxDecimals is
// a mistake of the caller and panics.
func FromScaled(mantissa int64, scale int) Decimal {
	if scale < 0 || scale > MaxDecimals {
		panic("decimal: scale out of range")
	}
	d, err := udecimal.NewFromInt64(mantissa, uint8(scale))
	if err != nil {
		panic("decimal: " + err.Error())
	}
	return Decimal{d}
}

// Mean returns d ÷ n, rounded half to even at MaxDecimals decimals. It is the one
// operation of this package that rounds: a mean is shown, never added up. n must
// be above zero.
func (d Decimal) Mean(n int64) Decimal {
	whole, frac, _ := strings.Cut(d.Abs().String(), ".")
	frac += strings.Repeat("0", MaxDecimals-len(frac))
	scaled, ok := new(big.Int).SetString(whole+frac, 10)
	if !ok || n <= 0 {
		panic("decimal: a mean of nothing")
	}
	by := big.NewInt(n)
	quotient, rest := new(big.Int).QuoRem(scaled, by, new(big.Int))
	half := rest.Lsh(rest, 1).Cmp(by)
	if half > 0 || (half == 0 && quotient.Bit(0) == 1) {
		quotient.Add(quotient, big.NewInt(1))
	}
	text := quotient.String()
	if missing := MaxDecimals + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	m, err := udecimal.Parse(text[:len(text)-MaxDecimals] + "." + text[len(text)-MaxDecimals:])
	if err != nil {
		panic("decimal: " + err.Error())
	}
	if d.Sign() < 0 {
		m = m.Neg()
	}
	return Decimal{m}
}
