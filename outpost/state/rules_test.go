//go:build unix

package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// clocked is a store whose clock the test moves.
func clocked(t *testing.T) (*Store, *redistest.Server, *time.Time) {
	t.Helper()
	server := redistest.Start(t, quick()...)
	now := time.UnixMilli(bucketNumber(0) / 1000)
	s, err := New(dial(t, server.URL()), Config{Org: "org", Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return s, server, &now
}

// Names of anything: no two customers, reducers or purposes share a key, and the
// hash tag is the customer's alone (C-T14).
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	k, err := newKeys("", "org")
	if err != nil {
		t.Fatal(err)
	}
	all := func(id Identity, bucket int64) []string {
		key := k.state(id)
		return []string{key, window(key), questions(key), lock(key), dedupe(key, bucket)}
	}
	part := rapid.OneOf(rapid.SampledFrom([]string{"a", "a}", "{a", ":", "a}:" + reducerID(1), "a}:" + reducerID(1) + ":q", "sha256:ab", strings.Repeat("x", 129)}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		a := Identity{part.Draw(t, "a"), reducerID(rapid.IntRange(1, 2).Draw(t, "ra"))}
		b := Identity{part.Draw(t, "b"), reducerID(rapid.IntRange(1, 2).Draw(t, "rb"))}
		seen := map[string]bool{}
		for _, key := range all(a, 300_000_000) {
			if seen[key] {
				t.Fatalf("%q twice", key)
			}
			seen[key] = true
			if len(key) > 400 {
				t.Fatalf("a key of %d bytes", len(key))
			}
		}
		for _, key := range all(b, 300_000_000) {
			if a != b && seen[key] {
				t.Fatalf("%q is of %q and %q", key, a, b)
			}
		}
	})
	long := strings.Repeat("x", 10<<10)
	sum := sha256.Sum256([]byte(long))
	if got, want := k.state(Identity{long, reducerID(1)}), "outpost:v1:org:{external:sha256:"+hex.EncodeToString(sum[:])+"}:"+reducerID(1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if EventID(Plain, "x") == EventID(CloudEvent, "x") || EventID(Plain, long) == EventID(Plain, "sha256:"+hex.EncodeToString(sum[:])) {
		t.Error("two events share a name")
	}
	for _, org := range []string{"", "{a}", "a b", "é", strings.Repeat("a", 64)} { // F24
		if _, err := newKeys("", org); err == nil {
			t.Errorf("%q is an organisation", org)
		}
	}
}

// C-T24: rounded down, on the edge and before 1970.
func TestBucketOf(t *testing.T) {
	t.Parallel()
	for at, want := range map[int64]int64{0: 0, 1: 0, 299_999_999: 0, 300_000_000: 300_000_000, -1: -300_000_000, -300_000_000: -300_000_000, 1_760_000_099_999_999: 1_759_999_800_000_000} {
		if got := BucketOf(time.UnixMicro(at)); got != want {
			t.Errorf("%d is in %d, want %d", at, got, want)
		}
	}
	if got := BucketOf(time.Unix(0, 299_999_999_999)); got != 0 {
		t.Errorf("a nanosecond before the edge is in %d", got)
	}
}

// D11: a client that repeats what may have happened is refused.
func TestClientsThatRepeat(t *testing.T) {
	t.Parallel()
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for name, c := range map[string]redis.UniversalClient{
		"default retries":       redis.NewClient(&redis.Options{MaintNotificationsConfig: quiet}),
		"notifications":         redis.NewClient(&redis.Options{MaxRetries: -1}),
		"cluster retries":       redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: 2, MaintNotificationsConfig: quiet}),
		"cluster notifications": redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: -1}),
		"ring":                  redis.NewRing(&redis.RingOptions{}),
	} {
		if _, err := New(c, Config{Org: "org"}); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
	for _, address := range []string{"", "http://x", "redis://user:secret@x:1/no", "redis://a:1,secret://"} {
		if _, err := Dial(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Whatever comes in that the layout does not hold is refused by name, and leaves
// nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s, server, _ := clocked(t)
	good := oneEvent(who, "1", 0, "1")
	for name, change := range map[string]func(*Event){
		"no customer":      func(e *Event) { e.Customer = "" },
		"endless customer": func(e *Event) { e.Customer = strings.Repeat("x", 1<<20) },
		"a bare id":        func(e *Event) { e.ID = "1" },
		"an empty id":      func(e *Event) { e.ID = EventID(Plain, "") },
		"a long id":        func(e *Event) { e.ID = "e:" + strings.Repeat("x", 129) },
		"before 1970":      func(e *Event) { e.Bucket = -300_000_000 },
		"between buckets":  func(e *Event) { e.Bucket = 1 },
		"after 2255":       func(e *Event) { e.Bucket = 9_007_199_400_000_000 },
		"no reducer":       func(e *Event) { e.Values = nil },
		"a reducer twice":  func(e *Event) { e.Values = append(e.Values, e.Values[0]) },
		"a foreign name":   func(e *Event) { e.Values[0].Reducer = "r_1}" },
		"no definition":    func(e *Event) { e.Values[0].Definition = "" },
		"39 digits":        func(e *Event) { e.Values[0].Quantity = dec(strings.Repeat("9", 39)) },
	} {
		e := good
		e.Values = append([]Value(nil), good.Values...)
		change(&e)
		if _, err := s.Track(t.Context(), e); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, args := range map[string][]any{ // the scripts say so themselves, to any client
		"39 digits":       {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d", strings.Repeat("9", 39)},
		"minus zero":      {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d", "-0"},
		"a leading zero":  {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d", "01"},
		"a float":         {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d", "1e5"},
		"no number":       {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d", "nan"},
		"no bucket":       {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", "3e8", "12/d", "1"},
		"no nonce":        {"ch", "", "", 9, 9, 9, "e:1", 300_000_000, "12/d", "1"},
		"a value missing": {"ch", "nonce-nonce", "", 9, 9, 9, "e:1", 300_000_000, "12/d"},
	} {
		key := s.Key(who)
		reply, err := s.run(t.Context(), s.scripts.track, []string{key, dedupe(key, 300_000_000)}, args...)
		if err != nil || reply[0] != "invalid" {
			t.Errorf("%s: %v %v", name, reply, err)
		}
	}
	if n := server.Do("DBSIZE"); n != "0" {
		t.Errorf("%s keys were left", n)
	}
	for _, id := range []string{"{", "}", "a:b", "\x00", "\n|,", "é", strings.Repeat("y", 10<<10), "p:"} { // and any id is an id
		if got := trackOne(t, s, Identity{id, reducerID(1)}, id, 0, "1"); got != Added {
			t.Errorf("%.20q: %s", id, got)
		}
		st := load(t, s, Identity{id, reducerID(1)})
		if _, ok := st.Pending(EventID(Plain, id)); !ok || st.PendingCount() != 1 {
			t.Errorf("%.20q is not pending", id)
		}
	}
}

// C-T11, F18: all reducers or none; the refused one is named.
func TestAllOrNone(t *testing.T) {
	t.Parallel()
	s, _, _ := clocked(t)
	other := Identity{who.Customer, reducerID(2)}
	trackOne(t, s, other, "1", 0, "5")
	e := oneEvent(who, "1", 0, "1")
	refused := func(v Value, want *sdk.Error) {
		t.Helper()
		both := e
		both.Values = []Value{e.Values[0], v}
		_, err := s.Track(t.Context(), both)
		var tagged *sdk.Error
		if !errors.Is(err, want) || !errors.As(err, &tagged) {
			t.Fatalf("%v, want %v", err, want)
		}
		if i, ok := tagged.ItemIndex(); !ok || i != 1 {
			t.Errorf("item %d is named", i)
		}
		if st := load(t, s, who); st.Epoch != "" {
			t.Error("the first reducer was written")
		}
	}
	refused(Value{other.Reducer, "d1", decimal.One}, ErrConflict)
	refused(Value{other.Reducer, "d2", decimal.MustParse("5")}, ErrDefinition)
	if _, err := s.Ask(t.Context(), other, "d2"); !errors.Is(err, ErrDefinition) {
		t.Errorf("a question under another definition: %v", err)
	}
	epoch := load(t, s, other).Epoch
	if err := s.Reset(t.Context(), other, "another"); !errors.Is(err, ErrMoved) {
		t.Errorf("a reset of another epoch: %v", err)
	}
	if err := s.Reset(t.Context(), other, epoch); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(t.Context(), other, epoch); !errors.Is(err, ErrAbsent) {
		t.Errorf("a reset of nothing: %v", err)
	}
	both := e
	both.Values = []Value{e.Values[0], {other.Reducer, "d2", decimal.MustParse("5")}}
	for _, want := range []Outcome{Added, Duplicate} { // C-T11
		changes, err := s.Track(t.Context(), both)
		if err != nil || changes[0].Outcome != want || changes[1].Outcome != want {
			t.Errorf("%v %v, want %s", changes, err, want)
		}
	}
}

// ask, answer and apply in one go.
func snapshot(t *testing.T, s *Store, id Identity, a Answer) (Replacement, error) {
	t.Helper()
	q, err := s.Ask(t.Context(), id, "d1")
	if err != nil {
		t.Fatal(err)
	}
	a.Token = q.Token
	return s.Apply(t.Context(), id, a)
}

// C25, C24: a dropped event is no longer pending; its hot bucket keeps it until a
// snapshot. C-T25: an event at cold_until is hot. C-T16, C-T31: credits.
func TestSnapshotRules(t *testing.T) {
	t.Parallel()
	s, _, now := clocked(t)
	trackOne(t, s, who, "1", 0, "3")
	trackOne(t, s, who, "2", 1, "4")
	drop := Delivered{Customer: who.Customer, Reducers: []string{who.Reducer}, IDs: []string{EventID(Plain, "1")}}
	if m, err := s.Confirm(t.Context(), drop); err != nil || len(m) != 1 {
		t.Fatal(m, err)
	}
	before := dump(t, s, who)
	if m, err := s.Confirm(t.Context(), drop); err != nil || len(m) != 0 || dump(t, s, who) != before {
		t.Error("a repetition changed something", m, err)
	}
	st := load(t, s, who)
	if a, _ := st.Aggregate(*now); a.Sum.String() != "7" || st.PendingCount() != 1 {
		t.Errorf("%s, %d pending", text(a), st.PendingCount())
	}
	credits := map[string]decimal.Decimal{"tokens": decimal.MustParse("10"), "a|b:{}": decimal.MustParse("-0.5")}
	if _, err := snapshot(t, s, who, Answer{Version: 5, ColdUntil: bucketNumber(1), Credits: credits, Totals: Aggregate{Count: 2, Sum: decimal.MustParse("1.5"), Min: decimal.MustParse("0.5"), Max: decimal.One, Extremes: true}}); err != nil {
		t.Fatal(err)
	}
	st = load(t, s, who)
	a, _ := st.Aggregate(*now)
	if a.Sum.String() != "5.5" || a.Count != 3 || a.Min.String() != "0.5" || a.Max.String() != "4" {
		t.Errorf("after the snapshot %s", text(a))
	}
	if mean, _ := Avg.Consumption(a); mean.String() != "1.833333333333" {
		t.Errorf("the mean is %s", mean)
	}
	if b, ok := st.Balance("tokens", a.Sum); !ok || b.String() != "4.5" {
		t.Errorf("the balance is %s", b)
	}
	if b, ok := st.Balance("a|b:{}", a.Sum); !ok || b.String() != "-6" {
		t.Errorf("the other balance is %s", b)
	}
	if _, ok := st.Balance("unknown", a.Sum); ok {
		t.Error("an unknown meter has a balance")
	}
	if _, err := snapshot(t, s, who, Answer{Version: 5, ColdUntil: bucketNumber(1)}); !errors.Is(err, ErrOldVersion) { // C-T2
		t.Error(err)
	}
	if _, err := snapshot(t, s, who, Answer{Version: 6, ColdUntil: bucketNumber(0)}); !errors.Is(err, ErrColdRegressed) { // C-T3, F14
		t.Error(err)
	}
	if _, err := s.Settle(t.Context(), who, 6, drop.IDs); !errors.Is(err, ErrEarly) {
		t.Error(err)
	}
	q, err := s.Ask(t.Context(), who, "d1")
	if err != nil || !q.Snapshot || q.ColdUntil != bucketNumber(1) || q.Version != 5 {
		t.Fatal(q, err)
	}
	*now = now.Add(QuestionLife + time.Millisecond)
	if _, err := s.Apply(t.Context(), who, Answer{Token: q.Token, Version: 7, ColdUntil: bucketNumber(1)}); !errors.Is(err, ErrStaleQuestion) {
		t.Error(err)
	}
	r, err := snapshot(t, s, who, Answer{Version: 8, ColdUntil: bucketNumber(2), Confirmed: []string{EventID(Plain, "2")}, WindowStart: 300})
	if err != nil || r.Settled != 1 || r.Before.Count != 2 || r.ColdUntil != bucketNumber(1) { // C-T32
		t.Error(r, err)
	}
	st = load(t, s, who)
	if len(st.Credits) != 0 || st.WindowStart != 300 || st.Totals.Extremes || st.Version != 8 {
		t.Errorf("%+v", st)
	}
}

// C39, C-T18: what nobody delivered counts for an hour of Redis's clock; what was
// delivered counts until a snapshot has it.
func TestPendingGetsTooOld(t *testing.T) {
	t.Parallel()
	s, _, now := clocked(t)
	start := *now
	if _, err := snapshot(t, s, who, Answer{Version: 1, ColdUntil: bucketNumber(5)}); err != nil {
		t.Fatal(err)
	}
	trackOne(t, s, who, "1", 0, "3")
	trackOne(t, s, who, "2", 0, "4")
	if _, err := s.Acknowledge(t.Context(), Delivered{who.Customer, []string{who.Reducer}, []string{EventID(Plain, "2"), EventID(Plain, "2"), EventID(Plain, "9")}, []int64{bucketNumber(0)}}); err != nil {
		t.Fatal(err)
	}
	st := load(t, s, who)
	a, until := st.Aggregate(start.Add(time.Hour))
	if a.Sum.String() != "7" || !until.Equal(start.Add(time.Hour)) {
		t.Errorf("on the hour %s until %s", text(a), until)
	}
	if a, until = st.Aggregate(start.Add(time.Hour + time.Millisecond)); a.Sum.String() != "4" || !until.IsZero() {
		t.Errorf("after it %s until %s", text(a), until)
	}
	for _, step := range []struct {
		at      time.Duration
		removed int
	}{{time.Hour, 0}, {time.Hour + time.Millisecond, 1}, {23 * time.Hour, 0}} {
		*now = start.Add(step.at)
		if _, n, err := s.Sweep(t.Context(), who, "0"); err != nil || n != step.removed {
			t.Errorf("after %s %d were removed: %v", step.at, n, err)
		}
	}
	if st := load(t, s, who); st.PendingCount() != 1 {
		t.Errorf("%d are left", st.PendingCount())
	}
}

// F23, C-T20: beyond the cap events are counted without ids, once each; an hour
// later a snapshot ends them. Beyond the second cap nothing is written.
func TestSpill(t *testing.T) {
	t.Parallel()
	s, _, now := clocked(t)
	s.caps = [3]int{2, BucketCap, 3}
	for i, want := range []Outcome{Added, Added, Spilled, Spilled, Spilled} {
		id := strconv.Itoa(i)
		if got := trackOne(t, s, who, id, 0, "1"); got != want {
			t.Errorf("event %d is %s", i, got)
		}
		if got := trackOne(t, s, who, id, 0, "1"); got != Duplicate {
			t.Errorf("event %d again is %s", i, got)
		}
	}
	before := dump(t, s, who)
	if _, err := s.Track(t.Context(), oneEvent(who, "9", 0, "1")); !errors.Is(err, ErrOverflow) || dump(t, s, who) != before {
		t.Errorf("beyond everything: %v", err)
	}
	counts := func(want int64) {
		t.Helper()
		if a, _ := load(t, s, who).Aggregate(*now); a.Count != want {
			t.Errorf("%d are counted, want %d", a.Count, want)
		}
	}
	counts(5)
	for i, ids := range [][]string{{EventID(Plain, "0"), EventID(Plain, "1")}, nil} {
		if _, err := snapshot(t, s, who, Answer{Version: int64(1 + i), ColdUntil: bucketNumber(1), Confirmed: ids, Totals: Aggregate{Count: 2, Sum: decimal.MustParse("2")}}); err != nil {
			t.Fatal(err)
		}
		counts(5) // two by the engine, three spilled
		*now = now.Add(59 * time.Minute)
	}
	if _, err := snapshot(t, s, who, Answer{Version: 3, ColdUntil: bucketNumber(1), Totals: Aggregate{Count: 5, Sum: decimal.MustParse("5")}}); err != nil {
		t.Fatal(err)
	}
	counts(5)
}

// 9.10: beyond the cap of buckets the oldest is merged into the next, which a
// snapshot discards later and never earlier.
func TestMerge(t *testing.T) {
	t.Parallel()
	s, _, now := clocked(t)
	s.caps = [3]int{PendingCap, 2, SpillCap}
	for i, n := range []int64{3, 1, 2, 0} { // the last is older than all
		trackOne(t, s, who, strconv.Itoa(i), n, "1")
	}
	st := load(t, s, who)
	if a, _ := st.Aggregate(*now); a.Count != 4 || len(st.hot) != 2 || st.hot[bucketNumber(2)].Count != 3 {
		t.Errorf("%s in %v", text(a), st.hot)
	}
	if _, err := snapshot(t, s, who, Answer{Version: 1, ColdUntil: bucketNumber(2)}); err != nil {
		t.Fatal(err)
	}
	st = load(t, s, who)
	if st.hot[bucketNumber(2)].Count != 3 {
		t.Error("a merged bucket was discarded before its time")
	}
	if _, err := snapshot(t, s, who, Answer{Version: 2, ColdUntil: bucketNumber(3)}); err != nil {
		t.Fatal(err)
	}
	if st = load(t, s, who); len(st.hot) != 1 {
		t.Error("a merged bucket stays")
	}
}

// C12, C13, F21: another layout has keys of its own. What a later writer leaves
// beside this one is neither read nor touched, and instances see each other.
func TestLayoutsSideBySide(t *testing.T) {
	t.Parallel()
	s, server, now := clocked(t)
	later := strings.Replace(s.Key(who), ":v1:", ":v2:", 1)
	server.Do("HSET", later, "ep", "other", "p:e:1", "what v1 cannot read")
	trackOne(t, s, who, "1", 0, "1")
	if st := load(t, s, who); st.PendingCount() != 1 || st.Epoch == "other" {
		t.Error("another layout was read")
	}
	if got := server.Do("HLEN", later); got != "2" {
		t.Error("another layout was touched")
	}
	server.Do("HSET", s.Key(who), "zz", "a later release of this layout", "zz:1", "x")
	if st := load(t, s, who); st.PendingCount() != 1 {
		t.Error("an unknown field matters")
	}
	at := *now
	if err := s.Announce(t.Context(), "one", "b1", at); err != nil {
		t.Fatal(err)
	}
	server.Do("ZADD", s.keys.instances(), strconv.FormatInt(at.Unix(), 10), "two|2|b2")
	server.Do("ZADD", s.keys.instances(), strconv.FormatInt(at.Add(-12*time.Minute).Unix(), 10), "gone|1|b0")
	live, err := s.Instances(t.Context(), at)
	if err != nil || fmt.Sprint(live) != "[{one 1 b1/1} {two 2 b2}]" {
		t.Error(live, err)
	}
	if _, err := s.Configuration(t.Context()); !errors.Is(err, sdk.ErrNotFound) {
		t.Error(err)
	}
	if err := s.SaveConfiguration(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Configuration(t.Context()); err != nil || string(got) != "{}" {
		t.Error(got, err)
	}
	for _, want := range []bool{true, false} {
		if got, err := s.Claim(t.Context(), who); err != nil || got != want {
			t.Error(got, err)
		}
	}
	if err := s.Touch(t.Context(), who); err != nil {
		t.Error(err)
	}
}
