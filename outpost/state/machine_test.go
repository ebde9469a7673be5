//go:build unix

package state

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/internal/redistest"
)

const worldSteps = 250

// quick are the settings of a Redis that keeps nothing.
func quick() []string { return []string{"--save", "", "--appendonly", "no"} }

func dial(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	client, err := Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func runWorld(ctx context.Context, client redis.UniversalClient, seed uint64, sc scripts, steps int) error {
	w, err := newWorld(ctx, client, seed, sc)
	if err != nil {
		return err
	}
	return w.run(steps)
}

// seeds is how many worlds to run: a few, or as many as make asks for.
func seeds(t *testing.T, few uint64) uint64 {
	if text := os.Getenv("OUTPOST_SEEDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatal("OUTPOST_SEEDS is a number")
		}
		return n
	}
	return few
}

// I1 to I7: after each step of each world, and at its end.
func TestWorlds(t *testing.T) {
	t.Parallel()
	client := dial(t, redistest.Start(t, quick()...).URL())
	steps := worldSteps
	if os.Getenv("OUTPOST_SEEDS") != "" {
		steps = 400
	}
	for seed := range seeds(t, 12) {
		if err := runWorld(t.Context(), client, seed, embedded(), steps); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// mutant takes one guard out of a script.
type mutant struct {
	name, script, from, to string
	// seed is of the first world that notices; the search begins there.
	seed uint64
}

func (m mutant) scripts(t *testing.T) scripts {
	t.Helper()
	sc := embedded()
	target := map[string]*script{
		"track": &sc.track, "acknowledge": &sc.acknowledge, "confirm": &sc.confirm, "ask": &sc.ask,
		"apply": &sc.apply, "settle": &sc.settle, "gc": &sc.gc, "reset": &sc.reset, "load": &sc.load,
	}[m.script]
	if strings.Count(target.text, m.from) != 1 {
		t.Fatalf("%s: %q stands %d times in %s.lua", m.name, m.from, strings.Count(target.text, m.from), m.script)
	}
	*target = newScript(strings.Replace(target.text, m.from, m.to, 1))
	return sc
}

func mutants() []mutant {
	return []mutant{
		{"no window of acknowledgements (C-T1)", "apply", "tonumber(a)>tonumber(kaq)", "false", 0},
		{"no version check (C-T2)", "apply", "tonumber(version)<=tonumber(st[2])", "false", 17},
		{"cold_until may go back (C-T3)", "apply", "tonumber(cu)<tonumber(st[3])", "false", 14},
		{"no dedupe set (C-T11)", "track", "d[1]==1 and p.marked", "false", 0},
		{"delivered in a cold bucket is forgotten (C21)", "acknowledge", "tonumber(b)>=tonumber(st[2])", "true", 0},
		{"delivered in a hot bucket stays (C20)", "acknowledge", "(not st[2]) or tonumber(b)>=tonumber(st[2])", "false", 0},
		{"cold_until itself is cold for track (C-T25)", "track", "tonumber(b)>=tonumber(h[3])", "tonumber(b)>tonumber(h[3])", 0},
		{"cold_until itself is cold for apply (C-T25)", "apply", "for _,b in ipairs(numbers(st[4])) do\n  if tonumber(b)<cold", "for _,b in ipairs(numbers(st[4])) do\n  if tonumber(b)<=cold", 2},
		{"hot buckets outlive the snapshot (C4)", "apply", "for _,f in ipairs({'n:','s:','l:','h:'}) do del[#del+1]=f..b end", "keep[#keep+1]=b", 0},
		{"an answer to another epoch", "apply", "st[1]~=kep", "false", 25},
		{"questions revive when the clock is set back (F54)", "acknowledge", "if p.close then", "if false then", 31},
		{"acknowledgements are not kept in the window (C-T1)", "acknowledge", "if open then p.put", "if false then p.put", 0},
		{"the window of the second question is lost", "ask", "if live==0 then", "if true then", 18},
		{"no check of pending ids in track", "track", "if h[5] then", "if false then", 0},
		{"a set of another epoch proves something", "track", "d[1]==1 and p.marked", "d[1]==1", 18},
		{"spilled events end with the snapshot (F23)", "apply", "tonumber(last)+HOUR<=tonumber(asked)", "true", 5},
		{"spilled events are not remembered", "track", "redis.call('SADD',p.dedupe,id,'!'..p.ep)", "", 5},
		{"spilled events only in the hot bucket", "track", "else put('o:'..b,o) end\n  else", "end\n  else", 4},
		{"settled before it is applied (9.5)", "settle", "tonumber(st[5])<tonumber(ARGV[4])", "false", 0},
		{"delivered events get too old (C-T18)", "gc", "if s=='p' and", "if", 3},
		{"the sweep takes everything", "gc", "tonumber(t)+HOUR<now and ", "", 0},
		{"no new tip (C-T13)", "acknowledge", "set[#set+1]='tp' set[#set+1]=nonce", "", 0},
		{"a change that is not published", "confirm", "redis.call('PUBLISH',ARGV[1],pack(news))", "", 0},
		{"np is not counted down", "confirm", "tonumber(st[4])-#gone", "tonumber(st[4])", 0},
		{"confirmed events stay", "apply", "del[#del+1]='p:'..id settled=settled+1", "settled=settled+0", 0},
		{"a larger minimum", "track", "l=dmin(h[8],v)", "l=v", 0},
		{"groups lose the carry", "track", "if lo>=1e14 then hi=hi+1", "if lo>=1e14 then hi=hi", 2},
		{"a sum in doubles (9.3)", "track", "if x<SAFE and x>-SAFE and y<SAFE and y>-SAFE then", "if true then", 2},
		{"an event under half its reducers", "track", "redis.call('HSET',p.key,unpack(p.set))", "if r<count or count==1 then redis.call('HSET',p.key,unpack(p.set)) end", 0},
	}
}

// Each guard is needed: a world fails without it.
func TestWorldsFindMutants(t *testing.T) {
	t.Parallel()
	client := dial(t, redistest.Start(t, quick()...).URL())
	for _, m := range mutants() {
		sc := m.scripts(t)
		found := false
		for i := range seeds(t, 80) {
			seed := m.seed + i
			if err := runWorld(t.Context(), client, seed, sc, worldSteps); err != nil {
				text, _, _ := strings.Cut(err.Error(), "\n")
				t.Logf("%s: seed %d: %s", m.name, seed, text)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%s: no world notices", m.name)
		}
	}
}
