package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
)

const hidden = "***"

// maskedForm is one spelling of a secret that an answer may echo.
type maskedForm struct{ text, lower string }

// maskedForms lists the spellings of a secret in which a server could repeat
// it: as it is, escaped for a URL or JSON, in base64.
func maskedForms(value string) []maskedForm {
	escaped, _ := json.Marshal(value)
	list := []string{
		value,
		url.QueryEscape(value), url.PathEscape(value),
		string(escaped[1 : len(escaped)-1]),
		base64.RawStdEncoding.EncodeToString([]byte(value)),
		base64.RawURLEncoding.EncodeToString([]byte(value)),
		// Basic authentication with the key as user, or as password.
		base64.RawStdEncoding.EncodeToString([]byte(value + ":")),
		base64.RawStdEncoding.EncodeToString([]byte(":" + value)),
	}
	seen := make(map[string]bool)
	var forms []maskedForm
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			forms = append(forms, maskedForm{text: s, lower: strings.ToLower(s)})
		}
	}
	return forms
}

func (c *Client) maskText(s string) string {
	for _, m := range c.masks {
		s = strings.ReplaceAll(s, m.text, hidden)
	}
	return s
}

// maskBody hides secrets in an answer's body. It returns b itself if there are
// none.
func (c *Client) maskBody(b []byte) []byte {
	for _, m := range c.masks {
		if bytes.Contains(b, []byte(m.text)) {
			b = bytes.ReplaceAll(b, []byte(m.text), []byte(hidden))
		}
	}
	return b
}

// secretName reports whether a header's name, whose case HTTP does not keep,
// holds a secret.
func (c *Client) secretName(name string) bool {
	name = strings.ToLower(name)
	for _, m := range c.masks {
		if strings.Contains(name, m.lower) {
			return true
		}
	}
	return false
}
