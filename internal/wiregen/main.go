// Command wiregen writes what carries the contract of storage adapters over the
// wire: the schema, the conversions, the plugin's dispatcher and the host's
// adapter. It reads the structs and interfaces of plugins/sdk/storage and the
// committed table of numbers, which it appends to. Run it in the root of the
// repository; make generate does.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"
)

const (
	wireDir   = "plugins/sdk/wire/storagev1"
	tableFile = wireDir + "/numbers.txt"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "wiregen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		if err := os.WriteFile(filepath.Join(root, name), files[name], 0o644); err != nil { //nolint:gosec // sources
			return err
		}
	}
	return nil
}

// generate returns the files by their path below the root.
func generate(root string) (map[string][]byte, error) {
	table, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil {
		return nil, err
	}
	n, err := readNumbers(string(table))
	if err != nil {
		return nil, err
	}
	c, err := readContract(filepath.Join(root, "plugins/sdk/storage"))
	if err != nil {
		return nil, err
	}
	if err := n.assign(c); err != nil {
		return nil, err
	}
	files := map[string][]byte{tableFile: []byte(n.text()), wireDir + "/storage.proto": []byte(c.proto(n))}
	for name, f := range map[string]struct{ pkg, body string }{
		wireDir + "/messages_gen.go":                        {"storagev1", c.mades() + c.pairs()},
		wireDir + "/encode_gen.go":                          {"storagev1", c.encoders()},
		wireDir + "/decode_gen.go":                          {"storagev1", c.decoders()},
		wireDir + "/codecs_gen_test.go":                     {"storagev1_test", c.registry()},
		wireDir + "/methods_gen.go":                         {"storagev1", c.methods(n)},
		"plugins/sdk/guest/storageplugin/operations_gen.go": {"storageplugin", c.dispatcher()},
		"host/remote/operations_gen.go":                     {"remote", c.implements() + c.remote()},
	} {
		if files[name], err = source(f.pkg, f.body); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return files, nil
}

// source makes a formatted file with the imports that its body uses.
func source(pkg, body string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(goHead + pkg + "\n\nimport (\n")
	const sdk = "github.com/fencepost/fencepost/plugins/sdk/"
	groups := [][][3]string{
		{{"context.", "context"}, {"json.", "encoding/json"}, {"slices.", "slices"}, {"time.", "time"}},
		{
			{"decimal.", sdk + "decimal"},
			{"storage.", sdk + "storage"},
			{"storagev1.", sdk + "wire/storagev1"},
			{"wirev1.", sdk + "wire/v1", "wirev1 "},
		},
	}
	for _, group := range groups {
		for _, i := range group {
			if uses(body, i[0]) {
				fmt.Fprintf(&b, "%s%q\n", i[2], i[1])
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(")\n" + body)
	return format.Source(b.Bytes())
}

// uses looks for a package's name in code, not in comments.
func uses(body, name string) bool {
	for line := range strings.SplitSeq(body, "\n") {
		code, _, _ := strings.Cut(line, "//")
		for at := strings.Index(code, name); at >= 0; {
			if at == 0 || !strings.ContainsAny(code[at-1:at], "abcdefghijklmnopqrstuvwxyz0123456789_.") {
				return true
			}
			next := strings.Index(code[at+1:], name)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return false
}
