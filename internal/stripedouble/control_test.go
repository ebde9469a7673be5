package stripedouble_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// Point 1: the ledger over HTTP is the ledger in Go, totals are exact sums.
func TestLedgerOverHTTP(t *testing.T) {
	t.Parallel()
	r := start(t)
	// 0.1 + 0.2 is where binary floats would show.
	r.mustPost(200, event("id_1", "payload[value]", "0.1"))
	r.mustPost(200, event("id_2", "payload[value]", "0.2"))
	r.mustPost(200, event("id_3", "payload[value]", "7", "event_name", "other"))
	r.mustPost(400, event("id_3", "payload[value]", "7", "event_name", "other"))
	got := r.control("/__ledger", "")
	var l stripedouble.Ledger
	if err := json.Unmarshal(got.body, &l); err != nil {
		t.Fatal(err)
	}
	want := stripedouble.Ledger{
		ChargesTotal: map[string]string{"llm_tokens": "0.3", "other": "7"},
		NetTotal:     map[string]string{"llm_tokens": "0.3", "other": "7"},
		Events:       3, Charges: 3, DoubleCharged: []string{}, DuplicatesRefused: 1,
		ByEventName: map[string]stripedouble.EventTotal{
			"llm_tokens": {Events: 2, Charges: 2, Total: "0.3", Net: "0.3"}, "other": {Events: 1, Charges: 1, Total: "7", Net: "7"},
		},
		Requests: 4, Answers: map[string]int64{"200": 3, "400": 1}, FaultsFired: map[string]int64{}, Clock: epoch,
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, r.Ledger()); diff != "" {
		t.Error(diff)
	}
	if !bytes.Contains(got.body, []byte(`"charges_total":{"llm_tokens":"0.3","other":"7"}`)) {
		t.Errorf("totals are not decimal strings: %s", got.body)
	}
	var streamed []stripedouble.Entry
	lines := bufio.NewScanner(bytes.NewReader(r.control("/__ledger/events", "").body))
	for lines.Scan() {
		var e stripedouble.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		streamed = append(streamed, e)
	}
	if diff := cmp.Diff(r.Entries(), streamed); diff != "" || len(streamed) != 3 || streamed[2].TimesSeen != 2 {
		t.Errorf("stream: %s", diff)
	}
}

// The clock and the schedule change at run time; nonsense changes nothing.
func TestControl(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, c := range []struct {
		path, body string
		status     int
		part       string
	}{
		{"/__clock", `{"advance":"25h"}`, 200, `"now":"2026-12-01T13:00:00Z"`},
		{"/__clock", `{"advance":"soon"}`, 400, "duration"},
		{"/__clock", `{"forward":"1h"}`, 400, "JSON object"},
		{"/__faults", `{"faults":"after:500@n1"}`, 200, `"faults":"after:500@n1"`},
		{"/__faults", `{"faults":"after:implode"}`, 400, "rule 1"},
		{"/__faults", `[]`, 400, "JSON object"},
		{"/__preload", `{"identifier":"a"}`, 400, "value"},
		{"/__preload", `{"identifier":"a","value":"1"}`, 400, "1 to 100"},
		{"/__preload", `{} {}`, 400, "more than one"},
	} {
		got := r.control(c.path, c.body)
		if got.status != c.status || !strings.Contains(string(got.body), c.part) {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.status, got.body)
		}
	}
	if now := r.Now(); !now.Equal(epoch.Add(25 * time.Hour)) {
		t.Errorf("clock %v", now)
	}
	r.mustPost(500, event("id_1"))
	r.mustPost(400, event("id_1"))
	if diff := cmp.Diff(map[string]int64{"after:500@n1": 1}, r.FaultsFired()); diff != "" {
		t.Error(diff)
	}
	// What an earlier schedule fired is remembered.
	r.SetFaults(faults(t, "before:404"))
	r.mustPost(404, event("id_1"))
	if diff := cmp.Diff(map[string]int64{"after:500@n1": 1, "before:404": 1}, r.FaultsFired()); diff != "" {
		t.Error(diff)
	}
}

// F32: an identifier that somebody else reported is refused to us.
func TestPreload(t *testing.T) {
	t.Parallel()
	r := start(t)
	got := r.control("/__preload", `{"identifier":"id_1","event_name":"llm_tokens","customer":"cus_9","value":"3.50","first_seen":"2026-11-30T11:00:00Z"}`)
	if got.status != 200 {
		t.Fatalf("preload: %d %s", got.status, got.body)
	}
	r.mustPost(400, event("id_1"))
	e, _ := r.Entry("", false, "id_1")
	want := stripedouble.Entry{
		Identifier: "id_1", Account: stripedouble.DefaultAccount, EventName: "llm_tokens", Customer: "cus_9", Value: "3.5", Timestamp: epoch.Unix(),
		FirstSeen: epoch.Add(-time.Hour), LastCharged: epoch.Add(-time.Hour), TimesSeen: 2, Charges: 1,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]stripedouble.Config{
		"dir":               {},
		"listen":            {Dir: "x", Listen: "nowhere"},
		"negative":          {Dir: "x", Latency: -1},
		"codes":             {Dir: "x", Codes: "some"},
		"meters: an event":  {Dir: "x", Meters: map[string]stripedouble.MeterStatus{"": stripedouble.MeterActive}},
		"meters: a meter":   {Dir: "x", Meters: map[string]stripedouble.MeterStatus{"a": "gone"}},
		"keys: must start":  {Dir: "x", Keys: []string{"sk_prod_1"}},
		"keys: must start ": {Dir: "x", Keys: []string{"sk_test_"}},
	} {
		_, err := stripedouble.New(c)
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "prod") {
			t.Error("the error shows a key")
		}
	}
}

// Close works before Start, twice, and when the context ends.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	idle, err := stripedouble.New(stripedouble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Close(); err != nil {
		t.Error(err)
	}
	if err := idle.Start(t.Context()); err == nil {
		t.Error("a closed server started")
	}
	if idle.URL() != "" || idle.Addr() != nil || idle.Advance(1) == nil || idle.Entries() != nil {
		t.Error("a server that never ran has state")
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	s, err := stripedouble.New(stripedouble.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-s.Done()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	// The ledger is free again and can still be read after Close.
	if l := s.Ledger(); l.Events != 0 {
		t.Errorf("ledger %+v", l)
	}
	start(t, in(dir))
}

// No double charge, no lost count, whatever comes at once (run with -race).
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.SerialLimit, c.Sync = -1, true })
	done := make(chan int)
	const workers, ids = 8, 25
	for range workers {
		go func() {
			charged := 0
			for i := range ids {
				if r.post(event("id_"+string(rune('a'+i)))).status == 200 {
					charged++
				}
			}
			done <- charged
		}()
	}
	total := 0
	for range workers {
		total += <-done
	}
	l := r.Ledger()
	if total != ids || l.Charges != ids || l.DoubleCharges != 0 || l.DuplicatesRefused != (workers-1)*ids || l.ChargesTotal["llm_tokens"] != "625" {
		t.Errorf("%d charged of %d, ledger %+v", total, ids, l)
	}
}

// A ledger that can no longer be written answers 500, never a success, and the
// answer is stored under no key.
func TestLedgerFailureAnswers500(t *testing.T) {
	t.Parallel()
	s, err := stripedouble.New(stripedouble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.BreakLedger(); err != nil {
		t.Fatal(err)
	}
	c := clientFor(t, s.CAFile())
	defer c.CloseIdleConnections()
	if postTo(t, c, s.URL(), "id_1", 1) {
		t.Error("a charge that is not on disk was answered 200")
	}
	if err := s.Close(); err == nil {
		t.Error("Close hides that the ledger failed")
	}
}
