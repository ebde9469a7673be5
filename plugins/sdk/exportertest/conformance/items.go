package conformance

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

const letters = "abcdefghijklmnopqrstuvwxyz234567"

func word(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// items makes n plain events that the manifest allows.
func (t *trial) items(n int) []exporter.Item {
	out := make([]exporter.Item, n)
	for i := range out {
		out[i] = t.item(i)
	}
	return out
}

func (t *trial) item(i int) exporter.Item {
	p, m := t.provider(), t.suite.manifest
	identifier := "fencepost_" + word(t.random, 26)
	if most := m.IdentifierMaxLength; most > 0 && len(identifier) > most {
		identifier = identifier[len(identifier)-most:]
	}
	it := exporter.Item{
		ID: fmt.Sprintf("item-%d-%s", i, word(t.random, 8)), Identifier: identifier, Attempt: 1, Kind: "event",
		Account: p.Configuration.Account, Mode: p.Configuration.Mode,
		Customer: "cus_" + word(t.random, 8), Feature: "tokens", Value: t.value(),
		Timestamp:   time.Date(2026, 11, 30, 11, 0, 0, 123_456_000, time.UTC).Add(time.Duration(i) * time.Second),
		PeriodStart: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		PeriodEnd:   time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		Mapping:     maps.Clone(p.Mapping),
	}
	if p.Item != nil {
		p.Item(&it)
	}
	return it
}

// digits is how many significant digits a value may have, decimals how many
// after the point.
func (t *trial) digits() (significant, decimals int) {
	v := t.suite.manifest.Values
	significant, decimals = 38, 12
	if v.SignificantDigits > 0 {
		significant = min(significant, v.SignificantDigits)
	}
	if v.MaxDecimals >= 0 {
		decimals = min(decimals, v.MaxDecimals)
	}
	return significant, min(decimals, significant-1)
}

// value is a positive number that the provider can express.
func (t *trial) value() string {
	significant, decimals := t.digits()
	n := 1 + t.random.IntN(min(significant, 9))
	return t.number(n, t.random.IntN(min(decimals, n-1)+1))
}

// number has exactly n significant digits, of which decimals after the point.
func (t *trial) number(n, decimals int) string {
	var b strings.Builder
	for i := range n {
		if i == n-decimals {
			b.WriteByte('.')
		}
		d := t.random.IntN(10)
		if (i == 0 || i == n-1) && d == 0 {
			d = 7 // neither a leading nor a trailing zero, which a reader could drop
		}
		b.WriteByte(byte('0' + d))
	}
	return b.String()
}

// values are numbers at the edges of what the provider can express.
func (t *trial) values() []string {
	significant, decimals := t.digits()
	out := []string{
		"1", t.number(significant, 0), t.number(significant, decimals), t.number(min(significant, 17), min(decimals, 3)),
	}
	if decimals > 0 {
		out = append(out, "0."+strings.Repeat("0", decimals-1)+"1")
	}
	if t.suite.manifest.Values.Zero {
		out = append(out, "0")
	}
	if t.suite.manifest.Values.Negative {
		for _, v := range out {
			if v != "0" {
				out = append(out, "-"+v)
			}
		}
	}
	return out
}

// beyond are numbers that the provider cannot express.
func (t *trial) beyond() []string {
	v := t.suite.manifest.Values
	var out []string
	if n := v.SignificantDigits; n > 0 {
		out = append(out, t.number(n+1, 0), t.number(n+1, min(n, 12)), t.number(n+20, min(n, 12)))
	}
	if n := v.MaxDecimals; n >= 0 {
		out = append(out, "0."+strings.Repeat("0", n)+"1")
	}
	if !v.Zero {
		out = append(out, "0")
	}
	if !v.Negative {
		out = append(out, "-1")
	}
	return out
}
