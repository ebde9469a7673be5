package outbox

import (
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Span returns the start of the span in UTC in which a window is staged for an
// exporter that gets at most one in each; zero for any other.
func Span(m *exporter.Manifest, now time.Time) time.Time {
	if m == nil || m.Every <= 0 {
		return time.Time{}
	}
	return now.UTC().Truncate(m.Every)
}

// Carry returns the reading up to which a counter can be told to an exporter that
// gets one window in a span: what lies behind the provider's last decimal, or
// beyond its digits, is carried to the next window instead of being rounded away
// or refused. A counter that fell, at a provider that takes nothing back, is told
// nothing until it has grown again; over says that it will not any more, so that
// the fall is staged and shown as what it is.
func Carry(v exporter.ValueDomain, from, to decimal.Decimal, over bool) decimal.Decimal {
	way := to.Sub(from)
	if way.Sign() < 0 && !v.Negative {
		if over {
			return to
		}
		return from
	}
	return from.Add(bounded(v, cut(way, v.MaxDecimals)))
}

// cut drops what is behind some decimals; -1 keeps all.
func cut(d decimal.Decimal, decimals int) decimal.Decimal {
	if decimals < 0 || d.Scale() <= decimals {
		return d
	}
	whole, fraction, _ := strings.Cut(d.Abs().String(), ".")
	text := whole
	if decimals > 0 {
		text += "." + fraction[:decimals]
	}
	kept, err := decimal.ParseTotal(text)
	if err != nil { // a number without its last digits is one
		return d
	}
	if d.Sign() < 0 {
		return kept.Neg()
	}
	return kept
}

// bounded returns the largest way of so many digits, in whole numbers, if d is
// more. Of a provider that takes decimals the digits are no bound of this kind.
func bounded(v exporter.ValueDomain, d decimal.Decimal) decimal.Decimal {
	if v.SignificantDigits <= 0 || v.MaxDecimals != 0 {
		return d
	}
	most, err := decimal.ParseTotal(strings.Repeat("9", v.SignificantDigits))
	switch {
	case err != nil || d.Abs().Cmp(most) <= 0:
		return d
	case d.Sign() < 0:
		return most.Neg()
	}
	return most
}

// spanSubject is the subject of a window that is the only one of its customer in
// its span, whichever tenant, period or feature it comes from: the provider knows
// a record by its key, and a second one would be refused or, worse, taken for the
// first. The store has at most one sendable item of a subject.
func spanSubject(s Stretch, m *exporter.Manifest, fields map[string]string) storage.Hash {
	parts := []string{"window in a span", s.Route.Exporter, s.Route.Account, s.Route.Mode, s.Window.Span.Format(time.RFC3339)}
	if s.Customer == "" {
		return canon.Digest(append(parts, "tenant", s.Tenant, s.Window.Feature)...)
	}
	parts = append(parts, "customer", s.Customer)
	keyed := false
	if m.Records != nil {
		for _, k := range m.Records.Key {
			if name, ok := strings.CutPrefix(k.Field, "mapping."); ok {
				parts, keyed = append(parts, name, fields[name]), true
			}
		}
	}
	if !keyed {
		parts = append(parts, "feature", s.Window.Feature)
	}
	return canon.Digest(parts...)
}
