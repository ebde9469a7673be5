package server_test

import (
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/outpost/server"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

const (
	recorders = 4
	each      = 25
)

// I9, G1, G2, G3, G5: while events of 1 are recorded, every answer over a socket
// adds up to exactly the ids that it confirms, holds what was recorded before it was
// asked for, and a later version holds no less.
func TestAnswersWhileRecording(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (storage.Adapter, error){
		"sqlite": func(t *testing.T) (storage.Adapter, error) {
			return sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true})
		},
		"postgres": func(t *testing.T) (storage.Adapter, error) {
			dsn, _ := pgtest.Schema(t)
			return postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			race(t, st)
		})
	}
}

func race(t *testing.T, st storage.Adapter) {
	e, err := engine.New(engine.Config{Store: st, Features: map[string]engine.Feature{"tokens": {Buckets: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if _, err := e.ApplyRoutes(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Replay(t.Context(), engine.ReplayOptions{}); err != nil { // buckets hold everything
		t.Fatal(err)
	}
	w := newWire(t, func(c *server.Config) { c.Engine, c.Questions = e, 100_000 })
	ids := make([]string, recorders*each)
	for i := range ids {
		ids[i] = "e" + strconv.Itoa(i)
	}
	var recorded [recorders * each]atomic.Bool
	var work, ask sync.WaitGroup
	done := make(chan struct{})
	at := time.Now().Add(-time.Hour)
	for r := range recorders {
		work.Go(func() {
			for i := r * each; i < (r+1)*each; i++ {
				_, err := e.Record(w.ctx, engine.Event{ID: ids[i], Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("1"), Time: at})
				if err != nil {
					t.Error(err)
					return
				}
				recorded[i].Store(true)
			}
		})
	}
	var mu sync.Mutex
	sums := map[int64]int64{} // by version
	for range 2 {
		ws, conf := w.join()
		q := protocol.Question{Identity: protocol.Identity{Customer: "acme", Reducer: conf.Reducers[0].ID}, Definition: conf.Reducers[0].Definition, Events: ids}
		ask.Go(func() {
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				var before []string
				for i := range ids {
					if recorded[i].Load() {
						before = append(before, ids[i])
					}
				}
				frame, err := protocol.Encode(protocol.TypeQuestion, "1", q)
				if err != nil || ws.Write(w.ctx, websocket.MessageText, frame) != nil {
					t.Error("ask", err)
					return
				}
				_, frame, err = ws.Read(w.ctx)
				if err != nil {
					t.Error(err)
					return
				}
				var s protocol.Snapshot
				if a, err := protocol.Decode(frame); err != nil || a.Type != protocol.TypeSnapshot || a.Into(&s) != nil {
					t.Errorf("%.300s", frame)
					return
				}
				confirmed := map[string]bool{}
				for _, id := range s.Events {
					confirmed[id] = true
				}
				for _, id := range before {
					if !confirmed[id] {
						t.Errorf("G1: %s was recorded before the question", id)
					}
				}
				if s.Sum != strconv.Itoa(len(confirmed)) || s.Count != int64(len(confirmed)) {
					t.Errorf("G2: sum %s, count %d, confirmed %d", s.Sum, s.Count, len(confirmed))
				}
				if last && len(confirmed) != len(ids) {
					t.Errorf("at the end %d", len(confirmed))
				}
				mu.Lock()
				if _, twice := sums[s.Version]; twice {
					t.Errorf("G3: version %d twice", s.Version)
				}
				sums[s.Version] = s.Count
				for v, n := range sums {
					if (v < s.Version && n > s.Count) || (v > s.Version && n < s.Count) {
						t.Errorf("G3: version %d has %d, version %d has %d", v, n, s.Version, s.Count)
					}
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	close(done)
	ask.Wait()
}
