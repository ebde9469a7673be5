package providerdouble

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// awsClockSkew is how far a signature's time may be from the server's.
const awsClockSkew = 15 * time.Minute

// verifySigV4 checks the signature of a request to the metering service, from
// the request as it arrived, and names the exception or nothing. It follows the
// steps of AWS's documentation and shares nothing with what signs.
func verifySigV4(r *http.Request, body []byte, keys map[string]string, now time.Time) string {
	algorithm, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if algorithm != "AWS4-HMAC-SHA256" || len(scope) != 5 || len(r.Header.Values("Authorization")) != 1 {
		return "MissingAuthenticationTokenException"
	}
	secret, known := keys[scope[0]]
	stamp := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", stamp)
	switch {
	case !known:
		return "UnrecognizedClientException"
	case err != nil, stamp[:8] != scope[1], scope[3] != "aws-marketplace", scope[4] != "aws4_request":
		return "IncompleteSignatureException"
	case now.Sub(at).Abs() > awsClockSkew:
		return "InvalidSignatureException"
	}
	signed := strings.Split(fields["SignedHeaders"], ";")
	for name := range r.Header {
		// Every header of AWS's has to be signed, and the host.
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") && !slices.Contains(signed, lower) {
			return "InvalidSignatureException"
		}
	}
	if !slices.Contains(signed, "host") || !slices.IsSorted(signed) {
		return "InvalidSignatureException"
	}
	lines := make([]string, 0, len(signed))
	for _, name := range signed {
		value := r.Host
		if name != "host" {
			value = strings.Join(r.Header.Values(name), ",")
		}
		lines = append(lines, name+":"+strings.TrimSpace(value)+"\n")
	}
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + sortedQuery(r.URL.Query()) + "\n" +
		strings.Join(lines, "") + "\n" + fields["SignedHeaders"] + "\n" + sha(body)
	key := []byte("AWS4" + secret)
	for _, part := range scope[1:] {
		key = mac(key, part)
	}
	want := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+strings.Join(scope[1:], "/")+"\n"+sha([]byte(canonical))))
	if !hmac.Equal([]byte(want), []byte(fields["Signature"])) {
		return "InvalidSignatureException"
	}
	return ""
}

func sortedQuery(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
