package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// signer adds to a request what only the holder of a secret can. It does so
// just before the request leaves: the time is part of what it signs.
type signer interface {
	// headers are those that it sets, in canonical form: a plugin may not.
	headers() []string
	// accepts reports whether p is a request that it can sign.
	accepts(p *prepared, scope string) bool
	sign(p *prepared, scope string, now time.Time)
}

// newSigner returns the signer of a secret, with what of it must be hidden in
// answers; nil for a secret that goes into a header.
func newSigner(s InjectedSecret) (sign signer, hide []string, err error) {
	switch s.Scheme {
	case exporter.SecretAWS:
		key, err := grant.AWSKeyOf(s.Value)
		if err != nil {
			return nil, nil, err
		}
		hide = []string{key.ID, key.Secret.Reveal()}
		if key.Token.Present() {
			hide = append(hide, key.Token.Reveal())
		}
		return awsSigner{key}, hide, nil
	case exporter.SecretWebhook:
		keys, err := grant.WebhookKeysOf(s.Value)
		if err != nil {
			return nil, nil, err
		}
		for _, k := range keys {
			// With padding and without, as an answer may have it.
			text := base64.StdEncoding.EncodeToString([]byte(k.Reveal()))
			hide = append(hide, text, strings.TrimRight(text, "="))
		}
		return webhookSigner{keys}, hide, nil
	case exporter.SecretHeader:
	}
	return nil, nil, nil
}

// Headers of Standard Webhooks 1.0.0 in Go's canonical form.
const (
	webhookID        = "Webhook-Id"
	webhookTimestamp = "Webhook-Timestamp"
	webhookSignature = "Webhook-Signature"
)

// webhookSigner signs as Standard Webhooks 1.0.0, with each of its keys: a
// receiver accepts a message if one signature is of a key that it knows.
type webhookSigner struct{ keys []grant.Secret }

func (webhookSigner) headers() []string { return []string{webhookTimestamp, webhookSignature} }

func (webhookSigner) accepts(p *prepared, _ string) bool {
	id := p.header.Values(webhookID)
	// A full stop separates what is signed.
	return len(id) == 1 && id[0] != "" && !strings.Contains(id[0], ".")
}

func (s webhookSigner) sign(p *prepared, _ string, now time.Time) {
	seconds := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(s.keys))
	for i, k := range s.keys {
		mac := hmac.New(sha256.New, []byte(k.Reveal()))
		mac.Write([]byte(p.header.Get(webhookID) + "." + seconds + "."))
		mac.Write(p.body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	p.header.Set(webhookTimestamp, seconds)
	p.header.Set(webhookSignature, strings.Join(signatures, " "))
}

// awsSigner signs with Signature Version 4.
type awsSigner struct{ key grant.AWSKey }

func (awsSigner) headers() []string {
	return []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"}
}

func (awsSigner) accepts(p *prepared, scope string) bool {
	region, service, ok := strings.Cut(scope, "/")
	plain := p.url.EscapedPath()
	// A path that AWS would take apart in another way than the server on the
	// way there is not signed.
	tidy := plain == "" || path.Clean(plain) == plain || path.Clean(plain)+"/" == plain
	return ok && scopeName(region) && scopeName(service) && tidy && !strings.Contains(p.url.RawQuery, "+")
}

func scopeName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (s awsSigner) sign(p *prepared, scope string, now time.Time) {
	date := now.UTC().Format("20060102T150405Z")
	p.header.Set("X-Amz-Date", date)
	if s.key.Token.Present() {
		p.header.Set("X-Amz-Security-Token", s.key.Token.Reveal())
	}
	region, service, _ := strings.Cut(scope, "/")
	credential := strings.Join([]string{date[:8], region, service, "aws4_request"}, "/")
	names, canonical := awsCanonical(p)
	toSign := "AWS4-HMAC-SHA256\n" + date + "\n" + credential + "\n" + hexSHA256([]byte(canonical))
	key := []byte("AWS4" + s.key.Secret.Reveal())
	for part := range strings.SplitSeq(credential, "/") {
		key = hmacSHA256(key, part)
	}
	p.header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+s.key.ID+"/"+credential+
		", SignedHeaders="+names+", Signature="+hexText(hmacSHA256(key, toSign)))
}

// setSigner binds the secret that signs p, of which there is at most one.
func (p *prepared) setSigner(s signer, scope string) string {
	if p.signer != nil {
		return reasonHeaderRefused
	}
	if !s.accepts(p, scope) {
		return reasonNotSignable
	}
	for _, name := range s.headers() {
		if _, taken := p.header[name]; taken {
			return reasonHeaderRefused
		}
	}
	p.signer, p.scope = s, scope
	return ""
}

// canonicalOwned lists the headers that a secret sets.
func canonicalOwned(s InjectedSecret, sign signer) []string {
	if sign != nil {
		return sign.headers()
	}
	return []string{http.CanonicalHeaderKey(s.Header)}
}
