package postgres

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// textTarget reads a text. NULL is empty.
type textTarget[T ~string] struct{ s *T }

// ScanText implements pgtype.TextScanner.
func (s textTarget[T]) ScanText(v pgtype.Text) error {
	*s.s = T(v.String) // empty when not valid
	return nil
}

func textInto[T ~string](s *T) textTarget[T] { return textTarget[T]{s} }

// sameTarget reads a text that mostly is the one of the row before, and then
// keeps no second copy of it. NULL is empty.
type sameTarget[T ~string] struct {
	s    *T
	last T
}

// ScanBytes implements pgtype.BytesScanner.
func (s *sameTarget[T]) ScanBytes(v []byte) error {
	if string(v) != string(s.last) {
		s.last = T(v)
	}
	*s.s = s.last
	return nil
}

func sameInto[T ~string](s *T) *sameTarget[T] { return &sameTarget[T]{s: s} }

// dimensionsInto reads a JSON object of strings. NULL is nil.
type dimensionsInto struct{ d *map[string]string }

// ScanBytes implements pgtype.BytesScanner.
func (s dimensionsInto) ScanBytes(v []byte) error {
	*s.d = nil
	if v == nil {
		return nil
	}
	d, ok := plainStrings(v)
	if !ok {
		return json.Unmarshal(v, s.d)
	}
	*s.d = d
	return nil
}

// plainStrings reads an object of strings without escapes, as the server writes
// one; ok is false for anything else.
func plainStrings(v []byte) (d map[string]string, ok bool) {
	if len(v) < 2 || v[0] != '{' || v[len(v)-1] != '}' || bytes.IndexByte(v, '\\') >= 0 {
		return nil, false
	}
	parts := strings.Split(string(v[1:len(v)-1]), `"`)
	// Outside, name, between, value, outside, …
	if len(parts)%4 != 1 {
		return nil, false
	}
	d = make(map[string]string, len(parts)/4)
	for i := 0; i+4 < len(parts); i += 4 {
		before, between := parts[i], parts[i+2]
		if between != ": " || before != "" && i == 0 || before != ", " && i > 0 {
			return nil, false
		}
		d[parts[i+1]] = parts[i+3]
	}
	return d, parts[len(parts)-1] == ""
}

// intInto reads a bigint. NULL is zero.
func intInto(n *int64) *zeronull.Int8 { return (*zeronull.Int8)(n) }

// boolInto reads a boolean. NULL is false.
type boolInto struct{ b *bool }

// ScanBool implements pgtype.BoolScanner.
func (s boolInto) ScanBool(v pgtype.Bool) error {
	*s.b = v.Valid && v.Bool
	return nil
}

// countInto reads an integer. NULL is zero.
type countInto struct{ n *int }

// ScanInt64 implements pgtype.Int64Scanner.
func (s countInto) ScanInt64(v pgtype.Int8) error {
	*s.n = 0
	if v.Valid {
		*s.n = int(v.Int64)
	}
	return nil
}

// hashInto reads a digest. NULL is the zero hash.
type hashInto struct{ h *storage.Hash }

// ScanBytes implements pgtype.BytesScanner.
func (s hashInto) ScanBytes(v []byte) error {
	*s.h = storage.Hash{}
	copy(s.h[:], v)
	return nil
}

// documentInto reads a JSON document that is stored as text. NULL is nil.
type documentInto struct{ doc *json.RawMessage }

// ScanText implements pgtype.TextScanner.
func (s documentInto) ScanText(v pgtype.Text) error {
	*s.doc = nil
	if v.Valid {
		*s.doc = json.RawMessage(v.String)
	}
	return nil
}

// eventInto receives the columns of an event, or of none where an outer join
// found no row: seq, tenant_key, event_id, feature, quantity::text,
// effect::text, kind, reverses, original_event_id, occurred_at, period_start,
// period_end, period_source, plan, plan_version, dimensions, metadata,
// payload_hash, dedupe_hash, recorded_at.
func eventInto(ev *storage.Event) []any {
	return []any{
		intInto(&ev.Seq), sameInto(&ev.Tenant), textInto(&ev.EventID), sameInto(&ev.Feature),
		decimalInto{&ev.Quantity},
		decimalInto{&ev.Effect},
		sameInto(&ev.Kind),
		boolInto{&ev.Reverses},
		textInto(&ev.OriginalEventID),
		utcInto{&ev.OccurredAt},
		utcInto{&ev.PeriodStart},
		utcInto{&ev.PeriodEnd},
		sameInto(&ev.PeriodSource), sameInto(&ev.Plan), sameInto(&ev.PlanVersion),
		dimensionsInto{&ev.Dimensions},
		documentInto{&ev.Metadata},
		hashInto{&ev.PayloadHash},
		hashInto{&ev.DedupeHash},
		utcInto{&ev.RecordedAt},
	}
}

// identityInto receives the columns of an item's identity: tenant_key,
// subject_kind, subject_ref, exporter, destination_account, mode,
// mapping_version.
func identityInto(id *storage.Identity) []any {
	return []any{
		sameInto(&id.Tenant), sameInto(&id.SubjectKind), textInto(&id.SubjectRef), sameInto(&id.Exporter),
		sameInto(&id.Account), sameInto(&id.Mode), sameInto(&id.MappingVersion),
	}
}

// optText is NULL for the empty string.
func optText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
