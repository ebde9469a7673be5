package meter

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Limits of what comes in. Lengths are in bytes of UTF-8.
const (
	MaxID             = 128 // tenant, event id and CloudEvent id
	MaxSource         = 256
	MaxType           = 256
	MaxAttribute      = 2048 // any other attribute of a CloudEvent
	MaxExtensions     = 64
	MaxFeature        = 63
	MaxDimensions     = 32
	MaxDimensionKey   = 64
	MaxDimensionValue = 256
	MaxMetadata       = 16 << 10 // of the caller's JSON text
	MaxBatchEvents    = 500
	MaxBatchBytes     = 1 << 20
)

// DefaultFuture is how far ahead of the clock an event's time may be.
const DefaultFuture = 300 * time.Second

// firstYear is the earliest year of an event: older times are clocks that were
// never set.
const firstYear = 2000

// reserved are the beginnings of event ids that callers may not use.
var reserved = [...]string{"legacy:", "track:", "recurring:", canon.CloudEventPrefix}

var featureName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,62}$`)

// FeatureRule says what the name of a feature is made of.
const FeatureRule = "a lower-case letter, then at most 62 lower-case letters, digits, '_', '.' or '-'"

// ValidFeature reports whether name can be the name of a feature.
func ValidFeature(name string) bool { return featureName.MatchString(name) }

// FeatureRules are the limits that one feature sets. The zero value is those of
// a feature of which nothing is configured.
type FeatureRules struct {
	// Signed: it takes negative quantities.
	Signed bool
	// Buffered: it takes no events.
	Buffered bool
	// Required names a dimension that its events must have. Empty: none.
	Required string
}

// Rules are the limits that depend on more than the event. The zero value knows
// no clock and refuses every time: set Now. It is safe for concurrent use if
// Feature is.
type Rules struct {
	// Now is the time of the call.
	Now time.Time
	// Future is how far after Now an event's time may be. Zero: DefaultFuture.
	Future time.Duration
	// Feature returns the rules of a feature. Nil: the zero value for each.
	Feature func(name string) FeatureRules
}

// Plain checks every limit on e, those that the decoder checked included, so
// that an event built in Go is as safe as one that was decoded.
func (r Rules) Plain(e PlainEvent) Errors {
	var errs Errors
	checkPlain(&errs, e)
	r.clock(&errs, e.Time)
	// A quantity computed in Go may be wider than one that was parsed.
	if _, err := decimal.Parse(e.Quantity.String()); err != nil {
		errs.note("quantity", err)
	}
	f := r.feature(e.Feature)
	if e.Quantity.Sign() < 0 && !f.Signed {
		errs.add("quantity", negativeRule)
	}
	if f.Buffered {
		errs.buffered()
	}
	if _, has := e.Dimensions[f.Required]; f.Required != "" && !has {
		errs.add("dimensions."+f.Required, "required: the feature counts its distinct values")
	}
	return errs
}

// buffered notes that a feature takes no events.
func (e *Errors) buffered() {
	*e = append(*e, &sdk.Error{
		Tag: sdk.TagInvalid, Code: "feature_buffered", Field: "feature",
		Rule: "a feature with source events: usage of a buffered one is tracked, not recorded",
	})
}

// CloudEvent checks every limit on e, as Plain does.
func (r Rules) CloudEvent(e CloudEvent) Errors {
	var errs Errors
	checkCloudEvent(&errs, e)
	r.clock(&errs, e.Time)
	return errs
}

const negativeRule = "not negative, unless the feature is signed"

// Measurements checks what [Set.Apply] returned against the features' settings.
func (r Rules) Measurements(ms []Measurement) Errors {
	var errs Errors
	for _, m := range ms {
		f := r.feature(m.Feature)
		if m.Quantity.Sign() < 0 && !f.Signed {
			errs.add(m.Path, negativeRule)
		}
		if f.Buffered && !errs.has("feature") {
			errs.buffered()
		}
	}
	return errs
}

func (r Rules) feature(name string) FeatureRules {
	if r.Feature == nil {
		return FeatureRules{}
	}
	return r.Feature(name)
}

func (r Rules) clock(errs *Errors, t time.Time) {
	future := r.Future
	if future == 0 {
		future = DefaultFuture
	}
	if !t.IsZero() && t.After(r.Now.Add(future)) {
		errs.add("time", "at most "+strconv.Itoa(int(future/time.Second))+" seconds in the future")
	}
}

// Truncate brings a time to the form in which events carry it: UTC, cut to
// microseconds towards the past. The zero time stays zero.
func Truncate(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// CheckBatch checks the size of a batch before anything else is done with it.
func CheckBatch(events, bytes int) Errors {
	var errs Errors
	if bytes > MaxBatchBytes {
		errs = append(errs, sdk.Invalid("", "a body of at most 1 MiB"))
	}
	if events > MaxBatchEvents {
		errs.add("events", "at most "+strconv.Itoa(MaxBatchEvents)+" events")
	}
	return errs
}

func checkPlain(errs *Errors, e PlainEvent) {
	checkName(errs, "id", e.ID, MaxID)
	checkReserved(errs, e.ID)
	checkName(errs, "tenant", e.Tenant, MaxID)
	if !featureName.MatchString(e.Feature) {
		errs.add("feature", FeatureRule)
	}
	checkTime(errs, e.Time)
	checkDimensions(errs, e.Dimensions)
	if len(e.Metadata) > 0 && !errs.has("metadata") {
		checkMetadata(errs, e.Metadata)
	}
}

func checkReserved(errs *Errors, id string) {
	for _, prefix := range reserved {
		if strings.HasPrefix(id, prefix) {
			errs.add("id", "no reserved beginning (legacy:, track:, recurring:, ce:)")
		}
	}
}

func checkMetadata(errs *Errors, metadata []byte) {
	if len(metadata) > MaxMetadata {
		errs.add("metadata", "at most 16 KiB of JSON")
		return
	}
	if err := canon.Check(metadata); err != nil {
		errs.note("metadata", err)
		return
	}
	if canon.KindOf(trimSpace(metadata)) != canon.Object {
		errs.add("metadata", "a JSON object")
	}
}

func checkCloudEvent(errs *Errors, e CloudEvent) {
	checkName(errs, "id", e.ID, MaxID)
	checkName(errs, "source", e.Source, MaxSource)
	checkName(errs, "type", e.Type, MaxType)
	checkName(errs, "subject", e.Subject, MaxID)
	checkTime(errs, e.Time)
	if e.DataContentType != "" {
		checkName(errs, "datacontenttype", e.DataContentType, MaxAttribute)
	}
	if e.DataSchema != "" {
		checkName(errs, "dataschema", e.DataSchema, MaxAttribute)
	}
	if len(e.Extensions) > MaxExtensions {
		errs.add("extensions", "at most "+strconv.Itoa(MaxExtensions)+" extension attributes")
		return
	}
	for _, name := range sortedKeys(e.Extensions) {
		checkExtension(errs, name, e.Extensions[name])
	}
	if e.Data != nil && e.Bytes != nil {
		errs.add("data", "one payload, JSON or not")
	}
	if e.Data != nil && !errs.has("data") {
		errs.note("data", canon.Check(e.Data))
	}
}

func checkExtension(errs *Errors, name, value string) {
	if !attributeName(name) || coreAttribute(name) {
		errs.add(nameOr(name, "extensions"), "an attribute name of at most 64 lower-case letters and digits")
		return
	}
	if len(value) > MaxAttribute || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		errs.add(name, "at most "+strconv.Itoa(MaxAttribute)+" bytes of UTF-8 without NUL")
	}
}

// checkName checks a text that identifies something.
func checkName(errs *Errors, field, text string, limit int) {
	switch {
	case text == "":
		errs.add(field, "required, not empty")
	case len(text) > limit:
		errs.add(field, "at most "+strconv.Itoa(limit)+" bytes")
	case !utf8.ValidString(text):
		errs.add(field, "valid UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		errs.add(field, "no control characters")
	}
}

func checkTime(errs *Errors, t time.Time) {
	if !t.IsZero() && t.Year() < firstYear {
		errs.add("time", "not before the year 2000")
	}
}

func checkDimensions(errs *Errors, dimensions map[string]string) {
	if len(dimensions) > MaxDimensions {
		errs.add("dimensions", "at most "+strconv.Itoa(MaxDimensions)+" dimensions")
		return
	}
	for _, key := range sortedKeys(dimensions) {
		field := "dimensions"
		if canon.Nameable(key) {
			field += "." + key
		}
		if key == "" || len(key) > MaxDimensionKey || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
			errs.add(field, "names of 1 to "+strconv.Itoa(MaxDimensionKey)+" bytes of UTF-8 without control characters")
			continue
		}
		value := dimensions[key]
		if len(value) > MaxDimensionValue || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			errs.add(field, "at most "+strconv.Itoa(MaxDimensionValue)+" bytes of UTF-8 without NUL")
		}
	}
}

// nameOr returns a name that came from outside if an error may repeat it.
func nameOr(name, otherwise string) string {
	if canon.Nameable(name) {
		return name
	}
	return otherwise
}

// sortedKeys gives errors a fixed order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
