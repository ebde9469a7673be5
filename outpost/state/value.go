package state

import (
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Digits of a scaled value: of an event, and of a total.
const (
	valueDigits = 38
	totalDigits = 50
)

// scaled writes d as a whole number of 10^-12, the only form that the scripts
// know. Digits bounds its length.
func scaled(d decimal.Decimal, digits int) (string, error) {
	text, negative := strings.CutPrefix(d.String(), "-")
	whole, frac, _ := strings.Cut(text, ".")
	if len(frac) > decimal.MaxDecimals {
		return "", decimal.ErrDecimals
	}
	out := strings.TrimLeft(whole+frac+strings.Repeat("0", decimal.MaxDecimals-len(frac)), "0")
	if len(out) > digits {
		return "", decimal.ErrIntegerDigits
	}
	if out == "" {
		return "0", nil
	}
	if negative {
		out = "-" + out
	}
	return out, nil
}

// quantity is the scaled value of an event.
func quantity(d decimal.Decimal) (string, error) {
	s, err := scaled(d, valueDigits)
	if err != nil {
		return "", sdk.Invalid("quantity", err.Error())
	}
	return s, nil
}

// unscaled reads what scaled wrote, or what the scripts added up.
func unscaled(s string) (decimal.Decimal, error) {
	if len(s) <= 18 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return decimal.Decimal{}, errField
		}
		return decimal.FromScaled(n, decimal.MaxDecimals), nil
	}
	text, negative := strings.CutPrefix(s, "-")
	if missing := decimal.MaxDecimals + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	text = text[:len(text)-decimal.MaxDecimals] + "." + text[len(text)-decimal.MaxDecimals:]
	if negative {
		text = "-" + text
	}
	d, err := decimal.ParseTotal(text)
	if err != nil {
		return decimal.Decimal{}, errField
	}
	return d, nil
}
