package stripedouble

import (
	"encoding/json"
	"testing"
	"time"
)

var testNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func encode(t *testing.T, r record) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// BreakLedger makes every further write of the ledger fail.
func (s *Server) BreakLedger() error { return s.book.j.f.Close() }
