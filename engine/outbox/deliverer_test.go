package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// indefinite is an answer after which nobody knows.
var indefinite = reply{said: exporter.Retry, exchanges: seen(exporter.ClassIndefinite)}

func TestDeliverAccepts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 25 {
			b.store.add(sample(fmt.Sprint("req_", i), time.Now()))
		}
		s := &scripted{manifest: testManifest, answer: honest(b.provider)}
		s.edit = func(r *Report) {
			for i := range r.Outcomes {
				r.Outcomes[i].ProviderRef = "ref_" + r.Outcomes[i].ItemID
			}
		}
		sum := b.once(b.deliverer(s))
		if sum.Claimed != 25 || sum.Sent != 25 || sum.States[storage.Accepted] != 25 || sum.More {
			t.Errorf("summary %+v", sum)
		}
		if n := len(s.sent()); n != 3 {
			t.Errorf("%d calls, want 3 of at most 10 items", n)
		}
		for id := range int64(25) {
			item := b.want(id+1, storage.Accepted, "")
			if item.Attempts != 1 || item.Unresolved || item.SettledAt.IsZero() || item.AcceptedAt.IsZero() || item.ProviderRef == "" {
				t.Errorf("item %+v", item)
			}
			log := b.store.log(id + 1)
			if len(log) != 1 || log[0].HostClass != "success" || log[0].Outcome != "accepted" || log[0].Evidence != "host" ||
				log[0].Decided != storage.Accepted || log[0].Fenced || log[0].LeaseToken != 1 || log[0].Owner != "w1" {
				t.Errorf("log %+v", log)
			}
		}
		if b.observer.states[storage.Accepted] != 25 {
			t.Errorf("observed %v", b.observer.states)
		}
	})
}

// O11, O15, A38: twenty attempts that nobody can judge take 11,175 s of delays
// without jitter, then the item is uncertain, never rejected, and is sent no
// more. D3: the identifier never changes, the number of the attempt always does.
func TestDeliverSpendsTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		s := &scripted{manifest: testManifest, answer: always(indefinite)}
		d := b.deliverer(s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		item := b.want(id, storage.Uncertain, "attempts_exhausted")
		if item.Attempts != 20 || !item.Unresolved {
			t.Errorf("%d attempts, unresolved %v", item.Attempts, item.Unresolved)
		}
		log := b.store.log(id)
		if len(log) != 20 {
			t.Fatalf("%d attempts logged", len(log))
		}
		took := log[19].StartedAt.Sub(log[0].StartedAt)
		if took < 11175*time.Second || took > 11195*time.Second {
			t.Errorf("twenty attempts took %s", took)
		}
		identifiers, numbers := make(map[string]bool), make(map[int]bool)
		for _, call := range s.sent() {
			identifiers[call[0].Identifier], numbers[call[0].Attempt] = true, true
		}
		if len(identifiers) != 1 || len(numbers) != 20 {
			t.Errorf("%d identifiers, %d attempt numbers", len(identifiers), len(numbers))
		}
	})
}

// F31, D2: the effect happened and the answer was lost; the duplicate answer to
// the next attempt is our own.
func TestDeliverEffectThenLostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		lose := true
		s := &scripted{manifest: testManifest, answer: func(ctx context.Context, it SendItem) reply {
			r := honest(b.provider)(ctx, it)
			if lose {
				lose = false
				return indefinite
			}
			return r
		}}
		d := b.deliverer(s)
		b.once(d)
		if item := b.want(id, storage.Pending, ""); !item.Unresolved || time.Until(item.NextAttemptAt) != 5*time.Second {
			t.Errorf("after the lost answer: %+v", item)
		}
		time.Sleep(5 * time.Second)
		b.once(d)
		item := b.want(id, storage.Accepted, "")
		if charges, n := b.provider.count(IdentifierOf(item.Digest)); charges != 1 || n != 2 {
			t.Errorf("%d charges, seen %d times", charges, n)
		}
	})
}

// F32, Q13: a duplicate answer for what we never sent is somebody else's.
func TestDeliverForeignDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		b.provider.take(IdentifierOf(b.store.row(id).Digest))
		b.once(b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)}))
		if item := b.want(id, storage.Uncertain, "foreign_duplicate"); item.Unresolved || !item.SettledAt.IsZero() {
			t.Errorf("%+v: must stay open for people and not pass for ours later", item)
		}
	})
}

// F33, R1: a definite refusal while an older attempt is open.
func TestDeliverRefusedWhileUnresolved(t *testing.T) {
	t.Parallel()
	refusal := reply{said: exporter.Rejected, exchanges: []exporter.Exchange{{
		Class: exporter.ClassRefused, Status: 400, Code: "value_invalid", Message: "no good",
	}}}
	for _, first := range []string{"indefinite outcome", "expired lease", "nothing"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now()))
				switch first {
				case "indefinite outcome":
					b.once(b.deliverer(&scripted{manifest: testManifest, answer: always(indefinite)}))
				case "expired lease": // a worker that dies after its claim
					claimAndDie(t, b)
				}
				time.Sleep(121 * time.Second)
				b.once(b.deliverer(&scripted{manifest: testManifest, answer: always(refusal)}))
				if first == "nothing" {
					item := b.want(id, storage.Rejected, "value_invalid")
					if item.LastError.Status != 400 || item.LastError.Message != "no good" || !item.SettledAt.IsZero() {
						t.Errorf("%+v", item)
					}
					return
				}
				b.want(id, storage.Uncertain, "refused_while_unresolved")
			})
		})
	}
}

func claimAndDie(t *testing.T, b *bench) storage.Claim {
	t.Helper()
	claim, err := b.store.Claim(t.Context(), storage.ClaimRequest{
		Owner: "dead", Routes: []int64{7}, Limit: 100, Lease: 120 * time.Second, Horizon: 23 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// F26, P3, A53, A-T9: the lease runs out while the send is in flight. Two deliverers,
// two sends, one charge, one outcome; the late write changes nothing, is
// counted and logged.
func TestDeliverLeaseExpiresInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		short := func(c *Config) { c.Lease = time.Second }
		slow := b.deliverer(&scripted{manifest: testManifest, answer: func(ctx context.Context, it SendItem) reply {
			r := honest(b.provider)(ctx, it)
			time.Sleep(3 * time.Second) // deaf to its deadline
			return r
		}}, short)
		fast := b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)}, short, func(c *Config) { c.Owner = "w2" })
		done := make(chan Summary)
		go func() {
			sum, err := slow.Once(t.Context())
			if err != nil {
				t.Error(err)
			}
			done <- sum
		}()
		time.Sleep(1500 * time.Millisecond)
		if sum := b.once(fast); sum.States[storage.Accepted] != 1 {
			t.Errorf("second worker: %+v", sum)
		}
		before := b.store.row(id)
		if sum := <-done; sum.Stale != 1 || len(sum.States) != 0 || b.observer.stale != 1 {
			t.Errorf("stale worker: %+v, observed %d", sum, b.observer.stale)
		}
		if diff := cmp.Diff(before, b.store.row(id)); diff != "" {
			t.Errorf("the stale worker changed the row:\n%s", diff)
		}
		if charges, n := b.provider.count(IdentifierOf(before.Digest)); charges != 1 || n != 2 {
			t.Errorf("%d charges, seen %d times", charges, n)
		}
		log := b.store.log(id)
		if len(log) != 2 || log[0].Fenced || !log[1].Fenced || log[1].HostClass != "success" || log[1].LeaseToken != 1 {
			t.Errorf("log %+v", log)
		}
	})
}

// O9, A-T3, A-T4: what has used up its budget, or is unresolved for longer than
// the horizon, is not sent again after a crash.
func TestDeliverNeverSendsBeyondBudgetOrHorizon(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"attempts_exhausted": 121 * time.Second, "horizon_passed": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				item := sample("req_1", time.Now())
				if name == "attempts_exhausted" {
					item.AttemptBudget = 1
				}
				id := b.store.add(item)
				claimAndDie(t, b)
				time.Sleep(wait)
				s := &scripted{manifest: testManifest, answer: honest(b.provider)}
				sum := b.once(b.deliverer(s, func(c *Config) { c.Horizon = 48 * time.Hour })) // the manifest's 23 h counts
				if sum.Exhausted != 1 || sum.States[storage.Uncertain] != 1 || len(s.sent()) != 0 {
					t.Errorf("%+v, %d calls", sum, len(s.sent()))
				}
				b.want(id, storage.Uncertain, name)
			})
		})
	}
}

// F42, O17, A-T14.
func TestDeliverLies(t *testing.T) {
	t.Parallel()
	success := seen(exporter.ClassSuccess)
	double := func(r *Report) { r.Outcomes = append(r.Outcomes, r.Outcomes...) }
	rename := func(r *Report) { r.Outcomes[0].ItemID = "99" }
	tests := []struct {
		name       string
		reply      reply
		edit       func(*Report)
		state      storage.ItemState
		unresolved bool
		lied       int
	}{
		{"accepted, nothing sent", reply{said: exporter.Accepted}, nil, storage.Pending, true, 1},
		{"rejected, nothing sent", reply{said: exporter.Rejected}, nil, storage.Uncertain, true, 1},
		{"rejected, host saw success", reply{exporter.Rejected, success}, nil, storage.Uncertain, true, 1},
		{"accepted, host saw a refusal", reply{exporter.Accepted, seen(exporter.ClassRefused)}, nil, storage.Uncertain, true, 1},
		{"accepted, host saw a 500", reply{exporter.Accepted, seen(exporter.ClassIndefinite)}, nil, storage.Pending, true, 1},
		{"accepted, host refused to send", reply{exporter.Accepted, seen(exporter.ClassNotSent)}, nil, storage.Pending, false, 1},
		{"no answer, host saw success", reply{"", success}, nil, storage.Pending, true, 0},
		{"no answer, nothing sent", reply{}, nil, storage.Pending, false, 0},
		{"two answers", reply{exporter.Accepted, success}, double, storage.Uncertain, true, 1},
		{"two answers, nothing sent", reply{said: exporter.Retry}, double, storage.Pending, false, 1},
		{"another's id", reply{exporter.Accepted, success}, rename, storage.Uncertain, true, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.store.add(sample("req_1", time.Now()))
				sum := b.once(b.deliverer(&scripted{manifest: testManifest, answer: always(tt.reply), edit: tt.edit}))
				item := b.want(id, tt.state, "")
				if item.Unresolved != tt.unresolved || sum.Lied != tt.lied || b.observer.lied != tt.lied {
					t.Errorf("unresolved %v, lied %d, observed %d", item.Unresolved, sum.Lied, b.observer.lied)
				}
			})
		})
	}
}

// A sender that panics, or a host that cannot say what was sent.
func TestDeliverPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		s := &scripted{manifest: testManifest, answer: func(context.Context, SendItem) reply { panic("boom") }}
		b.once(b.deliverer(s))
		if item := b.want(id, storage.Pending, "unknown"); !item.Unresolved || item.Attempts != 1 {
			t.Errorf("%+v", item)
		}
		if log := b.store.log(id); len(log) != 1 || log[0].Evidence != "none" || log[0].HostClass != "none" {
			t.Errorf("log %+v", log)
		}
	})
}

// A write that took effect and whose answer was lost is repeated and is not
// mistaken for a lost lease.
func TestDeliverLostCommitAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		b.store.loseAnswers = 2
		sum := b.once(b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)}))
		b.want(id, storage.Accepted, "")
		if sum.Stale != 0 || sum.States[storage.Accepted] != 1 {
			t.Errorf("%+v", sum)
		}
		b.store.loseAnswers = 100
		other := b.store.add(sample("req_2", time.Now()))
		d := b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)})
		if _, err := d.Once(t.Context()); !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("a store that never answers: %v", err)
		}
		b.want(other, storage.Accepted, "") // it had happened
	})
}

func TestNewDelivererChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		good := b.deliverer(&scripted{manifest: testManifest}).cfg
		edits := map[string]func(*Config){
			"store": func(c *Config) { c.Store = nil }, "sender": func(c *Config) { c.Sender = nil },
			"destination.exporter": func(c *Config) { c.Destination.Exporter = "" },
			"routes":               func(c *Config) { c.Routes = nil }, "owner": func(c *Config) { c.Owner = "" },
			"now": func(c *Config) { c.Now = nil }, "boottime": func(c *Config) { c.Boottime = nil },
			"uniform": func(c *Config) { c.Uniform = nil },
			"page, lease, tick, horizon, grace, rate": func(c *Config) { c.Lease = -1 },
		}
		for field, edit := range edits {
			cfg := good
			edit(&cfg)
			var e *sdk.Error
			if _, err := NewDeliverer(cfg); !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}
