package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

const (
	awsExample   = "AKIDEXAMPLEAKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	webhookOld   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"         // of the specification's examples
	webhookNew   = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD8AAAAAA=" // another
	awsDate      = "20150830T123600Z"
	awsSignedFor = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="
)

// The signatures are those of AWS's own test suite for Signature Version 4.
func TestSigV4Vectors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method, path, body string
		header             http.Header
		names, signature   string
	}{
		"get-vanilla":                      {"GET", "/", "", nil, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-vanilla-query-order-key-case": {"GET", "/?Param2=value2&Param1=value1", "", nil, "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-vanilla-empty-query-key":      {"GET", "/?Param1=value1", "", nil, "host;x-amz-date", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		"get-header-value-trim":            {"GET", "/", "", http.Header{"My-Header1": {"value1"}, "My-Header2": {"\"a   b   c\""}}, "host;my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		"get-header-value-order":           {"GET", "/", "", http.Header{"My-Header1": {"value4", "value1", "value3", "value2"}}, "host;my-header1;x-amz-date", "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
		"get-vanilla-query-unreserved":     {"GET", "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "", nil, "host;x-amz-date", "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
		"post-vanilla":                     {"POST", "/", "", nil, "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"post-vanilla-query":               {"POST", "/?Param1=value1", "", nil, "host;x-amz-date", "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
		"post-x-www-form-urlencoded":       {"POST", "/", "Param1=value1", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		"post-sts-header-before":           {"POST", "/", "", http.Header{"X-Amz-Security-Token": {stsToken}}, "host;x-amz-date;x-amz-security-token", "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse("https://example.amazonaws.com" + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			p := &prepared{method: tt.method, hostPort: "example.amazonaws.com:443", url: u, header: http.Header{"User-Agent": {"fencepost"}, "Accept-Encoding": {"identity"}}, body: []byte(tt.body)}
			maps.Copy(p.header, tt.header)
			now, err := time.Parse("20060102T150405Z", awsDate)
			if err != nil {
				t.Fatal(err)
			}
			s := awsSigner{grant.AWSKey{ID: "AKIDEXAMPLE", Secret: grant.NewSecret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")}}
			if !s.accepts(p, "us-east-1/service") {
				t.Fatal("not accepted")
			}
			s.sign(p, "us-east-1/service", now)
			if got, want := p.header.Get("Authorization"), awsSignedFor+tt.names+", Signature="+tt.signature; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if got := p.header.Get("X-Amz-Date"); got != awsDate {
				t.Errorf("date %s", got)
			}
		})
	}
}

// The token of AWS's test suite, long expired.
const stsToken = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

// signing is a client whose secrets sign, at a server that keeps what it got.
func signing(t *testing.T) (*Client, *server, *atomic.Pointer[http.Request]) {
	t.Helper()
	var got atomic.Pointer[http.Request]
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"said":"` + r.Header.Get("Authorization") + " " + strings.TrimPrefix(webhookOld, "whsec_") + ` wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}`))
	})
	client := newClient(t, s.host(), func(c *Config) {
		c.Now = fixed(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
		c.Secrets = map[string]InjectedSecret{
			"hook": {Scheme: exporter.SecretWebhook, Value: grant.NewSecret(webhookOld + " " + webhookNew)},
			"aws":  {Scheme: exporter.SecretAWS, Value: grant.NewSecret(awsExample)},
			// A plugin may name two secrets for one header.
			"api_key": {Header: "Authorization", Prefix: "Bearer ", Value: grant.NewSecret(testKey)},
		}
	})
	return client, s, &got
}

func signed(host, secret string, headers ...capability.Header) capability.Request {
	return capability.Request{
		Method: "POST", URL: "https://" + host + "/", Headers: headers, Body: []byte(`{"id":"` + testIdent + `"}`),
		Items: []string{"i1"}, Secrets: []string{secret}, SigningScope: "us-east-1/aws-marketplace",
	}
}

// Standard Webhooks 1.0.0: a signature for each key over id, time and body; the
// time is that of sending, and what answers echo of a key is hidden (F45).
func TestWebhookSignatures(t *testing.T) {
	t.Parallel()
	client, s, got := signing(t)
	response, ex := oneRequest(t, client, signed(s.host(), "hook", capability.Header{Name: "webhook-id", Value: testIdent}))
	if ex.Class != exporter.ClassSuccess {
		t.Fatalf("%+v", ex)
	}
	r := got.Load()
	if at := r.Header.Get("webhook-timestamp"); at != strconv.FormatInt(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Unix(), 10) {
		t.Errorf("timestamp %s", at)
	}
	var want []string
	for _, key := range []string{webhookOld, webhookNew} {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, raw)
		mac.Write([]byte(testIdent + "." + r.Header.Get("webhook-timestamp") + "." + s.requests[0]))
		want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if sig := r.Header.Get("webhook-signature"); sig != strings.Join(want, " ") {
		t.Errorf("%s, want %s", sig, strings.Join(want, " "))
	}
	if body := string(response.Body); strings.Contains(body, "MfKQ9r8") || strings.Contains(body, "wJalr") {
		t.Errorf("the plugin sees a key: %s", body)
	}
}

// F45: what a signer sets, a plugin may not; what it needs must be there.
func TestSignedRequestsRefused(t *testing.T) {
	t.Parallel()
	id := capability.Header{Name: "Webhook-Id", Value: testIdent}
	tests := map[string]struct {
		change func(*capability.Request)
		reason string
	}{
		"no id":         {func(r *capability.Request) { r.Headers = nil }, reasonNotSignable},
		"two ids":       {func(r *capability.Request) { r.Headers = append(r.Headers, id) }, reasonNotSignable},
		"dot in the id": {func(r *capability.Request) { r.Headers[0].Value = "a.b" }, reasonNotSignable},
		"own timestamp": {func(r *capability.Request) {
			r.Headers = append(r.Headers, capability.Header{Name: "webhook-timestamp", Value: "1"})
		}, reasonHeaderRefused},
		"own signature": {func(r *capability.Request) {
			r.Headers = append(r.Headers, capability.Header{Name: "WEBHOOK-SIGNATURE", Value: "v1,x"})
		}, reasonHeaderRefused},
		"own authorization": {func(r *capability.Request) {
			r.Headers = append(r.Headers, capability.Header{Name: "authorization", Value: "x"})
		}, reasonHeaderRefused},
		"own date": {func(r *capability.Request) {
			r.Headers = append(r.Headers, capability.Header{Name: "x-amz-date", Value: "x"})
		}, reasonHeaderRefused},
		"two signers":       {func(r *capability.Request) { r.Secrets = []string{"hook", "aws"} }, reasonHeaderRefused},
		"its header taken":  {func(r *capability.Request) { r.Secrets = []string{"api_key", "aws"} }, reasonHeaderRefused},
		"its header after":  {func(r *capability.Request) { r.Secrets = []string{"aws", "api_key"} }, reasonHeaderRefused},
		"no scope":          {func(r *capability.Request) { r.Secrets, r.SigningScope = []string{"aws"}, "" }, reasonNotSignable},
		"scope of a header": {func(r *capability.Request) { r.Secrets, r.SigningScope = []string{"aws"}, "us-east-1\n/x" }, reasonNotSignable},
		"untidy path":       {func(r *capability.Request) { r.Secrets = []string{"aws"}; r.URL += "a/../b" }, reasonNotSignable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, s, _ := signing(t)
			req := signed(s.host(), "hook", id)
			tt.change(&req)
			response, ex := oneRequest(t, client, req)
			if ex.Class != exporter.ClassNotSent || response.Reason != tt.reason || s.count() != 0 {
				t.Errorf("%+v %+v, %d requests", response, ex, s.count())
			}
		})
	}
}

// The double verifies Signature Version 4 in its own words; here only that the
// request that leaves is the one that was signed.
func TestAWSRequestIsSigned(t *testing.T) {
	t.Parallel()
	client, s, got := signing(t)
	if _, ex := oneRequest(t, client, signed(s.host(), "aws", capability.Header{Name: "X-Amz-Target", Value: "A.B"})); ex.Class != exporter.ClassSuccess {
		t.Fatalf("%+v", ex)
	}
	auth := got.Load().Header.Get("Authorization")
	want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLEAKIDEXAMPLE/20261130/us-east-1/aws-marketplace/aws4_request, SignedHeaders=host;x-amz-date;x-amz-target, Signature="
	if !strings.HasPrefix(auth, want) {
		t.Errorf("%s, want %s...", auth, want)
	}
}

// A secret that cannot sign is refused when the client is made.
func TestUnusableSigners(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]InjectedSecret{
		"no prefix":      {Scheme: exporter.SecretWebhook, Value: grant.NewSecret(strings.TrimPrefix(webhookOld, "whsec_"))},
		"short key":      {Scheme: exporter.SecretWebhook, Value: grant.NewSecret("whsec_AAAA")},
		"no secret":      {Scheme: exporter.SecretAWS, Value: grant.NewSecret("AKIDEXAMPLEAKIDEXAMPLE")},
		"a line break":   {Scheme: exporter.SecretAWS, Value: grant.NewSecret(awsExample + "\nX-Evil: 1")},
		"unknown scheme": {Scheme: "rot13", Header: "Authorization", Value: grant.NewSecret(testKey)},
	} {
		_, err := New(Config{Hosts: []string{"example.com"}, Secrets: map[string]InjectedSecret{"x": s}})
		if err == nil || strings.Contains(err.Error(), s.Value.Reveal()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
