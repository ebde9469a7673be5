package conformance

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// carries reports whether a request holds text as a word of its own: in URL,
// body or a header, raw, form-encoded or as a string or number of JSON.
func carries(r *capability.Request, text string) bool {
	for _, h := range r.Headers {
		if h.Value == text {
			return true
		}
	}
	if hasWord(r.URL, text) || hasWord(string(r.Body), text) {
		return true
	}
	if u, err := url.Parse(r.URL); err == nil && (hasWord(u.Path, text) || inForm(u.RawQuery, text)) {
		return true
	}
	if inForm(string(r.Body), text) {
		return true
	}
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch v := token.(type) {
		case string:
			if v == text {
				return true
			}
		case json.Number:
			if v.String() == text {
				return true
			}
		}
	}
}

func inForm(raw, text string) bool {
	form, err := url.ParseQuery(raw)
	if err != nil {
		return false
	}
	for _, values := range form {
		if slices.Contains(values, text) {
			return true
		}
	}
	return false
}

// hasWord reports whether word occurs in s with nothing beside it that would
// make it another identifier or number.
func hasWord(s, word string) bool {
	for at := 0; ; at++ {
		i := strings.Index(s[at:], word)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(word)
		if (at == 0 || !wordByte(s[at-1])) && (end == len(s) || !wordByte(s[end])) {
			return true
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c == '+' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// recognised is the class that a manifest's patterns give an answer, as the
// host reads them; false: none.
func recognised(m *exporter.Manifest, r *capability.Response, identifier string) (exporter.AnswerClass, bool) {
	var body any
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	_ = d.Decode(&body) // no JSON has nothing at any path
	for i := range m.Answers {
		p := &m.Answers[i]
		value, ok := at(body, p.Path)
		if p.Status != r.Status || p.In != "" {
			continue
		}
		if len(p.Equals) == 0 && p.Contains == "" {
			return p.Class, true
		}
		if !ok {
			continue
		}
		if slices.Contains(p.Equals, value) {
			return p.Class, true
		}
		if want := strings.ReplaceAll(p.Contains, "{identifier}", identifier); want != "" && strings.Contains(value, want) {
			return p.Class, true
		}
	}
	return "", false
}

// at is the string or number at a JSON pointer.
func at(value any, pointer string) (string, bool) {
	for _, key := range strings.Split(pointer, "/")[1:] {
		object, _ := value.(map[string]any)
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
	}
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}
