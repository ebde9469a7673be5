// Package tally is a sample storage adapter: counters in a file of lines. It has
// the capability counters and nothing else, so a host refuses what needs more,
// by name. A capability is one more interface of package storage.
//
// A write is one line that is on the disk before the call answers; what the lines
// add up to is kept in memory.
package tally

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Adapter keeps counters. It is safe for concurrent use.
type Adapter struct {
	mu       sync.Mutex
	file     *os.File
	counters map[storage.CounterKey]storage.Counter
	history  map[storage.HistoryKey]decimal.Decimal
	batches  map[string]struct{} // that were applied
	// broken is set when a line may be half on the disk: only opening the file
	// again tells.
	broken error
}

var (
	_ storage.CounterStore = (*Adapter)(nil)
	_ storage.HistoryStore = (*Adapter)(nil)
)

// Open opens the file of a path, or creates it. Another process that has it open
// is an error of code store_locked.
func Open(path string) (*Adapter, error) {
	if path == "" {
		return nil, sdk.Invalid("storage.dsn", "the path of a file")
	}
	a := &Adapter{
		counters: map[storage.CounterKey]storage.Counter{}, history: map[storage.HistoryKey]decimal.Decimal{}, batches: map[string]struct{}{},
	}
	var err error
	if a.file, err = openJournal(path, a.apply); err != nil {
		return nil, err
	}
	return a, nil
}

// Describe returns the manifest.
func (*Adapter) Describe() storage.Manifest {
	return storage.Manifest{Name: "tally", Version: "1.0.0", Capabilities: []storage.Capability{storage.Counters}}
}

// Ping reports whether the file can be written.
func (a *Adapter) Ping(ctx context.Context) error {
	if err := a.begin(ctx); err != nil {
		return err
	}
	a.mu.Unlock()
	return nil
}

// Close closes the file.
func (a *Adapter) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file, a.broken = nil, errors.New("the store is closed")
	return err
}

// begin locks the store for one call. Its error is unavailable: nothing was done.
func (a *Adapter) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return sdk.Unavailable("timeout", err)
	}
	a.mu.Lock()
	if a.broken != nil {
		defer a.mu.Unlock()
		return sdk.Unavailable("store_closed", a.broken)
	}
	return nil
}

// write appends a line and then does what it says. After an error the line may be
// there or not: the caller repeats the call with the same id.
func (a *Adapter) write(ctx context.Context, e entry) error {
	if err := a.begin(ctx); err != nil {
		return err
	}
	defer a.mu.Unlock()
	return a.append(e)
}

func (a *Adapter) append(e entry) error {
	line, err := e.encode()
	if err != nil {
		return sdk.Invalid("counters", "values that JSON has")
	}
	if _, err = a.file.Write(line); err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		a.broken = err
		return sdk.Unavailable("write_failed", err)
	}
	return a.apply(e)
}

// apply does what a line says. Adding and setting are the same whenever they are
// read; a batch counts once.
func (a *Adapter) apply(e entry) error {
	counters, history, err := e.values()
	if err != nil {
		return err
	}
	if e.Batch != "" {
		a.batches[e.Batch] = struct{}{}
	}
	for _, c := range counters {
		if !e.Set {
			c.Value = a.counters[c.CounterKey].Value.Add(c.Value)
		}
		a.counters[c.CounterKey] = c
	}
	for _, p := range history {
		if !e.Set {
			p.Value = a.history[p.HistoryKey].Add(p.Value)
		}
		a.history[p.HistoryKey] = p.Value
	}
	return nil
}
