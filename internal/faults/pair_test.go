//go:build faults && unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// pairVar makes a run of this test binary a server of two hosts on one store;
// it names the configuration, and the third argument how many hosts there are.
// A SQLite store belongs to one process, so two deliverers that compete for it
// live in one. POST /track counts usage, which the program has no page for.
const pairVar = "FENCEPOST_FAULTS_PAIR"

// skewVar is how far the wall clock of such a server is off. Go reads the time
// from the kernel's page, where no preloaded library reaches.
const skewVar = "FENCEPOST_FAULTS_SKEW"

// servePair is the main function of such a run.
func servePair() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := runPair(ctx, os.Getenv(pairVar), log); err != nil {
		log.Error("pair", "error", err)
		return 1
	}
	return 0
}

func runPair(ctx context.Context, path string, log *slog.Logger) error {
	if !fault.Enabled {
		return errors.New("a build without faults")
	}
	settings, err := config.Load(path)
	if err != nil {
		return err
	}
	var store storage.Adapter
	if settings.Storage.Plugin == "builtin:postgres" {
		store, err = postgres.Open(ctx, postgres.Config{DSN: settings.Storage.DSN, Logger: log})
	} else {
		store, err = sqlite.Open(ctx, sqlite.Config{Path: settings.Storage.DSN, Migrate: true, Logger: log})
	}
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	skew, err := time.ParseDuration(cmp.Or(os.Getenv(skewVar), "0s"))
	if err != nil {
		return err
	}
	var addresses []string
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	for range count {
		h, err := host.Open(ctx, host.Config{
			Settings: settings, Store: store, Version: "pair", Now: func() time.Time { return time.Now().Add(skew) }, Getenv: os.LookupEnv, Logger: log,
			Builtins: host.Builtins{Exporters: map[string]func() ([]byte, error){"stripe": module.Bytes}},
		})
		if err != nil {
			return err
		}
		defer func() { _ = h.Close(context.Background()) }()
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: tracking(h), ReadHeaderTimeout: patience}
		go func() { _ = srv.Serve(ln) }()
		defer func() { _ = srv.Close() }()
		addresses = append(addresses, "http://"+ln.Addr().String())
	}
	for _, a := range addresses {
		log.InfoContext(ctx, "serving", "address", a)
	}
	<-ctx.Done()
	return nil
}

// tracking adds POST /track, which answers once its usage is in the store.
func tracking(h *host.Host) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h.Handler())
	mux.HandleFunc("POST /track", func(w http.ResponseWriter, req *http.Request) {
		q, err := decimal.Parse(req.FormValue("quantity"))
		if err == nil {
			err = h.Engine().Track(req.Context(), req.FormValue("tenant"), req.FormValue("feature"), q)
		}
		if err == nil {
			err = h.Engine().FlushTracked(req.Context())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "{}")
	})
	return mux
}

// launchPair starts two deliverers on the rig's store.
func (r *rig) launchPair(rules string) *server {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.launchAs(rules, self, pairVar, r.config(), "2")
}

// pair starts two deliverers and waits until both serve. The rules are those of
// the first, which goes ahead alone until one has fired: of two processes only
// that one would be hit. It returns the one that has them.
func (r *rig) pair(rules string) *server {
	r.t.Helper()
	if r.separate {
		first := r.start(rules)
		if rules != "" {
			eventually(r.t, "the fault of the first host fires", func() bool {
				log, _ := os.ReadFile(first.faultLog)
				return len(log) > 0
			})
		}
		r.server, r.second = r.launchSecond(""), first
		if !r.server.serving() {
			r.t.Fatalf("the second host ended before it served: %v", r.server.err)
		}
		return first
	}
	s := r.launchPair(rules)
	if !s.serving() {
		r.t.Fatalf("the pair ended before it served: %v", s.err)
	}
	r.server = s
	return s
}

// stale sums the counter of stale workers over both hosts.
func (r *rig) stale() int {
	r.t.Helper()
	sum := 0
	base := r.server.base
	defer func() { r.server.base = base }()
	var bases []string
	for _, s := range []*server{r.server, r.second} {
		if s == nil {
			continue
		}
		for _, line := range s.logged("serving") {
			address, _ := line["address"].(string)
			bases = append(bases, address)
		}
	}
	for _, r.server.base = range bases {
		var page string
		if err := r.call(http.MethodGet, "/metrics", "", nil, &page); err != nil {
			r.t.Fatal(err)
		}
		for row := range strings.Lines(page) {
			if !strings.HasPrefix(row, "fencepost_outbox_stale_worker_total{") {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSpace(row[strings.LastIndexByte(row, ' '):]))
			if err != nil {
				r.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// both starts two hosts on stores that take two.
func (r *rig) both() {
	r.t.Helper()
	if !r.separate {
		r.start("")
		return
	}
	r.pair("")
}

// apart makes two deliverers two processes. Both have seen the store when it was
// new: one without a memory of it would wait for another to vouch for it (Q17).
func (r *rig) apart() *rig {
	r.t.Helper()
	r.separate = true
	r.configure()
	hosts := []*server{r.launch(""), r.launchSecond("")}
	for _, s := range hosts {
		if !s.serving() {
			r.t.Fatalf("a host ended before it served: %v", s.err)
		}
	}
	for _, s := range hosts {
		s.stop()
	}
	return r
}

// hosts is how many processes deliver.
func (r *rig) hosts() int { return 1 + b2i(r.separate) }

// running are those that live.
func (r *rig) running() []*server {
	return slices.DeleteFunc([]*server{r.server, r.second}, func(s *server) bool { return s == nil || s.hasEnded() })
}

// quit ends them with SIGTERM, where something still moves: an audit would
// compare what the API said before with the store.
func (r *rig) quit() {
	r.t.Helper()
	for _, s := range r.running() {
		s.stop()
	}
}

// opener makes a rig.
type opener func(settings, ...func(*stripedouble.Config)) *rig

// onPairs runs a test on each store, with two deliverers that compete: two hosts
// in one process on SQLite, two processes on PostgreSQL.
func onPairs(t *testing.T, name string, test func(*testing.T, opener)) {
	t.Helper()
	for store, open := range pairs() {
		t.Run(strings.Trim(store+"/"+name, "/"), func(t *testing.T) {
			t.Parallel()
			test(t, func(s settings, change ...func(*stripedouble.Config)) *rig { t.Helper(); return open(t, s, change...) })
		})
	}
}

// shortLease is long enough for a new instance of the exporter on a machine
// that does other things too: three quarters of it are for sending.
func shortLease() settings {
	s := defaults()
	s.lease = "3s"
	return s
}

// F05, P3: a worker stands still between the provider's answer and its write
// for longer than its lease. The other worker settles the item; the first one
// writes nothing, is counted, and its attempt is logged as fenced.
func TestStoppedWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	onPairs(t, "", func(t *testing.T, open opener) {
		t.Helper()
		r := open(shortLease())
		r.subscribe()
		r.load(events("e", 1))
		release := filepath.Join(r.dir, "release")
		s := r.pair("d8=block(" + release + ")@n1")
		eventually(t, "the other worker settles the item", func() bool { return r.stats().States["accepted"] == 1 })
		s.faulted("d8", "block")
		if n := r.stale(); n != 0 {
			t.Errorf("%d stale workers before the first one went on", n)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first worker is told that it is stale", func() bool { return r.stats().StaleWorkers == 1 })
		if n := r.stale(); n != 1 {
			t.Errorf("the metric counts %d stale workers", n)
		}
		b := r.audit()
		b.accepted(r)
		it := b.items[0]
		log := b.attempts[it.id]
		if len(log) != 2 || log[0].fenced == log[1].fenced || log[0].owner == log[1].owner {
			t.Errorf("attempts %+v: want two by two owners, one of them fenced", log)
		}
		if e, _ := r.double.Entry(account, false, it.identifier); e.TimesSeen != 2 || e.Charges != 1 {
			t.Errorf("sent %d times, charged %d times", e.TimesSeen, e.Charges)
		}
	})
}

// F05, F33, R1: the same, and the provider refuses the second worker. The
// refusal says nothing of the first attempt, which was charged: uncertain, and
// the fact that the first worker saw is in the log.
func TestRefusalOfTheNewHolderIsUncertain(t *testing.T) {
	t.Parallel()
	onPairs(t, "", func(t *testing.T, open opener) {
		t.Helper()
		r := open(shortLease())
		r.subscribe()
		r.load(events("e", 1))
		r.faults("before:refuse@n2")
		release := filepath.Join(r.dir, "release")
		s := r.pair("d8=block(" + release + ")@n1")
		eventually(t, "the new holder settles the item", func() bool { return r.stats().States["uncertain"] == 1 })
		s.faulted("d8", "block")
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first worker is told that it is stale", func() bool { return r.stats().StaleWorkers == 1 })
		b := r.audit()
		r.fired()
		it := b.items[0]
		if it.state != "uncertain" || it.code != "refused_while_unresolved" || !it.unresolved {
			t.Errorf("the item is %s (%s), unresolved %t", it.state, it.code, it.unresolved)
		}
		log := b.attempts[it.id]
		if len(log) != 2 || !log[1].fenced || log[1].decided != "accepted" || log[1].class != "success" {
			t.Errorf("attempts %+v: want the success that came too late in the log", log)
		}
		if n := r.double.Ledger().Charges; n != 1 {
			t.Errorf("%d charges", n)
		}
	})
}

// F05 with real signals: the process is stopped with SIGSTOP for longer than
// the lease, at each point of the exchange, while two workers compete.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		for _, label := range []string{"d4", "d5", "d6", "d7", "d8", "d9"} {
			t.Run(store+"/"+label, func(t *testing.T) {
				t.Parallel()
				stoppedProcess(t, open(t, shortLease()), label)
			})
		}
	}
}

func stoppedProcess(t *testing.T, r *rig, label string) {
	t.Helper()
	n := "@n2"
	if label > "d7" {
		n = "@n1" // once for a page, not for an item
	}
	length := "4500ms"
	if r.separate {
		length = "20s" // the other one starts and settles everything meanwhile
	}
	r.subscribe()
	r.load(events("e", 10))
	s := r.pair(label + "=stop(" + length + ")" + n)
	r.drain()
	s.faulted(label, "stop")
	if r.separate {
		r.server, r.second = r.second, r.server
		eventually(t, "the first host goes on", func() bool { return r.call(http.MethodGet, "/livez", "", nil, new(string)) == nil })
	}
	b := r.audit() // ends both, which settle what they have in hand
	if n := b.accepted(r); n != 10 {
		t.Errorf("%d items", n)
	}
	l := r.double.Ledger()
	t.Logf("%s: %d requests, %d charges, %d duplicates refused", label, l.Requests, l.Charges, l.DuplicatesRefused)
}

// F26: a provider that is slower than the lease is sent the item twice and
// charges once.
func TestProviderSlowerThanTheLease(t *testing.T) {
	t.Parallel()
	for name, serial := range map[string]int{"one at a time": 1, "at once": -1} {
		for store, open := range pairs() {
			t.Run(subtest(store, name), func(t *testing.T) {
				t.Parallel()
				slowProvider(t, open(t, shortLease(), withSerialLimit(serial)))
			})
		}
	}
}

func slowProvider(t *testing.T, r *rig) {
	t.Helper()
	r.subscribe()
	r.load(events("e", 1))
	r.faults("before:slow(delay=4500ms)@n1")
	r.pair("")
	r.drain()
	it := r.read().items[0]
	eventually(t, "the slow request ends", func() bool {
		e, _ := r.double.Entry(account, false, it.identifier)
		return e.TimesSeen >= 2
	})
	r.fired()
	b := r.audit()
	b.accepted(r)
	settled := 0
	for _, a := range b.attempts[it.id] {
		if !a.fenced && a.decided == "accepted" {
			settled++
		}
	}
	if settled != 1 {
		t.Errorf("attempts %+v: %d accepted", b.attempts[it.id], settled)
	}
	t.Logf("%d attempts", len(b.attempts[it.id]))
}

// F33, R1, in the order in which the model found it: the first request is still
// on its way when the second is refused, and lands afterwards.
func TestRefusedWhileTheFirstRequestIsOnItsWay(t *testing.T) {
	t.Parallel()
	onPairs(t, "", func(t *testing.T, open opener) {
		t.Helper()
		r := open(shortLease())
		r.subscribe()
		r.load(events("e", 1))
		r.faults("before:slow(delay=7s)@n1; before:refuse@n2")
		r.pair("")
		r.drain()
		if b := r.read(); b.items[0].state != "uncertain" || b.items[0].code != "refused_while_unresolved" {
			t.Errorf("%s (%s)", b.items[0].state, b.items[0].code)
		}
		eventually(t, "the first request lands", func() bool { return r.double.Ledger().Charges == 1 })
		r.fired()
		r.audit() // rejected with a charge would be a lie
	})
}

// F03 with two deliverers that compete: the kill takes both, in the middle of
// what they have claimed side by side.
func TestKillWhileTwoDeliver(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"d2", "d5", "d8", "d9", "d10"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			s.page = 4
			r := newRig(t, s)
			r.subscribeCrowd()
			const n = 40
			r.load(crowd("e", n))
			killed := r.launchPair(label + "=kill@n6")
			killed.died(label)
			r.pair("")
			r.drain()
			if got := r.audit().accepted(r); got != n {
				t.Errorf("%d items, want %d", got, n)
			}
		})
	}
}
