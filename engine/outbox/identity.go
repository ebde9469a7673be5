package outbox

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// IdentifierPrefix begins every idempotency key that this project hands out.
const IdentifierPrefix = "fencepost_"

// IdentifierLength is the length of every identifier in characters.
const IdentifierLength = len(IdentifierPrefix) + 2*len(storage.Hash{})

// Identifier returns the digest of a whole identity and the idempotency key
// made of it. It depends on nothing else: no time, no attempt, no randomness.
// The tenant is part of it, because references are unique only within one.
func Identifier(id storage.Identity) (storage.Hash, string) {
	digest := canon.Digest(id.Tenant, string(id.SubjectKind), id.SubjectRef,
		id.Exporter, id.Account, id.Mode, id.MappingVersion)
	return digest, IdentifierOf(digest)
}

// IdentifierOf returns the idempotency key of a stored digest.
func IdentifierOf(digest storage.Hash) string {
	return IdentifierPrefix + hex.EncodeToString(digest[:])
}

// SubjectKey returns the digest of an identity without its mapping version: two
// items that share it report the same fact to the same place, so at most one of
// them may be sent.
func SubjectKey(id storage.Identity) storage.Hash {
	return canon.Digest(id.Tenant, string(id.SubjectKind), id.SubjectRef,
		id.Exporter, id.Account, id.Mode)
}

// EventRef is the subject reference of a usage event.
func EventRef(key storage.EventKey) string { return key.EventID }

// CorrectionRef is the subject reference of a correction, by its own event id.
func CorrectionRef(key storage.EventKey) string { return key.EventID }

// Window is a stretch of a buffered counter: what lies in [From, To) of one
// feature in the billing period that begins at PeriodStart. From and To are
// readings of the counter, not times.
type Window struct {
	Feature     string
	PeriodStart time.Time
	From        decimal.Decimal
	To          decimal.Decimal
	// Span is when the span begins in which the window is the only one; zero
	// where any number may follow. See [Span].
	Span time.Time
}

// WindowRef is the subject reference of a window. Both bounds are in it, so
// staging a window again is the same reference and the next window is another. So
// is the same stretch in another span: the provider knows it by the span.
func WindowRef(w Window) string {
	parts := []string{
		"usage",
		escapeRef(w.Feature),
		escapeRef(w.PeriodStart.UTC().Format("2006-01-02T15:04:05.000000Z")),
		escapeRef(w.From.String()),
		escapeRef(w.To.String()),
	}
	if !w.Span.IsZero() {
		parts = append(parts, escapeRef(w.Span.UTC().Format(time.RFC3339)))
	}
	return strings.Join(parts, ":")
}

// escapeRef makes joining with colons injective.
func escapeRef(s string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(s)
}
