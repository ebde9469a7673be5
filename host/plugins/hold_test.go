package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/host/grant"
)

// Point 3: a version is of one content on every machine, also where its file is
// not, and also a version before the last.
func TestVersionIsOfOneContent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := func(version, content string) *Candidate {
		path := filepath.Join(b.from, "meterline")
		text := `{"name":"meterline","version":"` + version + `","kind":"storage","network":true}`
		for name, text := range map[string]string{path: content, path + grant.ManifestSuffix: text} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := b.Examine(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := b.Install(program("1", "#!/bin/one"), Terms{Accept: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Install(program("1", "#!/bin/evil"), Terms{Accept: true}); code(err) != "version_reused" {
		t.Errorf("on a new machine: %v", err)
	}
	if _, err := b.Install(program("2", "#!/bin/two"), Terms{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Install(program("1", "#!/bin/evil"), Terms{Accept: true}); code(err) != "version_reused" {
		t.Errorf("under the version before: %v", err)
	}
	if _, err := b.LockFile(program("1", "#!/bin/evil"), filepath.Join(b.from, "meterline"), Terms{Accept: true}, false); code(err) != "version_reused" {
		t.Errorf("locked under the version before: %v", err)
	}
	if _, err := b.Install(program("1", "#!/bin/one"), Terms{}); err != nil {
		t.Errorf("the version before as it was: %v", err)
	}
}

// Point 3: installations at once all come into the lock; what a killed one left
// behind goes, and nothing else.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := filepath.Dir(b.Lock)
	left, mine := filepath.Join(dir, ".plugins.lock.1234567"), filepath.Join(dir, ".plugins.lock.mine")
	for _, path := range []string{left, mine} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		path := filepath.Join(b.from, "p"+strconv.Itoa(i))
		text := fmt.Sprintf(`{"name":"p%d","version":"1","kind":"storage"}`, i)
		for name, text := range map[string]string{path: "#!/bin/true", path + grant.ManifestSuffix: text} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := b.Examine(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := b.Install(c, Terms{Accept: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lock, err := grant.LoadLock(b.Lock)
	if err != nil || len(lock.Plugins) != n {
		t.Errorf("%d of %d are locked, %v", len(lock.Plugins), n, err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed installation left is there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
