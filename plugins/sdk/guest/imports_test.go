package guest_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestImports builds plugins for wasip1 and reads what they import: a module
// must ask for the capabilities that its main names, and no other.
func TestImports(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds two Wasm modules")
	}
	io := []string{"fencepost.io/v1 input_read", "fencepost.io/v1 output_write"}
	for name, want := range map[string][]string{
		"none": io,
		"all": {
			"fencepost.append/v1 receive", "fencepost.append/v1 send",
			"fencepost.clock/v1 now", "fencepost.http/v1 receive", "fencepost.http/v1 send",
			io[0], io[1], "fencepost.log/v1 write", "fencepost.random/v1 read",
			"fencepost.sql/v1 receive", "fencepost.sql/v1 send",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := build(t, name)
			imports, exports, err := sections(module)
			if err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, i := range imports {
				if module, function, _ := strings.Cut(i, " "); module != "wasi_snapshot_preview1" {
					asked = append(asked, i)
				} else if strings.HasPrefix(function, "path_") || strings.HasPrefix(function, "sock_") {
					t.Errorf("imports %s (Q29)", i)
				}
			}
			slices.Sort(asked)
			if d := cmp.Diff(want, asked); d != "" {
				t.Errorf("imports (-want +got):\n%s", d)
			}
			for _, e := range []string{"memory", "_initialize", "fp_abi_v1", "fp_call"} {
				if !slices.Contains(exports, e) {
					t.Errorf("does not export %s: %v", e, exports)
				}
			}
		})
	}
}

// TestNativeMain: the same main as a program says what it is, and that it is
// no command.
func TestNativeMain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./testdata/plugins/none")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is a fencepost plugin and not a command") {
		t.Errorf("%v: %s", err, out)
	}
}

func build(t *testing.T, name string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, "./testdata/plugins/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// sections reads the names of a module's imports ("module function") and
// exports. Function imports only, as the ABI has it.
func sections(module []byte) (imports, exports []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed module: %v", r)
		}
	}()
	b := module[8:]
	number := func() int {
		n, size := binary.Uvarint(b)
		b = b[size:]
		return int(n)
	}
	text := func() string {
		n := number()
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 {
		id := b[0]
		b = b[1:]
		size := number()
		rest := b[size:]
		switch id {
		case 2:
			for range number() {
				imports = append(imports, text()+" "+text())
				if b[0] != 0 {
					return nil, nil, fmt.Errorf("%s is no function", imports[len(imports)-1])
				}
				b = b[1:]
				number()
			}
		case 7:
			for range number() {
				exports = append(exports, text())
				b = b[1:]
				number()
			}
		}
		b = rest
	}
	return imports, exports, nil
}
