package storagetest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

// listing: from here to the next such line, docs/write-a-storage-adapter.md has the same text.

type Adapter struct{ closed atomic.Bool }

func (a *Adapter) Describe() storage.Manifest { return storage.Manifest{Name: "mine"} }

func (a *Adapter) Ping(ctx context.Context) error {
	if a.closed.Load() {
		return sdk.Unavailable("closed", errors.New("the adapter is closed"))
	}
	if err := ctx.Err(); err != nil {
		return sdk.Unavailable("timeout", err)
	}
	return nil
}

func (a *Adapter) Close() error {
	a.closed.Store(true)
	return nil
}

// listing: to here.

// S16, B-T13: the adapter that the documentation begins with passes the suite,
// and the documentation has it as it is here.
func TestMinimalAdapter(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Adapter {
		t.Helper()
		return &Adapter{}
	})
	source, err := os.ReadFile("minimal_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/write-a-storage-adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "// listing: from")
	_, rest, _ = strings.Cut(rest, "\n")
	code, _, ok := strings.Cut(rest, "// listing: to")
	if code = strings.TrimSpace(code); !ok || code == "" || !strings.Contains(string(page), "```go\n"+code+"\n```") {
		t.Errorf("the page does not have this listing:\n%s", code)
	}
}

// nameless, untagged and undying are the three mistakes of a first adapter.
type (
	nameless struct{ Adapter }
	untagged struct{ Adapter }
	undying  struct{ Adapter }
)

func (*nameless) Describe() storage.Manifest { return storage.Manifest{} }

func (*untagged) Ping(ctx context.Context) error { return ctx.Err() }

func (*undying) Close() error { return nil }

// B7, B10, B48: what the page says of the three is so: each fails its case.
func TestMinimalAdapterNeedsAllOfIt(t *testing.T) {
	t.Parallel()
	for finds, a := range map[string]storage.Adapter{
		"manifest/vocabulary": &nameless{}, "deadline/canceled-calls-are-unavailable": &untagged{}, "adapter/close": &undying{},
	} {
		report, err := conformance.Run(t.Context(), conformance.Options{
			Open: func(context.Context) (storage.Adapter, error) { return a, nil },
		}, func(c conformance.Case) bool { return c.Name == finds }, nil)
		if err != nil || report.Failed != 1 {
			t.Errorf("%s: %+v, %v; want it failed", finds, report, err)
		}
	}
}
