package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// unsignedHeaders may be changed on the way, or say nothing about the request.
var unsignedHeaders = []string{"Accept-Encoding", "Authorization", "User-Agent"}

// awsCanonical returns the names of the signed headers and the canonical request
// of Signature Version 4: everything that the server will see, in one spelling.
func awsCanonical(p *prepared) (names, request string) {
	header := http.Header{"Host": {strings.TrimSuffix(p.hostPort, ":443")}}
	maps.Copy(header, p.header)
	for _, name := range unsignedHeaders {
		delete(header, name)
	}
	byName := make(map[string]string, len(header))
	for name, values := range header {
		trimmed := make([]string, len(values))
		for i, v := range values {
			trimmed[i] = strings.Join(strings.Fields(v), " ")
		}
		byName[strings.ToLower(name)] = strings.Join(trimmed, ",")
	}
	sorted := slices.Sorted(maps.Keys(byName))
	var lines strings.Builder
	for _, name := range sorted {
		lines.WriteString(name + ":" + byName[name] + "\n")
	}
	names = strings.Join(sorted, ";")
	uri := awsEscape(p.url.EscapedPath(), true) // a second time, as every service but S3 wants it
	if uri == "" {
		uri = "/"
	}
	return names, strings.Join([]string{p.method, uri, awsQuery(p.url.RawQuery), lines.String(), names, hexSHA256(p.body)}, "\n")
}

// awsQuery sorts parameters by name and value, escaped.
func awsQuery(raw string) string {
	var pairs [][2]string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, [2]string{awsEscape(unescaped(name), false), awsEscape(unescaped(value), false)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	out := make([]string, len(pairs))
	for i, p := range pairs {
		out[i] = p[0] + "=" + p[1]
	}
	return strings.Join(out, "&")
}

func unescaped(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// awsEscape escapes all but unreserved characters.
func awsEscape(s string, keepSlash bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0, keepSlash && c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hexText(sum[:])
}

func hexText(b []byte) string { return hex.EncodeToString(b) }
