package tally_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/examples/storage-go/tally"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
)

// The suite of storage adapters. What is not declared is refused, and skipped.
func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		a, err := tally.Open(filepath.Join(t.TempDir(), "tally"))
		if err != nil {
			t.Fatal(err)
		}
		return a
	})
}

// What was answered is there after the process ended, a line that was not
// finished is not, and the file is one process's.
func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tally")
	a, err := tally.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tally.Open(path); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("opened twice: %v", err)
	}
	c := storage.Counter{CounterKey: storage.CounterKey{Tenant: "t", Feature: "f", PeriodStart: time.Unix(0, 0).UTC()}, Value: decimal.One}
	batch := storage.FlushBatch{ID: "b1", Owner: "h", Counters: []storage.Counter{c}}
	if _, err := a.FlushBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"counters":[{"tenant":"` + strings.Repeat("t", 500)) // longer than what is written over it
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if a, err = tally.Open(path); err != nil {
			t.Fatal(err)
		}
		r, err := a.FlushBatch(t.Context(), batch)
		if want := decimal.FromScaled(int64(i+1), 0); err != nil || r.Applied || !r.Counters[0].Value.Equal(want) {
			t.Errorf("%+v %v", r, err)
		}
		next := batch
		next.ID = "later" + strconv.Itoa(i)
		if _, err := a.FlushBatch(t.Context(), next); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
