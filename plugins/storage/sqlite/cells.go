package sqlite

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	// maxDistinct bounds the values that one query may hold to count them.
	maxDistinct = 2_000_000
	// maxRemembered bounds the dimension sets whose decoding is remembered.
	maxRemembered = 10_000
)

// cells are the windows and groups of an aggregation. No more than twice the
// limit are held: whatever comes after the last row of the answer is dropped.
type cells struct {
	q     *storage.AggregateQuery
	edges []int64 // µs
	all   map[string]*cell
	// last is the greatest key that can still be in the answer, if cut is set.
	last string
	cut  bool

	dimensions map[string]*selection // by their JSON
	distinct   int
}

// cell is one row in the making.
type cell struct {
	storage.AggregateRow
	latestAt, latestSeq int64
	values              map[[16]byte]struct{}
}

// selection is what a query sees in a set of dimensions.
type selection struct {
	out   bool // the filter keeps it out
	group []*string
	key   string
	value *string // of the dimension whose values are counted
}

func newCells(q *storage.AggregateQuery) (*cells, error) {
	g := &cells{q: q, all: map[string]*cell{}, dimensions: map[string]*selection{}}
	switch {
	case q.Tenant == "":
		return nil, sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return nil, sdk.Invalid("feature", "required")
	case len(q.Edges) < 2 || len(q.Edges) > 100_001:
		return nil, sdk.Invalid("edges", "2 to 100,001")
	case len(q.GroupBy) > 8:
		return nil, sdk.Invalid("group_by", "at most 8 dimensions")
	case q.Limit < 1 || q.Limit > maxRows:
		return nil, sdk.Invalid("limit", "1 to 100,000")
	}
	for i, e := range q.Edges {
		if g.edges = append(g.edges, e.UnixMicro()); i > 0 && g.edges[i-1] >= g.edges[i] {
			return nil, sdk.Invalid("edges", "ascending")
		}
	}
	return g, nil
}

func (g *cells) from() int64 { return g.edges[0] }
func (g *cells) to() int64   { return g.edges[len(g.edges)-1] }

// selectDimensions decodes a set of dimensions, once for equal ones.
func (g *cells) selectDimensions(doc string) (*selection, error) {
	if s := g.dimensions[doc]; s != nil {
		return s, nil
	}
	var dimensions map[string]string
	if doc != "" {
		if err := json.Unmarshal([]byte(doc), &dimensions); err != nil {
			return nil, err
		}
	}
	s := &selection{group: make([]*string, len(g.q.GroupBy))}
	for k, v := range g.q.Filter {
		if got, ok := dimensions[k]; !ok || got != v {
			s.out = true
		}
	}
	var key strings.Builder
	for i, name := range g.q.GroupBy {
		v, ok := dimensions[name]
		if !ok {
			key.WriteByte(0)
			continue
		}
		s.group[i] = &v
		// A text ends with 0, and a 0 in it is followed by 255: keys are in
		// the order of the values.
		key.WriteByte(1)
		key.WriteString(strings.ReplaceAll(v, "\x00", "\x00\xff"))
		key.WriteByte(0)
	}
	s.key = key.String()
	if v, ok := dimensions[g.q.Unique]; ok && g.q.Unique != "" {
		s.value = &v
	}
	if len(g.dimensions) == maxRemembered {
		clear(g.dimensions)
	}
	g.dimensions[doc] = s
	return s, nil
}

// cell finds or makes the cell of a time and a group; nil when it cannot be in
// the answer.
func (g *cells) cell(at int64, s *selection) *cell {
	window, exact := slices.BinarySearch(g.edges, at)
	if !exact {
		window--
	}
	key := string(binary.BigEndian.AppendUint32(nil, uint32(window))) + s.key
	if c := g.all[key]; c != nil {
		return c
	}
	if g.cut && key > g.last {
		return nil
	}
	c := &cell{AggregateRow: storage.AggregateRow{Window: window, Group: s.group}}
	g.all[key] = c
	if len(g.all) > 2*(g.q.Limit+1) {
		g.shrink()
	}
	return c
}

// shrink leaves one cell more than the limit, which says that there are more.
func (g *cells) shrink() {
	keys := slices.Sorted(maps.Keys(g.all))
	for _, k := range keys[g.q.Limit+1:] {
		g.distinct -= len(g.all[k].values)
		delete(g.all, k)
	}
	g.last, g.cut = keys[g.q.Limit], true
}

// usage takes note of a usage event that is not fully reversed, with its
// quantity as corrected.
func (g *cells) usage(c *cell, q decimal.Decimal, at, seq int64) {
	c.Min, c.Max = least(c.Min, &q), most(c.Max, &q)
	if c.Latest == nil || cmp.Or(cmp.Compare(at, c.latestAt), cmp.Compare(seq, c.latestSeq)) > 0 {
		c.Latest, c.latestAt, c.latestSeq = &q, at, seq
	}
}

// value counts a distinct value. What is kept of it is half its SHA-256.
func (g *cells) value(c *cell, v string) error {
	sum := sha256.Sum256([]byte(v))
	k := [16]byte(sum[:16])
	if _, known := c.values[k]; known {
		return nil
	}
	if g.distinct == maxDistinct {
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "too_many_values", Field: "unique",
			Rule: "at most 2,000,000 distinct values in one query", Hint: "ask for a shorter time",
		}
	}
	if c.values == nil {
		c.values = map[[16]byte]struct{}{}
	}
	c.values[k] = struct{}{}
	g.distinct++
	return nil
}

// answer is the rows in order, cut at the limit.
func (g *cells) answer() storage.Aggregates {
	keys := slices.Sorted(maps.Keys(g.all))
	res := storage.Aggregates{Rows: make([]storage.AggregateRow, 0, min(len(keys), g.q.Limit))}
	if res.More = len(keys) > g.q.Limit; res.More {
		keys = keys[:g.q.Limit]
	}
	for _, k := range keys {
		c := g.all[k]
		c.Unique = int64(len(c.values))
		res.Rows = append(res.Rows, c.AggregateRow)
	}
	return res
}
