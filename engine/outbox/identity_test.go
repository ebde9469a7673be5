package outbox

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// vector is one line of testdata/identity.golden.json, which testdata/golden.py
// writes without any of this code.
type vector struct {
	Name     string `json:"name"`
	Identity struct {
		Tenant         string `json:"tenant"`
		SubjectKind    string `json:"subject_kind"`
		SubjectRef     string `json:"subject_ref"`
		Exporter       string `json:"exporter"`
		Account        string `json:"account"`
		Mode           string `json:"mode"`
		MappingVersion string `json:"mapping_version"`
	} `json:"identity"`
	Digest     string `json:"digest"`
	Identifier string `json:"identifier"`
	SubjectKey string `json:"subject_key"`
}

func (v vector) identity() storage.Identity {
	i := v.Identity
	return storage.Identity{
		Tenant: i.Tenant, SubjectKind: storage.SubjectKind(i.SubjectKind), SubjectRef: i.SubjectRef,
		Exporter: i.Exporter, Account: i.Account, Mode: i.Mode, MappingVersion: i.MappingVersion,
	}
}

// O6, Q5.
func TestIdentifierGolden(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/identity.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 11 {
		t.Fatalf("only %d vectors: one was removed", len(vectors))
	}
	seen := make(map[string]string)
	for _, v := range vectors {
		digest, text := Identifier(v.identity())
		if text != v.Identifier || hex.EncodeToString(digest[:]) != v.Digest {
			t.Errorf("%s: identifier %s, want %s", v.Name, text, v.Identifier)
		}
		if key := SubjectKey(v.identity()); hex.EncodeToString(key[:]) != v.SubjectKey {
			t.Errorf("%s: subject key %x, want %s", v.Name, key, v.SubjectKey)
		}
		if n := len(text); n != 74 || IdentifierLength != 74 {
			t.Errorf("%s: %d characters, want 74", v.Name, n)
		}
		if other, dup := seen[text]; dup {
			t.Errorf("%s and %s share an identifier", v.Name, other)
		}
		seen[text] = v.Name
	}
}

// A-T1, A-T2: changing any one field, or moving text from one field to the
// next, gives another identifier; only the mapping leaves the subject alone.
func TestIdentityFieldsAreAllInTheKey(t *testing.T) {
	t.Parallel()
	base := storage.Identity{
		Tenant: "acme", SubjectKind: storage.SubjectEvent, SubjectRef: "r", Exporter: "x",
		Account: "a", Mode: "test", MappingVersion: "1",
	}
	changes := map[string]func(*storage.Identity){
		"tenant":   func(i *storage.Identity) { i.Tenant = "acme2" },
		"kind":     func(i *storage.Identity) { i.SubjectKind = storage.SubjectCorrection },
		"ref":      func(i *storage.Identity) { i.SubjectRef = "" },
		"exporter": func(i *storage.Identity) { i.Exporter = "y" },
		"account":  func(i *storage.Identity) { i.Account = "" },
		"mode":     func(i *storage.Identity) { i.Mode = "live" },
		"mapping":  func(i *storage.Identity) { i.MappingVersion = "2" },
		"shift":    func(i *storage.Identity) { i.Exporter, i.Account = "xa", "" },
	}
	digest, _ := Identifier(base)
	for name, change := range changes {
		other := base
		change(&other)
		if d, _ := Identifier(other); d == digest {
			t.Errorf("%s is not in the identifier", name)
		}
		if same := SubjectKey(other) == SubjectKey(base); same != (name == "mapping") {
			t.Errorf("%s: same subject key: %v", name, same)
		}
	}
}

// A-T2: any two different identities, made of characters that separators are
// made of, have different identifiers.
func TestIdentifierIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringOfN(rapid.RuneFrom([]rune("a1:|%\x00")), 0, 4, -1)
		draw := func(label string) storage.Identity {
			f := rapid.SliceOfN(field, 7, 7).Draw(t, label)
			return storage.Identity{
				Tenant: f[0], SubjectKind: storage.SubjectKind(f[1]), SubjectRef: f[2],
				Exporter: f[3], Account: f[4], Mode: f[5], MappingVersion: f[6],
			}
		}
		a, b := draw("a"), draw("b")
		da, _ := Identifier(a)
		db, _ := Identifier(b)
		if (a == b) != (da == db) {
			t.Fatalf("%+v and %+v: equal digests: %v", a, b, da == db)
		}
	})
}

// O7.
func TestWindowRef(t *testing.T) {
	t.Parallel()
	period := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	window := func(feature, from, to string) string {
		return WindowRef(Window{Feature: feature, PeriodStart: period, From: decimal.MustParse(from), To: decimal.MustParse(to)})
	}
	const want = "usage:tokens:2026-11-01T00%3A00%3A00.000000Z:0:12.5"
	if got := window("tokens", "0", "12.5"); got != want {
		t.Errorf("window ref %q, want %q", got, want)
	}
	if window("tokens", "0", "12.50") != want {
		t.Error("staging the same window again gives another reference")
	}
	distinct := []string{
		window("tokens", "12.5", "20"), window("tokens", "0", "20"), window("a:b", "0", "1"),
		window("a%3Ab", "0", "1"), window("a", "0", "1"),
	}
	seen := make(map[string]bool)
	for _, ref := range distinct {
		if seen[ref] {
			t.Errorf("two windows share %q", ref)
		}
		seen[ref] = true
	}
}
