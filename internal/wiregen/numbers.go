package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	firstOperation = 110
	defaultMax     = 1000
	mostNumber     = 10000 // a typing error, not a schema
)

// numbers is the committed table: which number each operation and each field
// has. It only grows. What the contract no longer has stays in it, so that its
// number is never used again.
type numbers struct {
	operations map[string]int
	messages   map[string]map[string]entry // message, field
}

// entry is one field of the table.
type entry struct {
	number int
	wire   string
	max    int // of a list; 0: none
}

const tableHead = `# The numbers of the operations of storage and of the fields of their messages.
#
# Written by internal/wiregen. It adds what is new in plugins/sdk/storage and
# never changes or takes away a line: a number that was used is never used
# again, and what a field is made of never changes. Only "max", how many
# elements a list may have, is for hands.
`

// readNumbers parses the table. Every line is checked: a slip of a hand here
// would be a change of what is on the wire.
func readNumbers(text string) (*numbers, error) {
	n := &numbers{operations: map[string]int{}, messages: map[string]map[string]entry{}}
	var in map[string]entry
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		var err error
		switch {
		case words[0] == "operation" && len(words) == 3:
			err = n.readOperation(words[1], words[2])
		case words[0] == "message" && len(words) == 2:
			in = map[string]entry{}
			if n.messages[words[1]] != nil {
				err = fmt.Errorf("message %s twice", words[1])
			}
			n.messages[words[1]] = in
		case line[0] == ' ' && in != nil && len(words) >= 3:
			err = readEntry(in, words)
		default:
			err = fmt.Errorf("cannot read %q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("numbers.txt:%d: %w", i+1, err)
		}
	}
	return n, nil
}

func (n *numbers) readOperation(name, number string) error {
	v, err := strconv.Atoi(number)
	if err != nil || v < firstOperation || v > mostNumber {
		return fmt.Errorf("%s is no number of an operation", number)
	}
	for other, used := range n.operations {
		if other == name || used == v {
			return fmt.Errorf("%s and %s: each once", name, other)
		}
	}
	n.operations[name] = v
	return nil
}

// readEntry reads "1 tenant string" and "2 units repeated Unit max 1000".
func readEntry(in map[string]entry, words []string) error {
	v, err := strconv.Atoi(words[0])
	if err != nil || v < 1 || v > mostNumber {
		return fmt.Errorf("%s is no field number", words[0])
	}
	e := entry{number: v}
	rest := words[2:]
	if i := slices.Index(rest, "max"); i >= 0 {
		if len(rest) != i+2 {
			return errors.New("max needs a number")
		}
		if e.max, err = strconv.Atoi(rest[i+1]); err != nil || e.max < 1 {
			return fmt.Errorf("%s is no maximum", rest[i+1])
		}
		rest = rest[:i]
	}
	e.wire = strings.Join(rest, " ")
	for other, used := range in {
		if other == words[1] || used.number == v {
			return fmt.Errorf("%s and %s: each once", words[1], other)
		}
	}
	in[words[1]] = e
	return nil
}

// assign gives every operation and field its number, new ones the next.
func (n *numbers) assign(c *contract) error {
	for _, i := range c.interfaces {
		for _, op := range i.Operations {
			if n.operations[op.Name] == 0 {
				next := firstOperation
				for _, used := range n.operations {
					next = max(next, used+1)
				}
				n.operations[op.Name] = next
			}
		}
	}
	for _, m := range c.messages {
		if n.messages[m.Name] == nil {
			n.messages[m.Name] = map[string]entry{}
		}
		in := n.messages[m.Name]
		for _, f := range m.Fields {
			e, ok := in[f.Name]
			if !ok {
				e = entry{number: 1, wire: f.wire()}
				for _, used := range in {
					e.number = max(e.number, used.number+1)
				}
				if f.many() {
					e.max = defaultMax
				}
				in[f.Name] = e
			}
			if e.wire != f.wire() {
				return fmt.Errorf("%s.%s is %s on the wire and would become %s: give the field another name", m.Name, f.Name, e.wire, f.wire())
			}
			if (e.max > 0) != f.many() {
				return fmt.Errorf("%s.%s: max belongs to lists, and to all of them", m.Name, f.Name)
			}
			f.Number, f.Max = e.number, e.max
		}
		slices.SortFunc(m.Fields, func(a, b *field) int { return a.Number - b.Number })
	}
	return nil
}

// text writes the table.
func (n *numbers) text() string {
	var b strings.Builder
	b.WriteString(tableHead + "\n")
	names := sortedKeys(n.operations)
	slices.SortFunc(names, func(a, b string) int { return n.operations[a] - n.operations[b] })
	for _, name := range names {
		fmt.Fprintf(&b, "operation %s %d\n", name, n.operations[name])
	}
	for _, m := range sortedKeys(n.messages) {
		fmt.Fprintf(&b, "\nmessage %s\n", m)
		in := n.messages[m]
		fields := sortedKeys(in)
		slices.SortFunc(fields, func(a, b string) int { return in[a].number - in[b].number })
		for _, name := range fields {
			fmt.Fprintf(&b, "  %d %s %s", in[name].number, name, in[name].wire)
			if in[name].max > 0 {
				fmt.Fprintf(&b, " max %d", in[name].max)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// gone are the fields of a message that the contract no longer has.
func (n *numbers) gone(m *message) (names []string, of []int) {
	in := n.messages[m.Name]
	for _, name := range sortedKeys(in) {
		if !slices.ContainsFunc(m.Fields, func(f *field) bool { return f.Name == name }) {
			names, of = append(names, name), append(of, in[name].number)
		}
	}
	slices.Sort(of)
	return names, of
}
