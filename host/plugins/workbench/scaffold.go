package workbench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Language is what a plugin is written in.
type Language string

// The languages that have an SDK.
const (
	Go             Language = "go"
	AssemblyScript Language = "assemblyscript"
	C              Language = "c"
	Rust           Language = "rust"
)

// Languages lists them.
func Languages() []Language { return []Language{Go, AssemblyScript, C, Rust} }

// Beginning is a plugin that is begun: a copy of the sample under another name.
type Beginning struct {
	Language Language
	Kind     grant.Kind
	Name     string
	// Dir is where it is written; it must not exist, or be empty.
	Dir string
	// Module is the path of a Go module; empty: example.com/NAME.
	Module string
	// Checkout is a copy of this project's source, which a Go plugin then builds
	// against. Empty: Version is had from the module proxy.
	Checkout string
	Version  string
	// Examples and SDKs are the sources: of folder examples, and of folder sdk.
	Examples, SDKs fs.FS
}

// The samples' names, in whose places the new name comes.
const (
	exporterSample = "meterline"
	storageSample  = "tally"
)

func (b Beginning) sample() string {
	if b.Kind == grant.KindStorage {
		return storageSample
	}
	return exporterSample
}

var (
	scaffoldName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	modulePath   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/-]{0,200}$`)
)

// Files returns what would be written, by the path below Dir. Errors have tag
// invalid or unsupported.
func (b Beginning) Files() (map[string][]byte, error) {
	if !scaffoldName.MatchString(b.Name) {
		return nil, sdk.Invalid("NAME", "1 to 64 of a-z, 0-9 and -, beginning with a letter")
	}
	if b.Kind != grant.KindExporter && b.Kind != grant.KindStorage {
		return nil, sdk.Invalid("--kind", "exporter or storage")
	}
	if !slices.Contains(Languages(), b.Language) {
		return nil, sdk.Invalid("--lang", "go, assemblyscript, c or rust")
	}
	if b.Kind == grant.KindStorage && b.Language != Go {
		return nil, &sdk.Error{
			Tag: sdk.TagUnsupported, Field: "--kind", Rule: "exporter in " + string(b.Language) + "; storage adapters have an SDK in go only",
			Hint: "docs/plugins/storage.md is for those who write one in another language all the same",
		}
	}
	if b.Module == "" {
		b.Module = "example.com/" + b.Name
	}
	if b.Language == Go && !modulePath.MatchString(b.Module) {
		return nil, sdk.Invalid("--module", "the path of a Go module")
	}
	files := map[string][]byte{}
	return files, b.collect(files)
}

// copied is a file or folder of a sample and where it goes. An original of the
// SDK keeps its words.
type copied struct {
	from, to string
	verbatim bool
}

func (b Beginning) collect(files map[string][]byte) error {
	source, list := b.SDKs, map[Language][]copied{
		C: {{"c/sample/meterline.c", b.Name + ".c", false}, {"c/fencepost.h", "fencepost.h", true}},
		Rust: {
			{"rust/sample/Cargo.toml", "Cargo.toml", false},
			{"rust/sample/src/lib.rs", "src/lib.rs", false},
			{"rust/Cargo.toml", "fencepost/Cargo.toml", true},
			{"rust/src", "fencepost/src", true},
		},
		AssemblyScript: {
			{"assemblyscript/sample/meterline.ts", b.Name + ".ts", false},
			{"assemblyscript/assembly", "fencepost/assembly", true},
			{"assemblyscript/package.json", "package.json", false},
		},
	}[b.Language]
	shared := []copied{{"exporter-go/provider.json", "provider.json", false}, {"exporter-go/testdata", "testdata", false}}
	if b.Language == Go {
		source, list = b.Examples, []copied{
			{"exporter-go/main.go", "main.go", false}, {"exporter-go/meterline", b.ident(), false},
		}
	}
	if b.Kind == grant.KindStorage {
		source, list, shared = b.Examples, []copied{{"storage-go", ".", false}}, nil
	}
	for _, c := range list {
		if err := b.copy(files, source, c); err != nil {
			return err
		}
	}
	for _, c := range shared {
		if err := b.copy(files, b.Examples, c); err != nil {
			return err
		}
	}
	files[".gitignore"] = []byte("*.wasm\nnode_modules/\n/bin/\n")
	files["README.md"] = []byte(b.readme())
	if b.Language == Go {
		return b.goModule(files)
	}
	return nil
}

func (b Beginning) copy(files map[string][]byte, source fs.FS, c copied) error {
	return fs.WalkDir(source, c.from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(source, p)
		if err != nil {
			return err
		}
		to := path.Join(c.to, strings.TrimPrefix(p, c.from))
		if !c.verbatim {
			to, text = b.rename(to), []byte(b.rewrite(string(text)))
		}
		files[to] = text
		return nil
	})
}

// ident is the name where only letters and digits may stand: of a Go package.
func (b Beginning) ident() string { return strings.ReplaceAll(b.Name, "-", "") }

// typeName is the name of a type: MyMeter.
func (b Beginning) typeName() string {
	var out strings.Builder
	for part := range strings.SplitSeq(b.Name, "-") {
		if part != "" {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return out.String()
}

func (b Beginning) rename(p string) string {
	dir, file := path.Split(p)
	name := b.Name
	if strings.HasSuffix(file, ".go") {
		name = b.ident()
	}
	return path.Join(strings.ReplaceAll(dir, b.sample(), b.ident()), strings.ReplaceAll(file, b.sample(), name))
}

// rewrite puts the new name in the place of the sample's.
func (b Beginning) rewrite(text string) string {
	const ours = "github.com/fencepost/fencepost/examples/"
	sampleName := b.sample()
	pairs := []string{
		// Go: the package is called as an identifier can be, and lies in the new module.
		ours + "exporter-go/" + sampleName, b.Module + "/" + b.ident(),
		ours + "storage-go/" + sampleName, b.Module + "/" + b.ident(),
		"package " + sampleName, "package " + b.ident(),
		"Package " + sampleName, "Package " + b.ident(),
		"Command exporter-go", "Command " + b.Name, "Command storage-go", "Command " + b.Name,
		"//\n// The same exporter is written in C, Rust and AssemblyScript under sdk; all four\n// send the same bytes.\n", "",
		sampleName + ".New", b.ident() + ".New", sampleName + ".Open", b.ident() + ".Open",
		// The SDK lies in the plugin's folder.
		`path = ".."`, `path = "fencepost"`,
		`"../assembly/index"`, `"./fencepost/assembly/index"`,
		`"fencepost-assemblyscript"`, `"` + b.Name + `"`,
		"Fencepost plugins in AssemblyScript", "A Fencepost plugin in AssemblyScript",
		`"ascMain": "assembly/index.ts",` + "\n  ", "", `"files": ["assembly"],` + "\n  ", "",
		`"sample": "asc sample/` + sampleName, `"build": "asc ` + b.Name,
		// What the sample says of where it came from.
		"told in examples/exporter-go/meterline, which is the same exporter in Go", "told in provider.json",
		"told in\n * examples/exporter-go/meterline, which is the same exporter in Go", "told in\n * provider.json",
		"told in\n//! examples/exporter-go/meterline, which is the same exporter in Go", "told in\n//! provider.json",
		"The sample exporter", "An exporter", "the sample exporter", "an exporter", "a sample exporter", "an exporter",
		"the sample storage adapter", "a storage adapter", "a sample storage adapter", "a storage adapter",
		strings.ToUpper(sampleName[:1]) + sampleName[1:], b.typeName(),
		sampleName, b.Name,
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// Write writes the files. Nothing that exists is written over.
func (b Beginning) Write(files map[string][]byte) error {
	if have, err := os.ReadDir(b.Dir); err == nil && len(have) > 0 {
		e := sdk.Invalid("NAME", b.Dir+" must not exist, or be empty")
		e.Hint = "choose another --dir"
		return e
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sdk.Invalid("--dir", err.Error())
	}
	for name, text := range files {
		p := filepath.Join(b.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil { //nolint:gosec // source code
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(p, text, 0o644); err != nil { //nolint:gosec // source code
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
