package wasm

import (
	"slices"
	"testing"
)

func planOf(t testing.TB, m mod) plan {
	t.Helper()
	l, err := parseLayout(m.encode())
	if err != nil {
		t.Fatal(err)
	}
	p, err := planGuard(l, 512)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// D5: which functions are watched. Functions 0 and 1 of each module are the
// marker and fp_call, which calls nothing here.
func TestPlanGuard(t *testing.T) {
	t.Parallel()
	void := func(code ...[]byte) fn { return fn{sig: sigVoid, locals: []byte{i32}, code: cat(code...)} }
	nops := func(n int) []byte { return repeat(n, []byte{1}) }
	fill := func(size []byte) []byte { return cat(i32c(0), i32c(0), size, memFill()) }
	for name, c := range map[string]struct {
		funcs []fn
		want  []bool
	}{
		"leaf":                      {[]fn{void(nops(4000))}, []bool{false}},
		"large leaf":                {[]fn{void(nops(4097))}, []bool{true}},
		"calls itself":              {[]fn{void(call(2))}, []bool{true}},
		"call each other":           {[]fn{void(call(3)), void(call(4)), void(call(2))}, []bool{true, true, true}},
		"caller of a cycle":         {[]fn{void(call(3)), void(call(3))}, []bool{false, true}},
		"called by a cycle":         {[]fn{void(call(2), call(3)), void()}, []bool{true, false}},
		"loop header before a call": {[]fn{void(loop(), call(2))}, []bool{true}},
		"many calls of a leaf":      {[]fn{void(repeat(100, call(3))), void(nops(100))}, []bool{true, false}},
		"few calls of a leaf":       {[]fn{void(repeat(10, call(3))), void(nops(100))}, []bool{false, false}},
		"chain of doublings": {
			[]fn{void(call(3), call(3)), void(call(4), call(4)), void(call(5), call(5)), void(nops(1000))},
			[]bool{true, false, false, false},
		},
		"fill of unknown size":       {[]fn{void(fill(get(0)))}, []bool{true}},
		"fill of a small constant":   {[]fn{void(fill(i32c(1000)))}, []bool{false}},
		"fill of a large constant":   {[]fn{void(fill(i32c(1 << 20)))}, []bool{true}},
		"fill of a negative one":     {[]fn{void(fill(i32c(-1)))}, []bool{true}},
		"constant not on the top":    {[]fn{void(i32c(1), get(0), get(0), memFill())}, []bool{true}},
		"constant of another branch": {[]fn{void(i32c(0), i32c(0), get(0), []byte{opIf, i32}, get(0), []byte{opElse}, i32c(1), []byte{opEnd}, memFill())}, []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := planOf(t, plugin(nil, i32c(0), c.funcs...)).watched[2:]; !slices.Equal(got, c.want) {
				t.Errorf("watched %v, want %v", got, c.want)
			}
		})
	}
	// Through a table anything can be called, itself too; its caller need not
	// be watched, since the callee is.
	table := plugin(nil, i32c(0), void(i32c(0), []byte{opCallIndirect, 0, 0}), void(call(2)))
	table.tableMin = 1
	if got := planOf(t, table).watched[2:]; !slices.Equal(got, []bool{true, false}) {
		t.Errorf("table: watched %v", got)
	}
}

// The longest stretch of a real Go guest stays far below the bound, and most
// of its functions need no listener.
func TestPlanOfGoGuest(t *testing.T) {
	t.Parallel()
	l, err := parseLayout(guestConfig(t).Module)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planGuard(l, 512)
	if err != nil {
		t.Fatal(err)
	}
	watched := 0
	for _, w := range p.watched {
		if w {
			watched++
		}
	}
	t.Logf("%d of %d functions watched, longest stretch %d of %d units", watched, len(p.watched), p.stretch, maxStretch)
	if watched == 0 || watched == len(p.watched) || p.stretch > maxStretch/4 {
		t.Error("the guard watches too much or too little of a Go guest")
	}
}

// Whatever the bytes, reading and planning ends without a panic, and a plan
// covers every function.
func FuzzParseLayout(f *testing.F) {
	for _, m := range evilDeadlines() {
		if b := m.encode(); len(b) < 10_000 {
			f.Add(b)
		}
	}
	bulk := plugin([]imp{impSend, impExit}, cat(i32c(0), i32c(0), i32c(64), memFill(), i32c(0)))
	bulk.tableMin, bulk.tableMax, bulk.table, bulk.data = 2, 3, []uint32{0, 1}, []byte("data")
	f.Add(bulk.encode())
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLayout(b)
		if err != nil {
			return
		}
		p, err := planGuard(l, 512)
		if err == nil && len(p.watched) != len(l.bodies) {
			t.Errorf("plan of %d for %d functions", len(p.watched), len(l.bodies))
		}
		if p.stretch < 0 {
			t.Error("the stretch overflowed")
		}
	})
}
