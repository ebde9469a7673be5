package conformance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// keepSamples is how long clock samples and silent hosts are kept.
const keepSamples = 48 * time.Hour

// Beat follows [storage.Heartbeat].
func (s *Reference) Beat(ctx context.Context, b storage.Heartbeat) (storage.HeartbeatResult, error) {
	if err := s.begin(ctx); err != nil {
		return storage.HeartbeatResult{}, err
	}
	defer s.mu.Unlock()
	st, now := &s.settled, s.clock()
	res := storage.HeartbeatResult{Now: now, Incarnation: st.incarnation, LastBeat: st.lastBeat}
	if b.Leaving {
		if !s.slips.has(slipLeavingStays) {
			delete(st.hosts, b.Host)
		}
		return res, nil
	}
	row := storage.HostRow{
		Host: b.Host, Version: b.Version, StartedAt: now, BeatAt: now, FlushedThrough: b.FlushedThrough.UTC(), Claims: b.Claims, Noticed: b.Noticed.UTC(),
	}
	if s.slips.has(slipNoticedForgotten) {
		row.Noticed = time.Time{}
	}
	if known, ok := st.hosts[b.Host]; ok {
		row.StartedAt = known.StartedAt
	}
	st.hosts[b.Host] = row
	if b.BootID != "" || s.slips.has(slipSamplesWithoutBoot) {
		st.samples = append(st.samples, storage.ClockSample{Host: b.Host, BootID: b.BootID, Boottime: b.Boottime, StoreAt: now})
	}
	old := now.Add(-keepSamples)
	st.samples = slices.DeleteFunc(st.samples, func(c storage.ClockSample) bool { return c.StoreAt.Before(old) })
	for name, h := range st.hosts {
		if h.BeatAt.Before(old) {
			delete(st.hosts, name)
		}
	}
	if now.After(st.lastBeat) {
		st.lastBeat = now
	}
	return res, nil
}

// Hosts returns those that beat of late.
func (s *Reference) Hosts(ctx context.Context, age time.Duration) ([]storage.HostRow, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.HostRow{}
	for _, h := range s.settled.hosts {
		if !h.BeatAt.Before(s.clock().Add(-age)) {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b storage.HostRow) int { return cmp.Compare(a.Host, b.Host) })
	return all, nil
}

// ClockSamples returns samples in their order.
func (s *Reference) ClockSamples(ctx context.Context) ([]storage.ClockSample, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Clone(s.settled.samples), nil
}

// Hold takes, renews or gives up a role.
func (s *Reference) Hold(ctx context.Context, role, owner string, ttl time.Duration) (storage.Holding, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Holding{}, err
	}
	defer s.mu.Unlock()
	h, now := s.settled.roles[role], s.clock()
	h.Held = false
	ended := h.Owner == "" || !h.Until.After(now)
	switch {
	case ttl == 0 && h.Owner == owner:
		h.Owner, h.Until = "", now
	case ttl > 0 && (ended || h.Owner == owner || s.slips.has(slipRoleStolen)):
		if h.Owner != owner && !s.slips.has(slipFenceStays) {
			h.Fence++
		}
		h.Held, h.Owner, h.Until = true, owner, now.Add(ttl)
	}
	s.settled.roles[role] = h
	return h, nil
}
