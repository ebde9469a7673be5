//go:build faults && unix

package fault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		spec string
		want rule // err is compared by errors.Is
	}{
		{"d5=kill", rule{label: "d5", name: "kill"}},
		{"deliver.after_send=kill@p0.02", rule{label: "deliver.after_send", name: "kill", prob: 0.02}},
		{"r3=stop(2s)@n3", rule{label: "r3", name: "stop", arg: "2s", wait: 2 * time.Second, nth: 3}},
		{"r3=sleep(10ms)@every4", rule{label: "r3", name: "sleep", arg: "10ms", wait: 10 * time.Millisecond, nth: 4, repeats: true}},
		{" ; r1 = panic ;", rule{label: "r1", name: "panic"}},
		{"r1=error", rule{label: "r1", name: "error", err: sdk.ErrUnavailable}},
		{"r1=error(conflict)@p1", rule{label: "r1", name: "error", arg: "conflict", err: sdk.ErrConflict, prob: 1}},
		{"r1=error(deadline)", rule{label: "r1", name: "error", arg: "deadline", err: context.DeadlineExceeded}},
		{"r1=block(/tmp/a (1)@b)@n1", rule{label: "r1", name: "block", arg: "/tmp/a (1)@b", nth: 1}},
	}
	for _, test := range tests {
		t.Run(test.spec, func(t *testing.T) {
			t.Parallel()
			rules, err := parse(test.spec)
			if err != nil || len(rules) != 1 {
				t.Fatalf("parse: %d rules, %v", len(rules), err)
			}
			got := rules[0]
			if !errors.Is(got.err, test.want.err) {
				t.Errorf("error %v, want %v", got.err, test.want.err)
			}
			got.err, test.want.err = nil, nil
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"r1", "=kill", "R1=kill", "r 1=kill", "r1=", "r1=boom", "r1=kill(9)", "r1=panic(x)",
		"r1=stop", "r1=stop()", "r1=stop(2)", "r1=stop(-1s)", "r1=stop(0s)", "r1=stop(2h)", "r1=sleep(1s",
		"r1=sleep(1s)x", "r1=error(shy)", "r1=block", "r1=block()", "r1=kill@", "r1=kill@x", "r1=kill@p0",
		"r1=kill@p1.5", "r1=kill@pNaN", "r1=kill@p-1", "r1=kill@n0", "r1=kill@n-1", "r1=kill@n1.5",
		"r1=kill@every", "r1=kill@every0", "r1=kill@n99999999999",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			if rules, err := parse(spec); err == nil {
				t.Errorf("accepted as %+v", rules)
			}
		})
	}
}

func TestParseNamesTheRule(t *testing.T) {
	t.Parallel()
	_, err := parse("r1=kill;;r2=stop(2)")
	if err == nil || !strings.HasPrefix(err.Error(), "fault 3: ") {
		t.Errorf("error %v does not name the third rule", err)
	}
}

// FuzzParse: any text is an error or rules that print back to themselves.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", ";", "d5=kill", "r3=stop(2s)@n3;deliver.after_send=kill@p0.02", "r1=error(conflict)@every7",
		"r1=block(a)b)@p1e-3", "r1=)(", "r1=(", "r1=kill@pInf", "\x00=\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		rules, err := parse(spec)
		if err != nil {
			return
		}
		for _, r := range rules {
			again, err := parse(r.label + "=" + r.action())
			if err != nil || len(again) != 1 {
				t.Fatalf("%q gave %+v, which does not parse: %v", spec, r, err)
			}
			if again[0].label != r.label || again[0].name != r.name || again[0].arg != r.arg || again[0].wait != r.wait {
				t.Errorf("%q: %+v, printed and parsed %+v", spec, r, again[0])
			}
			if r.prob < 0 || r.prob > 1 || (r.repeats && r.nth == 0) {
				t.Errorf("%q: trigger out of range: %+v", spec, r)
			}
		}
	})
}
