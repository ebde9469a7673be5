package redis

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// A member of the ordered sets is (tenant, feature, instant), written so that
// the order of bytes is the order of the fields and no two keys are the same
// bytes: a text ends with 0x00 0x01, and a zero within it is 0x00 0xff.
const (
	textEnd    = "\x00\x01"
	textBeyond = "\x00\x02" // just after everything that starts with a text
	zeroWithin = "\x00\xff"
)

var errMember = errors.New("a key of the store is not one of ours")

func orderedText(s string) string { return strings.ReplaceAll(s, "\x00", zeroWithin) }

// scope is what the members of one tenant, or of one feature of it, start with,
// without the end of the last text.
func scope(tenant, feature string) string {
	if feature == "" {
		return orderedText(tenant)
	}
	return orderedText(tenant) + textEnd + orderedText(feature)
}

func member(tenant, feature string, at time.Time) string {
	b := []byte(scope(tenant, "") + textEnd + orderedText(feature) + textEnd)
	// With its sign turned, a number has the order of its bytes.
	return string(binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro())^1<<63))
}

func parseMember(m string) (tenant, feature string, at time.Time, err error) {
	tenant, rest, ok := cutText(m)
	if !ok {
		return "", "", at, errMember
	}
	feature, rest, ok = cutText(rest)
	if !ok || len(rest) != 8 {
		return "", "", at, errMember
	}
	micro := int64(binary.BigEndian.Uint64([]byte(rest)) ^ 1<<63)
	return tenant, feature, time.UnixMicro(micro).UTC(), nil
}

func cutText(m string) (text, rest string, ok bool) {
	text, rest, ok = strings.Cut(m, textEnd)
	return strings.ReplaceAll(text, zeroWithin, "\x00"), rest, ok
}

// scaled is d as a whole number of 10^-12.
func scaled(d decimal.Decimal) string {
	text := d.String()
	negative := strings.HasPrefix(text, "-")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	digits := strings.TrimLeft(whole+fraction+strings.Repeat("0", decimal.MaxDecimals-len(fraction)), "0")
	switch {
	case digits == "":
		return "0"
	case negative:
		return "-" + digits
	default:
		return digits
	}
}

func parseScaled(text string) (decimal.Decimal, error) {
	digits, negative := strings.CutPrefix(text, "-")
	if pad := decimal.MaxDecimals + 1 - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	point := len(digits) - decimal.MaxDecimals
	sign := ""
	if negative {
		sign = "-"
	}
	return decimal.ParseTotal(sign + digits[:point] + "." + digits[point:])
}
