//go:build faults && unix

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
)

// F59, F60: numbers and names that are not ones are refused, and those that are
// come back exactly as they were sent; none of them is SQL, and nothing is stored
// of a call that is refused.
func TestNumbersAndNames(t *testing.T) {
	t.Parallel()
	refused := map[string]string{
		"NaN": `"NaN"`, "infinity": `"Infinity"`, "minus infinity": `"-Infinity"`, "negative": `"-1"`, "tiny": `"1e-30"`, "huge": `"1e400"`,
		"39 digits": `"123456789012345678901234567890123456789"`, "empty": `""`, "arabic digits": `"١٢"`, "hex": `"0x10"`, "number beyond 2^53": `9007199254740993.5e30`,
		"13 decimals": `"0.0000000000001"`, "text": `"1; DROP TABLE fencepost_events"`, "bool": `true`, "object": `{}`,
	}
	exact := map[string]string{
		"zero": "0", "point one": "0.1", "point two": "0.2", "smallest": "0.000000000001", "2^63": "9223372036854775808",
		"26 and 12 digits": "12345678901234567890123456.123456789012", "trailing": "1.5",
	}
	names := []string{
		`'; DROP TABLE fencepost_events; --`, `"quoted" $1 %s \`, "__proto__", "=1+1", "naïve 🦫", "\u202eright to left", strings.Repeat("é", 64), "$tag$x$tag$", "{schema}.fencepost_events",
	}
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, defaults())
			r.start("")
			at := time.Now().Add(-time.Hour)
			for what, quantity := range refused {
				body := fmt.Sprintf(`{"id": "refused", "tenant": "acme", "feature": "tokens", "quantity": %s}`, quantity)
				var answer api.RecordAnswer
				if err := r.call(http.MethodPost, "/v1/events", "application/json", []byte(body), &answer); err == nil {
					t.Errorf("%s: answered %+v", what, answer)
				} else if !strings.Contains(err.Error(), "status 4") {
					t.Errorf("%s: %v, want a refusal", what, err)
				}
			}
			for what, quantity := range exact {
				r.record([]event{{id: what, feature: "tokens", quantity: quantity, at: at}})
			}
			taken := 0
			for n, odd := range names {
				for _, e := range []event{{id: odd, feature: "tokens", quantity: "1", at: at}, {id: fmt.Sprint("of", n), of: odd, feature: "tokens", quantity: "1", at: at}} {
					answer, err := r.post([]event{e})
					if err != nil || answer.Summary["inserted"]+answer.Summary["invalid"] != 1 {
						t.Errorf("%q: %+v, %v", odd, answer.Summary, err)
					}
					if taken += answer.Summary["inserted"]; answer.Summary["invalid"] == 1 {
						text, _ := json.Marshal(answer)
						t.Logf("%q is refused: %s", odd, text)
					}
				}
			}
			for _, bad := range []string{"a\x00b", "\xff", ""} {
				body := fmt.Sprintf(`{"id": %q, "tenant": "acme", "feature": "tokens", "quantity": "1"}`, bad)
				var answer api.RecordAnswer
				if err := r.call(http.MethodPost, "/v1/events", "application/json", []byte(body), &answer); err == nil || !strings.Contains(err.Error(), "status 4") {
					t.Errorf("id %q: %+v, %v", bad, answer, err)
				}
			}
			b := r.read()
			if len(b.events) != len(exact)+taken || taken < len(names) {
				t.Errorf("%d events are stored, want %d and %d", len(b.events), len(exact), taken)
			}
			r.audit() // every quantity and name as it was sent
		})
	}
}

// F60: what is too long or too much is refused as the caller's mistake, in
// bounded time, and nothing of its call is stored. The server stays as it was.
func TestTooLongAndTooMany(t *testing.T) {
	t.Parallel()
	megabyte := strings.Repeat("x", 1<<20)
	dimensions := func(n int) map[string]string {
		all := make(map[string]string, n)
		for i := range n {
			all[fmt.Sprint("d", i)] = "v"
		}
		return all
	}
	with := func(field string, value any) map[string]any {
		e := map[string]any{"id": "refused", "tenant": "acme", "feature": "tokens", "quantity": "1"}
		e[field] = value
		return e
	}
	bad := map[string]map[string]any{
		"10,000 dimensions": with("dimensions", dimensions(10_000)), "a dimension of 1 MB": with("dimensions", map[string]string{"model": megabyte}),
		"a name of 1 MB": with("dimensions", map[string]string{megabyte: "v"}), "an id of 1 MB": with("id", megabyte),
		"a tenant of 1 MB": with("tenant", megabyte), "a feature of 1 MB": with("feature", megabyte),
		"a quantity of 1 MB": with("quantity", strings.Repeat("1", 1<<20)), "zeros": with("quantity", "0."+strings.Repeat("0", 1<<19)+"1"),
	}
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, defaults())
			r.start("")
			for what, e := range bad {
				body, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				var answer api.RecordAnswer
				err = r.call(http.MethodPost, "/v1/events", "application/json", body, &answer)
				if err == nil || !strings.Contains(err.Error(), "status 4") {
					t.Errorf("%s: %+v, %v, want a refusal", what, answer, err)
				} else if len(err.Error()) > 8<<10 {
					t.Errorf("%s: it is answered with %d bytes", what, len(err.Error()))
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("%s took %v", what, took)
				}
			}
			if n := len(r.read().events); n != 0 {
				t.Errorf("%d events of refused calls are stored", n)
			}
			r.record(events("after", 5))
			r.audit()
		})
	}
}
