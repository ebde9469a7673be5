package conformance

import (
	"sync/atomic"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func projectionRaceCases() []Case {
	return []Case{
		fresh("race/records-during-a-build", "B13 B20 B38 B43 S13 Q26", projecting(), recordsDuringBuild),
		fresh("race/corrections-during-a-build", "B25 B38 B43 B44", projecting(storage.Corrections), correctionsDuringBuild),
		fresh("race/readers-see-one-generation", "B43 B-T8", projecting(), readersSeeOne),
	}
}

// during runs builds one after another for as long as the workers work, and
// at least two.
func (r *run) during(builds int, workers int, work func(w int)) {
	var working atomic.Int32
	working.Store(int32(workers))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.together(workers, func(w int) {
			defer working.Add(-1)
			work(w)
		})
	}()
	r.protect(func() {
		for n := 0; n < builds || (working.Load() > 0 && n < 20*builds); n++ {
			s := r.beginBuild()
			for r.scan(50, nil) {
				continue
			}
			r.drain(s.Building, 5)
			r.activate(s.Building)
		}
	})
	<-done
	if len(r.messages) > 0 {
		panic(stop{})
	}
}

// Every record is in the totals once: those that were in flight when a build
// began, those that wrote both generations, and those that waited.
func recordsDuringBuild(r *run) {
	t := r.tenant("a")
	const workers = 4
	r.during(2, workers, func(w int) {
		for i := range 2 * r.opts.Rounds {
			e, f := usage(t, decimalInt(w)+"-"+decimalInt(i), "1"), usage(t, decimalInt(w)+"-"+decimalInt(i)+"-f", "1")
			f.Feature = "f" + decimalInt(i%5)
			if _, err := r.try(units(e, f), storage.Atomic); err != nil {
				r.errorf("record: %v", err)
				return
			}
		}
	})
	want := dec(decimalInt(4 * workers * r.opts.Rounds))
	got, events := dec("0"), int64(0)
	for _, total := range r.totals(t) {
		got, events = got.Add(total.Quantity), events+total.Events
	}
	r.same("totals", []any{got, events}, []any{want, 4 * workers * r.opts.Rounds})
}

func correctionsDuringBuild(r *run) {
	t := r.tenant("a")
	const workers = 4
	r.during(2, workers, func(w int) {
		for i := range r.opts.Rounds {
			e := usage(t, decimalInt(w)+"-"+decimalInt(i), "3")
			if _, err := r.try(units(e), storage.Atomic); err != nil {
				r.errorf("record: %v", err)
				return
			}
			for c, q := range []string{"1", "2", "1"} {
				res, err := r.tryCorrect(storage.CorrectRequest{Event: correction(&e, e.EventID+"-c"+decimalInt(c), q)})
				if err != nil || (res.Refused != "") != (c == 2) {
					r.errorf("correction %d: %s, %v", c, text(res), err)
				}
			}
		}
	})
	n := int64(workers * r.opts.Rounds)
	r.totalIs("all reversed", t, "0", 3*n, 0)
}

// Two totals that move together are read together: a reader that mixes two
// generations sees them differ.
func readersSeeOne(r *run) {
	t := r.tenant("a")
	pair := func(id string) []storage.Event {
		e, f := usage(t, id, "1"), usage(t, id+"-f", "1")
		f.Feature = "twin"
		return []storage.Event{e, f}
	}
	r.put(pair("0")...)
	var stopped atomic.Bool
	r.during(2, 3, func(w int) {
		if w == 0 {
			for i := range 2 * r.opts.Rounds {
				if _, err := r.try(units(pair(decimalInt(i+1))...), storage.Atomic); err != nil {
					r.errorf("record: %v", err)
				}
			}
			stopped.Store(true)
			return
		}
		last := int64(0)
		for !stopped.Load() && r.ctx.Err() == nil {
			all := r.totals(t)
			if len(all) != 2 || !all[0].Quantity.Equal(all[1].Quantity) || all[0].Events != all[1].Events {
				r.errorf("a reader saw %s", text(all))
				return
			}
			if all[0].Events < last {
				r.errorf("a reader saw %d events after %d", all[0].Events, last)
				return
			}
			last = all[0].Events
		}
	})
}
