//go:build unix

package state

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// C-T14: three nodes, and every script finds all keys of a customer on one.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, "redis://"+n.Addr())
	}
	client := dial(t, strings.Join(addresses, ","))
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		t.Fatal("not a client of a cluster")
	}
	k, err := newKeys("", "org")
	if err != nil {
		t.Fatal(err)
	}
	used := map[int64]bool{}
	for _, customer := range []string{"a", "b", "c", "d", "{", "}", "a}b", "{}", "}{", ":", "\x00", "\r\n", strings.Repeat("x", 10<<10), "sha256:00"} {
		key := k.state(Identity{customer, reducerID(1)})
		slot := cluster.ClusterKeySlot(t.Context(), key).Val()
		for _, other := range []string{window(key), questions(key), lock(key), dedupe(key, 300_000_000), k.state(Identity{customer, reducerID(2)})} {
			if got := cluster.ClusterKeySlot(t.Context(), other).Val(); got != slot {
				t.Errorf("%.40q: slots %d and %d", customer, slot, got)
			}
		}
		used[slot*3/16384] = true
	}
	if len(used) < 2 {
		t.Error("all customers on one node: this shows nothing")
	}
	for seed := range uint64(6) { // customers with braces, too
		if err := runWorld(t.Context(), client, seed, embedded(), 120); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	s, err := New(client, Config{Org: "org"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []Identity
	for i := range 20 { // tips of customers on all nodes, in one call
		id := Identity{fmt.Sprintf("c%d", i), reducerID(1)}
		ids = append(ids, id)
		trackOne(t, s, id, "1", 0, "1")
	}
	tips, err := s.Tips(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, tip := range tips {
		if st := load(t, s, ids[i]); tip != (Tip{st.Epoch, st.Tip}) || tip.Tip == "" {
			t.Errorf("tip %d is %v", i, tip)
		}
	}
}

// C-T14: a script touches no key that its caller did not declare. A server says
// so only when the key is another node's, so the commands are watched.
func TestScriptsTouchOnlyDeclaredKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, quick()...)
	client := dial(t, server.URL())
	watch, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Close() }()
	if _, err := watch.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(watch)
	lines.Buffer(nil, 1<<22)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatal("no watch")
	}
	for seed := range uint64(8) {
		if err := runWorld(t.Context(), client, seed, embedded(), 150); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Set(t.Context(), "the end", "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	declared, calls := map[string]bool{}, 0
	for lines.Scan() {
		line := lines.Text()
		_, rest, _ := strings.Cut(line, "] ")
		words := strings.Split(rest, `" "`) // no argument of a world has this inside
		name := strings.ToLower(strings.Trim(words[0], `"`))
		if name == "set" && strings.Contains(line, "the end") {
			break
		}
		if !strings.Contains(line, " lua] ") {
			clear(declared)
			if name == "evalsha" || name == "eval" {
				var n int
				if _, err := fmt.Sscan(words[2], &n); err != nil {
					t.Fatal(err)
				}
				for _, key := range words[3 : 3+n] {
					declared[strings.TrimSuffix(key, `"`)] = true
				}
			}
			continue
		}
		calls++
		if name == "time" || name == "publish" {
			continue
		}
		keys := words[1:2]
		if name == "unlink" {
			keys = words[1:]
		}
		for _, key := range keys {
			if !declared[strings.TrimSuffix(key, `"`)] {
				t.Fatalf("%s of a key that is not declared", name)
			}
		}
	}
	if calls < 1000 {
		t.Errorf("only %d commands were seen", calls)
	}
}

func reducerID(n int) string { return fmt.Sprintf("r_%032x", n) }

// trackOne tracks an event worth value, n buckets after 300,000 seconds.
func trackOne(t testing.TB, s *Store, id Identity, event string, n int64, value string) Outcome {
	t.Helper()
	changes, err := s.Track(t.Context(), oneEvent(id, event, n, value))
	if err != nil {
		t.Fatal(err)
	}
	return changes[0].Outcome
}

func oneEvent(id Identity, event string, n int64, value string) Event {
	return Event{id.Customer, EventID(Plain, event), bucketNumber(n), []Value{{id.Reducer, "d1", decimal.MustParse(value)}}}
}

func bucketNumber(n int64) int64 { return (1000 + n) * Width.Microseconds() }

func load(t testing.TB, s *Store, id Identity) *State {
	t.Helper()
	st, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return st
}
