package postgres

import (
	"regexp"
	"strconv"
	"strings"
)

// recordParts say what a request has. The record statement is a plan of more
// than a hundred nodes, and the server makes all of them ready each time it
// runs it: for one event that took most of the time. So a request is sent
// without the parts of the statement that it has nothing for.
type recordParts uint8

const (
	withReceipts recordParts = 1 << iota
	withBuckets
	withItems
	withSubscriptions
	// withLookup looks whether an item exists before it is inserted.
	withLookup
)

var recordPartNames = map[string]recordParts{
	"receipts": withReceipts, "buckets": withBuckets, "items": withItems,
	"subscriptions": withSubscriptions, "lookup": withLookup,
}

// recordText is the record statement with some of its parts. args are the
// indexes of its arguments in those of the whole.
type recordText struct {
	text string
	args []int
}

// recordText answers the statement for a request.
func (a *Adapter) recordText(parts recordParts) (recordText, error) {
	known, _ := a.recordTexts.Load(parts)
	if t, ok := known.(recordText); ok {
		return t, nil
	}
	whole, err := a.texts.text(qRecord)
	if err != nil {
		return recordText{}, err
	}
	t := assemble(whole, parts)
	a.recordTexts.Store(parts, t)
	return t, nil
}

var numbered = regexp.MustCompile(`\$\d+`)

// assemble picks the lines of the parts and numbers the parameters anew: the
// server refuses one that is missing. Comments are for readers.
func assemble(whole string, parts recordParts) recordText {
	var t recordText
	var b strings.Builder
	var out []bool // of the sections around a line: does it leave the line out?
	for line := range strings.Lines(whole) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "--+ "):
			name, not := strings.CutPrefix(trimmed[4:], "!")
			has := parts&recordPartNames[name] != 0
			out = append(out, has == not || len(out) > 0 && out[len(out)-1])
		case strings.HasPrefix(trimmed, "--- "):
			out = out[:len(out)-1]
		case strings.HasPrefix(trimmed, "--") || len(out) > 0 && out[len(out)-1]:
		default:
			b.WriteString(line)
		}
	}
	numbers := map[string]string{}
	t.text = numbered.ReplaceAllStringFunc(b.String(), func(p string) string {
		if numbers[p] == "" {
			n, _ := strconv.Atoi(p[1:])
			t.args = append(t.args, n-1)
			numbers[p] = "$" + strconv.Itoa(len(t.args))
		}
		return numbers[p]
	})
	return t
}

// parts are those that the request needs.
func (r *recorder) parts() recordParts {
	var p recordParts
	if len(r.receipts) > 0 {
		p |= withReceipts
	}
	if len(r.columns.items.ord) > 0 {
		p |= withItems
		if r.digests {
			p |= withLookup
		}
	}
	if r.columns.events.buckets {
		p |= withBuckets
	}
	if len(r.req.Subscriptions) > 0 {
		p |= withSubscriptions
	}
	return p
}

// statement is what to send: the text and its values.
func (r *recorder) statement(a *Adapter) (string, []any, error) {
	t, err := a.recordText(r.parts())
	if err != nil {
		return "", nil, err
	}
	whole := r.args()
	args := make([]any, len(t.args))
	for i, n := range t.args {
		args[i] = whole[n]
	}
	return t.text, args, nil
}
