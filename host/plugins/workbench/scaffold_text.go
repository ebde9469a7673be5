package workbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

const ourModule = "github.com/fencepost/fencepost"

// goModule adds go.mod. Against a checkout it has every version of it, so that
// nothing is asked of a network.
func (b Beginning) goModule(files map[string][]byte) error {
	if b.Checkout == "" {
		files["go.mod"] = fmt.Appendf(nil, "module %s\n\ngo 1.26.0\n\nrequire %s %s\n", b.Module, ourModule, b.Version)
		return nil
	}
	mod, err := os.ReadFile(filepath.Join(b.Checkout, "go.mod"))
	if err != nil {
		return sdk.Invalid("--sdk", err.Error())
	}
	if !IsCheckout(b.Checkout) {
		return sdk.Invalid("--sdk", "a checkout of "+ourModule)
	}
	sum, err := os.ReadFile(filepath.Join(b.Checkout, "go.sum"))
	if err != nil {
		return sdk.Invalid("--sdk", err.Error())
	}
	where, err := filepath.Abs(b.Checkout)
	if err != nil {
		return fmt.Errorf("--sdk: %w", err)
	}
	needs := b.needs(where)
	var out bytes.Buffer
	fmt.Fprintf(&out, "module %s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n\nrequire (\n", b.Module, ourModule, ourModule, where)
	for line := range strings.Lines(string(mod)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		version, _, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(version, "v") && name != "require" && (needs == nil || slices.Contains(needs, name)) {
			fmt.Fprintf(&out, "\t%s %s // indirect\n", name, version)
		}
	}
	out.WriteString(")\n")
	files["go.mod"], files["go.sum"] = out.Bytes(), sum
	return nil
}

// needs lists the modules that a plugin's build and test need; nil if go is not
// there to say so: then all of the checkout's are named, which does no harm.
func (b Beginning) needs(checkout string) []string {
	kit := "./plugins/sdk/exportertest"
	if b.Kind == grant.KindStorage {
		kit = "./plugins/sdk/storagetest"
	}
	found := map[string]bool{}
	for _, env := range [][]string{nil, {"GOOS=wasip1", "GOARCH=wasm"}} {
		cmd := exec.CommandContext(context.Background(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./plugins/sdk/guest/...", kit)
		cmd.Dir, cmd.Env = checkout, append(os.Environ(), append(env, "CGO_ENABLED=0")...)
		list, err := cmd.Output()
		if err != nil {
			return nil
		}
		for name := range strings.FieldsSeq(string(list)) {
			found[name] = true
		}
	}
	delete(found, ourModule)
	return slices.Collect(maps.Keys(found))
}

// IsCheckout reports whether dir holds this project's source.
func IsCheckout(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(mod), "module "+ourModule+"\n")
}

// FindCheckout looks for this project's source in the folders above these.
func FindCheckout(from ...string) string {
	for _, dir := range from {
		dir, err := filepath.Abs(dir)
		for err == nil {
			if IsCheckout(dir) {
				return dir
			}
			up := filepath.Dir(dir)
			if up == dir {
				err = errors.ErrUnsupported
			}
			dir = up
		}
	}
	return ""
}

func (b Beginning) readme() string {
	if b.Kind == grant.KindStorage {
		return fmt.Sprintf("# %s\n\nA storage adapter for Fencepost.\n\n```\nfencepost plugin build --native\nfencepost plugin conformance bin/%s --dsn $PWD/try.journal\ngo test ./...\n```\n", b.Name, b.Name)
	}
	more := ""
	if b.Language == Go {
		more = "go test ./...                     # the suite, over the exporter linked in\n"
	}
	if b.Language == AssemblyScript {
		more = "npm install                       # the compiler, once\n"
	}
	return fmt.Sprintf(`# %s

An exporter for Fencepost. What its provider takes and answers is in `+"`provider.json`"+`; what is tried is in `+"`testdata`"+`.

`+"```"+`
%sfencepost plugin build            # %s.wasm, with its manifest
fencepost plugin run --input testdata/accepted/input.json
fencepost plugin test             # testdata, without a network
fencepost plugin conformance      # what every exporter has to keep
`+"```"+`
`, b.Name, more, b.Name)
}
