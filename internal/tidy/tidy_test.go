package tidy

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blobMax bounds a committed file: history keeps every version of it. The
// embedded module is the exception, and the traces that tests replay are small.
const blobMax = 512 << 10

// tree returns the text of every file below the root that the checks look at.
func tree(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(p, root+string(filepath.Separator)))
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && d.Name() != ".ci"
			if hidden || slices.Contains([]string{"bin", "state", "node_modules", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if ignored(name) {
			return nil
		}
		if len(b) > blobMax && !strings.Contains(name, ".wasm") {
			t.Errorf("%s has %d bytes, at most %d are allowed", name, len(b), blobMax)
		}
		if !bytes.ContainsRune(b, 0) {
			files[name] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ignored reports whether .gitignore keeps the file out; its patterns that
// matter here are few.
func ignored(name string) bool {
	for _, suffix := range []string{".db", ".db-wal", ".db-shm", "coverage.out", ".test"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func TestGoSource(t *testing.T) {
	t.Parallel()
	var parsed []*GoFile
	names := map[string]string{}
	documented := map[string]bool{}
	for name, text := range tree(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		f, err := ParseGo(name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		parsed = append(parsed, f)
		if !f.IsTest() {
			dir := path.Dir(name)
			names[Module+"/"+dir] = f.Package
			documented[dir] = documented[dir] || f.HasPackageComment()
		}
	}
	for _, f := range parsed {
		for _, violation := range f.Check(names) {
			t.Error(violation)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file documents the package", dir)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for name, text := range tree(t) {
		if name == "LICENSE" || strings.HasSuffix(name, "go.sum") {
			continue
		}
		for _, violation := range CheckText(name, text) {
			t.Error(violation)
		}
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	files := tree(t)
	if n := strings.Count(files["Makefile"], "\n"); n > LinesOfMakefile {
		t.Errorf("Makefile has %d lines, at most %d are allowed", n, LinesOfMakefile)
	}
	for _, violation := range CheckChangelog(files["CHANGELOG.md"]) {
		t.Error(violation)
	}
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, target := range MakeTargets(text) {
			if !strings.Contains(files["Makefile"], "\n"+target+":") {
				t.Errorf("%s: make %s: there is no such target", name, target)
			}
		}
		for _, link := range Links(text) {
			checkLink(t, files, name, link)
		}
	}
}

func checkLink(t *testing.T, files map[string]string, from string, link Link) {
	t.Helper()
	to := from
	if link.Path != "" {
		to = path.Join(path.Dir(from), link.Path)
	}
	if _, err := os.Stat(filepath.Join("..", "..", to)); err != nil {
		t.Errorf("%s:%d: %s does not exist", from, link.Line, link.Path)
		return
	}
	if link.Fragment != "" && path.Ext(to) == ".md" && !slices.Contains(Anchors(files[to]), link.Fragment) {
		t.Errorf("%s:%d: %s has no heading #%s", from, link.Line, to, link.Fragment)
	}
}
