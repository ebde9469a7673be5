package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// run starts Run and returns what stops it and waits.
func run(t *testing.T, d *Deliverer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// O15a, A-T5, A40: on the first rate limit nothing more is claimed or sent for
// this destination; what was not sent costs no attempt.
func TestDeliverThrottled(t *testing.T) {
	t.Parallel()
	tests := []struct {
		asked time.Duration
		pause time.Duration
	}{
		{0, 30 * time.Second},
		{7 * time.Second, 7 * time.Second},
		{time.Millisecond, time.Second},
		{24 * time.Hour, time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.asked.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for i := range 30 {
					b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
				}
				limit := true
				s := &scripted{manifest: testManifest, answer: func(ctx context.Context, it SendItem) reply {
					if limit {
						return reply{exporter.RateLimited, []exporter.Exchange{{Class: exporter.ClassThrottled, Status: 429, RetryAfter: tt.asked}}}
					}
					return honest(b.provider)(ctx, it)
				}}
				d := b.deliverer(s)
				sum := b.once(d)
				if sum.Sent != 10 || sum.Released != 20 || sum.Pause != tt.pause {
					t.Errorf("%+v, want a pause of %s", sum, tt.pause)
				}
				for id := range int64(30) {
					item := b.store.row(id + 1)
					want := 0
					if id < 10 {
						want = 1
					}
					if item.State != storage.Pending || item.Attempts != want || item.Unresolved || time.Until(item.NextAttemptAt) != tt.pause {
						t.Fatalf("item %d: %+v", id+1, item)
					}
				}
				limit = false
				time.Sleep(tt.pause - 1)
				if again := b.once(d); again.Claimed != 0 || again.Pause != 1 {
					t.Errorf("inside the pause: %+v", again)
				}
				time.Sleep(time.Nanosecond)
				if again := b.once(d); again.States[storage.Accepted] != 30 {
					t.Errorf("after the pause: %+v", again)
				}
				if !slices.Equal(b.observer.pauses, []PauseReason{PausedThrottled}) {
					t.Errorf("observed %v", b.observer.pauses)
				}
			})
		})
	}
}

// F34: a destination that turns everything away for twenty hours burns nobody
// to the cap; when it is mended everything is delivered.
func TestDeliverBreaker(t *testing.T) {
	t.Parallel()
	for _, items := range []int{1, 30} {
		t.Run(strconv.Itoa(items), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for i := range items {
					b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
				}
				var down atomic.Bool
				down.Store(true)
				s := &scripted{manifest: testManifest, answer: func(ctx context.Context, it SendItem) reply {
					if down.Load() {
						return reply{exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 401, Breaker: true}}}
					}
					return honest(b.provider)(ctx, it)
				}}
				stop := run(t, b.deliverer(s))
				time.Sleep(20 * time.Hour)
				for id := range int64(items) {
					if item := b.store.row(id + 1); item.State != storage.Pending || item.Attempts > 2 {
						t.Fatalf("after 20 h: item %d is %s with %d attempts", id+1, item.State, item.Attempts)
					}
				}
				calls := s.sent()
				for _, call := range calls[1:] {
					if len(call) != 1 {
						t.Fatalf("a probe of %d items", len(call))
					}
				}
				// Growing to one probe in 15 minutes: 8 to get there, 4 an hour after.
				if n := len(calls); n < 60 || n > 100 {
					t.Errorf("%d calls in 20 h", n)
				}
				down.Store(false)
				time.Sleep(time.Hour)
				stop()
				for id := range int64(items) {
					item := b.want(id+1, storage.Accepted, "")
					if charges, _ := b.provider.count(IdentifierOf(item.Digest)); charges != 1 {
						t.Errorf("item %d: %d charges", id+1, charges)
					}
				}
			})
		})
	}
}

// An answer that concerns the destination, between answers about items, is the
// item's own failure: others go on, and it spends its attempts.
func TestDeliverBreakerNeedsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		bad := b.store.add(sample("bad", time.Now()))
		good := b.store.add(sample("good", time.Now()))
		s := &scripted{manifest: testManifest, answer: func(ctx context.Context, it SendItem) reply {
			if it.Customer == "cus_bad" {
				return reply{exporter.Retry, []exporter.Exchange{{Class: exporter.ClassIndefinite, Status: 404, Breaker: true}}}
			}
			return honest(b.provider)(ctx, it)
		}}
		if sum := b.once(b.deliverer(s)); sum.Pause != 0 {
			t.Errorf("%+v", sum)
		}
		b.want(good, storage.Accepted, "")
		if item := b.want(bad, storage.Pending, ""); item.Attempts != 1 {
			t.Errorf("%d attempts", item.Attempts)
		}
	})
}

// Q12: what could not be sent at all costs no attempt, however long it lasts,
// and is tried ever more rarely.
func TestDeliverNotSent(t *testing.T) {
	t.Parallel()
	edits := map[string]func(*Report){
		"no connection":  func(*Report) {},
		"never called":   func(r *Report) { *r = Report{Err: context.DeadlineExceeded} },
		"unwatched":      func(r *Report) { *r = Report{Grade: GradePlugin} },
		"grade unstated": func(r *Report) { *r = Report{} },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now()))
				s := &scripted{manifest: testManifest, answer: always(reply{exporter.Retry, seen(exporter.ClassNotSent)}), edit: edit}
				stop := run(t, b.deliverer(s))
				time.Sleep(7 * 24 * time.Hour)
				stop()
				item := b.want(id, storage.Pending, "")
				if item.Attempts != 0 || item.Unresolved {
					t.Errorf("%+v", item)
				}
				if n := len(s.sent()); n > 800 {
					t.Errorf("%d calls in a week", n)
				}
			})
		})
	}
}

// Q12: no more is claimed than rate times deadline can send inside the lease,
// shared between live hosts.
func TestDeliverClaimsWhatItCanSend(t *testing.T) {
	t.Parallel()
	tests := []struct {
		declared, configured, hosts, page int
		want                              int
	}{
		{25, 0, 1, 100, 100},  // 25/s for 90 s: the page is the limit
		{1, 0, 1, 100, 90},    // three quarters of 120 s
		{1, 0, 2, 100, 45},    // two hosts share
		{1, 0, 1000, 100, 1},  // never none
		{25, 1, 1, 1000, 90},  // the smaller counts
		{1, 25, 1, 1000, 90},  // either way
		{0, 0, 1, 1000, 1000}, // no limit
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, tt := range tests {
			m := testManifest
			m.Rate = tt.declared
			d := b.deliverer(&scripted{manifest: m}, func(c *Config) {
				c.Rate, c.Page, c.Hosts = tt.configured, tt.page, func() int { return tt.hosts }
			})
			if got := d.limit(); got != tt.want {
				t.Errorf("%+v: claims %d", tt, got)
			}
		}
	})
}

// O14: a worker that slept between claim and send does not send. What it holds
// still is handed back, without an attempt; what it lost stays as it is.
func TestDeliverSleptThroughTheLease(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now()))
				var suspended time.Duration // seen by the boottime clock alone
				b.store.afterClaim = func() {
					suspended = 91 * time.Second
					if lost {
						b.store.rows[id].item.LeaseToken++ // another worker claimed
					}
				}
				s := &scripted{manifest: testManifest, answer: honest(b.provider)}
				d := b.deliverer(s, func(c *Config) {
					c.Boottime = func() time.Duration { return time.Since(b.start) + suspended }
				})
				sum := b.once(d)
				if len(s.sent()) != 0 || sum.Sent != 0 {
					t.Fatalf("sent after its lease: %+v", sum)
				}
				item := b.store.row(id)
				if !lost && (item.State != storage.Pending || item.Attempts != 0 || item.Unresolved) {
					t.Errorf("%+v", item)
				}
				if lost && (item.State != storage.Leased || sum.Stale != 1) {
					t.Errorf("%+v, %d stale", item, sum.Stale)
				}
			})
		})
	}
}

// O14: the sender can ask, in the middle of a call, whether it may still send.
func TestLeaseLeft(t *testing.T) {
	t.Parallel()
	if _, ok := LeaseLeft(t.Context()); ok {
		t.Error("a lease outside a send")
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.add(sample("req_1", time.Now()))
		ctx, cancel := context.WithCancel(t.Context())
		var lefts []time.Duration
		s := &scripted{manifest: testManifest, answer: func(c context.Context, _ SendItem) reply {
			look := func() {
				left, ok := LeaseLeft(c)
				if !ok {
					t.Error("no lease inside a send")
				}
				lefts = append(lefts, left)
			}
			look()
			time.Sleep(30 * time.Second)
			look()
			cancel() // shutdown: nothing new may begin
			look()
			if c.Err() != nil {
				t.Error("shutdown ends what is in flight at once")
			}
			time.Sleep(11 * time.Second)
			if c.Err() == nil {
				t.Error("what is in flight outlives the grace")
			}
			return indefinite
		}}
		if _, err := b.deliverer(s).Once(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{90 * time.Second, 60 * time.Second, 0}; !slices.Equal(lefts, want) {
			t.Errorf("left %v, want %v", lefts, want)
		}
	})
}

// Shutdown in the middle of a page: what is in flight is written, the rest is
// handed back at once, nothing stays leased.
func TestDeliverShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 30 {
			b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := &scripted{manifest: testManifest, answer: func(c context.Context, it SendItem) reply {
			cancel()
			return honest(b.provider)(c, it)
		}}
		sum, err := b.deliverer(s).Once(ctx)
		if err != nil || sum.States[storage.Accepted] != 10 || sum.Released != 20 {
			t.Errorf("%+v, %v", sum, err)
		}
		for id := range int64(30) {
			if item := b.store.row(id + 1); item.State == storage.Leased || (item.State == storage.Pending && item.Attempts != 0) {
				t.Errorf("%+v", item)
			}
		}
		if again, err := b.deliverer(s).Once(ctx); err != nil || again.Claimed != 0 {
			t.Errorf("claims after shutdown: %+v, %v", again, err)
		}
	})
}

// Q12: a hundred expired leases come in pages of one, without a tick between
// them; tick is the idle poll only. F05: an item that is re-claimed is open.
func TestRunDoesNotWaitBetweenPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 100 {
			b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
		}
		claimAndDie(t, b)
		time.Sleep(121 * time.Second)
		began := time.Now()
		s := &scripted{manifest: testManifest, answer: honest(b.provider)}
		stop := run(t, b.deliverer(s, func(c *Config) { c.Tick = time.Minute }))
		synctest.Wait()
		if n := len(s.sent()); n != 100 || time.Since(began) != 0 {
			t.Errorf("%d calls after %s", n, time.Since(began))
		}
		id := b.store.add(sample("late", time.Now()))
		time.Sleep(61 * time.Second)
		b.want(id, storage.Accepted, "")
		stop()
		if !b.store.row(1).Unresolved {
			t.Error("a re-claimed item is not open")
		}
	})
}

// Run outlives a store that fails.
func TestRunOutlivesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		b.store.failClaims = 5
		stop := run(t, b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)}))
		time.Sleep(10 * time.Minute)
		stop()
		b.want(id, storage.Accepted, "")
	})
}
