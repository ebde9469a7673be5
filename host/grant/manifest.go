package grant

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Kind is what a plugin is for.
type Kind string

// Kinds of plugins.
const (
	KindExporter Kind = "exporter"
	KindStorage  Kind = "storage"
)

// Manifest is what a plugin's file says of itself before any of its code runs.
// An operator grants what it wants, or less, in which case it is refused.
type Manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Kind         Kind              `json:"kind"`
	Capabilities []capability.Name `json:"capabilities,omitempty"`
	// Hosts and Secrets are those that its Describe may name.
	Hosts   []string `json:"hosts,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	// Network says that a native plugin opens connections itself. Nothing
	// keeps a process from doing so; this makes it say so.
	Network bool `json:"network,omitempty"`
}

// ManifestSection is the name of the custom section that holds a manifest as
// JSON in a WebAssembly module. A native plugin has it beside its file, under
// the same name with ManifestSuffix.
const (
	ManifestSection = "fencepost.manifest"
	ManifestSuffix  = ".manifest.json"
)

// manifestMax bounds a manifest.
const manifestMax = 64 << 10

var (
	// A name becomes the name of a file.
	pluginName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	pluginVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)
)

// ErrNoManifest is wrapped by the error of [ReadManifest] where there is none.
var ErrNoManifest = errors.New("no manifest")

// ReadManifest returns the manifest of a plugin: of the file's custom section
// if it is a WebAssembly module that has one, else of sidecar, which is nil if
// there is no such file. The error has tag invalid.
func ReadManifest(file, sidecar []byte) (Manifest, error) {
	var m Manifest
	text, err := embedded(file)
	if err != nil {
		return m, err
	}
	if text == nil {
		text = sidecar
	}
	if text == nil {
		e := sdk.Invalid("manifest", "in the custom section "+ManifestSection+" of the module, or beside the file under its name and "+ManifestSuffix)
		e.Code, e.Hint, e.Err = "no_manifest", "fencepost plugin embed puts one into a module", ErrNoManifest
		return m, e
	}
	if len(text) > manifestMax {
		return m, sdk.Invalid("manifest", fmt.Sprintf("at most %d bytes", manifestMax))
	}
	if err := decodeStrict(text, &m); err != nil {
		return Manifest{}, sdk.Invalid("manifest", "a JSON object of the documented shape: "+Sanitize(err.Error()))
	}
	return m, m.check()
}

func (m Manifest) check() error {
	switch {
	case !pluginName.MatchString(m.Name):
		return sdk.Invalid("manifest.name", "1 to 64 of a-z, 0-9 and -, beginning with a letter")
	case !pluginVersion.MatchString(m.Version):
		return sdk.Invalid("manifest.version", "1 to 64 of letters, digits, dots, + and -")
	case m.Kind != KindExporter && m.Kind != KindStorage:
		return sdk.Invalid("manifest.kind", "exporter or storage")
	}
	for i, c := range m.Capabilities {
		if !slices.Contains(capability.Names(), c) {
			return sdk.Invalid(fmt.Sprintf("manifest.capabilities[%d]", i), "a capability of this version")
		}
	}
	for field, list := range map[string][]string{"hosts": m.Hosts, "secrets": m.Secrets} {
		for i, v := range list {
			if v == "" || len(v) > 253 || Sanitize(v) != v {
				return sdk.Invalid(fmt.Sprintf("manifest.%s[%d]", field, i), "1 to 253 printable characters")
			}
		}
	}
	return nil
}

// decodeStrict decodes one JSON value without unknown fields and nothing after.
// A key twice, or in another case, is an error: which of two a reader takes
// differs, and a reviewer may see the other one.
func decodeStrict(text []byte, into any) error {
	if err := checkKeys(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// checkKeys walks the first JSON value of text. Whatever else is wrong with it is
// for the decoder to say.
func checkKeys(text []byte) error {
	type level struct {
		keys  map[string]bool // nil in an array
		value bool            // what comes next belongs to a key
	}
	levels := []level{{}}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return nil //nolint:nilerr // the decoder meets it again
		}
		top := &levels[len(levels)-1]
		if key, ok := token.(string); ok && top.keys != nil && !top.value {
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				return fmt.Errorf("key %q is not of a-z, 0-9 and _", key)
			}
			if top.keys[key] {
				return fmt.Errorf("key %q is there twice", key)
			}
			top.keys[key], top.value = true, true
			continue
		}
		top.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{keys: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
		if len(levels) == 1 {
			return nil
		}
	}
}

// wasmHeader begins a core module of version 1.
var wasmHeader = []byte("\x00asm\x01\x00\x00\x00")

// IsModule reports whether a file is a WebAssembly module.
func IsModule(file []byte) bool { return bytes.HasPrefix(file, wasmHeader) }

// EmbedManifest returns the module with the manifest as its last section, in
// place of one that it has.
func EmbedManifest(module []byte, m Manifest) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(wasmHeader)
	err = sections(module, func(whole []byte, name string, _ []byte) error {
		if name != ManifestSection {
			out = append(out, whole...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	body := binary.AppendUvarint(nil, uint64(len(ManifestSection)))
	body = append(append(body, ManifestSection...), text...)
	out = binary.AppendUvarint(append(out, 0), uint64(len(body)))
	return append(out, body...), nil
}

// embedded returns the content of the manifest's section; nil if there is none
// or the file is no module.
func embedded(file []byte) ([]byte, error) {
	if !IsModule(file) {
		return nil, nil
	}
	var found []byte
	err := sections(file, func(_ []byte, name string, content []byte) error {
		if name != ManifestSection {
			return nil
		}
		if found != nil {
			return errors.New("it has two manifests")
		}
		found = content
		return nil
	})
	if err != nil {
		return nil, sdk.Invalid("module", "a WebAssembly module: "+err.Error())
	}
	return found, nil
}

// sections walks a module. The name is that of a custom section, else empty.
func sections(module []byte, each func(whole []byte, name string, content []byte) error) error {
	if !IsModule(module) {
		return errors.New("it does not begin as one")
	}
	for rest := module[len(wasmHeader):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || n > 5 || size > uint64(len(rest)-1-n) {
			return errors.New("a section ends beyond the file")
		}
		end := 1 + n + int(size)
		body, name := rest[1+n:end], ""
		if rest[0] == 0 {
			length, n := binary.Uvarint(body)
			if n <= 0 || n > 5 || length > uint64(len(body)-n) {
				return errors.New("a custom section has no name")
			}
			name, body = string(body[n:n+int(length)]), body[n+int(length):]
		}
		if err := each(rest[:end], name, body); err != nil {
			return err
		}
		rest = rest[end:]
	}
	return nil
}
