package config

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// maxFile bounds a configuration file; more is not a configuration.
const maxFile = 1 << 20

// Load reads, fills in and checks the file at path. A missing file, a folder,
// a syntax error, an unknown key and a broken rule are all tag invalid and name
// the file or the key.
func Load(path string) (Config, error) {
	b, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	// Looked at before it is opened: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, sdk.Invalid("config", "a regular file; "+path+" is "+kind(info))
	}
	f, err := os.Open(path)
	if err != nil {
		e := sdk.Invalid("config", "a readable file")
		e.Err = err
		e.Hint = "name it with --config or FENCEPOST_CONFIG"
		return nil, e
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "config", Rule: "a readable file", Err: err}
	}
	if len(b) > maxFile {
		return nil, sdk.Invalid("config", "at most 1 MiB")
	}
	return b, nil
}

func kind(info os.FileInfo) string {
	if info.IsDir() {
		return "a folder"
	}
	return "a pipe, socket or device"
}

// Parse reads a configuration from YAML text, fills in defaults and checks it.
// An empty text is the default configuration. A value that is there is never
// replaced by a default, a zero included.
func Parse(b []byte) (Config, error) {
	c := Config{}.WithDefaults()
	if err := decode(b, &c); err != nil {
		return Config{}, err
	}
	c.Exporters = exportersWithDefaults(c.Exporters)
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Duration is a time.Duration written as "1s" or "23h".
type Duration time.Duration

// UnmarshalYAML reads the text form.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := time.ParseDuration(scalar(n))
	if err != nil || v < 0 {
		return wrong(n, "a duration such as 30s, 15m or 23h")
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes the text form.
func (d Duration) MarshalYAML() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Size is a number of bytes, written as 4096, "64KiB" or "1MiB".
type Size int64

// UnmarshalYAML reads the text form.
func (s *Size) UnmarshalYAML(node ast.Node) error {
	text, factor := scalar(node), int64(1)
	for suffix, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = t, f
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 0 {
		return wrong(node, "a size such as 4096, 64KiB or 1MiB")
	}
	*s = Size(n * factor)
	return nil
}
