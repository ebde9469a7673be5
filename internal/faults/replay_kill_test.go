//go:build faults && unix

package faults

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/host/api"
)

// replaying posts to the replays of the server and returns the answer.
func (r *rig) replaying(path string, body map[string]any) (api.ReplayStatus, error) {
	r.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	var st api.ReplayStatus
	err = r.call(http.MethodPost, "/v1/replays"+path, "application/json", raw, &st)
	return st, err
}

// replayed waits for the end of the server's replay.
func (r *rig) replayed() api.ReplayStatus {
	r.t.Helper()
	var st api.ReplayStatus
	eventually(r.t, "the replay ends", func() bool {
		st = api.ReplayStatus{}
		r.get("/v1/replays", &st)
		return st.Run != nil && st.Run.State != "running"
	})
	return st
}

// recording records events one by one until stopped or until the server is gone.
// It returns a function that stops it.
func (r *rig) recording(events []event) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, e := range events {
			select {
			case <-done:
				return
			default:
			}
			if _, err := r.post([]event{e}); err != nil {
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// F04, I4, B38-B44: killed at each step of a replay while records continue. The
// totals in use are right after every kill; the replay goes on where it was, and
// no row of the seed is subtracted twice, or the rebuilt totals would differ and
// be refused.
func TestKillWhileReplaying(t *testing.T) {
	t.Parallel()
	for name, open := range stores() {
		for rule, resumed := range map[string]bool{
			"p1=kill": true, "p2=kill@n4": true, "p3=kill@n4": true, "p4=kill": true, "p4=kill@n3": true,
			"p5=kill": true, "p5=kill@n3": true, "p6=kill": true, "p7=kill": false,
		} {
			t.Run(name+"/"+subtest(rule), func(t *testing.T) {
				t.Parallel()
				killWhileReplaying(t, open(t, defaults()), rule, resumed)
			})
		}
	}
}

func killWhileReplaying(t *testing.T, r *rig, rule string, resumed bool) {
	t.Helper()
	r.subscribeCrowd()
	first := crowd("first", 40)
	for i := range first {
		if i%4 == 0 {
			first[i].at = first[i].at.AddDate(0, 0, -20) // perhaps another period
		}
	}
	s := r.start(rule)
	r.record(first)
	second := crowd("second", 150)
	stop := r.recording(second)
	// Two rows at a time, so that a kill falls into the middle of everything.
	_, err := r.replaying("", map[string]any{"batch_size": 2})
	if err != nil && !s.hasEnded() && !within(patience, s.hasEnded) {
		t.Fatalf("start: %v", err)
	}
	label, _, _ := strings.Cut(rule, "=")
	s.died(label)
	stop()
	r.auditTotals(r.read())

	r.start("")
	stop = r.recording(second)
	var st api.ReplayStatus
	r.get("/v1/replays", &st)
	if (st.Building != "") != resumed {
		t.Errorf("after the kill: %+v", st)
	}
	if st.Building != "" {
		building := st.Building
		if _, err := r.replaying("/resume", map[string]any{"batch_size": 2}); err != nil {
			t.Fatalf("resume: %v", err)
		}
		if st = r.replayed(); st.Run.State != "done" || !st.Run.Resumed || st.Active != building || st.Run.Differing != "0" {
			t.Errorf("resumed: %+v, %+v", st, st.Run)
		}
	}
	stop()
	r.auditTotals(r.read())
	// A second replay, of what the first has built, finds nothing to differ in.
	if _, err := r.replaying("", map[string]any{}); err != nil {
		t.Fatalf("again: %v", err)
	}
	if st = r.replayed(); st.Run.State != "done" || st.Run.Differing != "0" || st.Building != "" || st.SeedLeft {
		t.Errorf("again: %+v, %+v", st, st.Run)
	}
	for chunk := range slices.Chunk(second, 100) {
		r.record(chunk)
	}
	r.drain()
	if n := r.audit().accepted(r); n != len(first)+len(second) {
		t.Errorf("%d items", n)
	}
}
