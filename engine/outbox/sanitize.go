package outbox

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// MaxMessage is how many characters of a provider's or plugin's text are kept.
const MaxMessage = 200

const (
	maxCode = 64
	maxRef  = 200
	maxScan = 4096 // text beyond this is dropped before it is searched
)

// masks are patterns of what must not be stored: keys, tokens, addresses and
// numbers that look like a card's. A card number written in groups counts too.
var masks = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:sk|rk|pk|whsec|fp_live|fp_test)_[A-Za-z0-9_*]{4,}`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}`),
	regexp.MustCompile(`(?i)(?:api[_-]?key|token|secret|password|authorization)["']?\s*[:=]\s*["']?[^\s"',;&]{4,}`),
	regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}`),
	regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`),
}

// Sanitize makes an error fit to be stored and shown: a code of a few safe
// characters, and at most [MaxMessage] characters of message on one line, with
// secrets and personal data masked before it is cut.
func Sanitize(code string, status int, message string) storage.ItemError {
	return storage.ItemError{Code: cleanCode(code), Status: status, Message: cleanMessage(message)}
}

func cleanCode(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r
		}
		return '_'
	}, clip(s, maxCode))
	for _, m := range masks {
		if m.MatchString(s) {
			return "masked"
		}
	}
	return s
}

func cleanMessage(s string) string {
	if len(s) > maxScan {
		s = s[:maxScan]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	for _, m := range masks {
		s = m.ReplaceAllString(s, "[masked]")
	}
	return clip(strings.TrimSpace(s), MaxMessage)
}

// clip cuts s after at most n characters, never inside one.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	i := 0
	for range n {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return s[:i]
}
