package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Double stands for the host: it answers requests as a case wants, and has a
// clock and a source of randomness of its own. It is safe for concurrent use.
type Double struct {
	mu     sync.Mutex
	now    time.Time
	random *rand.ChaCha8

	script script
	sent   []capability.Request
	raw    [][]byte
	lines  int
}

// script is what the double does with batches.
type script struct {
	items  []exporter.Item // that are being delivered
	answer func(r capability.Request, items []exporter.Item) capability.Response
	refuse error               // the whole batch
	bytes  func([]byte) []byte // changes the encoded answers
	wait   bool                // until the call's time is over
}

// newDouble has another clock and other randomness for another seed.
func newDouble(seed byte) *Double {
	return &Double{
		now:    time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(seed) * 1234567 * time.Second),
		random: rand.NewChaCha8([32]byte{seed}),
	}
}

// Send is the http capability over bytes: an encoded HttpBatch is answered with
// an encoded HttpAnswers. An error means that nothing was sent.
func (d *Double) Send(ctx context.Context, batch []byte) ([]byte, error) {
	requests, err := wirev1.DecodeRequests(batch)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	s := d.script
	d.mu.Unlock()
	if s.refuse != nil {
		return wirev1.EncodeResponses(nil, s.refuse), nil //nolint:nilerr // the refusal is the answer
	}
	d.mu.Lock()
	d.sent = append(d.sent, requests...)
	d.raw = append(d.raw, append([]byte(nil), batch...))
	d.mu.Unlock()
	responses := make([]capability.Response, len(requests))
	if s.wait {
		<-ctx.Done()
	}
	for i, r := range requests {
		switch {
		case s.wait:
			responses[i] = capability.Response{Failure: capability.FailureUnknown, Reason: "deadline"}
		case s.answer == nil:
			responses[i] = capability.Response{Failure: capability.FailureNotSent, Reason: "no_script"}
		default:
			responses[i] = s.answer(r, covered(r, s.items))
		}
	}
	answers := wirev1.EncodeResponses(responses, nil)
	if s.bytes != nil {
		answers = s.bytes(answers)
	}
	return answers, nil
}

// covered are the items that a request says it reports.
func covered(r capability.Request, items []exporter.Item) []exporter.Item {
	var out []exporter.Item
	for _, id := range r.Items {
		for i := range items {
			if items[i].ID == id {
				out = append(out, items[i])
			}
		}
	}
	return out
}

// Now is the clock capability. Each look at it is a little later, so that a
// runtime whose collector paces itself by it is not led astray, and each
// delivery an hour later.
func (d *Double) Now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(10 * time.Microsecond)
	return d.now
}

// Read is the random capability, and a source for a carrier.
func (d *Double) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Read(p)
}

// Log counts lines of the plugin.
func (d *Double) Log(capability.Level, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines++
}

// Host are the capabilities for a plugin that is linked in.
func (d *Double) Host() capability.Host {
	return capability.Host{HTTP: linkedHTTP{d}, Append: linkedAppend{d}, Clock: d, Random: linkedRandom{d}, Log: linkedLog{d}}
}

type linkedHTTP struct{ double *Double }

func (l linkedHTTP) Send(ctx context.Context, requests []capability.Request) ([]capability.Response, error) {
	answers, err := l.double.Send(ctx, wirev1.EncodeRequests(requests))
	if err != nil {
		return nil, err
	}
	responses, err := wirev1.DecodeResponses(answers, len(requests))
	if _, refused := errors.AsType[*sdk.Error](err); err == nil || refused {
		return responses, err
	}
	// As in a guest: they may have been sent.
	responses = make([]capability.Response, len(requests))
	for i := range responses {
		responses[i] = capability.Response{Failure: capability.FailureUnknown, Reason: "answers_lost"}
	}
	return responses, nil
}

type linkedRandom struct{ double *Double }

func (l linkedRandom) Read(p []byte) error {
	_, err := l.double.Read(p)
	return err
}

type linkedLog struct{ double *Double }

func (l linkedLog) Write(level capability.Level, message string) { l.double.Log(level, message) }

// take returns what was sent since the last take.
func (d *Double) take() (requests []capability.Request, raw [][]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	requests, raw = d.sent, d.raw
	d.sent, d.raw = nil, nil
	return requests, raw
}

func (d *Double) play(s script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script, d.sent, d.raw = s, nil, nil
	d.now = d.now.Add(time.Hour)
}
