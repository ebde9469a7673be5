package sqlite

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// keepSamples is how long clock samples, and hosts that do not beat, are kept.
const keepSamples = 48 * time.Hour

// incarnation says which store this is and how far it has come. One file has
// one history: there is no timeline, and the store's own id names the file.
func incarnation(c *conn) (in storage.Incarnation, err error) {
	_, err = c.bind(qIncarnation).one(func(r *row) {
		in.Store, in.Claims, in.Restores, in.RestoredThrough = r.text(), r.int(), r.int(), r.time()
	})
	in.System = in.Store
	return in, err
}

// Beat notes that a host lives, and samples the clocks.
func (a *Adapter) Beat(ctx context.Context, b storage.Heartbeat) (res storage.HeartbeatResult, err error) {
	err = a.write(ctx, "beat", func(_ context.Context, c *conn) (err error) {
		if b.Host == "" {
			return sdk.Invalid("host", "required")
		}
		res = storage.HeartbeatResult{Now: a.now()}
		if res.Incarnation, err = incarnation(c); err != nil {
			return err
		}
		if _, err := c.bind(qLastBeat).one(func(r *row) {
			if at := r.time(); at.UnixMicro() != 0 {
				res.LastBeat = at
			}
		}); err != nil {
			return err
		}
		if b.Leaving {
			_, err := c.bind(qHostForget).text(b.Host).run()
			return err
		}
		return beat(c, &b, res.Now)
	})
	if err != nil {
		return storage.HeartbeatResult{}, err
	}
	return res, nil
}

func beat(c *conn, b *storage.Heartbeat, now time.Time) error {
	if _, err := c.bind(qHostPut).text(b.Host).text(b.Version).time(now).optTime(b.FlushedThrough).int(b.Claims).optTime(b.Noticed).run(); err != nil {
		return err
	}
	if b.BootID != "" {
		if _, err := c.bind(qSampleInsert).text(b.Host).text(b.BootID).int(int64(b.Boottime)).time(now).run(); err != nil {
			return err
		}
	}
	for _, q := range []query{qSamplesForget, qHostsForget} {
		if _, err := c.bind(q).time(now.Add(-keepSamples)).run(); err != nil {
			return err
		}
	}
	_, err := c.bind(qLastBeatSet).time(now).run()
	return err
}

// Hosts returns every host that beat in the last age, by name.
func (a *Adapter) Hosts(ctx context.Context, age time.Duration) (all []storage.HostRow, err error) {
	err = a.read(ctx, "list hosts", func(c *conn) error {
		all = []storage.HostRow{}
		return c.bind(qHosts).time(a.now().Add(-age)).each(func(r *row) error {
			all = append(all, storage.HostRow{
				Host: r.text(), Version: r.text(), StartedAt: r.time(), BeatAt: r.time(), FlushedThrough: r.time(), Claims: r.int(),
				Noticed: r.time(),
			})
			return nil
		})
	})
	return all, err
}

// ClockSamples returns the samples of the last two days, in the order in which
// they were taken.
func (a *Adapter) ClockSamples(ctx context.Context) (all []storage.ClockSample, err error) {
	err = a.read(ctx, "list clock samples", func(c *conn) error {
		all = []storage.ClockSample{}
		return c.bind(qSamples).each(func(r *row) error {
			all = append(all, storage.ClockSample{
				Host: r.text(), BootID: r.text(), Boottime: time.Duration(r.int()), StoreAt: r.time(),
			})
			return nil
		})
	})
	return all, err
}

// Hold takes, renews or gives up a role; see [storage.HostStore].
func (a *Adapter) Hold(ctx context.Context, role, owner string, ttl time.Duration) (h storage.Holding, err error) {
	err = a.write(ctx, "hold a role", func(_ context.Context, c *conn) (err error) {
		switch {
		case role == "" || owner == "":
			return sdk.Invalid("role", "a role and an owner")
		case ttl < 0:
			return sdk.Invalid("ttl", "zero or more")
		}
		h, err = hold(c, role, owner, a.now(), ttl)
		return err
	})
	if err != nil {
		return storage.Holding{}, err
	}
	return h, nil
}

func hold(c *conn, role, owner string, now time.Time, ttl time.Duration) (h storage.Holding, err error) {
	if _, err := c.bind(qRole).text(role).one(func(r *row) {
		h.Owner, h.Until, h.Fence = r.text(), r.time(), r.int()
	}); err != nil {
		return h, err
	}
	mine := h.Owner == owner
	switch {
	case ttl > 0 && (mine || h.Owner == "" || !h.Until.After(now)):
		if !mine {
			h.Fence++
		}
		h.Held, h.Owner, h.Until = true, owner, now.Add(ttl)
	case ttl == 0 && mine:
		h.Owner, h.Until = "", now
	case h.Owner != "" && !h.Until.After(now): // ended, and nobody asks for it
		h.Owner = ""
		return h, nil
	default:
		return h, nil
	}
	_, err = c.bind(qRolePut).text(role).text(h.Owner).time(h.Until).int(h.Fence).run()
	return h, err
}
