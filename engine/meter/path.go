package meter

import (
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/engine/canon"
)

const (
	pathRule     = "a path such as $.usage.tokens, $.items[0] or $['a b']"
	maxPathText  = 256
	maxPathIndex = 100_000
)

// path leads to a value in an event's data.
type path struct {
	steps []canon.Step
	field string // how errors name it: "data.usage.tokens"
}

// parsePath reads $, then any of .name, ['name'], ["name"] and [number]. There
// are no wildcards, slices or filters: a path leads to one value.
func parsePath(text string) (path, bool) {
	rest, found := strings.CutPrefix(text, "$")
	if !found || len(text) > maxPathText {
		return path{}, false
	}
	p := path{field: "data" + rest}
	for rest != "" {
		var step canon.Step
		ok := false
		switch rest[0] {
		case '.':
			step.Key, rest, ok = bareName(rest[1:])
		case '[':
			step, rest, ok = bracket(rest[1:])
		}
		if !ok || len(p.steps) == canon.MaxDepth {
			return path{}, false
		}
		p.steps = append(p.steps, step)
	}
	return p, true
}

// bareName reads a name of letters, digits, "_", "-" and anything beyond ASCII.
func bareName(text string) (name, rest string, ok bool) {
	n := strings.IndexFunc(text, func(r rune) bool {
		plain := r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !plain && r < 0x80 || r == '\uFFFD'
	})
	if n < 0 {
		n = len(text)
	}
	return text[:n], text[n:], n > 0
}

// bracket reads the rest of a step after its opening bracket.
func bracket(text string) (step canon.Step, rest string, ok bool) {
	if text == "" {
		return step, "", false
	}
	if quote := text[0]; quote == '\'' || quote == '"' {
		step.Key, rest, ok = quotedName(text[1:], quote)
	} else {
		digits, tail, found := strings.Cut(text, "]")
		n, err := strconv.Atoi(digits)
		step.Index, step.IsIndex = n, true
		rest = "]" + tail
		ok = found && err == nil && n >= 0 && n <= maxPathIndex && strconv.Itoa(n) == digits
	}
	if !ok || !strings.HasPrefix(rest, "]") {
		return step, "", false
	}
	return step, rest[1:], true
}

func quotedName(text string, quote byte) (name, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return b.String(), text[i+1:], true
		case c == '\\':
			if i++; i == len(text) || (text[i] != '\\' && text[i] != quote) {
				return "", "", false
			}
			b.WriteByte(text[i])
		case c < 0x20:
			return "", "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
