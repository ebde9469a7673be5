package remote

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The functions named check and an operation say what must hold of its answer.
// The generated methods name one for each operation that answers something, so
// a new operation needs one to compile.

var (
	errOrder   = errors.New("results in ascending order, each once")
	errForeign = errors.New("results of what was asked for")
	errCursor  = errors.New("a cursor that is where the page ends")
)

// page is what pages have in common.
type page struct {
	got, limit int
	more       bool
}

func (p page) check() error {
	if p.got > max(p.limit, 0) {
		return fmt.Errorf("at most %d results, not %d", p.limit, p.got)
	}
	if p.more && p.got == 0 {
		return errors.New("a page that moves on, or is the last")
	}
	return nil
}

func atMost(got, limit int) error { return page{got: got, limit: limit}.check() }

// count wants one result for each part of the request.
func count(got, want int) error {
	if got != want {
		return fmt.Errorf("%d results, not %d", want, got)
	}
	return nil
}

// each tests every result.
func each[T any](list []T, test func(i int, v *T) bool, otherwise error) error {
	for i := range list {
		if !test(i, &list[i]) {
			return otherwise
		}
	}
	return nil
}

// ascending wants results in order, the first after a given one.
func ascending[T any](list []T, after *T, compare func(a, b *T) int) error {
	for i := range list {
		if after != nil && compare(after, &list[i]) >= 0 {
			return errOrder
		}
		after = &list[i]
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func holds(ok bool, rule string) error {
	if ok {
		return nil
	}
	return errors.New(rule)
}

func foreign(ok bool) error {
	if ok {
		return nil
	}
	return errForeign
}

// matches reports whether a value passes a filter that may be empty.
func matches(filter, value string) bool { return filter == "" || filter == value }

// inside reports whether t is in [from, to).
func inside(t, from, to time.Time) bool { return !t.Before(from) && t.Before(to) }

func compareCounters(a, b storage.CounterKey) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
}

func sameCounter(a, b storage.CounterKey) bool { return compareCounters(a, b) == 0 }

func compareBounds(a, b storage.BoundKey) int {
	return cmp.Or(
		strings.Compare(a.Exporter, b.Exporter), strings.Compare(a.Account, b.Account), strings.Compare(a.Mode, b.Mode),
		strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart),
	)
}

func compareSums(a, b storage.SumKey) int {
	return cmp.Or(strings.Compare(a.Customer, b.Customer), strings.Compare(a.Feature, b.Feature), strings.Compare(a.MappingVersion, b.MappingVersion))
}

func compareCutovers(a, b storage.Cutover) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Feature, b.Feature))
}
