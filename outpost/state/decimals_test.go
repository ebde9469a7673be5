//go:build unix

package state

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// arithmetic answers sum, comparison, minimum and maximum of each pair.
const arithmetic = `
local out={}
for i=1,#ARGV,2 do
  local a,b=ARGV[i],ARGV[i+1]
  out[#out+1]=dadd(a,b) out[#out+1]=i2s(dcmp(a,b)+0) out[#out+1]=dmin(a,b) out[#out+1]=dmax(a,b)
end
return out`

// 9.3: the scripts' arithmetic is that of whole numbers, up to twice the digits
// of a quantity, at the borders of doubles and of groups above all.
func TestDecimals(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t, quick()...).URL())
	script := newScript(libText + arithmetic)
	rng := rand.New(rand.NewPCG(1, 2))
	const pairs = 250
	for range 80 {
		var values []*big.Int
		var args []any
		for range pairs {
			a := randomNumber(rng)
			b := randomNumber(rng)
			switch rng.IntN(8) {
			case 0:
				b = new(big.Int).Neg(a)
			case 1:
				b = new(big.Int).Sub(big.NewInt(1), a)
			case 2:
				b = new(big.Int).Set(a)
			}
			values = append(values, a, b)
			args = append(args, a.String(), b.String())
		}
		reply, err := s.run(t.Context(), script, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		got := texts(reply)
		if len(got) != 4*pairs {
			t.Fatalf("%d answers", len(got))
		}
		for i := range pairs {
			a, b := values[2*i], values[2*i+1]
			low, high := a, b
			if a.Cmp(b) > 0 {
				low, high = b, a
			}
			want := [4]string{new(big.Int).Add(a, b).String(), strconv.Itoa(a.Cmp(b)), low.String(), high.String()}
			if have := [4]string(got[4*i : 4*i+4]); have != want {
				t.Fatalf("%s and %s: %v, want %v", a, b, have, want)
			}
		}
	}
}

func randomNumber(rng *rand.Rand) *big.Int {
	digits := []int{1, 2, 13, 14, 15, 16, 17, 27, 28, 29, 37, 38, 42, 60, 76}[rng.IntN(15)]
	text := []byte(strings.Repeat("9", digits))
	switch rng.IntN(4) {
	case 0: // all nines: the carry goes through
	case 1: // a one and zeros
		text = append([]byte("1"), strings.Repeat("0", digits-1)...)
	default:
		for i := range text {
			text[i] = byte('0' + rng.IntN(10))
		}
	}
	v, _ := new(big.Int).SetString(string(text), 10)
	if rng.IntN(2) == 0 {
		v.Neg(v)
	}
	return v
}

// 9.3: there and back, and nothing beyond the digits.
func TestScaled(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "1": "1000000000000", "0.000000000001": "1", "-12.5": "-12500000000000",
		"99999999999999999999999999.999999999999": strings.Repeat("9", 38), "-0.1": "-100000000000", "1e3": "1000000000000000",
	} {
		got, err := scaled(decimal.MustParse(text), valueDigits)
		if err != nil || got != want {
			t.Errorf("%s is %s, want %s (%v)", text, got, want, err)
		}
		back, err := unscaled(want)
		if err != nil || !back.Equal(decimal.MustParse(text)) {
			t.Errorf("%s back is %s (%v)", want, back, err)
		}
	}
	total := dec(strings.Repeat("9", 50)) // a sum is wider than a quantity
	if got, err := scaled(total, totalDigits); err != nil || got != strings.Repeat("9", 50) {
		t.Errorf("fifty digits are %s (%v)", got, err)
	}
	if _, err := scaled(dec(strings.Repeat("9", 39)), valueDigits); err == nil {
		t.Error("39 digits are a quantity")
	}
	for _, text := range []string{"", "x", "1.5", "--1", strings.Repeat("1", 20) + "x", strings.Repeat("9", 80)} {
		if _, err := unscaled(text); err == nil {
			t.Errorf("%q is a value", text)
		}
	}
}
