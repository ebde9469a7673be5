// Package decimalbench holds the measurement that chose the project's decimal
// library (RATIONALE.md, "Decimals"). It is a module of its own so that the
// library that lost never reaches a user's module graph.
package decimalbench

import (
	"math/big"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"github.com/quagmt/udecimal"
)

// The largest quantity the engine accepts: 26 integer digits and 12 decimals.
const (
	wide  = "12345678901234567890123456.123456789012"
	other = "98765432109876543210987654.987654321098"
	small = "12.5"
)

func BenchmarkDecimal(b *testing.B) {
	for _, in := range []struct{ name, x, y string }{{"wide", wide, other}, {"small", small, "4808"}} {
		b.Run(in.name+"/udecimal", func(b *testing.B) { benchUdecimal(b, in.x, in.y) })
		b.Run(in.name+"/apd", func(b *testing.B) { benchApd(b, in.x, in.y) })
		b.Run(in.name+"/big", func(b *testing.B) { benchBig(b, in.x, in.y) })
	}
}

func benchUdecimal(b *testing.B, xs, ys string) {
	x, y := udecimal.MustParse(xs), udecimal.MustParse(ys)
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := udecimal.Parse(xs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Add(y)
		}
	})
	b.Run("sub", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Sub(y)
		}
	})
	b.Run("cmp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Cmp(y)
		}
	})
	b.Run("format", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.String()
		}
	})
}

func benchApd(b *testing.B, xs, ys string) {
	ctx := apd.BaseContext.WithPrecision(60)
	x, _, _ := apd.NewFromString(xs)
	y, _, _ := apd.NewFromString(ys)
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := apd.NewFromString(xs); err != nil {
				b.Fatal(err)
			}
		}
	})
	var z apd.Decimal
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = ctx.Add(&z, x, y)
		}
	})
	b.Run("sub", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = ctx.Sub(&z, x, y)
		}
	})
	b.Run("cmp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Cmp(y)
		}
	})
	b.Run("format", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Text('f')
		}
	})
}

// benchBig is the reference: math/big rationals, exact and slow.
func benchBig(b *testing.B, xs, ys string) {
	x, _ := new(big.Rat).SetString(xs)
	y, _ := new(big.Rat).SetString(ys)
	z := new(big.Rat)
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := new(big.Rat).SetString(xs); !ok {
				b.Fatal("parse")
			}
		}
	})
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			z.Add(x, y)
		}
	})
	b.Run("sub", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			z.Sub(x, y)
		}
	})
	b.Run("cmp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Cmp(y)
		}
	})
	b.Run("format", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.FloatString(12)
		}
	})
}
