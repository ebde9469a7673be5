package grant

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MessageRunesMax is how long a sanitised message may be, in characters.
const MessageRunesMax = 200

// sanitizeBytesMax bounds the work on one message.
const sanitizeBytesMax = 16 << 10

// The order matters: a URL is taken apart before the rules for its parts could
// cut it in pieces.
var (
	urlCredentials = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>]*@`)
	urlQuery       = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s?#"'<>]*)[?#][^\s"'<>]*`)
	// password=…, "api_key": "…", Authorization: Bearer ….
	namedValue = regexp.MustCompile(`(?i)((?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|authorization|credential)s?["']?\s*[=:]\s*)` +
		`((?:(?:bearer|basic|digest|token)\s+)?(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s,;}\]]+))`)
	scheme   = regexp.MustCompile(`(?i)(^|[^\pL\pN_])(bearer|basic)(\s+)[A-Za-z0-9._~+/=:-]{6,}`)
	apiKey   = regexp.MustCompile(`(^|[^A-Za-z0-9])(?:(?:sk|rk|pk|ek|fp|mk)[_-](?:live|test)[_-][A-Za-z0-9_-]+|(?:sk|rk|pk|ek|fp|mk|whsec|acct_sk|ghp|gho|xox[abprs])[_-][A-Za-z0-9_-]{8,})`)
	email    = regexp.MustCompile(`[^\s@<>"'(),;:/\\]+(?:@|%40)[^\s@<>"'(),;:/\\]+`)
	cardLike = regexp.MustCompile(`\p{Nd}(?:[\pZ.\-]{0,2}\p{Nd}){12,}`)
	longRun  = regexp.MustCompile(`[A-Za-z0-9+/_-]{21,}={0,2}`)
	// word is a piece of an identifier that people wrote. Random text of this
	// length practically never looks like that.
	word          = regexp.MustCompile(`^(?:v?[0-9]{1,3}|[a-z]{1,20}|[A-Z]{1,20}|[a-z]{2,}(?:[A-Z][a-z]{2,})+|(?:[A-Z][a-z]{2,})+)$`)
	ownIdentifier = regexp.MustCompile(`^fencepost_[0-9a-f]{64}$`)
)

// Redact replaces what may be a secret or personal data by "***": API keys,
// bearer tokens, values named password or the like, user information and query
// of URLs, e-mail addresses, numbers of 13 digits and more with or without
// separators, and long runs that look like base64. It would rather hide too
// much. Fencepost's own identifiers stay: operators search for them.
func Redact(s string) string {
	s = urlCredentials.ReplaceAllString(s, "$1")
	s = urlQuery.ReplaceAllString(s, "$1?"+mask)
	s = namedValue.ReplaceAllString(s, "${1}"+mask)
	s = scheme.ReplaceAllString(s, "${1}${2}${3}"+mask)
	s = apiKey.ReplaceAllString(s, "${1}"+mask)
	s = email.ReplaceAllString(s, mask)
	s = longRun.ReplaceAllStringFunc(s, func(run string) string {
		if readable(run) {
			return run
		}
		return mask
	})
	return cardLike.ReplaceAllString(s, mask)
}

// readable reports whether a long run is our own identifier or made of words,
// such as meter_event_customer_not_found or /v1/billing/meter_events.
func readable(run string) bool {
	if ownIdentifier.MatchString(run) {
		return true
	}
	for piece := range strings.FieldsFuncSeq(run, func(r rune) bool { return strings.ContainsRune("_/+-=", r) }) {
		if !word.MatchString(piece) {
			return false
		}
	}
	return true
}

// Sanitize makes a stranger's message fit to be stored and shown: invalid UTF-8
// and control and invisible characters go, secrets and personal data are
// masked, and only then is it cut to [MessageRunesMax] characters, so that no
// half of a secret survives at the cut (O5).
func Sanitize(msg string) string {
	cut := len(msg) > sanitizeBytesMax
	if cut {
		msg = msg[:sanitizeBytesMax]
	}
	// Invisible characters go first: taken out later, they would join the two
	// halves of a secret that Redact had not recognised.
	msg = strings.TrimSpace(Redact(visible(msg)))
	if cut && utf8.RuneCountInString(msg) < sanitizeBytesMax/8 {
		// Nearly all of it was masked, so the end, where the bound may have
		// halved something, could be among the characters that are kept.
		return mask
	}
	n := 0
	for i := range msg {
		if n == MessageRunesMax {
			return msg[:i]
		}
		n++
	}
	return msg
}

// visible drops control, format and unassigned characters and turns any white
// space into a plain space.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
