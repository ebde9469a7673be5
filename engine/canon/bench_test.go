package canon_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func BenchmarkEventHash(b *testing.B) {
	e := storage.Event{
		Feature: "tokens", Quantity: decimal.MustParse("4808"), Kind: storage.Usage,
		OccurredAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		Dimensions: map[string]string{"model": "m1", "region": "eu-1"},
		Metadata:   json.RawMessage(`{"request":{"id":"r-1","path":"/v1/completions"},"cached":false,"ratio":0.25}`),
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.EventHash(e); err != nil {
			b.Fatal(err)
		}
	}
}
