package mysql

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// keepSamples is how long clock samples and silent hosts are kept.
const keepSamples = 48 * time.Hour

// Beat implements [storage.HostStore].
func (a *Adapter) Beat(ctx context.Context, b storage.Heartbeat) (res storage.HeartbeatResult, err error) {
	err = a.write(ctx, "beat", func(t *tx) error {
		res = storage.HeartbeatResult{Now: t.now, Incarnation: t.incarnation(), LastBeat: t.state.lastBeat}
		if b.Leaving {
			t.exec(anyRows, "DELETE FROM fencepost_hosts WHERE host = ?", b.Host)
			return nil
		}
		t.exec(anyRows, "INSERT INTO fencepost_hosts (host, version, started_at, beat_at, flushed_through, claims, noticed) VALUES (?, ?, ?, ?, ?, ?, ?) "+
			"ON DUPLICATE KEY UPDATE version = VALUES(version), beat_at = VALUES(beat_at), flushed_through = VALUES(flushed_through), claims = VALUES(claims), noticed = VALUES(noticed)",
			b.Host, b.Version, t.now, t.now, b.FlushedThrough, b.Claims, b.Noticed)
		if b.BootID != "" {
			t.exec(1, "INSERT INTO fencepost_clock_samples (host, boot_id, boottime, store_at) VALUES (?, ?, ?, ?)", b.Host, b.BootID, int64(b.Boottime), t.now)
		}
		old := t.now.Add(-keepSamples)
		t.exec(anyRows, "DELETE FROM fencepost_clock_samples WHERE store_at < ?", old)
		t.exec(anyRows, "DELETE FROM fencepost_hosts WHERE beat_at < ?", old)
		if t.now.After(t.state.lastBeat) {
			t.state.lastBeat, t.moved = t.now, true
		}
		return nil
	})
	if err != nil {
		return storage.HeartbeatResult{}, err
	}
	return res, nil
}

// Hosts implements [storage.HostStore].
func (a *Adapter) Hosts(ctx context.Context, age time.Duration) ([]storage.HostRow, error) {
	all := []storage.HostRow{}
	err := a.read(ctx, "hosts", func(r []result) error {
		return r[0].each(func(r *row) {
			all = append(all, storage.HostRow{
				Host: r.text(), Version: r.text(), StartedAt: r.time(), BeatAt: r.time(), FlushedThrough: r.time(), Claims: r.int(),
				Noticed: r.time(),
			})
		})
	}, read("SELECT host, version, started_at, beat_at, flushed_through, claims, noticed FROM fencepost_hosts "+
		"WHERE beat_at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY host LIMIT ?", age.Microseconds(), maxPage))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ClockSamples implements [storage.HostStore].
func (a *Adapter) ClockSamples(ctx context.Context) ([]storage.ClockSample, error) {
	all := []storage.ClockSample{}
	err := a.scan(ctx, "clock samples", func(t *tx) error {
		for after, n := int64(0), maxPage; n == maxPage; {
			n = 0
			err := t.query(func(r *row) {
				after = r.int()
				all = append(all, storage.ClockSample{Host: r.text(), BootID: r.text(), Boottime: time.Duration(r.int()), StoreAt: r.time()})
				n++
			}, "SELECT sample, host, boot_id, boottime, store_at FROM fencepost_clock_samples WHERE sample > ? ORDER BY sample LIMIT ?", after, maxPage)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Hold implements [storage.HostStore].
func (a *Adapter) Hold(ctx context.Context, role, owner string, ttl time.Duration) (h storage.Holding, err error) {
	err = a.write(ctx, "hold", func(t *tx) error {
		h = storage.Holding{}
		err := t.query(func(r *row) { h.Owner, h.Until, h.Fence = r.text(), r.time(), r.int() }, "SELECT owner, until, fence FROM fencepost_roles WHERE role = ?", role)
		if err != nil {
			return err
		}
		ended := h.Owner == "" || !h.Until.After(t.now)
		switch {
		case ttl == 0 && h.Owner == owner:
			h.Owner, h.Until = "", t.now
		case ttl > 0 && (ended || h.Owner == owner):
			if h.Owner != owner {
				h.Fence++
			}
			h.Held, h.Owner, h.Until = true, owner, t.now.Add(ttl)
		default:
			return nil
		}
		t.exec(anyRows, "INSERT INTO fencepost_roles (role, owner, until, fence) VALUES (?, ?, ?, ?) "+
			"ON DUPLICATE KEY UPDATE owner = VALUES(owner), until = VALUES(until), fence = VALUES(fence)", role, h.Owner, h.Until, h.Fence)
		return nil
	})
	if err != nil {
		return storage.Holding{}, err
	}
	return h, nil
}
