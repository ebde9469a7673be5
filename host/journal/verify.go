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
}

// Error names line and rule, never content.
func (b *Broken) Error() string { return fmt.Sprintf("line %d: %s", b.Line, b.Rule) }

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
			return v, &Broken{v.Lines + 1, "longer than a line may be"}
		case err != nil:
			return v, err
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		l, err := parse(text)
		rule := ""
		switch {
		case err != nil:
			rule = "has a sequence, a previous and a record"
		case l.Sequence != v.Lines+1:
			rule = fmt.Sprintf("has sequence %d", v.Lines+1)
		case l.Previous != v.Head:
			rule = "has the hash of the line before"
		}
		if rule == "" && unique {
			id, ok := identifierOf(l.Record)
			sum := sha256.Sum256([]byte(id))
			key := [16]byte(sum[:16])
			if earlier, twice := seen[key]; twice {
				rule = fmt.Sprintf("has an identifier that line %d has not", earlier)
			} else if !ok {
				rule = "has one identifier in its record"
			}
			seen[key] = l.Sequence
		}
		if rule != "" {
			return v, &Broken{v.Lines + 1, rule}
		}
		v.Lines, v.Head = l.Sequence, hashOf(text)
	}
}
