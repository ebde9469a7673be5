package decimal_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

const widest = "99999999999999999999999999.999999999999" // 26 + 12 digits

// P5, F59: what is a quantity, and its canonical text.
func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "-0.0e5": "0", "0e999": "0", "0e-999": "0",
		"1": "1", "-1": "-1", "1.0": "1", "1e0": "1", "1E+2": "100", "2.50E-2": "0.025", "12.500": "12.5",
		"100": "100", "1e25": "10000000000000000000000000", "1e-12": "0.000000000001", "10e-13": "0.000000000001",
		widest: widest, "-" + widest: "-" + widest,
		"99999999999999999999999999999999999999e-12": widest,
		"9007199254740993":                           "9007199254740993",
		"9223372036854775808":                        "9223372036854775808", // 2^63
		"1.00000000000000000000":                     "1",
		"1e0000000000000000000000002":                "100",
		"0.1":                                        "0.1",
	} {
		d, err := decimal.Parse(in)
		if err != nil || d.String() != want {
			t.Errorf("Parse(%q) = %s, %v; want %s", in, d, err, want)
		}
	}
}

// P5, F59, report 71: everything else is refused by name of its rule, and the
// error does not repeat it.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]error{
		"1e26":                        decimal.ErrIntegerDigits,
		"-1e26":                       decimal.ErrIntegerDigits,
		"100000000000000000000000000": decimal.ErrIntegerDigits,
		"1e400":                       decimal.ErrIntegerDigits,
		"1e1000":                      decimal.ErrIntegerDigits,
		"1e999999999999999999999":     decimal.ErrIntegerDigits,
		strings.Repeat("9", 39):       decimal.ErrIntegerDigits,
		"1e-13":                       decimal.ErrDecimals,
		"0.0000000000001":             decimal.ErrDecimals,
		"1e-30":                       decimal.ErrDecimals,
		"1e-999999999999999999999":    decimal.ErrDecimals,
		widest + "1":                  decimal.ErrDecimals,
		"":                            decimal.ErrSyntax,
		"-":                           decimal.ErrSyntax,
		"--1":                         decimal.ErrSyntax,
		"+1":                          decimal.ErrSyntax,
		".5":                          decimal.ErrSyntax,
		"5.":                          decimal.ErrSyntax,
		"-.5":                         decimal.ErrSyntax,
		".":                           decimal.ErrSyntax,
		"01":                          decimal.ErrSyntax,
		"-007":                        decimal.ErrSyntax,
		"00":                          decimal.ErrSyntax,
		"1_000":                       decimal.ErrSyntax,
		"1,000":                       decimal.ErrSyntax,
		"1.2.3":                       decimal.ErrSyntax,
		"0x10":                        decimal.ErrSyntax,
		"1e":                          decimal.ErrSyntax,
		"1e+":                         decimal.ErrSyntax,
		"1e1.5":                       decimal.ErrSyntax,
		"e5":                          decimal.ErrSyntax,
		" 1":                          decimal.ErrSyntax,
		"1 ":                          decimal.ErrSyntax,
		"1\n":                         decimal.ErrSyntax,
		"1\x00":                       decimal.ErrSyntax,
		"NaN":                         decimal.ErrSyntax,
		"nan":                         decimal.ErrSyntax,
		"Infinity":                    decimal.ErrSyntax,
		"-Inf":                        decimal.ErrSyntax,
		"٣":                           decimal.ErrSyntax, // Arabic-Indic 3
		"\uff11":                      decimal.ErrSyntax, // full-width 1
		"−1":                          decimal.ErrSyntax, // U+2212
		"1/2":                         decimal.ErrSyntax,
		strings.Repeat("1", 1<<20):    decimal.ErrSyntax,
		"null":                        decimal.ErrSyntax,
	} {
		d, err := decimal.Parse(in)
		if !errors.Is(err, want) || !d.IsZero() {
			t.Errorf("Parse(%.40q) = %s, %v; want %v", in, d, err, want)
		}
	}
}

// rat is the value of a decimal, by arithmetic that is not ours.
func rat(t interface{ Fatalf(string, ...any) }, text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is not a number", text)
	}
	return r
}

var quantities = rapid.OneOf(
	rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,12})?`),
	rapid.StringMatching(`-?(0|9{1,26})(\.9{1,12})?`),
	rapid.StringMatching(`-?[1-9](\.[0-9]{1,3})?[eE][+-]?[0-9]`),
	rapid.SampledFrom([]string{
		"0", "-0", "1e25", "1e-12", widest, "-" + widest, "18446744073709551615", "18446744073709551616",
		"34028236692093846346337460.743176821145",
	}),
)

func draw(t *rapid.T, label string) (decimal.Decimal, *big.Rat) {
	text := quantities.Filter(func(s string) bool { _, err := decimal.Parse(s); return err == nil }).Draw(t, label)
	return decimal.MustParse(text), rat(t, text)
}

// P5: parse, format, add, subtract and compare agree with rational arithmetic.
func TestArithmeticIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, ra := draw(t, "a")
		b, rb := draw(t, "b")
		for name, c := range map[string]struct {
			got  decimal.Decimal
			want *big.Rat
		}{
			"a":     {a, ra},
			"a + b": {a.Add(b), new(big.Rat).Add(ra, rb)},
			"a - b": {a.Sub(b), new(big.Rat).Sub(ra, rb)},
			"-a":    {a.Neg(), new(big.Rat).Neg(ra)},
			"|a|":   {a.Abs(), new(big.Rat).Abs(ra)},
		} {
			if rat(t, c.got.String()).Cmp(c.want) != 0 {
				t.Fatalf("%s = %s, want %s", name, c.got, c.want.FloatString(12))
			}
			if c.got.Sign() != c.want.Sign() || c.got.IsZero() != (c.want.Sign() == 0) {
				t.Fatalf("%s: sign %d, zero %v", name, c.got.Sign(), c.got.IsZero())
			}
		}
		if a.Cmp(b) != ra.Cmp(rb) || a.Equal(b) != (ra.Cmp(rb) == 0) || (a.String() == b.String()) != a.Equal(b) {
			t.Fatalf("Cmp(%s, %s) = %d", a, b, a.Cmp(b))
		}
		if !a.Add(b).Sub(b).Equal(a) || !a.Sub(a).Equal(decimal.Decimal{}) || a.Sub(a).Cmp(decimal.Decimal{}.Neg()) != 0 {
			t.Fatalf("%s + %s - %s is not what it was", a, b, b)
		}
	})
}

// The canonical text is unique, plain, and comes back through every reader.
func TestTextComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, r := draw(t, "d")
		text := d.String()
		digits := strings.TrimPrefix(text, "-")
		whole, fraction, point := strings.Cut(digits, ".")
		if strings.ContainsAny(text, "eE+") || text == "-0" || whole == "" || (len(whole) > 1 && whole[0] == '0') ||
			point && (fraction == "" || strings.HasSuffix(fraction, "0")) {
			t.Fatalf("%q is not canonical", text)
		}
		if d.Scale() != len(fraction) {
			t.Fatalf("Scale(%s) = %d", text, d.Scale())
		}
		if want := len(strings.Trim(whole+fraction, "0")); d.SignificantDigits() != want {
			t.Fatalf("SignificantDigits(%s) = %d, want %d", text, d.SignificantDigits(), want)
		}
		back, err := decimal.Parse(text)
		total, errTotal := decimal.ParseTotal(text)
		if err != nil || errTotal != nil || back.String() != text || total.String() != text {
			t.Fatalf("%s comes back as %s, %s; %v, %v", text, back, total, err, errTotal)
		}
		raw, err := json.Marshal(d)
		if err != nil || string(raw) != `"`+text+`"` {
			t.Fatalf("JSON of %s is %s, %v", text, raw, err)
		}
		for _, form := range []string{string(raw), text} {
			var fromJSON decimal.Decimal
			if err := json.Unmarshal([]byte(form), &fromJSON); err != nil || rat(t, fromJSON.String()).Cmp(r) != 0 {
				t.Fatalf("%s from JSON is %s, %v", form, fromJSON, err)
			}
		}
	})
}

// Q8: a total is wider than any event, and stays exact where 128 bits do not
// reach: ten thousand of the widest quantities, there and back again.
func TestHugeTotalsStayExact(t *testing.T) {
	t.Parallel()
	const n = 10_000
	one := decimal.MustParse(widest)
	var total decimal.Decimal
	for range n {
		total = total.Add(one)
	}
	want := new(big.Rat).Mul(rat(t, widest), big.NewRat(n, 1))
	if rat(t, total.String()).Cmp(want) != 0 {
		t.Fatalf("total = %s", total)
	}
	if got, err := decimal.ParseTotal(total.String()); err != nil || !got.Equal(total) {
		t.Errorf("ParseTotal(%s) = %s, %v", total, got, err)
	}
	if _, err := decimal.Parse(total.String()); !errors.Is(err, decimal.ErrIntegerDigits) {
		t.Errorf("a total passes for a quantity: %v", err)
	}
	for range n {
		total = total.Sub(one)
	}
	if total.String() != "0" || !total.IsZero() || total.Sign() != 0 || total.Cmp(decimal.Decimal{}) != 0 {
		t.Errorf("back again: %s", total)
	}
	if again := total.Add(decimal.One); again.String() != "1" || again.Cmp(decimal.One) != 0 {
		t.Errorf("and one: %s", again)
	}
}

func TestParseTotalBounds(t *testing.T) {
	t.Parallel()
	if d, err := decimal.ParseTotal("-" + strings.Repeat("9", 38) + ".999999999999"); err != nil || d.String() != "-"+strings.Repeat("9", 38)+".999999999999" {
		t.Errorf("38 + 12 digits: %s, %v", d, err)
	}
	for _, in := range []string{"1e38", strings.Repeat("9", 39), "1e-13", "", "NaN", "+1"} {
		if _, err := decimal.ParseTotal(in); err == nil {
			t.Errorf("ParseTotal(%q) is accepted", in)
		}
	}
}

// The zeros of every origin are one value.
func TestZeros(t *testing.T) {
	t.Parallel()
	zeros := map[string]decimal.Decimal{
		"zero value": {}, "parsed": decimal.MustParse("0"), "negative": decimal.MustParse("-0"), "negated": decimal.Decimal{}.Neg(),
		"difference": decimal.MustParse("0.5").Sub(decimal.MustParse("0.5")), "negative difference": decimal.MustParse("-0.5").Sub(decimal.MustParse("-0.5")),
		"sum": decimal.MustParse("-0.5").Add(decimal.MustParse("0.5")), "negated difference": decimal.One.Sub(decimal.One).Neg(),
		"absolute": decimal.Decimal{}.Abs(),
	}
	for name, z := range zeros {
		if z.String() != "0" || !z.IsZero() || z.Sign() != 0 || z.Scale() != 0 || z.SignificantDigits() != 0 {
			t.Errorf("%s: %s, sign %d", name, z, z.Sign())
		}
		for other, y := range zeros {
			if z.Cmp(y) != 0 || !z.Equal(y) {
				t.Errorf("%s and %s differ", name, other)
			}
		}
	}
}

func TestMustParsePanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a malformed literal is accepted")
		}
	}()
	decimal.MustParse("NaN")
}

func TestUnmarshalJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"null", "true", `""`, `"`, `"1`, `" 1"`, "[1]", "{}", "1e400", `"1_0"`, `"\u0031"`} {
		d := decimal.One
		if err := d.UnmarshalJSON([]byte(in)); err == nil || !d.Equal(decimal.One) {
			t.Errorf("%s is accepted as %s", in, d)
		}
	}
}

// FuzzParse: no input panics; what is accepted is what rational arithmetic makes
// of it, within the limits, and its text is its own canonical form.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"0", "-0", "12.5", widest, "1e25", "1e26", "1e-12", "1e-13", "0e999", "1e400", "NaN", "+1", ".5", "5.", "01", "1_0", "٣",
		"1e-0000000000000012", "0.00000000000000000000000000001e29",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d, err := decimal.Parse(in)
		if err != nil {
			if !d.IsZero() {
				t.Fatalf("Parse(%q) = %s with %v", in, d, err)
			}
			return
		}
		r := rat(t, in)
		if rat(t, d.String()).Cmp(r) != 0 {
			t.Fatalf("Parse(%q) = %s", in, d)
		}
		limit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(decimal.MaxIntegerDigits), nil))
		if new(big.Rat).Abs(r).Cmp(limit) >= 0 || d.Scale() > decimal.MaxDecimals {
			t.Fatalf("Parse(%q) = %s is beyond the limits", in, d)
		}
		if again, err := decimal.Parse(d.String()); err != nil || again.String() != d.String() {
			t.Fatalf("%s is not canonical: %s, %v", d, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decimal.Parse("4808.25"); err != nil {
			b.Fatal(err)
		}
	}
}

// Expected values are from Python: Decimal(d)/n quantized to 1E-12 with
// ROUND_HALF_EVEN, in a context of 80 digits.
func TestMean(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		d    string
		n    int64
		want string
	}{
		{"1", 3, "0.333333333333"},
		{"2", 3, "0.666666666667"},
		{"-2", 3, "-0.666666666667"},
		{"0", 7, "0"},
		{"10", 4, "2.5"},
		{"0.000000000001", 2, "0"},              // a tie goes to even
		{"0.000000000003", 2, "0.000000000002"}, // and here too
		{"-0.000000000003", 2, "-0.000000000002"},
		{"0.000000000005", 2, "0.000000000002"},
		{"0.000000000001", 3, "0"},
		{"99999999999999999999999999.999999999999", 7, "14285714285714285714285714.285714285714"},
		{"1", 9223372036854775807, "0"},
	} {
		if got := decimal.MustParse(tc.d).Mean(tc.n).String(); got != tc.want {
			t.Errorf("%s / %d = %s, want %s", tc.d, tc.n, got, tc.want)
		}
	}
	wide := decimal.MustParse("99999999999999999999999999").Add(decimal.MustParse("99999999999999999999999999"))
	if got := wide.Mean(3).String(); got != "66666666666666666666666666" {
		t.Errorf("a wide total: %s", got)
	}
}

func TestSmall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		d  string
		ok bool
	}{
		{"0", true},
		{"1.5", true},
		{"-1.5", true},
		{"1099511627776", true},
		{"1099511627777", false},
		{"0.000000000001", true},
		{"1.000000000001", true},
		{"99999999999999999999999999", false},
	} {
		m, scale, ok := decimal.MustParse(tc.d).Small()
		if ok != tc.ok || (ok && !decimal.FromScaled(m, scale).Equal(decimal.MustParse(tc.d))) {
			t.Errorf("%s: %d, %d, %t", tc.d, m, scale, ok)
		}
	}
}
