package providerdouble_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	accessKey = "AKIAIOSFODNN7EXAMPLE"
	secretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

func marketplace(t *testing.T) (*rig, *providerdouble.AWSMarketplace) {
	t.Helper()
	double := &providerdouble.AWSMarketplace{
		Keys: map[string]string{accessKey: secretKey}, Product: "prod-1", Dimensions: []string{"calls", "seats"},
		Customers: map[string]bool{"100000000000": false},
	}
	for i := range 200 {
		double.Customers[account(i)] = true
	}
	double.SetNow(func() time.Time { return noon })
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	return newRig(t, lab{
		build: awsmarketplace.New, double: &double.Server, now: noon,
		secrets: map[string]string{awsmarketplace.SecretKey: accessKey + ":" + secretKey},
		config:  exporter.Configuration{Settings: json.RawMessage(`{"product_code":"prod-1","region":"us-east-1"}`)},
	}), double
}

func account(i int) string { return fmt.Sprintf("2%011d", i) }

// window is an item of a customer's counter in the hour.
func window(customer, value string) func(*exporter.Item) {
	return func(i *exporter.Item) {
		i.Kind, i.Customer, i.Value = "usage_window", customer, value
		i.Timestamp = noon.Truncate(time.Hour)
		i.Mapping = map[string]string{"dimension": "calls"}
	}
}

func (r *rig) windows(n int) []string {
	r.t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, r.add(window(account(i), strconv.Itoa(i))))
	}
	return ids
}

// 60 windows are three signed requests of 25 records at most, each taken for its
// quantity.
func TestMarketplaceTakesBatches(t *testing.T) {
	t.Parallel()
	r, double := marketplace(t)
	ids := r.windows(60)[1:]
	if got := r.deliver(ids...); !all(got, storage.Accepted) || double.Requests() != 3 {
		t.Errorf("%v in %d requests", got, double.Requests())
	}
	if sum, n := double.Sum(account(42), "calls"); sum != 42 || n != 1 {
		t.Errorf("%d in %d records", sum, n)
	}
	// The same again is taken once.
	if got := r.deliver(ids...); !all(got, storage.Accepted) {
		t.Errorf("%v", got)
	}
	if sum, n := double.Sum(account(42), "calls"); sum != 42 || n != 1 {
		t.Errorf("%d in %d records", sum, n)
	}
}

// Each record of an answer counts for itself.
func TestMarketplaceStatusOfRecords(t *testing.T) {
	t.Parallel()
	r, double := marketplace(t)
	good := r.add(window(account(1), "7"))
	stranger := r.add(window("100000000000", "7"))
	taken := r.add(window(account(2), "7"))
	double.Put(account(2), "calls", noon.Truncate(time.Hour), 8)
	open := r.add(window(account(3), "7"))
	double.Put(account(3), "calls", noon.Truncate(time.Hour), 8)
	r.items[open].unresolved = true
	got := r.deliver(good, stranger, taken, open)
	want := []storage.ItemState{storage.Accepted, storage.Rejected, storage.Rejected, storage.Uncertain}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if code := r.items[taken].last.Code; code != outbox.CodeConflict {
		t.Errorf("%s, want conflict", code)
	}
}

// UnprocessedRecords are sent again; nothing of them is open.
func TestMarketplaceUnprocessed(t *testing.T) {
	t.Parallel()
	r, double := marketplace(t)
	ids := r.windows(11)[1:]
	double.LeaveNext(4)
	got := r.deliver(ids...)
	for i, id := range ids {
		want := storage.Accepted
		if i < 4 {
			want = storage.Pending
		}
		if got[i] != want || r.items[id].unresolved {
			t.Errorf("item %s: %s, unresolved %v", id, got[i], r.items[id].unresolved)
		}
	}
	if got := r.deliver(ids[:4]...); !all(got, storage.Accepted) {
		t.Errorf("%v", got)
	}
}

// One customer that does not exist aborts the request; the others are sent again
// by themselves, and only that one waits for a person.
func TestMarketplaceSplitsABatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*exporter.Item)
		state  storage.ItemState
		code   string
	}{
		"customer":  {func(i *exporter.Item) { i.Customer = "999999999999" }, storage.Quarantined, "InvalidCustomerIdentifierException"},
		"dimension": {func(i *exporter.Item) { i.Mapping = map[string]string{"dimension": "unknown"} }, storage.Quarantined, "InvalidUsageDimensionException"},
		"too old":   {func(i *exporter.Item) { i.Timestamp = i.Timestamp.Add(-6 * time.Hour) }, storage.Rejected, "TimestampOutOfBoundsException"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, double := marketplace(t)
			ids := r.windows(20)[1:]
			tt.change(&r.items[ids[5]].Item)
			got := r.deliver(ids...)
			for i, id := range ids {
				want := storage.Accepted
				if i == 5 {
					want = tt.state
				}
				if got[i] != want || r.items[id].unresolved {
					t.Errorf("item %s: %s, unresolved %v", id, got[i], r.items[id].unresolved)
				}
			}
			if code := r.items[ids[5]].code; code != tt.code {
				t.Errorf("%s", code)
			}
			if n := double.Requests(); n != 20 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// What leaves a request open, or turns it away, or breaks off the destination.
func TestMarketplaceAnswers(t *testing.T) {
	t.Parallel()
	exception := func(name string) string {
		return `{"__type":"com.amazonaws.marketplacemetering#` + name + `","message":"x"}`
	}
	for name, tt := range map[string]struct {
		fault providerdouble.Fault
		open  bool
		wait  outbox.Wait
	}{
		"throttled":        {providerdouble.Fault{Status: 400, Body: exception("ThrottlingException")}, false, outbox.WaitRateLimit},
		"internal error":   {providerdouble.Fault{After: true, Status: 500, Body: exception("InternalServiceErrorException")}, true, outbox.WaitBackoff},
		"no answer":        {providerdouble.Fault{After: true}, true, outbox.WaitBackoff},
		"a proxy's answer": {providerdouble.Fault{Status: 200, Body: `{}`}, true, outbox.WaitBackoff},
		"unknown refusal":  {providerdouble.Fault{Status: 400, Body: exception("NewException")}, true, outbox.WaitBackoff},
		"denied":           {providerdouble.Fault{Status: 403, Body: exception("AccessDeniedException")}, true, outbox.WaitBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, double := marketplace(t)
			double.Next(tt.fault)
			ids := r.windows(4)[1:]
			if got := r.deliver(ids...); !all(got, storage.Pending) {
				t.Fatalf("%v", got)
			}
			for _, id := range ids {
				if it := r.items[id]; it.unresolved != tt.open || it.last.Wait != tt.wait {
					t.Errorf("unresolved %v, wait %q, want %v %q", it.unresolved, it.last.Wait, tt.open, tt.wait)
				}
			}
			if got := r.deliver(ids...); !all(got, storage.Accepted) {
				t.Errorf("%v", got)
			}
			if sum, n := double.Sum(account(3), "calls"); sum != 3 || n != 1 {
				t.Errorf("%d in %d records", sum, n)
			}
		})
	}
}

// The service denies what another key has signed, and what was signed long ago.
func TestMarketplaceVerifiesSignatures(t *testing.T) {
	t.Parallel()
	r, double := marketplace(t)
	double.SetNow(func() time.Time { return noon.Add(time.Hour) })
	if it := r.one(r.add(window(account(1), "1")), storage.Pending); it.code != "http_403" {
		t.Errorf("an old signature: %s", it.code)
	}
	double.SetNow(func() time.Time { return noon })
	double.Keys[accessKey] = "another"
	if it := r.one(r.add(window(account(2), "1")), storage.Pending); it.code != "http_403" {
		t.Errorf("a wrong key: %s", it.code)
	}
}

// What cannot be a record is not sent, and two items of one record not in one
// request.
func TestMarketplaceSendsOnlyRecords(t *testing.T) {
	t.Parallel()
	r, double := marketplace(t)
	bad := r.add(window(account(1), "1"))
	for name, change := range map[string]func(*exporter.Item){
		"an event":     func(i *exporter.Item) { i.Kind = "event" },
		"a part":       func(i *exporter.Item) { i.Value = "1.5" },
		"less":         func(i *exporter.Item) { i.Value = "-1" },
		"beyond int32": func(i *exporter.Item) { i.Value = "2147483648" },
		"in the hour":  func(i *exporter.Item) { i.Timestamp = i.Timestamp.Add(time.Minute) },
	} {
		kept := r.items[bad].Item
		change(&r.items[bad].Item)
		if it := r.one(bad, storage.Pending); it.code != awsmarketplace.CodeUnsuited || it.unresolved {
			t.Errorf("%s: %s", name, it.code)
		}
		attempt := r.items[bad].Attempt
		r.items[bad].Item = kept
		r.items[bad].Attempt = attempt
	}
	if double.Requests() != 0 {
		t.Errorf("%d requests", double.Requests())
	}
	twice := r.add(window(account(1), "2"))
	got := r.deliver(bad, twice)
	slices.Sort(got) // whichever arrives first
	if got[0] != storage.Accepted || got[1] != storage.Rejected || double.Requests() != 2 {
		t.Errorf("%v in %d requests", got, double.Requests())
	}
}
