package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	sampled  = time.Minute     // between two samples of a host, at most
	setBack  = 5 * time.Hour   // in all, in a world whose clock is set back
	noticing = 5 * time.Second // until a host sees that the clock was set
)

// machine is what the program of one host runs on.
type machine struct {
	boots   int
	booted  time.Duration // when, on the world's time
	life    int           // rises with every start of the program
	began   time.Duration // the program's start, or the end of its last stop
	running bool
	last    time.Duration // of its samples, on the world's time
	// since is what the clock is trusted for as of so many changes of the samples.
	since   time.Time
	changes int
}

// sample is a clock sample with the moment at which it was taken.
type sample struct {
	storage.ClockSample
	at time.Duration
}

// steps moves the store's clock: forward by hours; back by no more than the bound
// in all, or, in some worlds, by hours.
func (w *world) steps() {
	for {
		w.sleep(context.Background(), laneClock, w.drawn(time.Hour, 20*time.Hour))
		w.mu.Lock()
		if w.since() >= w.heals || w.failure != "" {
			w.mu.Unlock()
			return
		}
		d := time.Duration(w.draw(int(2 * time.Hour)))
		switch most := setBack - w.stepped; {
		case w.draw(2) == 0:
		case w.has.clocks:
			d = -min(time.Duration(w.draw(int(3*time.Hour))), most)
		default:
			d = -min(time.Duration(w.draw(int(6*time.Minute))), steppedMax-w.stepped)
		}
		w.step(d)
		w.mu.Unlock()
	}
}

// step sets the store's clock. A host has sampled it some time before, and will
// soon after.
func (w *world) step(d time.Duration) {
	w.pause(-1)
	if d < 0 {
		w.stepped -= d
	} else {
		w.provider.forward = w.since()
	}
	w.store.offset += d.Truncate(time.Microsecond)
	w.count("clock of the store stepped")
	w.note("store clock %s", d)
	for lane := range w.machines {
		if m := &w.machines[lane]; w.has.clocks && m.running {
			life := m.life
			w.after(w.between(time.Millisecond, noticing), func() {
				if m.running && m.life == life {
					w.sample(lane, w.since())
				}
			})
		}
	}
}

// powerCut is what some worlds have while nobody delivers: every machine starts
// again, and the store's clock comes back wrong.
func (w *world) powerCut() {
	if !w.has.clocks || w.draw(2) == 0 {
		return
	}
	w.after(w.between(10*time.Minute, 20*time.Hour), func() {
		for lane := range w.machines {
			if m := &w.machines[lane]; m.life > 0 && !m.running {
				m.boots, m.booted = m.boots+1, w.since()
			}
		}
		w.count("machines started again")
		if left := setBack - w.stepped; left > 0 {
			w.step(-min(w.between(time.Hour, setBack), left))
		}
	})
}

// rush records much at once, so that something is open when everybody is gone.
func (w *world) rush(in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after(in, func() {
		for range 20 {
			w.rushed++
			w.arrive(1000 + w.rushed)
		}
	})
}

// starts notes that the program of a host runs, and pause that it stops running
// or that its next samples will tell something new: then its last sample lies up
// to a minute back. Lane -1: all that run.
func (w *world) starts(lane int) {
	m := &w.machines[lane]
	m.life++
	m.running, m.began = true, w.since()
	if w.has.clocks {
		w.sample(lane, w.since())
	}
}

func (w *world) pause(lane int) {
	for i := range w.machines {
		m := &w.machines[i]
		if !w.has.clocks || !m.running || (lane >= 0 && i != lane) {
			continue
		}
		back := min(w.since()-m.began, sampled)
		w.sample(i, w.since()-time.Duration(w.draw(int(back)+1)))
	}
}

// sample is one reading of the two clocks, now or a moment ago. Of a stretch in
// which nothing changed the first and the last are kept.
func (w *world) sample(lane int, at time.Duration) {
	m := &w.machines[lane]
	if at < m.last || at < m.booted {
		return
	}
	m.last = at
	s := w.reading(lane, at)
	list := w.store.samples
	own := func(s2 sample) bool { return s2.BootID == s.BootID }
	var seen []int
	for i := len(list) - 1; i >= 0 && len(seen) < 2; i-- {
		if own(list[i]) {
			seen = append(seen, i)
		}
	}
	level := func(s sample) int64 { return s.StoreAt.UnixNano() - int64(s.Boottime) }
	if len(seen) == 2 && level(list[seen[0]]) == level(s) && level(list[seen[1]]) == level(s) {
		list = slices.Delete(list, seen[0], seen[0]+1)
	} else {
		w.store.changes++
	}
	to := len(list)
	for to > 0 && list[to-1].at > at {
		to--
	}
	w.store.samples = slices.Insert(list, to, s)
}

func (w *world) reading(lane int, at time.Duration) sample {
	m := &w.machines[lane]
	return sample{at: at, ClockSample: storage.ClockSample{
		Host: fmt.Sprint("host-", lane), BootID: fmt.Sprint("boot-", lane, "-", m.boots),
		Boottime: at - m.booted + time.Second, StoreAt: w.start.Add(at + w.store.offset),
	}}
}

// trusted is since when the store's clock can be trusted, as the host of a lane
// knows it, or, for lane -1, as any host does. // Q16.
func (w *world) trusted(lane int) time.Time {
	if !w.has.clocks {
		return time.Time{}
	}
	for i := range w.machines {
		if lane < 0 && w.machines[i].running {
			lane = i
		}
	}
	if lane < 0 {
		return w.store.now().Add(outbox.ClockReach) // nothing is
	}
	w.sample(lane, w.since())
	m := &w.machines[lane]
	if m.changes == w.store.changes {
		return m.since
	}
	list := make([]storage.ClockSample, len(w.store.samples))
	for i, s := range w.store.samples {
		list[i] = s.ClockSample
	}
	m.changes = w.store.changes
	m.since = outbox.TrustedSince(list, steppedMax, w.reading(lane, w.since()).ClockSample)
	return m.since
}
