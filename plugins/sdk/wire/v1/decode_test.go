package wirev1_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// decoders are all that take bytes from a stranger.
var decoders = map[string]func([]byte) error{
	"DescribeAnswer":   func(b []byte) error { _, err := wirev1.DecodeManifest(b); return err },
	"ConfigureRequest": func(b []byte) error { _, err := wirev1.DecodeConfiguration(b); return err },
	"DeliverRequest":   func(b []byte) error { _, err := wirev1.DecodeDelivery(b); return err },
	"DeliverAnswer":    func(b []byte) error { _, err := wirev1.DecodeOutcomes(b); return err },
	"HttpBatch":        func(b []byte) error { _, err := wirev1.DecodeRequests(b); return err },
	"HttpAnswers":      func(b []byte) error { _, err := wirev1.DecodeResponses(b, 3); return err },
	"ProbeRequest":     func(b []byte) error { _, err := wirev1.DecodeProbe(b); return err },
	"ProbeAnswer":      func(b []byte) error { _, err := wirev1.DecodeProbeAnswers(b, 3); return err },
	"WebhookRequest":   func(b []byte) error { _, err := wirev1.DecodeWebhook(b); return err },
	"WebhookAnswer":    func(b []byte) error { _, err := wirev1.DecodeWebhookAnswer(b); return err },
	"Error":            func(b []byte) error { _, err := wirev1.DecodeError(b); return err },
}

// Fields of a later version, one of each wire type, a group included.
var unknownFields = []byte("\xa0\x1f\x01" + // field 500, varint
	"\xa1\x1f12345678" + // 64 bit
	"\xa2\x1f\x03abc" + // bytes
	"\xa3\x1f\x08\x01\xa4\x1f" + // group
	"\xa5\x1f1234") // 32 bit

func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, g := range goldens() {
		got, err := g.decode(append(vector(t, g.name), unknownFields...))
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
		if d := cmp.Diff(g.value, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", g.name, d)
		}
	}
}

func TestEveryTruncationIsAnErrorOrAPrefix(t *testing.T) {
	t.Parallel()
	for name, decode := range decoders {
		whole := vector(t, name)
		for n := range whole {
			err := decode(whole[:n:n])
			if err != nil && !errors.Is(err, wirev1.ErrMalformed) {
				t.Errorf("%s cut to %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
		if err := decode(whole[:len(whole)-1]); err == nil {
			t.Errorf("%s without its last byte was taken", name)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	repeat := func(s string, n int) []byte { return []byte(strings.Repeat(s, n)) }
	nest := func(tag byte, inside []byte) []byte {
		out := []byte{tag}
		for n := len(inside); ; n >>= 7 {
			if n < 0x80 {
				out = append(out, byte(n))
				break
			}
			out = append(out, byte(n)|0x80)
		}
		return append(out, inside...)
	}
	// Field 1, encoded as field 2^32+1, which the generated code reads as 1.
	const disguised = "\x8a\x80\x80\x80\x80\x01\x00"
	for _, c := range []struct {
		what, decoder string
		data          []byte
		want          error
	}{
		{"501 items", "DeliverRequest", repeat("\x0a\x00", wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"501 disguised items", "DeliverRequest", repeat(disguised, wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"500 items", "DeliverRequest", repeat("\x0a\x00", wirev1.MaxItems), nil},
		{"1001 outcomes", "DeliverAnswer", repeat("\x0a\x00", wirev1.MaxOutcomes+1), wirev1.ErrTooLarge},
		{"501 requests", "HttpBatch", repeat("\x0a\x00", wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"257 headers", "HttpBatch", nest(0x0a, repeat("\x1a\x00", wirev1.MaxHeaders+1)), wirev1.ErrTooLarge},
		{"129 secrets", "HttpBatch", nest(0x0a, repeat("\x32\x00", wirev1.MaxEntries+1)), wirev1.ErrTooLarge},
		{"501 answers", "HttpAnswers", repeat("\x0a\x00", wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"2 errors", "HttpAnswers", repeat("\x12\x00", 2), wirev1.ErrTooLarge},
		{"129 mapping entries", "DeliverRequest", nest(0x0a, repeat("\x6a\x00", wirev1.MaxEntries+1)), wirev1.ErrTooLarge},
		{"129 prefixes of test mode", "DescribeAnswer", nest(0x0a, nest(0x7a, repeat("\x22\x00", wirev1.MaxEntries+1))), wirev1.ErrTooLarge},
		{"129 prefixes of live mode", "DescribeAnswer", nest(0x0a, nest(0x7a, repeat("\x2a\x00", wirev1.MaxEntries+1))), wirev1.ErrTooLarge},
		{"129 hosts", "DescribeAnswer", nest(0x0a, repeat("\x72\x00", wirev1.MaxEntries+1)), wirev1.ErrTooLarge},
		{"2 manifests", "DescribeAnswer", repeat("\x0a\x00", 2), wirev1.ErrTooLarge},
		{"33 MiB", "Error", nest(0x12, make([]byte, 33<<20)), wirev1.ErrTooLarge},
		{"a length of 2^63", "DeliverRequest", []byte("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), wirev1.ErrMalformed},
		{"a varint of 11 bytes", "Error", bytes.Repeat([]byte{0xff}, 11), wirev1.ErrMalformed},
		{"an open group", "Error", repeat("\xa3\x1f", 1<<20), wirev1.ErrMalformed},
		{"another wire type", "Error", []byte("\x10\x01"), wirev1.ErrMalformed},
		{"501 questions", "ProbeRequest", repeat("\x0a\x00", wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"129 keys of a question", "ProbeRequest", nest(0x0a, repeat("\x1a\x00", wirev1.MaxEntries+1)), wirev1.ErrTooLarge},
		{"sums for 3 questions: 2", "ProbeAnswer", repeat("\x0a\x00", 2), wirev1.ErrMalformed},
		{"501 sums", "ProbeAnswer", repeat("\x0a\x00", wirev1.MaxItems+1), wirev1.ErrTooLarge},
		{"1001 pieces of evidence", "WebhookAnswer", repeat("\x12\x00", wirev1.MaxEvidence+1), wirev1.ErrTooLarge},
		{"1000 pieces of evidence", "WebhookAnswer", repeat("\x12\x00", wirev1.MaxEvidence), nil},
		{"2 corrects", "DeliverRequest", nest(0x0a, repeat("\x72\x00", 2)), wirev1.ErrTooLarge},
		{"2 webhooks", "DescribeAnswer", nest(0x0a, repeat("\xaa\x01\x00", 2)), wirev1.ErrTooLarge},
		{"129 kinds of evidence", "DescribeAnswer", nest(0x0a, append([]byte{0xa2, 0x01}, nest(0, repeat("\x22\x00", wirev1.MaxEntries+1))[1:]...)), wirev1.ErrTooLarge},
		{"answers to 3 requests: 2", "HttpAnswers", repeat("\x0a\x00", 2), wirev1.ErrMalformed},
	} {
		err := decoders[c.decoder](c.data)
		if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: got %v, want %v", c.what, err, c.want)
		}
	}
}

// TestStrangersValues: what a later version or a careless author may send.
func TestStrangersValues(t *testing.T) {
	t.Parallel()
	// Outcome of kind 99 with a negative delay; another without a kind.
	got, err := wirev1.DecodeOutcomes([]byte("\x0a\x10\x0a\x01a\x10\x63\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + "\x0a\x03\x0a\x01b"))
	want := []exporter.ItemOutcome{
		{ItemID: "a", Kind: exporter.Uncertain, Code: wirev1.CodeUnknownOutcome},
		{ItemID: "b", Kind: exporter.Uncertain, Code: wirev1.CodeUnknownOutcome},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("outcomes: %v\n%s", err, d)
	}
	responses, err := wirev1.DecodeResponses([]byte("\x0a\x02\x08\x09"), 1)
	if err != nil || responses[0].Failure != capability.FailureUnknown || responses[0].Reason != wirev1.ReasonUnknownFailure {
		t.Errorf("failure 9: %+v, %v", responses, err)
	}
	if e, err := wirev1.DecodeError([]byte("\x08\x63")); err != nil || e.Tag != sdk.TagUnavailable {
		t.Errorf("tag 99: %v, %v", e, err)
	}
	for what, data := range map[string]string{
		"corrections 99":  "\x0a\x02\x60\x63",
		"answer class 99": "\x0a\x05\x92\x01\x02\x08\x63",
	} {
		if _, err := wirev1.DecodeManifest([]byte(data)); !errors.Is(err, wirev1.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestEncodeKeepsStringsValid(t *testing.T) {
	t.Parallel()
	responses := []capability.Response{{Status: 400, Headers: []capability.Header{{Name: "X", Value: "caf\xe9"}}}}
	got, err := wirev1.DecodeResponses(wirev1.EncodeResponses(responses, nil), 1)
	if err != nil || got[0].Headers[0].Value != "caf\uFFFD" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestErrorsWithoutATag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		cause string
	}{
		{nil, ""},
		{errors.New("disk full"), "disk full"},
		{(*sdk.Error)(nil), ""},
		{errors.New(strings.Repeat("x", 600)), strings.Repeat("x", 512)},
	} {
		got, err := wirev1.DecodeError(wirev1.EncodeError(c.err))
		if err != nil {
			t.Fatal(err)
		}
		cause := ""
		if got.Err != nil {
			cause = got.Err.Error()
		}
		if got.Tag != sdk.TagUnavailable || cause != c.cause {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}

func TestExtremeTimes(t *testing.T) {
	t.Parallel()
	in := exporter.Manifest{IdentifierHorizon: math.MaxInt64, WindowPast: 1500}
	got, err := wirev1.DecodeManifest(wirev1.EncodeManifest(in))
	if err != nil {
		t.Fatal(err)
	}
	if got.IdentifierHorizon != math.MaxInt64/1000*1000 || got.WindowPast != time.Microsecond {
		t.Errorf("got %d, %d", got.IdentifierHorizon, got.WindowPast)
	}
	// 2^63-1 microseconds as a horizon is more than a Duration holds.
	got, err = wirev1.DecodeManifest([]byte("\x0a\x0a\x20\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	if err != nil || got.IdentifierHorizon <= 0 {
		t.Errorf("got %d, %v", got.IdentifierHorizon, err)
	}
}

func TestMethodNumbers(t *testing.T) {
	t.Parallel()
	// Q29: numbers never change. docs/wasm-abi.md is the other witness.
	for number, name := range map[wirev1.Method]string{
		1: "describe", 2: "configure", 3: "deliver", 4: "probe", 5: "webhook", 6: "close", 7: "method 7",
	} {
		if number.String() != name {
			t.Errorf("method %d is %q, want %q", int(number), number, name)
		}
	}
}
