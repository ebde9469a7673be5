package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

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
		if _, ok := errors.AsType[*sdk.Error](err); ok {
			return Config{}, fmt.Errorf("%s: %w", path, err)
		}
		return Config{}, err
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		e := sdk.Invalid("config", "a readable file")
		e.Err = err
		e.Hint = "name it with --config or FENCEPOST_CONFIG"
		return nil, e
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		e := sdk.Invalid("config", "a regular file, not a folder")
		e.Err = err
		return nil, e
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "config", Rule: "a readable file", Err: err}
	}
	if len(b) > maxFile {
		return nil, sdk.Invalid("config", "at most 1 MiB")
	}
	return b, nil
}

// Parse reads a configuration from YAML text, fills in defaults and checks it.
// An empty text is the default configuration.
func Parse(b []byte) (Config, error) {
	var c Config
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.DisallowUnknownField())
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, yamlError(err)
	}
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

var unknownField = regexp.MustCompile(`unknown field "([^"]{1,64})"`)

// yamlError turns the library's error into ours. The library prints the lines
// around the fault, which may hold a secret somebody pasted; only the position
// and, for an unknown key, its name are kept.
func yamlError(err error) error {
	field, rule := "config", "valid YAML of the documented shape"
	pos := ""
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		if t := ye.GetToken(); t != nil && t.Position != nil {
			pos = fmt.Sprintf("line %d, column %d", t.Position.Line, t.Position.Column)
		}
		if m := unknownField.FindStringSubmatch(ye.GetMessage()); m != nil {
			field, rule = m[1], "no unknown keys"
		}
	}
	e := sdk.Invalid(field, rule)
	if pos != "" {
		e.Err = errors.New(pos)
	}
	return e
}

// Duration is a time.Duration written as "1s" or "23h".
type Duration time.Duration

// UnmarshalYAML reads the text form.
func (d *Duration) UnmarshalYAML(b []byte) error {
	v, err := time.ParseDuration(unquote(b))
	if err != nil || v < 0 {
		return errors.New("a duration such as 30s, 15m or 23h")
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes the text form.
func (d Duration) MarshalYAML() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Size is a number of bytes, written as 4096, "64KiB" or "1MiB".
type Size int64

// UnmarshalYAML reads the text form.
func (s *Size) UnmarshalYAML(b []byte) error {
	text, factor := unquote(b), int64(1)
	for suffix, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = t, f
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 0 {
		return errors.New("a size such as 4096, 64KiB or 1MiB")
	}
	*s = Size(n * factor)
	return nil
}

func unquote(b []byte) string {
	return strings.Trim(strings.TrimSpace(string(b)), `"'`)
}
