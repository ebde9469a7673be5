// Package canon turns what the engine must compare into one text for each
// meaning: keys built from several fields, and the canonical forms whose
// SHA-256 tells a duplicate from a conflict.
//
// Everything here is a pure function and safe for concurrent use. The forms are
// contract: hashes are stored for good, so a form never changes; a new one gets
// a new version in its first field.
package canon

import (
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// CloudEventPrefix begins the event id of everything that came as a CloudEvent.
// Plain events may not use it.
const CloudEventPrefix = "ce:"

// Join builds one key from fields: each is written as its length in bytes, a
// colon and its bytes ("5:hello3:abc"). Different fields give different keys,
// whatever they contain; an empty field differs from a missing one.
func Join(fields ...string) string {
	size := 0
	for _, f := range fields {
		size += len(f) + 4
	}
	var b strings.Builder
	b.Grow(size)
	for _, f := range fields {
		b.WriteString(strconv.Itoa(len(f)))
		b.WriteByte(':')
		b.WriteString(f)
	}
	return b.String()
}

// ErrKey is what Split answers for text that Join did not write.
var ErrKey = errors.New("not a key of length-prefixed fields")

// Split undoes Join. It accepts exactly what Join writes: no leading zeros and
// nothing left over.
func Split(key string) ([]string, error) {
	var fields []string
	for key != "" {
		digits, rest, found := strings.Cut(key, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(rest) || strconv.Itoa(n) != digits {
			return nil, ErrKey
		}
		fields = append(fields, rest[:n])
		key = rest[n:]
	}
	return fields, nil
}

// Digest is the SHA-256 of the key that Join builds. The first field should
// name what is hashed and its version, so that two kinds never share a digest.
func Digest(fields ...string) storage.Hash {
	return sha256.Sum256([]byte(Join(fields...)))
}

// ReceiptID is the id of a CloudEvent's first receipt within its tenant.
func ReceiptID(source, id string) string { return Join(source, id) }

// EventID is the id of the event that a CloudEvent leads to for one feature.
// It never equals the id of a plain event, which may not begin with "ce:".
func EventID(source, id, feature string) string {
	return CloudEventPrefix + Join(source, id, feature)
}
