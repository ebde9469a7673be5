package journal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// Verified is what [Verify] found.
type Verified struct {
	Lines int64
	// Head is the hash of the last line. Somebody who has kept it can tell
	// later that everything up to it is as it was.
	Head string
	// Torn is the length of an unfinished last line, which the next writer
	// takes away.
	Torn int64
}

// Broken is the first line that does not fit.
type Broken struct { //nolint:errname // what it is called

	Line int64 // from 1
	Rule string
	// Whole is how many lines from the first are as they were written: those
	// that a later line which fits has the hash of.
	Whole int64
}

// Error names line and rule, never content.
func (b *Broken) Error() string { return fmt.Sprintf("line %d: %s", b.Line, b.Rule) }

// broken is what is wrong with line n. The line before it is vouched for by
// nothing but line n.
func broken(n int64, rule string) *Broken { return &Broken{Line: n, Rule: rule, Whole: max(0, n-2)} }

// notTheHash is what is wrong if line n has another hash than that of the line
// before. Somebody changed one of the two, mostly the line before, and the file
// does not tell which: so it is named from the earlier one on.
func notTheHash(n int64) *Broken {
	if n == 1 {
		return broken(1, "previous must be 64 zeros")
	}
	b := broken(n, fmt.Sprintf("its hash must be the previous of line %d: it was changed after that line was written, or line %d was changed", n, n))
	b.Line = n - 1
	return b
}

// Verify reads a journal from its first line and checks the chain: the numbers
// follow each other, and each line has the hash of the one before. With unique
// set no identifier may occur twice; that takes some 50 bytes of memory a line.
// It returns a *[Broken] at the first line that does not fit.
func Verify(r io.Reader, unique bool) (Verified, error) {
	v := Verified{Head: first}
	seen := map[[16]byte]int64{}
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			v.Torn = int64(len(text))
			return v, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return v, broken(v.Lines+1, "must be no longer than a line may be")
		case err != nil:
			return v, err
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		l, err := parse(text)
		rule := ""
		switch {
		case err != nil:
			rule = "must have a sequence, a previous and a record, and nothing else"
		case l.Sequence != v.Lines+1:
			rule = fmt.Sprintf("must have sequence %d: a line was removed, put in between or changed", v.Lines+1)
		case l.Previous != v.Head:
			return v, notTheHash(l.Sequence)
		}
		if rule == "" && unique {
			id, ok := identifierOf(l.Record)
			sum := sha256.Sum256([]byte(id))
			key := [16]byte(sum[:16])
			if earlier, twice := seen[key]; twice {
				rule = fmt.Sprintf("must not have the identifier that line %d has", earlier)
			} else if !ok {
				rule = "must have one identifier in its record"
			}
			seen[key] = l.Sequence
		}
		if rule != "" {
			return v, broken(v.Lines+1, rule)
		}
		v.Lines, v.Head = l.Sequence, hashOf(text)
	}
}
