//go:build faults && unix

package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/stripedouble"
)

// eventKey names an event in the store.
type eventKey struct{ tenant, id string }

// event is one event as a client sends it. A CloudEvent feeds two features.
type event struct {
	id, feature, quantity string
	at                    time.Time // zero: sent without a time
	cloud                 bool
	generated             string // of a CloudEvent; quantity is its context
	of                    string // the tenant; empty: tenant
}

func (e event) tenant() string { return cmp.Or(e.of, tenant) }

const source = "/faults"

// parts are the stored events that an event leads to, by key.
func (e event) parts() map[eventKey]event {
	if !e.cloud {
		return map[eventKey]event{{e.tenant(), e.id}: e}
	}
	one := func(feature, quantity string) (eventKey, event) {
		return eventKey{tenant, canon.EventID(source, e.id, feature)}, event{id: e.id, feature: feature, quantity: quantity, at: e.at}
	}
	parts := map[eventKey]event{}
	for feature, quantity := range map[string]string{"context_tokens": e.quantity, "generated_tokens": e.generated} {
		k, p := one(feature, quantity)
		parts[k] = p
	}
	return parts
}

func (e event) body() map[string]any {
	var b map[string]any
	if e.cloud {
		b = map[string]any{
			"specversion": "1.0", "id": e.id, "source": source, "type": "llm.completion", "subject": tenant,
			"datacontenttype": "application/json", "data": map[string]string{"context": e.quantity, "generated": e.generated},
		}
	} else {
		b = map[string]any{"id": e.id, "tenant": e.tenant(), "feature": e.feature, "quantity": e.quantity}
	}
	if !e.at.IsZero() {
		b["time"] = e.at.Format(time.RFC3339Nano)
	}
	return b
}

// events makes n plain events with names of their own. Quantities have
// decimals, so that a sum in floating point would show.
func events(prefix string, n int) []event {
	at := time.Now().Add(-time.Hour)
	all := make([]event, n)
	for i := range all {
		all[i] = event{
			id: fmt.Sprintf("%s-%04d", prefix, i), feature: "tokens",
			quantity: fmt.Sprintf("%d.%03d", 1+i*7%1000, 1+i%999), at: at.Add(time.Duration(i) * time.Second),
		}
		all[i].quantity = strings.TrimRight(all[i].quantity, "0")
	}
	return all
}

// crowd makes n plain events of several tenants, so that requests for them are
// on their way side by side.
func crowd(prefix string, n int) []event {
	all := events(prefix, n)
	for i := range all {
		all[i].of = crowdTenants[i%len(crowdTenants)]
	}
	return all
}

var crowdTenants = []string{"acme", "globex", "initech", "umbrella", "hooli"}

// completions makes n CloudEvents of two features each.
func completions(prefix string, n int) []event {
	at := time.Now().Add(-time.Hour)
	all := make([]event, n)
	for i := range all {
		all[i] = event{
			id: fmt.Sprintf("%s-%04d", prefix, i), cloud: true, at: at.Add(time.Duration(i) * time.Second),
			quantity: strconv.Itoa(100 + i), generated: strconv.Itoa(1 + i),
		}
	}
	return all
}

func (r *rig) sending(events []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		maps.Copy(r.sent, e.parts())
	}
}

func (r *rig) answered(e event, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range e.parts() {
		r.acked[k] = r.acked[k] || outcome == "inserted" || outcome == "duplicate"
	}
}

// post sends events of one form in one call. An error means that nothing is
// known.
func (r *rig) post(events []event) (api.RecordAnswer, error) {
	r.t.Helper()
	r.sending(events)
	bodies := make([]map[string]any, len(events))
	for i, e := range events {
		bodies[i] = e.body()
	}
	raw, err := json.Marshal(bodies)
	if err != nil {
		r.t.Fatal(err)
	}
	media := "application/json"
	if events[0].cloud {
		media = "application/cloudevents-batch+json"
	}
	var answer api.RecordAnswer
	if err := r.call(http.MethodPost, "/v1/events", media, raw, &answer); err != nil {
		return answer, err
	}
	for i, res := range answer.Results {
		r.answered(events[i], string(res.Outcome))
	}
	return answer, nil
}

// record sends events in one call that must succeed, and returns how many were
// inserted.
func (r *rig) record(events []event) int {
	r.t.Helper()
	answer, err := r.post(events)
	if err != nil {
		r.t.Fatalf("record: %v", err)
	}
	if got := answer.Summary["inserted"] + answer.Summary["duplicate"]; got != len(events) {
		r.t.Fatalf("record: %d of %d events are recorded: %v", got, len(events), answer.Summary)
	}
	return answer.Summary["inserted"]
}

// load records plain events with the command line, while no server runs.
func (r *rig) load(events []event) {
	r.t.Helper()
	r.sending(events)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range events {
		if err := enc.Encode(e.body()); err != nil {
			r.t.Fatal(err)
		}
	}
	file := filepath.Join(r.dir, "load.ndjson")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if _, diag, err := r.run("record", file); err != nil {
		r.t.Fatalf("record: %v: %s", err, diag)
	}
	for _, e := range events {
		r.answered(e, "inserted")
	}
}

// subscribe names the tenant's customer at each exporter, while no server runs.
func (r *rig) subscribe(customers ...string) {
	r.t.Helper()
	if len(customers) == 0 {
		customers = []string{"stripe=cus_acme"}
	}
	r.subscribeTenant(tenant, customers...)
}

// subscribeCrowd does it for the tenants of a crowd, each with a customer of
// its own.
func (r *rig) subscribeCrowd() {
	r.t.Helper()
	for _, name := range crowdTenants {
		r.subscribeTenant(name, "stripe=cus_"+name)
	}
}

func (r *rig) subscribeTenant(name string, customers ...string) {
	r.t.Helper()
	args := []string{"subscriptions", "put", name}
	for _, c := range customers {
		args = append(args, "--customer", c)
	}
	if _, diag, err := r.run(args...); err != nil {
		r.t.Fatalf("subscribe: %v: %s", err, diag)
	}
}

// call makes one call of the API. Every answer is searched for the key.
func (r *rig) call(method, path, media string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", media)
	req.Close = true // no connection outlives the server that it is to
	client := http.Client{Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if bytes.Contains(answer, []byte(canary)) {
		r.t.Errorf("the answer to %s %s holds the API key", method, path)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %d: %s", res.StatusCode, answer)
	}
	if text, ok := out.(*string); ok {
		*text = string(answer)
		return nil
	}
	return json.Unmarshal(answer, out)
}

func (r *rig) get(path string, out any) {
	r.t.Helper()
	if err := r.call(http.MethodGet, path, "", nil, out); err != nil {
		r.t.Fatalf("GET %s: %v", path, err)
	}
}

func (r *rig) stats() api.StatsAnswer {
	r.t.Helper()
	var st api.StatsAnswer
	r.get("/v1/outbox/stats", &st)
	return st
}

// item returns the item of one plain event.
func (r *rig) item(id string) api.ItemView {
	r.t.Helper()
	var page api.Page[api.ItemView]
	r.get("/v1/outbox?tenant="+tenant+"&subject_ref="+id, &page)
	if len(page.Data) != 1 {
		r.t.Fatalf("event %s has %d items", id, len(page.Data))
	}
	var v api.ItemView
	r.get("/v1/outbox/"+page.Data[0].ID, &v)
	return v
}

// drain waits until nothing is pending or leased, for as long as it goes on.
func (r *rig) drain() {
	r.t.Helper()
	left := int64(-1)
	for left != 0 {
		before := left
		moved := within(patience, func() bool {
			st := r.stats()
			left = st.States["pending"] + st.States["leased"]
			return left != before
		})
		if !moved {
			r.t.Fatalf("%d items have not moved for %v: %v", left, patience, r.stats().States)
		}
	}
}

// charged is what the double knows of an item.
func (r *rig) charged(it api.ItemView) (stripedouble.Entry, bool) {
	return r.double.Entry(account, it.Mode == "live", it.Identifier)
}
