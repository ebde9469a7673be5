package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const routeID = 7

var half = decimal.MustParse("-0.5")

var destination = outbox.Destination{Exporter: "stripe", Account: "acct_1", Mode: "test"}

func (w *world) manifest() exporter.Manifest {
	window := 34 * 24 * time.Hour
	if w.seed%8 == 0 { // what waits for too long cannot be sent any more
		window = 8 * time.Hour
	}
	cancel := horizon
	if w.seed%3 == 0 {
		cancel = 3 * time.Hour
	}
	var serial []string
	if w.has.serial {
		serial = []string{"customer", "event_name"}
	}
	return exporter.Manifest{
		Name: "stripe", IdentifierMaxLength: 100, IdentifierHorizon: horizon, WindowPast: window, WindowFuture: time.Hour,
		Values:   exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12, Negative: true},
		MaxBatch: 10, MappingKeys: []string{"event_name"}, SerialBy: serial,
		Corrections: exporter.CorrectCancel, CancelWithin: cancel,
	}
}

// customers says who a tenant is at the provider.
func customers(tenant string) map[string]string {
	return map[string]string{"stripe": "cus_" + strings.TrimPrefix(tenant, "acme-")}
}

func mapping(version string) storage.Mapping {
	return storage.Mapping{Version: version, Content: json.RawMessage(`{"event_name":"tokens"}`)}
}

// host is one machine that starts its program again whenever it ended.
func (w *world) host(lane int) {
	for life := 1; !w.ended(); life++ {
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.life(lane, life)
		}()
		<-done
		w.mu.Lock()
		w.cancel[lane] = nil
		w.pause(lane)
		w.machines[lane].running = false
		if w.has.clocks && w.draw(6) == 0 {
			w.machines[lane].boots, w.machines[lane].booted = w.machines[lane].boots+1, w.since()
		}
		pause := w.between(time.Second, 20*time.Minute)
		w.mu.Unlock()
		for w.sleep(context.Background(), lane, pause); w.down(); {
			w.sleep(context.Background(), lane, pause)
		}
	}
}

func (w *world) down() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase.hostsDown && w.failure == ""
}

// life is one run of the program: the deliverer that the host runs, until it is
// told to end or dies.
func (w *world) life(lane, life int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.mu.Lock()
	w.cancel[lane] = cancel
	w.starts(lane)
	if w.draw(4) == 0 {
		w.after(w.between(time.Minute, 12*time.Hour), cancel)
	}
	s := session{w: w, s: w.store, lane: lane, host: true}
	var before int64 // what was remembered when the last claim was asked for
	skew := w.between(-time.Minute, time.Minute)
	cfg := outbox.Config{
		Store: s, Sender: sender{session: s, manifest: w.manifest()}, Destination: destination,
		Owner: fmt.Sprintf("host-%d-%d", lane, life),
		Page:  1 + w.draw(30), Lease: lease, Tick: w.between(20*time.Second, 25*time.Minute).Truncate(time.Second),
		Now:      func() time.Time { return time.Now().Add(skew) },
		Boottime: w.since, Uniform: w.uniform,
		Routes: func() []int64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.blocked() {
				return nil
			}
			return []int64{routeID}
		},
		TrustedSince: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			before = w.fleet.claims
			return w.trusted(lane)
		},
		BeforeSend: func(_ context.Context, claim storage.Claim) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.allow(claim, before)
		},
	}
	w.mu.Unlock()
	d, err := outbox.NewDeliverer(cfg)
	if err != nil {
		panic(err)
	}
	if err := d.Run(ctx); err != nil {
		panic(err)
	}
}

// arrivals records the usage of the world, at any time before the end.
func (w *world) arrivals(n int, within time.Duration) {
	for i := range n {
		w.sleep(context.Background(), laneArrivals, w.drawn(0, 2*within/time.Duration(n)))
		if w.ended() {
			return
		}
		w.mu.Lock()
		w.arrive(i)
		w.mu.Unlock()
		w.takeBack(i)
	}
}

// takeBack corrects, now and then, all or half of something that was recorded
// before, by what was read of its item a moment ago.
func (w *world) takeBack(i int) {
	w.mu.Lock()
	r := w.store.rows[w.draw(len(w.store.rows))]
	of := r.ItemID
	correct := w.draw(4) == 0 && r.SupersededBy == 0 && r.Identity.SubjectKind == storage.SubjectEvent && w.left[of] > 0
	halves := 1
	if correct {
		halves = 1 + w.draw(w.left[of])
		w.left[of] -= halves
		w.lives++
	}
	w.mu.Unlock()
	for tries := 1; correct; tries++ {
		w.mu.Lock()
		build := outbox.Corrected{
			Correction: storage.EventKey{Tenant: r.Identity.Tenant, EventID: fmt.Sprintf("cor_%d", i)},
			Effect:     []decimal.Decimal{half, half.Add(half)}[halves-1],
			Original:   r.frozen.Event, Items: []storage.Item{r.Item},
			Manifests: map[string]exporter.Manifest{"stripe": w.manifest()}, AttemptBudget: r.AttemptBudget,
		}
		w.mu.Unlock()
		w.sleep(context.Background(), laneArrivals, w.drawn(time.Millisecond, time.Minute))
		w.mu.Lock()
		if r.lost {
			w.mu.Unlock()
			return
		}
		_, moved := w.store.insert(outbox.BuildCorrectionItems(build)[0], r.frozen.Event)
		if moved {
			w.count("original moved before its correction was recorded")
		}
		correct = moved && r.SupersededBy == 0 && !r.lost
		w.mu.Unlock()
	}
}

func (w *world) arrive(i int) {
	ev := storage.Event{
		Tenant: fmt.Sprint("acme-", w.draw(5)), EventID: fmt.Sprintf("req_%d", i), Feature: "tokens", Quantity: decimal.One, Kind: storage.Usage,
		OccurredAt: time.Now(), PeriodStart: periodStart, PeriodEnd: periodEnd,
	}
	build := w.enqueue(ev, "m1")
	if w.draw(30) == 0 {
		build.Customers = nil
	}
	items := outbox.BuildItems(build)
	for _, item := range items {
		id, _ := w.store.insert(item, ev)
		w.left[id] = 2
		w.lives++
		if r := w.store.row(id); r.State == storage.Pending && w.draw(200) == 0 {
			r.foreign = true
			w.provider.first[outbox.IdentifierOf(r.Digest)] = w.since()
			w.count("identifier of somebody else")
		}
	}
}

func (w *world) enqueue(ev storage.Event, version string) outbox.Enqueue {
	return outbox.Enqueue{
		Event: ev,
		Routes: []storage.Route{{
			ID: routeID, Exporter: destination.Exporter, Account: destination.Account, Mode: destination.Mode,
			Feature: storage.AnyFeature, Disposition: storage.RouteExport, MappingVersion: version,
		}},
		Mappings:  map[string]storage.Mapping{version: mapping(version)},
		Manifests: map[string]exporter.Manifest{"stripe": w.manifest()},
		Customers: customers(ev.Tenant), AttemptBudget: 2 + int(w.seed%5), Now: time.Now(),
	}
}
