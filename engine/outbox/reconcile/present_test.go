package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// items answers the uncertain items of a store and their details.
type items struct {
	storage.OutboxStore
	all []storage.ItemDetail
}

func (s *items) ListItems(_ context.Context, q storage.ItemQuery) (storage.ItemPage, error) {
	var page storage.ItemPage
	for _, d := range s.all {
		if d.Item.State == q.State && d.Item.Feature == q.Feature && q.Account == dest.Account && q.Mode == dest.Mode {
			page.Items = append(page.Items, d.Item)
		}
	}
	return page, nil
}

func (s *items) LoadItem(_ context.Context, id int64) (storage.ItemDetail, error) {
	for _, d := range s.all {
		if d.Item.ItemID == id {
			return d, nil
		}
	}
	return storage.ItemDetail{}, sdk.ErrNotFound
}

func uncertain(id int64, at time.Time, quantity string) storage.ItemDetail {
	return storage.ItemDetail{
		Item: storage.Item{
			ItemID: id, State: storage.Uncertain, Feature: "in", Customer: "c", Identity: storage.Identity{MappingVersion: "v1", SubjectKind: storage.SubjectEvent},
		},
		Event:   &storage.Event{Feature: "in", Quantity: dec(quantity), OccurredAt: at},
		Mapping: storage.Mapping{Version: "v1", Content: []byte(`{"event_name":"tokens"}`)},
	}
}

// O26, Q23, A-T15: a sum that can only be explained by an uncertain item is evidence
// that it was taken. Everything else is none, absence above all.
func TestPresent(t *testing.T) {
	t.Parallel()
	open := func(n int64, value string) storage.ItemSum {
		return sum("c", "in", "v1", "10", 2, func(s *storage.ItemSum) { s.Open, s.OpenValue = n, dec(value) })
	}
	fresh, disputed := open(1, "3"), open(1, "3")
	fresh.Fresh, disputed.Disputed = 1, 1
	inside, outside := uncertain(7, day.Add(time.Hour), "3"), uncertain(8, day.Add(-time.Hour), "3")
	for name, c := range map[string]struct {
		sum      storage.ItemSum
		provider string
		items    []storage.ItemDetail
		told     int
	}{
		"taken":                      {open(1, "3"), "13", []storage.ItemDetail{inside}, 1},
		"absent":                     {open(1, "3"), "10", []storage.ItemDetail{inside}, 0},
		"part of it":                 {open(1, "3"), "12", []storage.ItemDetail{inside}, 0},
		"two are open":               {open(2, "3"), "13", []storage.ItemDetail{inside}, 0},
		"fresh":                      {fresh, "13", []storage.ItemDetail{inside}, 0},
		"disputed":                   {disputed, "13", []storage.ItemDetail{inside}, 0},
		"the open one is pending":    {open(1, "3"), "13", nil, 0},
		"the uncertain one is older": {open(1, "3"), "13", []storage.ItemDetail{outside}, 0},
		"of another value":           {open(1, "3"), "13", []storage.ItemDetail{uncertain(9, day, "4")}, 0},
		"two could be meant":         {open(1, "3"), "13", []storage.ItemDetail{inside, outside}, 0},
	} {
		s, p := &store{sums: map[time.Time][]storage.ItemSum{day: {c.sum}}}, &provider{sums: map[string]string{"c tokens": c.provider}}
		cfg := config(s, p)
		var told []int64
		cfg.Items = &items{all: c.items}
		cfg.Attest = func(_ context.Context, id int64, what string) error {
			told = append(told, id)
			if !strings.Contains(what, "mtr_tokens from 2026-11-29T00:00Z to 2026-11-30T00:00Z") {
				t.Errorf("%s: %s", name, what)
			}
			return nil
		}
		if _, err := reconcile.Run(t.Context(), cfg, request()); err != nil || len(told) != c.told || len(s.confirms) != 0 || len(s.lines) != 1 {
			t.Errorf("%s: told of %v, %v", name, told, err)
		}
	}
}
