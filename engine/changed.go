package engine

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// ChangeCause says why a balance is another one than was told before.
type ChangeCause string

// The causes.
const (
	// ChangeLate is usage of a bucket that had closed, or a correction.
	ChangeLate   ChangeCause = "late"
	ChangeCredit ChangeCause = "credit"
	// ChangeSeal is the beginning of a new period.
	ChangeSeal ChangeCause = "seal"
)

// Change is what [Config.Changed] is told.
type Change struct {
	Tenant  string
	Feature string
	Cause   ChangeCause
}

// changed tells what a commit of this engine has changed. // G7.
func (e *Engine) changed(tenant, feature string, cause ChangeCause) {
	if e.cfg.Changed != nil && feature != "" {
		e.cfg.Changed(Change{Tenant: tenant, Feature: feature, Cause: cause})
	}
}

// tellLate tells of new usage of buckets that had closed, each tenant and feature
// once. What lies in the open bucket is in no answer yet.
func (r recorder) tellLate(todo []*prepared) {
	if r.bound || r.engine.cfg.Changed == nil {
		return
	}
	type key struct{ tenant, feature string }
	told := map[key]bool{}
	for _, p := range todo {
		if p.result.Outcome != storage.Inserted {
			continue
		}
		for _, ev := range p.events {
			k := key{ev.Tenant, ev.Feature}
			if ev.OccurredAt.Before(openBucket(p.now)) && !told[k] {
				told[k] = true
				r.engine.changed(ev.Tenant, ev.Feature, ChangeLate)
			}
		}
	}
}

// tell tells of a correction, in whatever bucket: it takes from what may have been
// answered, or from an open bucket, where nobody minds.
func (c *correcting) tell() {
	feature := c.found.Original.Feature
	c.engine.changed(c.in.Tenant, feature, ChangeLate)
	if c.replace != nil && c.replace.Feature != feature {
		c.engine.changed(c.in.Tenant, c.replace.Feature, ChangeLate)
	}
}

// openBucket is where the bucket of now begins.
func openBucket(now time.Time) time.Time { return now.UTC().Truncate(storage.BucketLength) }
