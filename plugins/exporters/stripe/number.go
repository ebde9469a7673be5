package stripe

import (
	"errors"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

var errNumber = errors.New("not a decimal number that can be kept")

// exact reads a number of Stripe's JSON. Stripe keeps sums in binary floating
// point, which is good for 15 digits: of more, only whole numbers below 2^53 are
// meant, and everything else is rounded to 15. 0.30000000000000004 is 0.3.
func exact(s string) (decimal.Decimal, error) {
	digits, point, negative, ok := scanNumber(s)
	if !ok {
		return decimal.Decimal{}, errNumber
	}
	if len(digits) > maxSignificantDigits && !wholeDouble(digits, point) {
		digits, point = roundDigits(digits, point)
	}
	text, ok := plainText(digits, point)
	if !ok {
		return decimal.Decimal{}, errNumber
	}
	if negative {
		text = "-" + text
	}
	return decimal.ParseTotal(text)
}

// scanNumber takes a JSON number apart: its value is 0.digits times ten to the
// power of point. Digits have no zeros at either end.
func scanNumber(s string) (digits string, point int, negative, ok bool) {
	s, negative = strings.CutPrefix(s, "-")
	mantissa, power, scientific := strings.Cut(strings.ToLower(s), "e")
	if scientific {
		n, err := strconv.Atoi(power)
		if err != nil || n > 100 || n < -100 {
			return "", 0, false, false
		}
		point = n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	if whole == "" || len(all) > 100 || strings.Trim(all, "0123456789") != "" {
		return "", 0, false, false
	}
	point += len(whole)
	trimmed := strings.TrimLeft(all, "0")
	point -= len(all) - len(trimmed)
	return strings.TrimRight(trimmed, "0"), point, negative, true
}

// wholeDouble reports whether the number is whole and a double holds it exactly.
func wholeDouble(digits string, point int) bool {
	if point < len(digits) || point > 16 {
		return false
	}
	n, err := strconv.ParseUint(digits+strings.Repeat("0", point-len(digits)), 10, 64)
	return err == nil && n <= 1<<53
}

func roundDigits(digits string, point int) (string, int) {
	up := digits[maxSignificantDigits] >= '5'
	kept := []byte(digits[:maxSignificantDigits])
	for i := len(kept) - 1; up && i >= 0; i-- {
		if up = kept[i] == '9'; up {
			kept[i] = '0'
		} else {
			kept[i]++
		}
	}
	if up { // all were nines
		return "1", point + 1
	}
	return strings.TrimRight(string(kept), "0"), point
}

// plainText is 0.digits times ten to the power of point without an exponent.
func plainText(digits string, point int) (string, bool) {
	switch {
	case digits == "":
		return "0", true
	case point > 40 || point < -40:
		return "", false
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits, true
	case point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits)), true
	}
	return digits[:point] + "." + digits[point:], true
}
