package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func wireCases() []Case {
	return []Case{
		{"wire/unknown-fields", "fields of a later version are ignored, in requests and in the answers of the host", wireUnknownFields},
		{"wire/unknown-failure", "a failure of a later version is an exchange without an answer", wireUnknownFailure},
		{"wire/malformed", "a request that does not parse is an Error with tag invalid, sends nothing, and the plugin goes on", wireMalformed},
		{"wire/unknown-method", "a method of a later version, and one that is not declared, is an Error with tag unsupported", wireUnknownMethod},
		{"wire/close", "Close is answered", wireClose},
	}
}

// shape says which fields of a message are messages.
type shape map[int]shape

var (
	deliveryShape = shape{1: {13: {}, 14: {}}}
	answersShape  = shape{1: {4: {}}}
)

// later adds fields that no version knows to a message and to those inside it.
func later(message []byte, s shape) []byte {
	var out []byte
	for rest := message; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		field, kind := int(tag>>3), tag&7
		size := n
		switch kind {
		case 0:
			_, m := binary.Uvarint(rest[n:])
			size += m
		case 1:
			size += 8
		case 5:
			size += 4
		case 2:
			length, m := binary.Uvarint(rest[n:])
			body := rest[n+m : n+m+int(length)]
			size += m + int(length)
			if inside, ok := s[field]; ok {
				body = later(body, inside)
				out = append(binary.AppendUvarint(append(out, rest[:n]...), uint64(len(body))), body...)
				rest = rest[size:]
				continue
			}
		}
		out = append(out, rest[:size]...)
		rest = rest[size:]
	}
	unknown := func(field uint64, kind uint64, body ...byte) {
		out = append(binary.AppendUvarint(out, field<<3|kind), body...)
	}
	unknown(1000, 0, 0xff, 0x01)
	unknown(1001, 2, 3, 'n', 'e', 'w')
	unknown(1002, 5, 1, 2, 3, 4)
	unknown(1003, 1, 1, 2, 3, 4, 5, 6, 7, 8)
	return out
}

func wireUnknownFields(t *trial) {
	s := t.open(1, false)
	configuration := wirev1.EncodeConfiguration(t.provider().Configuration)
	if _, err := s.call(wirev1.MethodConfigure, later(configuration, nil)); err != nil {
		t.fatalf("Configure with fields of a later version fails: %v", err)
	}
	if _, err := s.call(wirev1.MethodDescribe, later(nil, nil)); err != nil {
		t.failf("Describe with fields of a later version fails: %v", err)
	}
	items := t.items(min(3, t.suite.manifest.MaxBatch))
	plain := s.deliver(t.says(Accept), items...)
	play := t.says(Accept)
	play.bytes = func(b []byte) []byte { return later(b, answersShape) }
	request := later(wirev1.EncodeDelivery(exporter.Delivery{Items: items}), deliveryShape)
	extended := s.deliverBytes(play, items, request)
	if !sameBytes(plain.raw, extended.raw) {
		t.failf("with fields of a later version other bytes are sent")
	}
	extended.want(t, "answers with fields of a later version", exporter.Accepted)
}

// wireUnknownFailure sets the failure of answers that look like successes to
// one that this version does not know.
func wireUnknownFailure(t *trial) {
	play := t.says(Accept)
	play.bytes = func(b []byte) []byte {
		var out []byte
		for len(b) > 0 {
			_, n := binary.Uvarint(b)
			length, m := binary.Uvarint(b[n:])
			body := append([]byte{0x08, 99}, b[n+m:n+m+int(length)]...)
			out = append(binary.AppendUvarint(append(out, b[:n]...), uint64(len(body))), body...)
			b = b[n+m+int(length):]
		}
		return out
	}
	d := t.session().deliver(play, t.items(1)...)
	d.want(t, "a failure of a later version", open...)
}

func wireMalformed(t *trial) {
	long := bytes.Repeat([]byte{0xff}, 11)
	bad := map[string][]byte{
		"a length beyond the end": {0x0a, 0xff, 0x01},
		"a cut string":            {0x0a, 0x05, 'a'},
		"a cut number":            {0x80},
		"a number without end":    append([]byte{0x10}, long...),
		"an unknown wire type":    {0x0f, 0x00},
		"field number zero":       {0x02, 0x00},
		"a huge length":           {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f},
	}
	// Only the reader of a delivery looks into the items.
	inside := map[string][]byte{
		"an item with a cut string":    {0x0a, 0x02, 0x0a, 0x05},
		"an item of an unknown type":   {0x0a, 0x02, 0x0f, 0x00},
		"a mapping entry that is cut":  {0x0a, 0x04, 0x6a, 0x02, 0x0a, 0x09},
		"a good item, and a cut one":   append(wirev1.EncodeDelivery(exporter.Delivery{Items: t.items(1)}), 0x0a, 0x02, 0x0a, 0x05),
		"a good item and a cut number": append(wirev1.EncodeDelivery(exporter.Delivery{Items: t.items(1)}), 0x10, 0x80),
	}
	s := t.session()
	try := func(method wirev1.Method, requests map[string][]byte) {
		for name, request := range requests {
			s.double.play(t.says(Accept))
			_, err := s.call(method, request)
			e, _ := err.(*sdk.Error) //nolint:errorlint // call returns it so
			switch {
			case err == nil:
				t.failf("%s of %s is answered", method, name)
			case e.Tag != sdk.TagInvalid:
				t.failf("%s of %s is an error with tag %s, want invalid", method, name, e.Tag)
			}
			if requests, _ := s.double.take(); len(requests) > 0 {
				t.failf("%s of %s sent %d requests", method, name, len(requests))
			}
		}
	}
	try(wirev1.MethodDeliver, bad)
	try(wirev1.MethodDeliver, inside)
	try(wirev1.MethodConfigure, bad)
	d := s.deliver(t.says(Accept), t.items(1)...)
	d.want(t, "malformed requests, and then a success,", exporter.Accepted)
}

func wireUnknownMethod(t *trial) {
	m := t.suite.manifest
	methods := []wirev1.Method{0, 99, 1 << 30}
	if !m.ReadBack.Sums {
		methods = append(methods, wirev1.MethodProbe)
	}
	if m.Webhook == nil {
		methods = append(methods, wirev1.MethodWebhook)
	}
	s := t.session()
	for _, method := range methods {
		_, err := s.call(method, nil)
		e, _ := err.(*sdk.Error) //nolint:errorlint // call returns it so
		if err == nil || e.Tag != sdk.TagUnsupported {
			t.failf("%s answers %v, want an error with tag unsupported", method, err)
		}
	}
}

func wireClose(t *trial) {
	if _, err := t.open(1, true).call(wirev1.MethodClose, nil); err != nil {
		t.failf("Close fails: %v", err)
	}
}

func longCases() []Case {
	return []Case{
		{"calls/deadline", "a call whose time is over while the host waits for the provider ends, settles nothing, and leaves the plugin usable", callsDeadline},
		{"calls/memory", "a thousand deliveries take no more memory than some hundred", callsMemory},
	}
}

func callsDeadline(t *trial) {
	s := t.open(1, true)
	items := t.items(min(2, t.suite.manifest.MaxBatch))
	s.double.play(script{wait: true})
	answer, err := t.late(s, wirev1.EncodeDelivery(exporter.Delivery{Items: items}))
	first, _ := s.double.take()
	if err == nil { // a carrier may also break the call off
		outcomes, err := wirev1.DecodeOutcomes(answer)
		if err != nil {
			t.fatalf("the outcomes do not parse: %v", err)
		}
		for _, o := range outcomes {
			if !slices.Contains(open, o.Kind) {
				t.failf("at the deadline an item is %s, want %v", o.Kind, open)
			}
		}
	}
	second := s.deliver(t.says(Accept), items...)
	second.want(t, "a deadline, and then a success,", exporter.Accepted)
	// On a busy machine the time may be over before anything was sent.
	if len(first) > 0 && !bytes.Equal(t.withoutAttempt(first), t.withoutAttempt(second.requests)) {
		t.failf("after a deadline other bytes are sent")
	}
}

// late delivers with a deadline that passes while the host waits.
func (t *trial) late(s *session, request []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, 200*time.Millisecond)
	defer cancel()
	patience, impatient := context.WithTimeout(t.ctx, 20*time.Second)
	defer impatient()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answer, err = s.caller.Call(ctx, uint32(wirev1.MethodDeliver), request)
	}()
	select {
	case <-ended:
		return answer, err
	case <-patience.Done():
		s.broken = true
		t.fatalf("the call goes on 20 s after its deadline")
		return nil, nil
	}
}

// callsMemory lets caches and collectors settle for some calls first.
func callsMemory(t *trial) {
	if t.suite.options.Memory == nil {
		t.skipf("nobody can tell how much memory this plugin holds")
	}
	s := t.open(1, true)
	var settled uint64
	for n := range 1000 {
		d := s.deliver(t.says(Accept), t.items(min(2, t.suite.manifest.MaxBatch))...)
		d.want(t, "a success", exporter.Accepted)
		if n == 299 {
			settled = t.suite.options.Memory(s.caller)
		}
	}
	const slack = 4 << 20
	if now := t.suite.options.Memory(s.caller); now > settled+settled/4+slack {
		t.failf("after 300 deliveries %d bytes, after 1,000 %d", settled, now)
	}
}
