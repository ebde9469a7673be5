package engine_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

// contract is a store of which nothing can be reached but the operations of the
// contract: any other interface that an adapter has is hidden.
type contract struct {
	storage.Adapter
	storage.EventStore
	storage.EventStreamer
	storage.SubscriptionStore
	storage.OutboxStore
	storage.RouteStore
	storage.CorrectionStore
	storage.ProjectionStore
	storage.ProjectionKeeper
	storage.Aggregator
}

// B1, B6: persistence is reached through the contract and by nothing beside it.
// Over two stores that share no code, with all but the durable group hidden,
// the engine records, corrects, reads, aggregates and rebuilds, and answers the
// same.
func TestStoresAreReachedByTheContract(t *testing.T) {
	t.Parallel()
	memory := conformance.NewReference(atNoon)
	stores := map[string]storage.Adapter{"sqlite": open(t).store, "reference": memory}
	answers := map[string][]string{}
	for name, st := range stores {
		c := contract{
			Adapter: st, EventStore: st.(storage.EventStore), EventStreamer: st.(storage.EventStreamer),
			SubscriptionStore: st.(storage.SubscriptionStore), OutboxStore: st.(storage.OutboxStore), RouteStore: st.(storage.RouteStore),
			CorrectionStore: st.(storage.CorrectionStore), ProjectionStore: st.(storage.ProjectionStore),
			ProjectionKeeper: st.(storage.ProjectionKeeper), Aggregator: st.(storage.Aggregator),
		}
		f := &fixture{t: t, Engine: over(t, c), postgres: c}
		f.fill("a", 40)
		f.exact(name + ", recorded")
		first := f.replay(engine.ReplayOptions{BatchSize: 7, MaxBatches: 2})
		f.fill("b", 10)
		if p := f.replay(engine.ReplayOptions{BatchSize: 7, Resume: true}); !p.Activated || p.Diff.Total != 0 || p.Generation != first.Generation {
			t.Errorf("%s: %+v", name, p)
		}
		f.exact(name + ", rebuilt")
		u, err := f.Usage(t.Context(), engine.UsageQuery{
			Tenant: "acme", Feature: "tokens", Window: "day", From: noon.AddDate(0, -3, 0), To: noon, GroupBy: []string{"model"}, Aggregation: meter.Sum,
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		answers[name] = append(rowTexts(u), fmt.Sprint(f.totals()))
		ev, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: "a4"})
		answers[name] = append(answers[name], fmt.Sprint(ev.Quantity, ev.Effect, err))
	}
	if len(answers["sqlite"]) < 5 || cmp.Diff(answers["sqlite"], answers["reference"]) != "" {
		t.Errorf("stores answer differently:\n%s", cmp.Diff(answers["sqlite"], answers["reference"]))
	}
}
