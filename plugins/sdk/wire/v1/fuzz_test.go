package wirev1_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// fuzz feeds a decoder. What it takes must encode to something that decodes to
// the same again; what it refuses must say so with one of the two errors.
func fuzz[T any](f *testing.F, name string, decode func([]byte) (T, error), encode func(T) []byte) {
	f.Add(vector(f, name))
	f.Add(append(vector(f, name), unknownFields...))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte("\x0a\x00"), wirev1.MaxOutcomes+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := decode(data)
		if err != nil {
			var refusal *sdk.Error
			if !errors.Is(err, wirev1.ErrMalformed) && !errors.Is(err, wirev1.ErrTooLarge) && !errors.As(err, &refusal) {
				t.Fatalf("neither malformed nor too large: %v", err)
			}
			return
		}
		second, err := decode(encode(first))
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		again, err := decode(encode(second))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(second, again); d != "" {
			t.Fatalf("not stable:\n%s", d)
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	fuzz(f, "DescribeAnswer", wirev1.DecodeManifest, wirev1.EncodeManifest)
}

func FuzzDecodeConfiguration(f *testing.F) {
	fuzz(f, "ConfigureRequest", wirev1.DecodeConfiguration, wirev1.EncodeConfiguration)
}

func FuzzDecodeDelivery(f *testing.F) {
	fuzz(f, "DeliverRequest", wirev1.DecodeDelivery, wirev1.EncodeDelivery)
}

func FuzzDecodeOutcomes(f *testing.F) {
	fuzz(f, "DeliverAnswer", wirev1.DecodeOutcomes, wirev1.EncodeOutcomes)
}

func FuzzDecodeRequests(f *testing.F) {
	fuzz(f, "HttpBatch", wirev1.DecodeRequests, wirev1.EncodeRequests)
}

func FuzzDecodeProbe(f *testing.F) {
	fuzz(f, "ProbeRequest", wirev1.DecodeProbe, wirev1.EncodeProbe)
}

func FuzzDecodeProbeAnswers(f *testing.F) {
	decode := func(b []byte) ([]exporter.ProbeAnswer, error) { return wirev1.DecodeProbeAnswers(b, 3) }
	fuzz(f, "ProbeAnswer", decode, wirev1.EncodeProbeAnswers)
}

func FuzzDecodeWebhook(f *testing.F) {
	fuzz(f, "WebhookRequest", wirev1.DecodeWebhook, wirev1.EncodeWebhook)
}

func FuzzDecodeWebhookAnswer(f *testing.F) {
	fuzz(f, "WebhookAnswer", wirev1.DecodeWebhookAnswer, wirev1.EncodeWebhookAnswer)
}

func FuzzDecodeError(f *testing.F) {
	f.Add(vector(f, "Error"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := wirev1.DecodeError(data)
		if err != nil {
			return
		}
		if again, err := wirev1.DecodeError(wirev1.EncodeError(e)); err != nil || again.Tag != e.Tag {
			t.Fatalf("%v: %v, %v", e, again, err)
		}
	})
}

func FuzzDecodeResponses(f *testing.F) {
	f.Add(vector(f, "HttpAnswers"), 3)
	f.Add(vector(f, "HttpAnswersRefused"), 3)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		first, err := wirev1.DecodeResponses(data, n)
		if err != nil {
			return
		}
		if len(first) != n {
			t.Fatalf("%d answers to %d requests", len(first), n)
		}
		if _, err := wirev1.DecodeResponses(wirev1.EncodeResponses(first, nil), n); err != nil {
			t.Fatal(err)
		}
	})
}
