package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The committed files are what the contract makes today: a field that was added
// to it without its place on the wire fails here, and not at somebody's store.
func TestCommittedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the contract makes: run make generate (%v)", name, err)
		}
	}
}

// contractOf reads a contract of one file.
func contractOf(t *testing.T, body string) *contract {
	t.Helper()
	dir := t.TempDir()
	text := "package storage\n\nimport (\n\"context\"\n\"time\"\n)\n\n" + body + `
type Manifest struct{ Name string; Until time.Time }
type Opening struct{ DSN string }
`
	if err := os.WriteFile(filepath.Join(dir, "storage.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readContract(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const before = `
type Store interface{ Load(ctx context.Context, k Key) (Row, error) }
type Key struct{ Tenant string; Feature string }
type Row struct{ Tenant string; Sum int64; Names []string }
`

// assigned is the table after a contract was given its numbers.
func assigned(t *testing.T, table, body string) (string, *contract, error) {
	t.Helper()
	n, err := readNumbers(table)
	if err != nil {
		t.Fatal(err)
	}
	c := contractOf(t, body)
	if err := n.assign(c); err != nil {
		return "", c, err
	}
	return n.text(), c, nil
}

// Numbers stay with their names whatever the order of the fields; what is new
// gets the next one; what is gone keeps its own and is reserved (Q29).
func TestNumbersOnlyGrow(t *testing.T) {
	t.Parallel()
	table, _, err := assigned(t, "", before)
	if err != nil {
		t.Fatal(err)
	}
	after, c, err := assigned(t, table, `
type Other interface{ Look(ctx context.Context, k Key) (Row, error) }
type Store interface{ Load(ctx context.Context, k Key) (Row, error) }
type Key struct{ Newest string; Feature string }
type Row struct{ Names []string; Count int64; Tenant string; Sum int64 }
`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(table, "\n") {
		if line != "" && !strings.Contains(after, line+"\n") {
			t.Errorf("the line %q is gone", line)
		}
	}
	for _, line := range []string{"operation Load 110", "operation Look 111", "  1 tenant string", "  2 feature string", "  3 newest string", "  4 count int64"} {
		if !strings.Contains(after, line+"\n") {
			t.Errorf("no line %q in\n%s", line, after)
		}
	}
	n, _ := readNumbers(after)
	if schema := c.proto(n); !strings.Contains(schema, "reserved 1;\n  reserved \"tenant\";") {
		t.Errorf("the number that is gone is not reserved:\n%s", schema)
	}
}

// A field never becomes something else under its number.
func TestTypesNeverChange(t *testing.T) {
	t.Parallel()
	table, _, err := assigned(t, "", before)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"Sum int64", "Sum string"}, {"Sum int64", "Sum *int64"}, {"Names []string", "Names string"}} {
		if _, _, err := assigned(t, table, strings.Replace(before, change[0], change[1], 1)); err == nil {
			t.Errorf("%s became %s", change[0], change[1])
		}
	}
}

// A table that a hand has spoilt is refused.
func TestTableIsChecked(t *testing.T) {
	t.Parallel()
	for _, table := range []string{
		"operation Load 99", "operation Load 110\noperation Look 110", "operation Load 110\noperation Load 111",
		"message A\n  1 a string\n  1 b string", "message A\n  1 a string\n  2 a string", "message A\nmessage A",
		"message A\n  0 a string", "message A\n  1 a repeated string max 0", "message A\n  1 a repeated string max", "  1 a string", "fields",
	} {
		if _, err := readNumbers(table); err == nil {
			t.Errorf("taken: %q", table)
		}
	}
}

// What has no way onto the wire does not generate.
func TestUnknownTypesAreRefused(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"float64", "map[int]string", "[]byte", "chan int", "func()", "map[string]int64", "[]*int64"} {
		dir := t.TempDir()
		body := "package storage\n\nimport \"context\"\n\ntype Opening struct{}\ntype Manifest struct{}\n" +
			"type Store interface{ Load(ctx context.Context, k Key) error }\ntype Key struct{ A " + typ + " }\n"
		if err := os.WriteFile(filepath.Join(dir, "storage.go"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readContract(dir); err == nil {
			t.Errorf("%s has no way onto the wire and was taken", typ)
		}
	}
}
