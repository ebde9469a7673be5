package canon_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// vectors is testdata/golden.json, which testdata/golden.py computes without
// any of this package.
type vectors struct {
	JSON []struct{ In, Out string }
	Join []struct {
		Fields []string
		Key    string
		Digest string
	}
	Events []struct {
		Feature, Quantity, Time, Kind, Metadata, Hash string
		OriginalEventID                               string `json:"original_event_id"`
		Dimensions                                    map[string]string
	}
	Corrections []struct {
		Quantity, Reason, Metadata, Replacement, Hash string
		OriginalEventID                               string `json:"original_event_id"`
		ReplacementID                                 string `json:"replacement_id"`
	}
	CloudEvents []struct {
		Attributes map[string]string
		Time       string
		Data       *string
		Bytes      *string
		Hash       string
	}
}

func golden(t *testing.T) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func when(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// S3: the canonical form of JSON.
func TestGoldenJSON(t *testing.T) {
	t.Parallel()
	for _, v := range golden(t).JSON {
		got, err := canon.JSON([]byte(v.In))
		if err != nil || string(got) != v.Out {
			t.Errorf("JSON(%s) = %s, %v; want %s", v.In, got, err, v.Out)
		}
		again, err := canon.JSON(got)
		if err != nil || string(again) != v.Out {
			t.Errorf("JSON(JSON(%s)) = %s, %v; want %s", v.In, again, err, v.Out)
		}
		if err := canon.Check([]byte(v.In)); err != nil {
			t.Errorf("Check(%s): %v", v.In, err)
		}
	}
}

// A-T2, O6: keys of several fields.
func TestGoldenJoin(t *testing.T) {
	t.Parallel()
	for _, v := range golden(t).Join {
		if got := canon.Join(v.Fields...); got != v.Key {
			t.Errorf("Join(%q) = %q, want %q", v.Fields, got, v.Key)
		}
		if got := canon.Digest(v.Fields...); hex.EncodeToString(got[:]) != v.Digest {
			t.Errorf("Digest(%q) = %x, want %s", v.Fields, got, v.Digest)
		}
	}
}

// S3: the hash of an event. These vectors never change.
func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	for i, v := range golden(t).Events {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			got, err := canon.EventHash(storage.Event{
				Tenant: "not hashed", EventID: "not hashed", Seq: 7, Plan: "not hashed",
				Feature: v.Feature, Quantity: decimal.MustParse(v.Quantity), OccurredAt: when(t, v.Time),
				Kind: storage.Kind(v.Kind), OriginalEventID: v.OriginalEventID,
				Dimensions: v.Dimensions, Metadata: json.RawMessage(v.Metadata),
			})
			if err != nil || hex.EncodeToString(got[:]) != v.Hash {
				t.Errorf("got %x, %v; want %s", got, err, v.Hash)
			}
		})
	}
}

// Q1: the hash of a CloudEvent. These vectors never change.
func TestGoldenCloudEvents(t *testing.T) {
	t.Parallel()
	for i, v := range golden(t).CloudEvents {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			e := canon.CloudEvent{Attributes: v.Attributes, Time: when(t, v.Time)}
			if v.Data != nil {
				e.Data = json.RawMessage(*v.Data)
			}
			if v.Bytes != nil {
				e.Bytes = []byte(*v.Bytes)
			}
			got, err := canon.CloudEventHash(e)
			if err != nil || hex.EncodeToString(got[:]) != v.Hash {
				t.Errorf("got %x, %v; want %s", got, err, v.Hash)
			}
		})
	}
}

// S3: the hash of a request to correct. These vectors never change.
func TestGoldenCorrections(t *testing.T) {
	t.Parallel()
	for i, v := range golden(t).Corrections {
		c := canon.Correction{OriginalEventID: v.OriginalEventID, Reason: v.Reason, Metadata: json.RawMessage(v.Metadata), ReplacementID: v.ReplacementID}
		if v.Quantity != "" {
			q := decimal.MustParse(v.Quantity)
			c.Quantity = &q
		}
		if v.Replacement != "" {
			var h storage.Hash
			if _, err := hex.Decode(h[:], []byte(v.Replacement)); err != nil {
				t.Fatal(err)
			}
			c.Replacement = &h
		}
		got, err := canon.CorrectionHash(c)
		if err != nil || hex.EncodeToString(got[:]) != v.Hash {
			t.Errorf("%d: got %x, %v; want %s", i, got, err, v.Hash)
		}
	}
	for field, c := range map[string]canon.Correction{
		"event_id": {OriginalEventID: "\xff"}, "reason": {Reason: "\xff"}, "replace.id": {ReplacementID: "\xff"},
		"metadata": {Metadata: json.RawMessage("[]")},
	} {
		if _, err := canon.CorrectionHash(c); sdk.TagOf(err) != sdk.TagInvalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
