package stripedouble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that is no ledger ends the start, it does not fill the memory.
func TestJournalBoundsALine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, ledgerFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil { // sparse
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = openJournal(dir, false, func(record) {})
	if err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("open: %v", err)
	}
}

// A write that failed is an error for everybody who waits from then on: nobody
// knows what is in the file.
func TestJournalErrorIsSticky(t *testing.T) {
	t.Parallel()
	j, err := openJournal(t.TempDir(), true, func(record) {})
	if err != nil {
		t.Fatal(err)
	}
	good := j.append(record{Op: opClock})
	if err := j.wait(good); err != nil {
		t.Fatal(err)
	}
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.wait(j.append(record{Op: opClock})); err == nil {
			t.Error("a record that was not written was reported as written")
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range []string{
		`{"op":"clock","at":1,"advance":3600000000000}`,
		`{"op":"repeat","at":1,"account":"acct_1","identifier":"a"}`,
		`{"op":"charge","at":1,"identifier":"a","event_name":"b","customer":"cus_1","value":"0.1","timestamp":1}`,
		`{"op":"answer","at":1,"key":"k","fingerprint":"00","status":500,"body":"{}"}`,
		`{"op":"answer","at":1,"key":"k","status":1e9}`, `{"op":"charge","value":"1e400"}`, `null`, `{`, "", "\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeRecord(line)
		if err != nil {
			return
		}
		// Whatever is accepted can be applied and answers a request.
		b := &book{clock: &clock{}}
		b.clear()
		b.apply(r)
		if r.Key != "" && len(b.keys) != 1 {
			t.Error("a stored answer was lost")
		}
	})
}

func FuzzParseForm(f *testing.F) {
	for _, s := range []string{
		"event_name=a&payload[value]=1&payload[stripe_customer_id]=cus_1&identifier=i&timestamp=1",
		"event_name=%zz", "=&&=&", "payload[]=1", "payload[a][b]=1", "payload[=1", "expand[]=x", "event_name=%00", "a=%ff",
		"payload[value]=1e400&event_name=a&payload[stripe_customer_id]=c", "timestamp=99999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		params, err := parseForm("", body)
		if err != nil {
			return
		}
		ev, refused := parseEvent(params, testNow)
		if refused != nil {
			if refused.status != 400 || refused.message == "" {
				t.Errorf("refusal %+v", refused)
			}
			return
		}
		if _, err := parseValue(ev.value); err != nil || ev.eventName == "" || ev.customer == "" {
			t.Errorf("accepted %+v", ev)
		}
		// What is charged can be written and read again.
		line := record{Op: opCharge, Identifier: "i", EventName: ev.eventName, Customer: ev.customer, Value: ev.value, Timestamp: ev.timestamp}
		if got, err := decodeRecord(encode(t, line)); err != nil || got != line {
			t.Errorf("journal changes %+v to %+v: %v", line, got, err)
		}
	})
}

func FuzzParseFaults(f *testing.F) {
	for _, s := range []string{
		"after:500@p0.1; before:429(retry_after=2)@p0.05; after:reset@n7; after:truncate@every13",
		"before:redirect(to=https://x.example/a@b,status=308)@first3", "after:slow(delay=250ms,times=2)@id=a@b", "before:html(status=504)",
		"after:huge(bytes=1)", "before:500(retry_after=day)", ";", "before:", "before:600", "after:reset@p0", "after:reset@pNaN", "after:reset@p1e-400",
		"before:429(retry_after=1,retry_after=garbage)@n4294967296", "before:4ab",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseFaults(s)
		if err != nil {
			return
		}
		b, err := ParseFaults(a.String())
		if err != nil || b.String() != a.String() || len(b.rules) != len(a.rules) {
			t.Fatalf("%q reads as %q, which reads as %q: %v", s, a, b, err)
		}
		for i := range a.rules {
			if a.rules[i] != b.rules[i] {
				t.Errorf("%+v became %+v", a.rules[i], b.rules[i])
			}
		}
	})
}
