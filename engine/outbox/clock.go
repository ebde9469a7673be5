package outbox

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// clockBand is how far the store's clock may wander against a machine's
	// before it counts as a step: a reading takes as long as a round trip to
	// the store. What wanders further is counted in full, so many small steps
	// do not hide below it.
	clockBand = 250 * time.Millisecond
	// ClockReach is how long after its last sample a host may still write: it
	// samples at least once a minute, and stops sending when it has not reached
	// the store for half of one.
	ClockReach = 2 * time.Minute
)

// TrustedSince returns the earliest instant of the store's clock such that of
// everything written since then it can be told how long ago that was: all steps
// back in between add up to at most bound. samples are in the order in which
// they were taken, and now is a later reading. // Q16
//
// The measure is a clock that nobody sets, that of each machine from one boot to
// the next. A stretch is measured if a machine has a sample at or before its
// beginning and one at or after its end within one boot; machines take over from
// each other where their samples overlap. What lies before a stretch that nobody
// measured is not trusted: every machine was down, or was started again.
//
// The answer is an instant, and a clock that was set back shows some instants
// twice. Of those the first time is assumed: after a step back by an hour, more
// than the bound, nothing is trusted that the store dates within the next hour.
func TrustedSince(samples []storage.ClockSample, bound time.Duration, now storage.ClockSample) time.Time {
	all := slices.Concat(samples, []storage.ClockSample{now})
	before := previous(all)
	first := untrusted(all, before, bound) + 1
	since := all[first].StoreAt
	// The latest instant that the clock showed while it was not trusted: at most
	// what is left of a host's time until its next sample.
	until := make([]time.Time, first)
	for i := range until {
		until[i] = all[i].StoreAt.Add(ClockReach)
	}
	for i, p := range before {
		if p >= 0 && p < first {
			until[p] = all[p].StoreAt.Add(min(max(all[i].Boottime-all[p].Boottime, 0), ClockReach))
		}
	}
	for _, t := range until {
		if t.After(since) {
			since = t
		}
	}
	return since
}

// previous returns for each sample the one that the same boot took before it, -1
// for its first.
func previous(all []storage.ClockSample) []int {
	before, last := make([]int, len(all)), map[string]int{}
	for i, s := range all {
		before[i] = -1
		if p, ok := last[s.BootID]; ok && s.BootID != "" {
			before[i] = p
		}
		last[s.BootID] = i
	}
	return before
}

// setBack returns by how much the store's clock was set back between each sample
// and the one before it of the same boot.
func setBack(all []storage.ClockSample, before []int) []time.Duration {
	back := make([]time.Duration, len(all))
	// level is what the difference of the two clocks is taken for: it follows
	// only what leaves the band, so that noise does not add up.
	level := map[string]time.Duration{}
	for i, s := range all {
		difference := time.Duration(s.StoreAt.UnixNano()) - s.Boottime
		was := level[s.BootID]
		switch {
		case before[i] < 0:
			level[s.BootID] = difference
		case difference < was-clockBand:
			back[i], level[s.BootID] = was-difference, difference
		case difference > was+clockBand:
			level[s.BootID] = difference
		}
	}
	return back
}

// untrusted returns the last sample from which on the steps back add up to more
// than bound, or are unknown; -1 if there is none.
func untrusted(all []storage.ClockSample, before []int, bound time.Duration) int {
	back := setBack(all, before)
	// steps[i] is the least that is known of the steps back from sample i to
	// the last: over all ways to get there from one sample of a boot to its
	// next, entering at any boot that was measuring at the time. It does not
	// grow with i.
	steps := make([]time.Duration, len(all))
	// spans are the boots that have a sample after the present one and one at
	// or before it, by the sample after.
	spans := map[string]int{}
	if last := len(all) - 1; before[last] >= 0 {
		spans[all[last].BootID] = last
	}
	for i := len(all) - 2; i >= 0; i-- {
		least := time.Duration(-1)
		for _, next := range spans {
			if way := back[next] + steps[next]; least < 0 || way < least {
				least = way
			}
		}
		if least < 0 || least > bound {
			return i
		}
		steps[i] = least
		spans[all[i].BootID] = i
		if before[i] < 0 {
			delete(spans, all[i].BootID)
		}
	}
	return -1
}
