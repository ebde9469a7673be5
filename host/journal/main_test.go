package journal

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("FENCEPOST_TEST_JOURNAL"); path != "" {
		appendUntilKilled(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// appendUntilKilled is a process that appends the items named on its input, one
// batch a line, and says what was acknowledged.
func appendUntilKilled(path string) {
	f, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		out, _ := appendItems(context.Background(), f, words[0] == "again", words[1:]...)
		for i, a := range out {
			if a.Failure == "" {
				fmt.Println(words[i+1], a.Sequence)
			}
		}
		fmt.Println("-")
	}
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func journalAt(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "usage.ndjson")
}

// record is what a plugin would append of an item.
func record(id string, again bool) capability.Record {
	return capability.Record{
		Item: "item-" + id, Identifier: "fencepost_" + id, Again: again,
		JSON: []byte(`{ "identifier": "fencepost_` + id + `", "value": "1" }`),
	}
}

// appendItems appends items in a call of their own, and returns answers and
// evidence.
func appendItems(ctx context.Context, f *File, again bool, ids ...string) ([]capability.Appended, map[string][]exporter.Exchange) {
	var items []Item
	var records []capability.Record
	for _, id := range ids {
		items = append(items, Item{ID: "item-" + id, Identifier: "fencepost_" + id, Again: again})
		records = append(records, record(id, again))
	}
	ctx, call := f.Begin(ctx, items)
	out, err := f.Append(ctx, records)
	if err != nil {
		panic(err)
	}
	return out, call.Exchanges()
}

// appended appends and wants every item to be in the file.
func appended(t *testing.T, f *File, again bool, ids ...string) []capability.Appended {
	t.Helper()
	out, _ := appendItems(t.Context(), f, again, ids...)
	for i, a := range out {
		if a.Failure != "" {
			t.Fatalf("item %s: %+v", ids[i], a)
		}
	}
	return out
}

// verify checks the chain, and that no identifier occurs twice.
func verify(t *testing.T, path string, lines int64) Verified {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	v, err := Verify(f, true)
	if err != nil || lines >= 0 && v.Lines != lines {
		t.Fatalf("%+v %v, want %d lines", v, err, lines)
	}
	return v
}

func numbers(from, n int) []string {
	var out []string
	for i := range n {
		out = append(out, strconv.Itoa(from+i))
	}
	return out
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
