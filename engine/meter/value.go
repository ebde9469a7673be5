package meter

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// quantity reads an exact decimal from the literal text of a JSON number or
// from a JSON string. No float is involved.
func quantity(raw json.RawMessage) (decimal.Decimal, error) {
	switch canon.KindOf(raw) {
	case canon.Num:
		return decimal.Parse(string(raw))
	case canon.String:
		if text, ok := canon.Text(raw); ok {
			return decimal.Parse(text)
		}
	case canon.Null, canon.Bool, canon.Array, canon.Object:
	}
	return decimal.Decimal{}, decimal.ErrSyntax
}

// label reads the text of a dimension: a string as it is, a number or a boolean
// in its canonical text, so that 1, 1.0 and "1" are one value.
func label(raw json.RawMessage) (string, bool) {
	switch canon.KindOf(raw) {
	case canon.String:
		return canon.Text(raw)
	case canon.Num:
		return canon.Number(string(raw))
	case canon.Bool:
		return string(raw), true
	default:
		return "", false
	}
}

const (
	textRule  = "a JSON string"
	labelRule = "a string, a number or a boolean"
	timeRule  = "an RFC 3339 time with an offset, such as 2026-11-30T12:00:00Z, and at most nine decimals"
)

// parseTime reads an RFC 3339 time. It is stricter than the time package, which
// takes a comma for the point, and cuts what is finer than a microsecond.
func parseTime(text string) (time.Time, bool) {
	const date = "0000-00-00T00:00:00"
	if len(text) <= len(date) || len(text) > len(date)+len(".000000000+00:00") {
		return time.Time{}, false
	}
	for i, c := range []byte(date) {
		ok := text[i] == c
		if c == '0' {
			ok = text[i] >= '0' && text[i] <= '9'
		}
		if c == 'T' {
			ok = text[i] == 'T' || text[i] == 't'
		}
		if !ok {
			return time.Time{}, false
		}
	}
	microseconds, rest, ok := fraction(text[len(date):])
	if !ok {
		return time.Time{}, false
	}
	ahead, ok := offset(rest)
	if !ok {
		return time.Time{}, false
	}
	local, err := time.Parse(time.DateOnly+" "+time.TimeOnly, text[:10]+" "+text[11:len(date)])
	if err != nil {
		return time.Time{}, false
	}
	t := local.Add(microseconds - ahead)
	return t, !t.IsZero() // the zero time stands for an absent one
}

// fraction reads ".123456789" and cuts it to microseconds.
func fraction(text string) (d time.Duration, rest string, ok bool) {
	if text[0] != '.' {
		return 0, text, true
	}
	n := 1
	unit := 100 * time.Millisecond
	for ; n < len(text) && text[n] >= '0' && text[n] <= '9'; n++ {
		if unit >= time.Microsecond {
			d += time.Duration(text[n]-'0') * unit
		}
		unit /= 10
	}
	return d, text[n:], n > 1 && n <= 10
}

// offset reads "Z" or "+02:00".
func offset(text string) (time.Duration, bool) {
	if text == "Z" || text == "z" {
		return 0, true
	}
	if len(text) != 6 || (text[0] != '+' && text[0] != '-') {
		return 0, false
	}
	t, err := time.Parse("15:04", text[1:])
	if err != nil {
		return 0, false
	}
	d := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	if text[0] == '-' {
		d = -d
	}
	return d, true
}

// trimSpace cuts the space that JSON allows around a value.
func trimSpace(raw []byte) []byte { return bytes.Trim(raw, " \t\r\n") }
