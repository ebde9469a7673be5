//go:build unix

package state

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// sums is an aggregate in big integers of 10^-12, worked out apart from the code.
type sums struct {
	n       int64
	s, l, h *big.Int
}

func sumUp(values []*big.Int) sums {
	t := sums{s: new(big.Int)}
	for _, v := range values {
		t.n++
		t.s.Add(t.s, v)
		if t.l == nil || v.Cmp(t.l) < 0 {
			t.l = v
		}
		if t.h == nil || v.Cmp(t.h) > 0 {
			t.h = v
		}
	}
	return t
}

func (t sums) text() [4]string {
	out := [4]string{strconv.FormatInt(t.n, 10), t.s.String()}
	if t.l != nil {
		out[2], out[3] = t.l.String(), t.h.String()
	}
	return out
}

func (t sums) is(a Aggregate) bool {
	if a.Count != t.n || a.Sum.Cmp(dec(t.s.String())) != 0 || a.Extremes != (t.l != nil) {
		return false
	}
	return t.l == nil || (a.Min.Cmp(dec(t.l.String())) == 0 && a.Max.Cmp(dec(t.h.String())) == 0)
}

// by is what a function makes of it, as text.
func (t sums) by(f Function) string {
	v := t.s
	switch f {
	case Count:
		return strconv.FormatInt(t.n, 10)
	case Avg:
		if t.n == 0 {
			return "0"
		}
		n := big.NewInt(t.n)
		q, rest := new(big.Int).QuoRem(new(big.Int).Abs(t.s), n, new(big.Int))
		if c := rest.Lsh(rest, 1).Cmp(n); c > 0 || (c == 0 && q.Bit(0) == 1) {
			q.Add(q, big.NewInt(1))
		}
		if t.s.Sign() < 0 {
			q.Neg(q)
		}
		v = q
	case Min:
		v = t.l
	case Max:
		v = t.h
	case Sum:
	}
	if v == nil {
		return "0"
	}
	return dec(v.String()).String()
}

// check holds the invariants after a step.
func (w *world) check() error {
	if err := w.follow(); err != nil {
		return err
	}
	for _, r := range w.reducers {
		raw, err := w.client.HGetAll(w.ctx, w.store.Key(r.id)).Result()
		if err != nil {
			return err
		}
		if err := w.checkState(r, raw); err != nil {
			return fmt.Errorf("%s: %w", r.function, err)
		}
	}
	return nil
}

// follow hands the copies what was published, less what is lost on the way, and
// compares those whose epoch and tip are Redis's (I7).
func (w *world) follow() error {
	if w.deaf {
		return nil
	}
	w.marks++
	mark := "end " + strconv.Itoa(w.marks)
	if err := w.client.Publish(w.ctx, w.store.keys.shard(0), mark).Err(); err != nil {
		return err
	}
	for {
		arrived, err := w.sub.ReceiveMessage(w.ctx)
		if err != nil {
			return err
		}
		if arrived.Payload == mark {
			break
		}
		if strings.HasPrefix(arrived.Payload, "end ") || w.rng.Float64() < w.loss {
			continue
		}
		messages, err := ParseMessages(arrived.Payload)
		if err != nil {
			return fmt.Errorf("a message on the channel: %w", err)
		}
		for _, m := range messages {
			for _, r := range w.reducers {
				if m.Key != w.store.Key(r.id) || r.copy.Apply(m) != Reload {
					continue
				}
				if r.copy, err = w.store.Load(w.ctx, r.id); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range w.reducers {
		st, err := w.store.Load(w.ctx, r.id)
		if err != nil {
			return err
		}
		if st.Epoch == r.copy.Epoch && st.Tip == r.copy.Tip {
			if want, got := st.digest(), r.copy.digest(); got != want {
				return fmt.Errorf("I7: the copy is\n%s\nand Redis has\n%s", got, want)
			}
		}
		if w.loss == 0 && st.Epoch != "" && st.Tip != r.copy.Tip {
			return errors.New("the copy missed a change that was published")
		}
	}
	return nil
}

// digest is a state as text, without what only a load tells.
func (st *State) digest() string {
	var b strings.Builder
	fmt.Fprintln(&b, st.Epoch, st.Tip, st.Revision, st.Definition, st.Snapshot, st.ColdUntil, st.WindowStart, st.Version, text(st.Totals))
	for _, m := range sortedKeys(st.Credits) {
		fmt.Fprintln(&b, "credit", m, st.Credits[m])
	}
	lines := map[string]string{}
	for bucket, a := range st.hot {
		lines["hot "+strconv.FormatInt(bucket, 10)] = text(a)
	}
	for bucket, o := range st.spilled {
		lines["spilled "+strconv.FormatInt(bucket, 10)] = text(o.Aggregate) + o.last.UTC().String()
	}
	for id, p := range st.cold {
		lines["cold "+id] = fmt.Sprint(p.Bucket, p.Value, p.Tracked.UnixMilli(), p.Delivered)
	}
	for id, p := range st.warm {
		lines["warm "+id] = fmt.Sprint(p.Bucket, p.Value, p.Tracked.UnixMilli(), p.Delivered)
	}
	for _, k := range sortedKeys(lines) {
		fmt.Fprintf(&b, "%q %s\n", k, lines[k])
	}
	return b.String()
}

func text(a Aggregate) string { return fmt.Sprint(a.Count, a.Sum, a.Extremes, a.Min, a.Max) }

func (w *world) checkState(r *reducer, raw map[string]string) error {
	if raw["ep"] != r.epoch {
		r.lives++
		if r.epoch != "" { // what the old epoch knew is gone
			clear(r.tracked)
		}
		r.epoch, r.cu, r.sv = raw["ep"], 0, 0
	}
	if len(raw) == 0 {
		return nil
	}
	cu, sv := int64of(raw["cu"]), int64of(raw["sv"])
	if cu < r.cu || sv < r.sv {
		return fmt.Errorf("I5: cold_until %d after %d, version %d after %d", cu, r.cu, sv, r.sv)
	}
	r.cu, r.sv = cu, sv
	var set map[*event]bool
	if raw["cu"] != "" {
		a := r.given[sv]
		if a == nil || a.cu != cu {
			return fmt.Errorf("version %d with cold_until %d was never given", sv, cu)
		}
		set = a.set
		if want := w.totalsText(r, set); want != [4]string{raw["sn"], raw["ss"], raw["sl"], raw["sh"]} {
			return errors.New("the totals are not the answer's")
		}
	}
	pending, err := w.checkPending(r, raw)
	if err != nil {
		return err
	}
	if err := w.checkHot(r, raw, cu); err != nil {
		return err
	}
	if err := w.checkDecoded(r, raw, cu); err != nil {
		return err
	}
	return w.checkCounted(r, raw, set, pending)
}

func (w *world) totalsText(r *reducer, set map[*event]bool) [4]string {
	var values []*big.Int
	for e := range set {
		values = append(values, e.values[r])
	}
	return sumUp(values).text()
}

func int64of(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// checkPending returns the ids. What is pending is an event of this epoch with
// its own bucket and value; np is their number (I5).
func (w *world) checkPending(r *reducer, raw map[string]string) (map[string]bool, error) {
	pending := map[string]bool{}
	for name := range raw {
		if id, ok := strings.CutPrefix(name, "p:"); ok {
			pending[id] = true
		}
	}
	if raw["np"] != strconv.Itoa(len(pending)) {
		return nil, fmt.Errorf("I5: np is %s and %d are pending", raw["np"], len(pending))
	}
	for e, t := range r.tracked {
		value, ok := raw["p:"+e.id]
		if !ok {
			continue
		}
		f := strings.Split(value, "|")
		if f[0] != strconv.FormatInt(e.bucket, 10) || f[1] != e.values[r].String() {
			return nil, fmt.Errorf("a pending event changed: %q", value)
		}
		if f[3] == "p" && int64of(f[2])+PendingLife.Milliseconds() < w.now+w.skew {
			t.exempt = true // C39
		}
	}
	return pending, nil
}

// checkHot: a hot bucket is exactly the events that were tracked in it, and
// begins at cold_until or later (I5, C20).
func (w *world) checkHot(r *reducer, raw map[string]string, cu int64) error {
	events, merging := map[int64][]*big.Int{}, w.store.caps[1] < BucketCap
	all := 0
	for e := range r.tracked {
		if e.bucket >= cu {
			events[e.bucket] = append(events[e.bucket], e.values[r])
			all++
		}
	}
	held := 0
	for name := range raw {
		b, ok := strings.CutPrefix(name, "n:")
		if !ok {
			continue
		}
		bucket := int64of(b)
		if raw["cu"] != "" && bucket < cu {
			return errors.New("I5: a hot bucket below cold_until")
		}
		got := [4]string{raw["n:"+b], raw["s:"+b], raw["l:"+b], raw["h:"+b]}
		held += int(int64of(got[0]))
		if want := sumUp(events[bucket]).text(); !merging && got != want {
			return fmt.Errorf("bucket %d is %v, its events are %v", bucket, got, want)
		}
	}
	if held < all || (!merging && held != all) {
		return fmt.Errorf("I1: the hot buckets hold %d events of %d", held, all)
	}
	return nil
}

// checkDecoded works the aggregate out from the fields, in big integers.
func (w *world) checkDecoded(r *reducer, raw map[string]string, cu int64) error {
	now := w.now + w.skew
	t := sums{s: new(big.Int)}
	add := func(n, s, l, h string) {
		t.n += int64of(n)
		t.s.Add(t.s, bigOf(s))
		for _, x := range []string{l, h} {
			if x == "" {
				continue
			}
			if v := bigOf(x); t.l == nil || v.Cmp(t.l) < 0 {
				t.l = v
			}
			if v := bigOf(x); t.h == nil || v.Cmp(t.h) > 0 {
				t.h = v
			}
		}
	}
	if raw["cu"] != "" {
		add(raw["sn"], raw["ss"], raw["sl"], raw["sh"])
	}
	for name, value := range raw {
		f := strings.Split(value, "|")
		switch {
		case strings.HasPrefix(name, "n:"):
			b := name[2:]
			add(value, raw["s:"+b], raw["l:"+b], raw["h:"+b])
		case strings.HasPrefix(name, "o:") && raw["cu"] != "" && int64of(name[2:]) < cu:
			add(f[0], f[1], f[2], f[3])
		case strings.HasPrefix(name, "p:") && raw["cu"] != "" && int64of(f[0]) < cu && (f[3] == "a" || int64of(f[2])+3_600_000 >= now):
			add("1", f[1], f[1], f[1])
		}
	}
	st, err := w.store.Load(w.ctx, r.id)
	if err != nil {
		return err
	}
	if got, _ := st.Aggregate(time.UnixMilli(now)); !t.is(got) {
		return fmt.Errorf("the decoded aggregate is %v and not %v", got, t.text())
	}
	return nil
}

func bigOf(s string) *big.Int {
	v, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic("not a number: " + s)
	}
	return v
}

// checkCounted is I1 and I2 on the level of events: whatever the engine has or
// the application was told, and that nobody gave up, is somewhere.
func (w *world) checkCounted(r *reducer, raw map[string]string, set map[*event]bool, pending map[string]bool) error {
	spilled, held := 0, 0
	for e, t := range r.tracked {
		if raw["cu"] == "" || e.bucket >= r.cu || set[e] || pending[e.id] || e.dropped || t.exempt {
			continue
		}
		if t.spilled {
			spilled++
			continue
		}
		if e.stored || t.returned {
			return fmt.Errorf("I1: an event of bucket %d (stored %v, returned %v) is not counted below %d", e.bucket, e.stored, t.returned, r.cu)
		}
	}
	for name, value := range raw {
		if b, ok := strings.CutPrefix(name, "o:"); ok && int64of(b) < r.cu {
			n, _, _ := strings.Cut(value, "|")
			held += int(int64of(n))
		}
	}
	if held < spilled {
		return fmt.Errorf("I1: %d spilled events are needed and %d are held", spilled, held)
	}
	return nil
}
