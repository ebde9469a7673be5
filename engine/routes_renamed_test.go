package engine_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q4: a rename that is said again is done; another one that meets the name is not,
// nor is one that was undone or went on since.
func TestRenameRouteAgain(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		rename := func(from, to string) error {
			_, err := d.RenameRoute(ctx, from, to, anna)
			return err
		}
		d.apply(plan(map[string]string{"tokens": "llm"}))
		exists := &sdk.Error{Tag: sdk.TagConflict, Code: "route_exists"}
		for i, step := range []struct {
			from, to string
			want     error
		}{
			{"stripe", "billing", nil},
			{"stripe", "billing", nil},
			{"third", "billing", exists},
			{"billing", "books", nil},
			{"stripe", "billing", sdk.ErrNotFound},
			{"stripe", "books", exists}, // it is there, but not by this
			{"books", "stripe", nil},
			{"books", "stripe", nil},
			{"billing", "stripe", exists},
			{"stripe", "billing", nil}, // a new one
			{"stripe", "billing", nil},
		} {
			if err := rename(step.from, step.to); !errors.Is(err, step.want) {
				d.t.Errorf("%d: %s to %s: %v, want %v", i, step.from, step.to, err, step.want)
			}
		}
		d.log(storage.ActionRoute, storage.ActionRoute, storage.ActionRoute, storage.ActionRoute)
		// The old name has routes again: that is nobody's repetition.
		d.apply(as("stripe", plan(map[string]string{"tokens": "elsewhere"})))
		if err := rename("stripe", "billing"); !errors.Is(err, exists) {
			d.t.Errorf("two exporters: %v", err)
		}
	}, known)
}

// Q4: hosts rename the same exporter at the same moment. One rename takes place;
// who asked for it is answered that it is done, and who asked for another name that
// there is nothing of the old one.
func TestRenameRouteByManyHosts(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		type answer struct {
			to  string
			got engine.RouteRenamed
			err error
		}
		answers, begin := make(chan answer), make(chan struct{})
		targets := []string{"billing", "books", "billing", "books"}
		for _, to := range targets {
			e := over(d.t, d.st, known)
			go func() {
				<-begin
				got, err := e.RenameRoute(d.t.Context(), "stripe", to, anna)
				answers <- answer{to, got, err}
			}()
		}
		close(begin)
		won, done, made := "", map[string]int{}, 0
		for range targets {
			a := <-answers
			switch {
			case a.err == nil && a.got.Routes == 2:
				done[a.to]++
				won = a.to
				if !a.got.Already {
					made++
				}
			case a.err == nil || !errors.Is(a.err, sdk.ErrNotFound):
				d.t.Errorf("%s: %+v, %v", a.to, a.got, a.err)
			}
		}
		if made != 1 || done[won] != 2 || len(done) != 1 {
			d.t.Errorf("%d took place, done %v", made, done)
		}
		set, err := d.Routes(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, r := range set.Routes {
			if r.Exporter != won {
				d.t.Errorf("%+v, want all of %s", r, won)
			}
		}
		d.log(storage.ActionRoute)
	}, known)
}
