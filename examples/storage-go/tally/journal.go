package tally

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// entry is one line of the file. Times are microseconds since 1970, values exact
// decimals.
type entry struct {
	Batch    string  `json:"batch,omitempty"`
	Set      bool    `json:"set,omitempty"` // else add
	Counters []count `json:"counters,omitempty"`
	History  []count `json:"history,omitempty"`
}

type count struct {
	Tenant  string `json:"tenant"`
	Feature string `json:"feature"`
	Start   int64  `json:"start"`
	End     int64  `json:"end,omitempty"` // of a counter's period
	Value   string `json:"value"`
}

func entryOf(set bool, counters []storage.Counter, history []storage.HistoryPoint) entry {
	e := entry{Set: set}
	for _, c := range counters {
		e.Counters = append(e.Counters, count{c.Tenant, c.Feature, c.PeriodStart.UnixMicro(), micros(c.PeriodEnd), c.Value.String()})
	}
	for _, p := range history {
		e.History = append(e.History, count{Tenant: p.Tenant, Feature: p.Feature, Start: p.Start.UnixMicro(), Value: p.Value.String()})
	}
	return e
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func (e entry) encode() ([]byte, error) {
	line, err := json.Marshal(e)
	return append(line, '\n'), err
}

// values are what the line is about.
func (e entry) values() ([]storage.Counter, []storage.HistoryPoint, error) {
	var counters []storage.Counter
	var history []storage.HistoryPoint
	for _, c := range e.Counters {
		v, err := decimal.ParseTotal(c.Value)
		if err != nil {
			return nil, nil, err
		}
		out := storage.Counter{CounterKey: storage.CounterKey{Tenant: c.Tenant, Feature: c.Feature, PeriodStart: time.UnixMicro(c.Start).UTC()}, Value: v}
		if c.End != 0 {
			out.PeriodEnd = time.UnixMicro(c.End).UTC()
		}
		counters = append(counters, out)
	}
	for _, p := range e.History {
		v, err := decimal.ParseTotal(p.Value)
		if err != nil {
			return nil, nil, err
		}
		history = append(history, storage.HistoryPoint{HistoryKey: storage.HistoryKey{Tenant: p.Tenant, Feature: p.Feature, Start: time.UnixMicro(p.Start).UTC()}, Value: v})
	}
	return counters, history, nil
}

// openJournal opens a file, locks it and applies its lines. A last line without
// an end was not answered for: it is cut off.
func openJournal(path string, apply func(entry) error) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.dsn", Rule: "the path of a file that can be written", Err: err}
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, &sdk.Error{
			Tag: sdk.TagUnavailable, Code: "store_locked", Field: "storage.dsn", Rule: "a file that no other process has open", Err: err,
		}
	}
	end, err := replay(f, apply)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "store_damaged", Field: "storage.dsn", Rule: "a file of this adapter", Err: err}
	}
	return f, nil
}

func replay(f *os.File, apply func(entry) error) (end int64, err error) {
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return end, fmt.Errorf("line %d: %w", n, err)
		}
		if err := apply(e); err != nil {
			return end, fmt.Errorf("line %d: %w", n, err)
		}
		end += int64(len(line))
	}
}
