package canon

import (
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const correctionForm = "fencepost-correction-v1"

// Correction is what [CorrectionHash] covers: a correction as it was asked for.
type Correction struct {
	OriginalEventID string
	// Quantity is what is taken back; nil: whatever is left.
	Quantity *decimal.Decimal
	Reason   string
	Metadata json.RawMessage // as in [EventHash]
	// ReplacementID is the id of the event that takes the original's place,
	// Replacement that event's own dedupe hash; empty and nil for none.
	ReplacementID string
	Replacement   *storage.Hash
}

// CorrectionHash is the digest of a request to correct. It depends on nothing
// that is found out later, so "what is left" is the same request when nothing
// is left any more. Tenant and the correction's own id are not part of it, as
// in [EventHash].
//
// It fails with tag invalid, naming the field, when a text is not UTF-8 or the
// metadata is not a JSON object that [JSON] accepts.
func CorrectionHash(c Correction) (storage.Hash, error) {
	for _, text := range []struct{ field, value string }{
		{"event_id", c.OriginalEventID}, {"reason", c.Reason}, {"replace.id", c.ReplacementID},
	} {
		if !utf8.ValidString(text.value) {
			return storage.Hash{}, sdk.Invalid(text.field, "valid UTF-8")
		}
	}
	metadata, err := metadataText(c.Metadata)
	if err != nil {
		return storage.Hash{}, err
	}
	var quantity, replacement string
	if c.Quantity != nil {
		quantity = c.Quantity.String()
	}
	if c.Replacement != nil {
		replacement = hex.EncodeToString(c.Replacement[:])
	}
	return Digest(correctionForm, c.OriginalEventID, quantity, c.Reason, metadata, c.ReplacementID, replacement), nil
}
