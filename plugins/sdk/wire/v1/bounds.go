package wirev1

import (
	"errors"
	"fmt"
	"io"

	lite "github.com/aperturerobotics/protobuf-go-lite"
)

// Errors that every Decode function returns, wrapped with the message's name.
var (
	ErrMalformed = errors.New("malformed message")
	ErrTooLarge  = errors.New("message beyond its limits")
)

// Limits of a message. A message beyond them is refused whole.
const (
	// MaxMessage is the size of any message in bytes.
	MaxMessage = 32 << 20
	// MaxItems is how many items, requests or answers a batch may have.
	MaxItems = 500
	// MaxOutcomes leaves room for a plugin that answers an item twice: the
	// engine must see that, not lose the batch over it.
	MaxOutcomes = 2 * MaxItems
	// MaxEvidence is how many items one message of a provider may name.
	MaxEvidence = 1000
	// MaxHeaders is how many header fields one request or answer may have.
	MaxHeaders = 256
	// MaxEntries bounds every other list.
	MaxEntries = 128
)

// bound limits how often a field may occur in a message, and the same inside
// it. Without it, two bytes of input ("one more empty item") would cost the
// reader a hundred.
type bound struct {
	field  int
	max    int
	inside []bound
}

func list(field int) bound { return bound{field: field, max: MaxEntries} }

var (
	boundsNone []bound

	boundsManifest = []bound{{1, 1, []bound{
		{7, 1, nil},
		list(11), list(13), list(14),
		{15, MaxEntries, []bound{list(4), list(5)}},
		list(16),
		{18, MaxEntries, []bound{list(4)}},
		{20, 1, []bound{list(4)}},
		{21, 1, nil},
		{22, 1, []bound{list(2), list(3)}},
	}}}
	boundsDelivery  = []bound{{1, MaxItems, []bound{list(13), {14, 1, nil}}}}
	boundsProbe     = []bound{{1, MaxItems, []bound{list(3)}}}
	boundsSums      = []bound{{1, MaxItems, nil}}
	boundsWebhook   = []bound{{2, MaxEvidence, nil}}
	boundsOutcomes  = []bound{{1, MaxOutcomes, nil}}
	boundsRequests  = []bound{{1, MaxItems, []bound{{3, MaxHeaders, nil}, {5, MaxItems, nil}, list(6)}}}
	boundsRecords   = []bound{{1, MaxItems, nil}}
	boundsAppended  = []bound{{1, MaxItems, nil}, {2, 1, nil}}
	boundsResponses = []bound{{1, MaxItems, []bound{{4, MaxHeaders, nil}}}, {2, 1, nil}}
)

// check walks data without allocating. It goes only as deep as the bounds do.
func check(data []byte, bounds []bound) error {
	if len(bounds) == 0 {
		return nil
	}
	var counts [12]int // more than any list of bounds has
	for len(data) > 0 {
		tag, start, err := lite.DecodeVarint(data, 0)
		if err != nil {
			return err
		}
		size, err := lite.Skip(data)
		if err != nil {
			return err
		}
		if size > len(data) {
			return io.ErrUnexpectedEOF
		}
		for i, b := range bounds {
			// The generated code truncates field numbers to 32 bits; this
			// must see the field that it will see.
			if int(int32(tag>>3)) != b.field || tag&7 != 2 {
				continue
			}
			if counts[i]++; counts[i] > b.max {
				return fmt.Errorf("%w: field %d occurs more than %d times", ErrTooLarge, b.field, b.max)
			}
			_, body, err := lite.DecodeVarint(data, start)
			if err != nil {
				return err
			}
			if err := check(data[body:size], b.inside); err != nil {
				return err
			}
		}
		data = data[size:]
	}
	return nil
}

type message interface {
	MarshalVT() ([]byte, error)
}

// encode marshals m. Messages without required fields have nothing that can
// fail; a failure would be a fault of the generator.
func encode(m message) []byte {
	b, err := m.MarshalVT()
	if err != nil {
		panic("wirev1: " + err.Error())
	}
	return b
}

// decode fills m from data within bounds.
func decode(name string, data []byte, bounds []bound, m interface{ UnmarshalVT([]byte) error }) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("decode %s: %w: more than %d bytes", name, ErrTooLarge, MaxMessage)
	}
	err := check(data, bounds)
	if err == nil {
		err = m.UnmarshalVT(data)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return fmt.Errorf("decode %s: %w: %w", name, ErrMalformed, err)
}
