//go:build unix

package state

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

func newStore(t testing.TB, url string) *Store {
	t.Helper()
	s, err := New(dial(t, url), Config{Org: "org"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var who = Identity{"acme", reducerID(1)}

// proxy stands between a client and a server. Armed, it lets the next script
// run, keeps its answer and cuts the connection.
type proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	armed    atomic.Bool
	scripts  atomic.Int64
	wait     sync.WaitGroup
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	p.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wait.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var cut atomic.Bool
	p.wait.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := client.Read(b)
			if bytes.Contains(bytes.ToLower(b[:n]), []byte("eval")) {
				p.scripts.Add(1)
				if p.armed.CompareAndSwap(true, false) {
					cut.Store(true)
				}
			}
			if _, werr := server.Write(b[:n]); err != nil || werr != nil {
				_ = server.Close()
				return
			}
		}
	})
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if cut.Load() || err != nil {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// F50, D11: a script ran and its answer was lost. It is counted once, the caller
// hears that nobody knows, and the client has not sent it again: neither that of
// a server nor that of a cluster.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"server", "cluster"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t)
			settings, url := quick(), "redis://"+p.addr()
			if mode == "cluster" {
				_, port, _ := net.SplitHostPort(p.addr())
				settings = append(settings, "--cluster-enabled", "yes", "--cluster-announce-port", port, "--cluster-port", freeBus(t))
				url += "," + url
			}
			server := redistest.Start(t, settings...)
			target := server.Addr()
			p.target.Store(&target)
			if mode == "cluster" {
				server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
				for !strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok") {
					continue
				}
			}
			s := newStore(t, url)
			trackOne(t, s, who, "1", 0, "2") // and the script is known
			ran := p.scripts.Load()
			p.armed.Store(true)
			_, err := s.Track(t.Context(), oneEvent(who, "2", 0, "3"))
			if sdk.TagOf(err) != sdk.TagUnavailable {
				t.Fatalf("a lost answer is %v", err)
			}
			if n := p.scripts.Load() - ran; n != 1 {
				t.Errorf("the script was sent %d times", n)
			}
			if got := trackOne(t, s, who, "2", 0, "3"); got != Duplicate {
				t.Errorf("again it is %s", got)
			}
			if a, _ := load(t, s, who).Aggregate(time.Now()); a.Count != 2 || a.Sum.String() != "5" {
				t.Errorf("%v is counted", text(a))
			}
		})
	}
}

func freeBus(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// F49: a server that forgot the scripts gets the text, once; what it has counted
// is not counted again.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	server := redistest.Start(t, quick()...)
	target := server.Addr()
	p.target.Store(&target)
	s := newStore(t, "redis://"+p.addr())
	for i := range 3 {
		server.Do("SCRIPT", "FLUSH")
		before := p.scripts.Load()
		if got := trackOne(t, s, who, strconv.Itoa(i), 0, "1"); got != Added {
			t.Errorf("event %d is %s", i, got)
		}
		if n := p.scripts.Load() - before; n != 2 {
			t.Errorf("%d commands: EVALSHA and one EVAL are two", n)
		}
	}
	if a, _ := load(t, s, who).Aggregate(time.Now()); a.Count != 3 {
		t.Errorf("%d are counted", a.Count)
	}
}

// F49, F8: after a loss the epoch is another one, no copy goes on over it, and an
// answer to a question from before it is not taken.
func TestFlushAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, quick()...)
	s := newStore(t, server.URL())
	trackOne(t, s, who, "1", 0, "1")
	copied := load(t, s, who)
	q, err := s.Ask(t.Context(), who, "d1")
	if err != nil {
		t.Fatal(err)
	}
	server.Do("FLUSHALL")
	if st := load(t, s, who); st.Epoch != "" || st.Snapshot {
		t.Error("there is a state after a flush")
	}
	changes, err := s.Track(t.Context(), oneEvent(who, "2", 0, "1"))
	if err != nil {
		t.Fatal(err)
	}
	if m := changes[0].Message; m.Epoch == copied.Epoch || m.Revision != copied.Revision || copied.Apply(m) != Reload {
		t.Errorf("a copy goes on over a flush: revision %d, epochs %s and %s", m.Revision, m.Epoch, copied.Epoch)
	}
	if _, err := s.Apply(t.Context(), who, Answer{Token: q.Token, Version: 1}); !errors.Is(err, ErrStaleQuestion) {
		t.Errorf("an answer from before: %v", err)
	}
	if _, ok := load(t, s, who).Balance("tokens", decimal.Decimal{}); ok {
		t.Error("there is a balance without a snapshot (C-T31)")
	}
}

// F51: a Redis whose memory is full refuses the event, under all its reducers,
// and says why. What frees memory still works.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, append(quick(), "--maxmemory-policy", "noeviction")...)
	s := newStore(t, server.URL())
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := oneEvent(who, "1", 0, "1")
	e.Values = append(e.Values, Value{reducerID(2), "d1", decimal.One})
	if _, err := s.Track(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1mb")
	before := dump(t, s, who, Identity{who.Customer, reducerID(2)})
	e.ID = EventID(Plain, "2")
	_, err := s.Track(t.Context(), e)
	var tagged *sdk.Error
	if !errors.As(err, &tagged) || tagged.Tag != sdk.TagUnavailable || tagged.Code != "memory_full" {
		t.Errorf("full memory is %v", err)
	}
	if after := dump(t, s, who, Identity{who.Customer, reducerID(2)}); after != before {
		t.Error("a refused event left something")
	}
	done := Delivered{Customer: who.Customer, Reducers: []string{who.Reducer, reducerID(2)}, IDs: []string{EventID(Plain, "1")}, Buckets: []int64{bucketNumber(0)}}
	if _, err := s.Confirm(t.Context(), done); err == nil { // its first write may need memory: then nothing happened
		t.Log("confirm works in full memory")
	} else if dump(t, s, who) != before && !errors.As(err, &tagged) {
		t.Errorf("confirm left half of itself: %v", err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if _, err := s.Track(t.Context(), e); err != nil {
		t.Error(err)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if err := s.Check(t.Context()); !errors.As(err, &tagged) || tagged.Code != "evicting" {
		t.Errorf("a Redis that evicts is %v", err)
	}
}

// dump is all that the states hold, as text.
func dump(t testing.TB, s *Store, ids ...Identity) string {
	t.Helper()
	var b strings.Builder
	for _, id := range ids {
		text, err := s.client.Dump(t.Context(), s.Key(id)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		b.WriteString(text)
	}
	return b.String()
}

// F49: a replica takes nothing and is told apart.
func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, quick()...)
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.Start(t, append(quick(), "--replicaof", host+" "+port)...)
	s := newStore(t, replica.URL())
	_, err := s.Track(t.Context(), oneEvent(who, "1", 0, "1"))
	var tagged *sdk.Error
	if !errors.As(err, &tagged) || tagged.Code != "read_only" {
		t.Errorf("a replica answers %v", err)
	}
}

// F6: no server, no counting, and the caller hears it.
func TestServerGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, quick()...)
	s := newStore(t, server.URL())
	trackOne(t, s, who, "1", 0, "1")
	server.Kill()
	_, err := s.Track(t.Context(), oneEvent(who, "2", 0, "1"))
	if sdk.TagOf(err) != sdk.TagUnavailable {
		t.Errorf("a dead server is %v", err)
	}
	if _, err := s.Load(t.Context(), who); sdk.TagOf(err) != sdk.TagUnavailable {
		t.Errorf("a load of a dead server is %v", err)
	}
	server.Restart() // without persistence
	if st := load(t, s, who); st.Epoch != "" {
		t.Error("a state survived")
	}
}

// Something else's key below the prefix stops a script before its first write.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, quick()...)
	s := newStore(t, server.URL())
	trackOne(t, s, who, "1", 0, "1")
	key := s.Key(who)
	done := Delivered{Customer: who.Customer, Reducers: []string{who.Reducer}, IDs: []string{EventID(Plain, "1")}, Buckets: []int64{bucketNumber(0)}}
	for _, foreign := range []string{window(key), questions(key), dedupe(key, bucketNumber(0))} {
		server.Do("SET", foreign, "x")
		before := dump(t, s, who)
		if _, err := s.Acknowledge(t.Context(), done); err == nil {
			t.Errorf("nobody minds a foreign key at %s", strings.TrimPrefix(foreign, key))
		}
		if dump(t, s, who) != before {
			t.Errorf("half of a script happened: %s", strings.TrimPrefix(foreign, key))
		}
		server.Do("DEL", foreign)
	}
	if _, err := s.Acknowledge(t.Context(), done); err != nil {
		t.Error(err)
	}
}
