//go:build faults && unix

package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// durationMax bounds stop and sleep, so that a slip of a unit ends a test
// instead of hanging it.
const durationMax = time.Hour

// rule is one parsed "label=action@trigger".
type rule struct {
	label   string
	name    string // of the action
	arg     string // as written
	wait    time.Duration
	err     error
	prob    float64 // 0: not by probability
	nth     uint64  // 0: not by count
	repeats bool    // nth is a stride, not a single count
}

func (r rule) action() string {
	if r.arg == "" {
		return r.name
	}
	return r.name + "(" + r.arg + ")"
}

// parse reads the rules of a FENCEPOST_FAULTS value. Empty items are skipped;
// an error names the position of the item and the rule that it breaks.
func parse(spec string) ([]rule, error) {
	var rules []rule
	for i, item := range strings.Split(spec, ";") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		r, err := parseRule(item)
		if err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(item string) (rule, error) {
	label, rest, ok := strings.Cut(item, "=")
	if !ok {
		return rule{}, errors.New("want label=action[@trigger]")
	}
	r := rule{label: strings.TrimSpace(label)}
	if !validLabel(r.label) {
		return rule{}, errors.New("a label is lower-case letters, digits, dots and underscores")
	}
	trigger := ""
	rest = strings.TrimSpace(rest)
	if open := strings.IndexByte(rest, '('); open >= 0 {
		// The last ")" ends the argument, so that a file name may hold one.
		end := strings.LastIndexByte(rest, ')')
		if end < open {
			return rule{}, errors.New("an argument ends with )")
		}
		r.name, r.arg, trigger = rest[:open], rest[open+1:end], rest[end+1:]
		if r.arg == "" {
			return rule{}, errors.New("an argument in brackets is not empty")
		}
		if trigger != "" && trigger[0] != '@' {
			return rule{}, errors.New("after an argument comes @trigger or nothing")
		}
	} else if at := strings.IndexByte(rest, '@'); at >= 0 {
		r.name, trigger = rest[:at], rest[at:]
	} else {
		r.name = rest
	}
	if err := r.parseAction(); err != nil {
		return rule{}, err
	}
	return r, r.parseTrigger(trigger)
}

func (r *rule) parseAction() error {
	switch r.name {
	case "kill", "panic":
		if r.arg != "" {
			return errors.New(r.name + " takes no argument")
		}
		return nil
	case "stop", "sleep":
		d, err := time.ParseDuration(r.arg)
		if err != nil || d <= 0 || d > durationMax {
			return fmt.Errorf("%s takes a duration above 0 and at most %v", r.name, durationMax)
		}
		r.wait = d
		return nil
	case "error":
		r.err = classError(r.arg)
		if r.err == nil {
			return errors.New("error takes invalid, conflict, unavailable, unsupported, not_found, canceled or deadline")
		}
		return nil
	case "block":
		if r.arg == "" {
			return errors.New("block takes a file")
		}
		return nil
	default:
		return errors.New("an action is kill, stop, panic, error, sleep or block")
	}
}

// parseTrigger reads "@pX", "@nK", "@everyK" or nothing.
func (r *rule) parseTrigger(s string) error {
	if s == "" {
		return nil
	}
	if p, ok := strings.CutPrefix(s, "@p"); ok {
		x, err := strconv.ParseFloat(p, 64)
		if err != nil || !(x > 0 && x <= 1) { // written so that NaN is refused
			return errors.New("@p takes a probability above 0 and at most 1")
		}
		r.prob = x
		return nil
	}
	count, stride := strings.CutPrefix(s, "@every")
	if !stride {
		var ok bool
		if count, ok = strings.CutPrefix(s, "@n"); !ok {
			return errors.New("a trigger is @pX, @nK or @everyK")
		}
	}
	k, err := strconv.ParseUint(count, 10, 32)
	if err != nil || k == 0 {
		return errors.New("@n and @every take a whole number from 1")
	}
	r.nth, r.repeats = k, stride
	return nil
}

// classError returns the error of a class, nil if there is no such class.
func classError(class string) error {
	switch class {
	case "canceled":
		return context.Canceled
	case "deadline":
		return context.DeadlineExceeded
	case "":
		class = string(sdk.TagUnavailable)
	}
	switch tag := sdk.Tag(class); tag {
	case sdk.TagInvalid, sdk.TagConflict, sdk.TagUnavailable, sdk.TagUnsupported, sdk.TagNotFound:
		return &sdk.Error{Tag: tag, Code: "injected_fault"}
	default:
		return nil
	}
}

func validLabel(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._") == ""
}
