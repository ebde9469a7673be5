package meter

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// MaxReason bounds the reason of a correction, in bytes.
const MaxReason = 1024

// maxStoredID bounds the id of a stored event, which is longer than what a
// caller may choose if the event came as a CloudEvent.
const maxStoredID = len(canon.CloudEventPrefix) + MaxSource + MaxID + MaxFeature + 3*len("999:")

// reasonKey is the key of the stored metadata that holds a correction's reason.
const reasonKey = "reason"

// Correction takes back usage that was recorded: a part of it (Quantity), what
// is left of it (Remaining), or what is left of it with other usage in its
// place (Replace). Exactly one is given; Replace may go with Remaining.
type Correction struct {
	// ID identifies the correction among the tenant's events and corrections.
	ID     string
	Tenant string
	// EventID is the id of the event to correct, as it is stored.
	EventID string
	// Quantity is how much is taken back: above zero, and at most what is
	// left. A negative original moves towards zero too. // Q7
	Quantity  *decimal.Decimal
	Remaining bool
	// Replace is recorded in the same transaction.
	Replace *PlainEvent
	// Reason is for people: at most 1024 bytes. It is stored as the key
	// "reason" of the metadata.
	Reason string
	// Metadata is as in [PlainEvent], without the key "reason" if there is a
	// Reason.
	Metadata json.RawMessage
	// DryRun asks what would be taken back, and writes nothing. It is no part of
	// what is asked for: the same correction without it is the same.
	DryRun bool
}

// DedupeHash is the canonical hash of what is asked for. It fails only for a
// correction that [Rules.Correction] refuses.
func (c Correction) DedupeHash() (storage.Hash, error) {
	form := canon.Correction{OriginalEventID: c.EventID, Quantity: c.Quantity, Reason: c.Reason, Metadata: c.Metadata}
	if c.Replace != nil {
		hash, err := c.Replace.DedupeHash()
		if err != nil {
			return storage.Hash{}, err
		}
		form.ReplacementID, form.Replacement = c.Replace.ID, &hash
	}
	return canon.CorrectionHash(form)
}

// StoredMetadata is the metadata with the reason in it, nil if there is neither.
func (c Correction) StoredMetadata() (json.RawMessage, error) {
	if c.Reason == "" {
		return c.Metadata, nil
	}
	reason, err := json.Marshal(map[string]string{reasonKey: c.Reason})
	if err != nil {
		return nil, sdk.Invalid("reason", "valid UTF-8")
	}
	rest := trimSpace(c.Metadata)
	if len(rest) == 0 || len(trimSpace(rest[1:len(rest)-1])) == 0 {
		return reason, nil
	}
	return append(append(reason[:len(reason)-1], ','), rest[1:]...), nil
}

// Correction checks every limit on c that does not depend on what is stored.
func (r Rules) Correction(c Correction) Errors {
	var errs Errors
	checkCorrection(&errs, c)
	if c.Quantity != nil {
		// One that was computed in Go may be wider than one that was parsed.
		if _, err := decimal.Parse(c.Quantity.String()); err != nil && !errs.has("quantity") {
			errs.note("quantity", err)
		}
	}
	if c.Replace != nil {
		errs = append(errs, r.Plain(*c.Replace).within("replace")...)
	}
	return errs
}

func checkCorrection(errs *Errors, c Correction) {
	checkName(errs, "id", c.ID, MaxID)
	checkReserved(errs, c.ID)
	checkName(errs, "tenant", c.Tenant, MaxID)
	longest := MaxID
	if strings.HasPrefix(c.EventID, canon.CloudEventPrefix) {
		longest = maxStoredID
	}
	checkName(errs, "event_id", c.EventID, longest)
	if c.ID != "" && c.ID == c.EventID {
		errs.add("id", "another id than that of the event to correct")
	}
	checkAmount(errs, c)
	if c.Reason != "" {
		checkName(errs, "reason", c.Reason, MaxReason)
	}
	if len(c.Metadata) > 0 && !errs.has("metadata") {
		checkMetadata(errs, c.Metadata)
		if _, has, err := canon.Find(c.Metadata, []canon.Step{{Key: reasonKey}}); c.Reason != "" && has && err == nil {
			errs.add("metadata.reason", "absent: it is where the reason is kept")
		}
	}
	if r := c.Replace; r != nil {
		switch {
		case r.Tenant != c.Tenant:
			errs.add("replace.tenant", "that of the correction")
		case r.ID == c.ID || r.ID == c.EventID:
			errs.add("replace.id", "an id of its own")
		}
	}
}

// checkAmount checks that exactly one thing says how much is taken back.
func checkAmount(errs *Errors, c Correction) {
	switch {
	case errs.has("quantity") || errs.about("replace"):
	case c.Quantity == nil && !c.Remaining && c.Replace == nil:
		errs.add("quantity", "required, unless remaining or replace is given")
	case c.Quantity == nil:
	case c.Remaining:
		errs.add("quantity", "absent where remaining is true")
	case c.Replace != nil:
		errs.add("quantity", "absent with replace, which takes back what is left")
	case c.Quantity.Sign() <= 0:
		errs.add("quantity", "above 0: how much is taken back, whatever the sign of the event")
	}
}

// CorrectionItem is one correction of a batch, or what is wrong with it.
type CorrectionItem struct {
	Correction Correction
	Err        error // nil, or Errors naming "corrections[i].…"
}

// DecodeCorrectionBatch reads a JSON array of corrections, as
// [DecodePlainBatch] reads events.
func DecodeCorrectionBatch(body []byte) ([]CorrectionItem, error) {
	elements, err := batch(body)
	if err != nil {
		return nil, err
	}
	items := make([]CorrectionItem, len(elements))
	for i, element := range elements {
		c, err := DecodeCorrection(element)
		items[i].Correction = c
		if err != nil {
			items[i].Err = AsErrors(err).Of("corrections", i)
		}
	}
	return items, nil
}

// DecodeCorrection reads one correction, as [DecodePlain] reads an event.
func DecodeCorrection(body []byte) (Correction, error) {
	if errs := CheckBatch(1, len(body)); errs != nil {
		return Correction{}, errs
	}
	members, err := canon.Members(body)
	if err != nil {
		return Correction{}, AsErrors(err)
	}
	var (
		c    Correction
		errs Errors
	)
	for _, m := range members {
		if canon.KindOf(m.Value) == canon.Null && correctionField(m.Name) {
			continue
		}
		c.read(&errs, m)
	}
	checkCorrection(&errs, c)
	if errs != nil {
		return Correction{}, errs
	}
	return c, nil
}

func (c *Correction) read(errs *Errors, m canon.Member) {
	switch m.Name {
	case "id":
		c.ID = text(errs, m)
	case "tenant":
		c.Tenant = text(errs, m)
	case "event_id":
		c.EventID = text(errs, m)
	case "quantity":
		q, err := quantity(m.Value)
		errs.note("quantity", err)
		c.Quantity = &q
	case "remaining":
		c.Remaining = truth(errs, m)
	case "dry_run":
		c.DryRun = truth(errs, m)
	case "replace":
		e, err := DecodePlain(m.Value)
		if err != nil {
			*errs = append(*errs, AsErrors(err).within("replace")...)
			return
		}
		c.Replace = &e
	case "reason":
		c.Reason = text(errs, m)
	case "metadata":
		c.Metadata = m.Value
	case "feature", "dimensions", "time", "occurred_at":
		errs.add(m.Name, "absent: a correction has that of its event; replace the event to change it")
	default:
		errs.add(nameOr(m.Name, ""), "one of the fields id, tenant, event_id, quantity, remaining, replace, reason, metadata, dry_run")
	}
}

func truth(errs *Errors, m canon.Member) bool {
	switch string(m.Value) {
	case "true":
		return true
	case "false":
	default:
		errs.add(m.Name, "true or false")
	}
	return false
}

func correctionField(name string) bool {
	switch name {
	case "id", "tenant", "event_id", "quantity", "remaining", "replace", "reason", "metadata", "dry_run":
		return true
	}
	return false
}

// about reports whether an error concerns a field or a member of it.
func (e Errors) about(field string) bool {
	return slices.ContainsFunc(e, func(err *sdk.Error) bool {
		return err.Field == field || strings.HasPrefix(err.Field, field+".")
	})
}

// within returns a copy of e whose fields are members of field.
func (e Errors) within(field string) Errors {
	out := make(Errors, len(e))
	for i, err := range e {
		c := *err
		c.Field = strings.TrimSuffix(field+"."+err.Field, ".")
		out[i] = &c
	}
	return out
}

// Of returns a copy of e that concerns item i (from zero) of the named list:
// the index is set and fields read "corrections[3].quantity".
func (e Errors) Of(list string, i int) Errors {
	out := e.within(list + "[" + strconv.Itoa(i) + "]")
	for n := range out {
		out[n] = out[n].At(i)
	}
	return out
}
