// Package storagetest runs the conformance suite of storage adapters as a Go
// test:
//
//	func TestConformance(t *testing.T) {
//		storagetest.Run(t, func(t *testing.T) storage.Adapter {
//			return open(t) // on an empty store, with its schema in place
//		})
//	}
//
// What the cases are, and what they do not prove, is in package conformance.
package storagetest

import (
	"context"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

// Option changes what [Run] does.
type Option func(*conformance.Options)

// Shared says that open leads to a store with other data in it, or one that
// others use: cases with effects beyond their tenants are skipped.
func Shared() Option { return func(o *conformance.Options) { o.Fresh = false } }

// OneStore says that open leads to the same store each time and must not be
// called while an adapter that it returned is open.
func OneStore() Option { return func(o *conformance.Options) { o.OneStore = true } }

// Beside lets cases that race hosts open the store that was opened first once
// more; see conformance.Options.Beside.
func Beside(open func() (storage.Adapter, error)) Option {
	return func(o *conformance.Options) {
		o.Beside = func(context.Context) (storage.Adapter, error) { return open() }
	}
}

// Seed repeats a run of the random cases.
func Seed(seed uint64) Option { return func(o *conformance.Options) { o.Seed = seed } }

// Effort sets the steps of the model test and the rounds of the cases that
// look for races; zero is the default of each.
func Effort(steps, rounds int) Option {
	return func(o *conformance.Options) { o.Steps, o.Rounds = steps, rounds }
}

// Run runs every case as a subtest of t, one after another. open returns an
// adapter on a store that was made for this test and is empty; it is called
// once for most cases together, and once more for each case that needs the
// store to itself. The suite closes what it opened; open may register cleanups
// of its own with t. A case whose capabilities are not declared is skipped.
//
// A subtest that passes is necessary, not sufficient: see package conformance.
func Run(t *testing.T, open func(t *testing.T) storage.Adapter, options ...Option) {
	t.Helper()
	opts := conformance.Options{
		Fresh: true,
		Open:  func(context.Context) (storage.Adapter, error) { return open(t), nil },
	}
	for _, o := range options {
		o(&opts)
	}
	s, err := conformance.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Logf("adapter %s, seed %d", s.Manifest().Name, s.Seed())
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			res := s.Run(t.Context(), c)
			switch res.Status {
			case conformance.Failed:
				t.Errorf("%s", strings.Join(res.Messages, "\n"))
			case conformance.Skipped:
				t.Skip(strings.Join(res.Messages, "\n"))
			case conformance.Passed:
			}
		})
	}
	t.Log(conformance.Note)
}
