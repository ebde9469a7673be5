//go:build faults && unix

package faults

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// audit checks everything that must hold after any run, whatever the fault was,
// and returns what the store holds. A running server is asked too and then
// stopped.
func (r *rig) audit() *books {
	r.t.Helper()
	if r.server != nil && !r.server.hasEnded() {
		r.compareAPI()
		r.server.stop()
	}
	if r.second != nil && !r.second.hasEnded() {
		r.second.stop()
	}
	b := r.read()
	for _, p := range b.problems {
		r.t.Errorf("store: %s", p)
	}
	r.auditHistory(b)
	r.auditTotals(b)
	r.auditItems(b)
	r.auditAttempts(b)
	r.auditLedgers(b)
	r.auditSecret()
	return b
}

// judges are the doubles by the exporter that reports to them.
func (r *rig) judges() map[string]*stripedouble.Server {
	all := map[string]*stripedouble.Server{"stripe": r.double}
	maps.Copy(all, r.others)
	return all
}

// compareAPI checks that a server shows what its store holds. Nothing may be
// moving.
func (r *rig) compareAPI() {
	r.t.Helper()
	st := r.stats()
	b := r.read()
	type key struct{ tenant, feature string }
	sums, tenants := map[key]decimal.Decimal{}, map[string]bool{}
	for k, v := range b.totals {
		at := key{k.tenant, k.feature}
		sums[at], tenants[k.tenant] = sums[at].Add(v.quantity), true
	}
	for name := range tenants {
		var usage api.UsageAnswer
		r.get("/v1/usage?tenant="+url.QueryEscape(name), &usage)
		for _, row := range usage.Data {
			at := key{name, row.Feature}
			sums[at] = sums[at].Sub(decimal.MustParse(string(row.Value)))
		}
	}
	for k, difference := range sums {
		if !difference.IsZero() {
			r.t.Errorf("usage of %v differs from the stored totals by %s", k, difference)
		}
	}
	for state, n := range b.states() {
		if st.States[state] != int64(n) {
			r.t.Errorf("the API counts %d %s items, the store holds %d", st.States[state], state, n)
		}
	}
	for _, path := range []string{"/metrics", "/readyz", "/v1/events?limit=1000", "/v1/outbox?limit=1000"} {
		var text string
		if err := r.call(http.MethodGet, path, "", nil, &text); err != nil { // call looks for the key
			r.t.Errorf("GET %s: %v", path, err)
		}
	}
}

// auditHistory: what was acknowledged is stored once as it was sent (I1), and
// nothing is stored that nobody sent (I2).
func (r *rig) auditHistory(b *books) {
	r.t.Helper()
	for key, acked := range r.acked {
		got, stored := b.byKey[key]
		if !acked || stored {
			continue
		}
		r.t.Errorf("lost: event %v was acknowledged and is not stored (%+v)", key, got)
	}
	for key, got := range b.byKey {
		want, sent := r.sent[key]
		if !sent {
			r.t.Errorf("event %v is stored and was never sent", key)
			continue
		}
		if got.feature != want.feature || !got.quantity.Equal(decimal.MustParse(want.quantity)) {
			r.t.Errorf("event %v was sent as %s %s and is stored as %s %s", key, want.feature, want.quantity, got.feature, got.quantity)
		}
		if at := want.at.UTC().Truncate(microsecond); !want.at.IsZero() && !got.at.Equal(at) {
			r.t.Errorf("event %v was sent with time %v and is stored with %v", key, at, got.at)
		}
	}
}

// auditTotals: totals are the sum over events, and nothing else (I4).
func (r *rig) auditTotals(b *books) {
	r.t.Helper()
	want := map[totalKey]storedTotal{}
	for _, e := range b.events {
		k := totalKey{e.key.tenant, e.feature, e.period}
		t := want[k]
		want[k] = storedTotal{t.quantity.Add(e.effect), t.events + 1}
	}
	for k, w := range want {
		if got := b.totals[k]; !got.quantity.Equal(w.quantity) || got.events != w.events {
			r.t.Errorf("total %v is %s of %d events, the events sum to %s of %d", k, got.quantity, got.events, w.quantity, w.events)
		}
	}
	for k := range b.totals {
		if _, ok := want[k]; !ok {
			r.t.Errorf("total %v has no event", k)
		}
	}
}

// auditItems: there is one item for each event at each destination that has a
// route for it, none missing and none extra (I6), each in one of the seven
// states, and the counts agree.
func (r *rig) auditItems(b *books) {
	r.t.Helper()
	want := map[string]bool{}
	for _, e := range b.events {
		for _, route := range b.routesOf(e) {
			want[fmt.Sprint(route, " ", e.seq)] = true
		}
	}
	counts := map[string]int64{}
	for _, it := range b.items {
		k := fmt.Sprint(it.route, " ", it.seq)
		if !want[k] && it.kind != string(storage.SubjectWindow) {
			r.t.Errorf("item %d of event %d on route %d is extra or double", it.id, it.seq, it.route)
		}
		delete(want, k)
		if !slices.Contains(storage.ItemStates[:], storage.ItemState(it.state)) {
			r.t.Errorf("item %d is in state %q", it.id, it.state)
		}
		if it.attempts > it.budget {
			r.t.Errorf("item %d has %d attempts, its budget is %d (I10)", it.id, it.attempts, it.budget)
		}
		counts[fmt.Sprint(it.route, " ", it.state)]++
	}
	for k := range want {
		r.t.Errorf("the item of (route, event) %s is missing", k)
	}
	if !maps.Equal(counts, b.counts) {
		r.t.Errorf("the store counts %v, its items are %v", b.counts, counts)
	}
}

// routesOf are the routes that an event has an item on: at each destination
// that of its feature, or else that of any feature.
func (b *books) routesOf(e storedEvent) []int64 {
	if e.quantity.IsZero() {
		return nil
	}
	type destination struct{ exporter, account, mode string }
	best := map[destination]storedRoute{}
	for _, rt := range b.routes {
		if rt.after >= e.seq || (rt.retired && !b.replaced(rt)) || (rt.feature != e.feature && rt.feature != storage.AnyFeature) {
			continue
		}
		d := destination{rt.exporter, rt.account, rt.mode}
		// Of two for the same, the one that began later: a mapping was changed.
		if have, ok := best[d]; !ok || (have.feature == rt.feature && rt.after > have.after) || (have.feature == storage.AnyFeature && rt.feature != have.feature) {
			best[d] = rt
		}
	}
	var ids []int64
	for _, rt := range best {
		if rt.disposed != string(storage.RouteIgnore) {
			ids = append(ids, rt.id)
		}
	}
	return ids
}

// replaced reports whether another route for the same began after this one: then
// it was retired by a change of the mapping, and what it had before is its own.
func (b *books) replaced(rt storedRoute) bool {
	return slices.ContainsFunc(b.routes, func(o storedRoute) bool {
		return o.exporter == rt.exporter && o.account == rt.account && o.mode == rt.mode && o.feature == rt.feature && o.after > rt.after
	})
}

// auditAttempts: every write of an outcome carried the token of its claim, so
// one token has one outcome (I9).
func (r *rig) auditAttempts(b *books) {
	r.t.Helper()
	for _, it := range b.items {
		written := map[int64]bool{}
		for _, a := range b.attempts[it.id] {
			if a.token > it.token {
				r.t.Errorf("item %d logs token %d, its row has %d", it.id, a.token, it.token)
			}
			if a.fenced {
				continue
			}
			if written[a.token] {
				r.t.Errorf("item %d has two outcomes for token %d", it.id, a.token)
			}
			written[a.token] = true
		}
		if it.state == "accepted" && !r.resolved[it.id] && !slices.ContainsFunc(b.attempts[it.id], func(a storedAttempt) bool { return !a.fenced && a.decided == "accepted" }) {
			r.t.Errorf("item %d is accepted and no attempt says so", it.id)
		}
	}
}

// auditSecret: the key is in no file of ours: store, write-ahead log, logs,
// configuration (I15).
func (r *rig) auditSecret() {
	r.t.Helper()
	files := 0
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if bytes.Contains(content, []byte(canary)) || bytes.Contains(content, []byte(canary[8:24])) || bytes.Contains(content, []byte(hookSecret)) {
			r.t.Errorf("%s holds a secret", filepath.Base(path))
		}
		if bytes.Contains(content, []byte("Unsolicited response")) {
			// Go's HTTP client quotes what a server sends unasked, which may be
			// the very request, in the global log.
			r.t.Errorf("%s quotes what the provider sent unasked", filepath.Base(path))
		}
		return nil
	})
	if err != nil || files == 0 {
		r.t.Errorf("search for the key in %d files: %v", files, err)
	}
}

// accepted fails unless every item is accepted, and says how many there are.
func (b *books) accepted(r *rig) int {
	r.t.Helper()
	for _, it := range b.items {
		if it.state != "accepted" {
			r.t.Errorf("item %d is %s (%s%s) after %d attempts", it.id, it.state, it.code, it.quarantine, it.attempts)
		}
	}
	return len(b.items)
}
