package egress

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// splitPointer returns the reference tokens of a JSON pointer (RFC 6901).
func splitPointer(pointer string) ([]string, bool) {
	if pointer == "" {
		return nil, true
	}
	if pointer[0] != '/' {
		return nil, false
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, false
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, true
}

// lookup returns the scalar at a pointer in a JSON document as text: a string
// decoded, a number or boolean as it is written. It finds nothing if the
// document is not valid JSON as a whole.
func lookup(doc []byte, pointer string) (string, bool) {
	value, ok := at(doc, pointer)
	if !ok {
		return "", false
	}
	switch value[0] {
	case '"':
		var s string
		err := json.Unmarshal(value, &s)
		return s, err == nil
	case '{', '[', 'n':
		return "", false
	}
	return string(value), true
}

// at returns the value at a pointer as it is written.
func at(doc []byte, pointer string) (json.RawMessage, bool) {
	tokens, ok := splitPointer(pointer)
	if !ok || !json.Valid(doc) {
		return nil, false
	}
	value := json.RawMessage(bytes.TrimSpace(doc))
	for _, t := range tokens {
		switch value[0] {
		case '{':
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				return nil, false
			}
			value = object[t]
		case '[':
			var array []json.RawMessage
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || strconv.Itoa(i) != t || json.Unmarshal(value, &array) != nil || i >= len(array) {
				return nil, false
			}
			value = array[i]
		default:
			return nil, false
		}
		if len(value) == 0 {
			return nil, false
		}
	}
	return value, true
}
