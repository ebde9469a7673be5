package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// mask is what every printed form of a secret shows.
const mask = "***"

// secretBytesMax bounds a secret: a larger file is the wrong file.
const secretBytesMax = 64 << 10

// Secret is a value that must not be seen. Every way of printing or encoding
// it gives "***"; [Secret.Reveal] is the only way out. The zero value is an
// absent secret. A Secret is immutable and safe for concurrent use.
type Secret struct {
	// fmt does not call methods of unexported fields, so a Secret inside
	// somebody's struct is printed by reflection: a pointer shows an address
	// there, a string would show itself.
	value *string
}

// NewSecret returns a secret that holds value. An empty value is an absent
// secret.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Present reports whether there is a value.
func (s Secret) Present() bool { return s.value != nil }

// Reveal returns the value, or "" if it is absent. Only what puts it on the
// wire, and the check of its mode, may call this.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// beginsWith reports whether the value begins with one of prefixes. An empty
// prefix tells nothing apart, so it counts for none.
func (s Secret) beginsWith(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return p != "" && strings.HasPrefix(s.Reveal(), p)
	})
}

// String returns "***".
func (Secret) String() string { return mask }

// GoString returns "***".
func (Secret) GoString() string { return mask }

// Format writes "***" whatever the verb and the flags.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(mask)) }

// LogValue returns "***".
func (Secret) LogValue() slog.Value { return slog.StringValue(mask) }

// MarshalJSON returns the string "***".
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalText returns "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// ResolveSecret reads the secret that ref names: "env:NAME" from env,
// "file:PATH" from readFile, with line ends at the end of the file removed. A
// nil env or readFile finds nothing.
//
// It fails with tag invalid if ref is anything else, such as the secret itself,
// or if what it names is absent, empty or larger than 64 KiB. The error never
// holds the value, nor ref where ref may be the value.
func ResolveSecret(ref string, env func(string) (string, bool), readFile func(string) ([]byte, error)) (Secret, error) {
	var value string
	switch {
	case strings.HasPrefix(ref, "env:"):
		name := strings.TrimPrefix(ref, "env:")
		if !isEnvName(name) {
			return Secret{}, sdk.Invalid("secret", "env: is followed by the name of an environment variable")
		}
		var ok bool
		if env != nil {
			value, ok = env(name)
		}
		if !ok {
			return Secret{}, sdk.Invalid("secret", "environment variable "+Redact(name)+" is not set")
		}
	case strings.HasPrefix(ref, "file:"):
		path := strings.TrimPrefix(ref, "file:")
		if path == "" {
			return Secret{}, sdk.Invalid("secret", "file: is followed by the path of a file")
		}
		b, err := readSecretFile(path, readFile)
		if err != nil {
			return Secret{}, err
		}
		value = strings.TrimRight(string(b), "\r\n")
	default:
		return Secret{}, sdk.Invalid("secret", "a reference, env:NAME or file:PATH, never the secret itself")
	}
	if strings.TrimSpace(value) == "" {
		return Secret{}, sdk.Invalid("secret", "what the reference names is empty")
	}
	if len(value) > secretBytesMax {
		return Secret{}, sdk.Invalid("secret", "at most 64 KiB")
	}
	return NewSecret(value), nil
}

func readSecretFile(path string, readFile func(string) ([]byte, error)) ([]byte, error) {
	if readFile == nil {
		return nil, sdk.Invalid("secret", "files are not available here")
	}
	b, err := readFile(path)
	if err == nil {
		return b, nil
	}
	// A PathError repeats the path as it is; somebody may have put the key there.
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	e := sdk.Invalid("secret", "file "+Redact(path)+" is readable")
	e.Err = err
	return nil, e
}

func isEnvName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return true
}
