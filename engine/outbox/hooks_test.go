package outbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q17: before the first send of a page the host may refuse; then nothing was
// sent, and what was claimed goes back with its attempt.
func TestNothingIsSentThatTheHostDoesNotAllow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.store.add(sample("req_1", time.Now()))
		s := &scripted{manifest: testManifest, answer: honest(b.provider)}
		refusal, asked := errors.New("the store went back in time"), 0
		refuse := true
		d := b.deliverer(s, func(c *Config) {
			c.BeforeSend = func(context.Context, storage.Claim) error {
				asked++
				if refuse {
					return refusal
				}
				return nil
			}
		})
		sum, err := d.Once(t.Context())
		if !errors.Is(err, refusal) || sum.Released != 1 || sum.More || len(s.sent()) != 0 {
			t.Fatalf("%+v, %v: %d calls", sum, err, len(s.sent()))
		}
		if item := b.want(id, storage.Pending, ""); item.Attempts != 0 || item.Unresolved {
			t.Errorf("item %+v", item)
		}
		refuse = false
		time.Sleep(time.Minute)
		if sum := b.once(d); sum.Sent != 1 || asked != 2 {
			t.Errorf("%+v, asked %d times", sum, asked)
		}
		if b.once(d); asked != 2 {
			t.Error("asked about a claim that took nothing")
		}
	})
}

// claims notes what was asked of a store.
type claims struct {
	storage.OutboxStore
	asked []storage.ClaimRequest
}

func (c *claims) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claim, error) {
	c.asked = append(c.asked, req)
	return c.OutboxStore.Claim(ctx, req) //nolint:wrapcheck // the store's own answer
}

// Q16: every claim carries what the clock was trusted since at that moment.
func TestClaimsCarryTrust(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := &claims{OutboxStore: b.store}
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := b.deliverer(&scripted{manifest: testManifest, answer: honest(b.provider)}, func(cfg *Config) {
		cfg.Store = c
		cfg.TrustedSince = func() time.Time { since = since.Add(time.Hour); return since }
	})
	b.once(d)
	b.once(d)
	if len(c.asked) != 2 || !c.asked[1].TrustedSince.Equal(since) || !c.asked[0].TrustedSince.Equal(since.Add(-time.Hour)) {
		t.Errorf("%+v", c.asked)
	}
}
