package conformance

import (
	"bytes"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// session is one plugin that was configured, and its double.
type session struct {
	trial  *trial
	caller Caller
	double *Double
	// broken is set after a call without an answer: what is left of the
	// plugin is not used again.
	broken bool
}

// session returns the plugin that most cases share, so that none may leave
// anything behind that changes another.
func (t *trial) session() *session {
	if t.suite.shared == nil {
		t.suite.shared = t.open(1, true)
		t.opened = t.opened[:len(t.opened)-1] // it outlives this case
	}
	t.suite.shared.trial = t
	return t.suite.shared
}

// open starts a plugin for this case alone.
func (t *trial) open(seed byte, configured bool) *session {
	s := &session{trial: t, double: newDouble(seed)}
	var setup []SetupCall
	if configured {
		setup = []SetupCall{{uint32(wirev1.MethodConfigure), wirev1.EncodeConfiguration(t.provider().Configuration)}}
	}
	caller, err := t.suite.options.Open(t.ctx, s.double, setup)
	if err != nil {
		t.fatalf("the plugin does not start: %v", err)
	}
	s.caller = caller
	t.opened = append(t.opened, s)
	return s
}

// call performs a method. An error that is no Error message of the plugin ends
// the case.
func (s *session) call(method wirev1.Method, request []byte) ([]byte, error) {
	answer, err := s.caller.Call(s.trial.ctx, uint32(method), request)
	if err == nil {
		return answer, nil
	}
	if e, ok := s.trial.refusal(err); ok {
		return nil, e
	}
	s.broken = true
	s.trial.fatalf("%s was not answered: %v", method, err)
	return nil, err
}

// delivered is what a delivery came to.
type delivered struct {
	items    []exporter.Item
	outcomes []exporter.ItemOutcome
	requests []capability.Request
	raw      [][]byte
}

// deliver plays a script and delivers items. An Error message, or outcomes that
// are not one for each item, end the case.
func (s *session) deliver(play script, items ...exporter.Item) delivered {
	return s.deliverBytes(play, items, wirev1.EncodeDelivery(exporter.Delivery{Items: items}))
}

func (s *session) deliverBytes(play script, items []exporter.Item, request []byte) delivered {
	play.items = items
	s.double.play(play)
	answer, err := s.call(wirev1.MethodDeliver, request)
	if err != nil {
		s.trial.fatalf("Deliver answered with an error: %v; what became of items is an outcome", err)
	}
	d := delivered{items: items}
	d.requests, d.raw = s.double.take()
	if d.outcomes, err = wirev1.DecodeOutcomes(answer); err != nil {
		s.trial.fatalf("the outcomes do not parse: %v", err)
	}
	if len(d.outcomes) != len(items) {
		s.trial.fatalf("%d outcomes of %d items", len(d.outcomes), len(items))
	}
	for i := range items {
		if d.of(items[i].ID) == nil {
			s.trial.fatalf("item %d of %d has no outcome", i, len(items))
		}
	}
	return d
}

// of is the outcome of an item.
func (d *delivered) of(id string) *exporter.ItemOutcome {
	i := slices.IndexFunc(d.outcomes, func(o exporter.ItemOutcome) bool { return o.ItemID == id })
	if i < 0 {
		return nil
	}
	return &d.outcomes[i]
}

// requestOf is the first request that reports an item.
func (d *delivered) requestOf(id string) *capability.Request {
	i := slices.IndexFunc(d.requests, func(r capability.Request) bool { return slices.Contains(r.Items, id) })
	if i < 0 {
		return nil
	}
	return &d.requests[i]
}

// want fails unless every item has an outcome of these kinds.
func (d *delivered) want(t *trial, after string, kinds ...exporter.OutcomeKind) {
	for i := range d.outcomes {
		if o := &d.outcomes[i]; !slices.Contains(kinds, o.Kind) {
			t.failf("after %s an item is %s (code %q), want %v", after, o.Kind, o.Code, kinds)
		}
	}
}

// says is a script in which the provider answers every request so.
func (t *trial) says(a Answer) script {
	return script{answer: func(r capability.Request, items []exporter.Item) capability.Response {
		response, _ := t.provider().Answer(a, r, items)
		return response
	}}
}

// has skips the case if the provider has no such answer.
func (t *trial) has(a Answer) {
	items := t.items(1)
	d := t.session().deliver(t.says(Accept), items...)
	if len(d.requests) == 0 {
		t.fatalf("nothing is sent for a plain item")
	}
	if _, ok := t.provider().Answer(a, d.requests[0], items); !ok {
		t.skipf("this provider has no answer %q", a)
	}
}

// speaksHTTP reports whether the plugin sends requests; one that appends lines to
// a file gets no statuses and no bodies.
func (t *trial) speaksHTTP() bool {
	return slices.Contains(t.suite.manifest.Capabilities, capability.HTTPName)
}

// overHTTP skips a case about statuses, bodies or addresses.
func (t *trial) overHTTP() {
	if !t.speaksHTTP() {
		t.skipf("this exporter sends no requests")
	}
}

// always is a script with one response to everything.
func always(r capability.Response) script {
	return script{answer: func(capability.Request, []exporter.Item) capability.Response { return r }}
}

func response(status int, body string, headers ...capability.Header) capability.Response {
	return capability.Response{Status: status, Body: []byte(body), Headers: headers}
}

func unknown(reason string) capability.Response {
	return capability.Response{Failure: capability.FailureUnknown, Reason: reason}
}

func sameBytes(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
