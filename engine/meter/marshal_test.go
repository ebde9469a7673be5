package meter_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
)

// A stored receipt is what a later replay reads: it must be the event that
// came, with the same hash. // Q1.
func TestCloudEventMarshalRoundTrips(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","subject":"acme"}`,
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","subject":"acme","time":"2026-11-30T12:00:00.000001+01:00","data":{"n":12345678901234567890.5}}`,
		`{"specversion":"1.0","id":"é\"<","source":"/a","type":"t","subject":"acme","ext":"x","datacontenttype":"text/plain","data_base64":"AAEC"}`,
	} {
		first, err := meter.DecodeCloudEvent([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		text, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := meter.DecodeCloudEvent(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		a, errA := first.DedupeHash()
		b, errB := second.DedupeHash()
		if errA != nil || errB != nil || a != b {
			t.Errorf("the hash of %s changed on the way through JSON (%v, %v)", body, errA, errB)
		}
		if diff := cmp.Diff(first.Subject+first.ID+first.Source, second.Subject+second.ID+second.Source); diff != "" {
			t.Error(diff)
		}
	}
}
