package conformance

import (
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func decimalCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("decimal/extremes", "S9 Q7", durable, extremes),
		define("decimal/no-binary-fractions", "S9", durable, noBinaryFractions),
		define("decimal/totals-are-wider-than-events", "Q8 B-T16", durable, widerTotals),
	}
}

// extremeDecimals are the ends of what a quantity can be.
func extremeDecimals() []string {
	nines := strings.Repeat("9", decimal.MaxIntegerDigits)
	return []string{
		"0", "1", "0.1", "0.000000000001", "999.999999999999", "9007199254740993", "18446744073709551616",
		nines, nines + "." + strings.Repeat("9", decimal.MaxDecimals), "10000000000000000000000000.000000000001", "100", "1000000",
	}
}

func extremes(r *run) {
	t := r.tenant("a")
	var sum decimal.Decimal
	n := int64(0)
	for _, s := range extremeDecimals() {
		for _, q := range []string{s, "-" + s} {
			e := usage(t, "e"+q, dec(q).String())
			e.Quantity = dec(q)
			unit := storage.Unit{Entries: []storage.Entry{{Event: e, Signed: true}}}
			r.putUnits(unit)
			sum = sum.Add(e.Quantity)
			n++
			got := r.load(t, e.EventID)
			r.same("quantity "+q, got.Quantity, dec(q))
			r.same("effect "+q, got.Effect, dec(q))
			r.totalIs("after "+q, t, sum.String(), n, n)
		}
	}
}

func noBinaryFractions(r *run) {
	t := r.tenant("a")
	for i := range 10 {
		r.put(usage(t, decimalInt(i), "0.1"))
	}
	r.totalIs("ten tenths", t, "1", 10, 10)
	r.put(usage(t, "big", "9007199254740992"), usage(t, "one", "1.000000000001"))
	r.totalIs("past the integers of a double", t, "9007199254740994.000000000001", 12, 12)
}

func widerTotals(r *run) {
	t := r.tenant("a")
	nines := strings.Repeat("9", decimal.MaxIntegerDigits) + "." + strings.Repeat("9", decimal.MaxDecimals)
	var sum decimal.Decimal
	for i := range 12 {
		r.put(usage(t, decimalInt(i), nines))
		sum = sum.Add(dec(nines))
	}
	r.totalIs("twelve of the largest", t, sum.String(), 12, 12)
}

func totalsCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("totals/arithmetic", "B20 S8", durable, totalsArithmetic),
		define("totals/empty", "B-T16", durable, totalsEmpty),
		define("totals/query", "B20", durable, totalsQuery),
		define("totals/signed-may-fall-below-zero", "Q7 S8", durable, signedTotals),
		define("totals/unsigned-never-below-zero", "S8 B34", durable, unsignedTotals),
	}
}

// spread are events over features and periods, three for each total.
func spread(t string) []storage.Event {
	var all []storage.Event
	for _, feature := range []string{"b", "a", "a b"} {
		for m := range 3 {
			for i := range 3 {
				e := usage(t, feature+decimalInt(m)+decimalInt(i), decimalInt(m+1)+".25")
				e.Feature = feature
				e.PeriodStart, e.PeriodEnd = period.AddDate(0, m, 0), period.AddDate(0, m+1, 0)
				e.OccurredAt = e.PeriodStart
				all = append(all, e)
			}
		}
	}
	return all
}

func totalsArithmetic(r *run) {
	t := r.tenant("a")
	all := spread(t)
	r.put(all[:10]...)
	r.put(all[10:]...)
	r.put(func() storage.Event { e := usage(r.tenant("b"), "x", "1000"); e.Feature = "a"; return e }())
	var want []storage.Total
	for _, feature := range []string{"a", "a b", "b"} {
		for m, q := range []string{"3.75", "6.75", "9.75"} {
			want = append(want, storage.Total{
				Tenant: t, Feature: feature, PeriodStart: period.AddDate(0, m, 0), PeriodEnd: period.AddDate(0, m+1, 0),
				Quantity: dec(q), Events: 3, Count: 3,
			})
		}
	}
	r.same("totals, in order", r.totals(t), want)
}

func totalsEmpty(r *run) {
	got := r.totals(r.tenant("nobody"))
	if got == nil || len(got) != 0 {
		r.errorf("totals of nobody: %#v, want an empty slice", got)
	}
}

func totalsQuery(r *run) {
	t := r.tenant("a")
	r.put(spread(t)...)
	count := func(what string, want int, q storage.TotalsQuery) {
		q.Tenant = t
		got, err := r.eventStore().LoadTotals(r.ctx, q)
		r.must("load totals", err)
		if len(got) != want {
			r.errorf("%s: %d totals, want %d: %s", what, len(got), want, text(got))
		}
	}
	month := func(m int) time.Time { return period.AddDate(0, m, 0) }
	count("no bound", 9, storage.TotalsQuery{})
	count("one feature", 3, storage.TotalsQuery{Feature: "a"})
	count("a feature is no pattern", 0, storage.TotalsQuery{Feature: "%"})
	count("from is included", 6, storage.TotalsQuery{From: month(1)})
	count("to is not", 6, storage.TotalsQuery{To: month(2)})
	count("both", 1, storage.TotalsQuery{Feature: "b", From: month(1), To: month(2)})
	count("nothing between", 0, storage.TotalsQuery{From: month(1), To: month(1)})
	count("a microsecond late", 3, storage.TotalsQuery{From: month(1).Add(time.Microsecond)})
}

func signedTotals(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "-3.5"))
	r.totalIs("below zero from the start", t, "-3.5", 1, 1)
	for _, u := range units(usage(t, "2", "-1"), usage(t, "3", "0")) {
		u.Entries[0].Signed = true
		r.putUnits(u)
	}
	r.totalIs("further", t, "-4.5", 3, 3)
}

func unsignedTotals(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "3"))
	bad := storage.Unit{Entries: []storage.Entry{{Event: usage(t, "2", "-4")}}}
	res, err := r.try([]storage.Unit{bad}, storage.Atomic)
	if err == nil {
		r.errorf("a quantity that takes an unsigned total below zero: %s, want an error", text(res))
	}
	r.absent("refused", t, "2")
	r.totalIs("after the refusal", t, "3", 1, 1)
}
