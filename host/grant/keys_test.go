package grant

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// F45: a secret that signs is checked before the plugin may run, and the error
// does not repeat it.
func TestSecretsThatSign(t *testing.T) {
	t.Parallel()
	const (
		aws  = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
		hook = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	)
	for name, tt := range map[string]struct {
		secret exporter.Secret
		value  string
		ok     bool
	}{
		"aws":               {exporter.Secret{Scheme: exporter.SecretAWS}, aws, true},
		"aws with token":    {exporter.Secret{Scheme: exporter.SecretAWS}, aws + ":FwoGZXIvYXdzEXAMPLETOKEN", true},
		"aws without":       {exporter.Secret{Scheme: exporter.SecretAWS}, "AKIAIOSFODNN7EXAMPLE", false},
		"aws turned round":  {exporter.Secret{Scheme: exporter.SecretAWS}, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY:AKIAIOSFODNN7EXAMPLE", false},
		"aws, empty token":  {exporter.Secret{Scheme: exporter.SecretAWS}, aws + ":", false},
		"webhook":           {exporter.Secret{Scheme: exporter.SecretWebhook}, hook, true},
		"two webhook keys":  {exporter.Secret{Scheme: exporter.SecretWebhook}, hook + "  " + hook, true},
		"webhook, no mark":  {exporter.Secret{Scheme: exporter.SecretWebhook}, strings.TrimPrefix(hook, "whsec_"), false},
		"webhook, short":    {exporter.Secret{Scheme: exporter.SecretWebhook}, "whsec_c2hvcnQ=", false},
		"webhook, long":     {exporter.Secret{Scheme: exporter.SecretWebhook}, "whsec_" + strings.Repeat("AAAA", 22), false},
		"nine webhook keys": {exporter.Secret{Scheme: exporter.SecretWebhook}, strings.Repeat(hook+" ", 9), false},
		"later scheme":      {exporter.Secret{Scheme: "mtls"}, hook, false},
		"signs and header":  {exporter.Secret{Scheme: exporter.SecretWebhook, Header: "X-Key"}, hook, false},
	} {
		tt.secret.Name = "key"
		m := exporter.Manifest{Name: "x", Version: "1", Secrets: []exporter.Secret{tt.secret}}
		err := Check(m, Grant{Secrets: map[string]Secret{"key": NewSecret(tt.value)}})
		switch {
		case tt.ok && err != nil:
			t.Errorf("%s: %v", name, err)
		case !tt.ok && !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "secret_malformed"}):
			t.Errorf("%s: %v, want secret_malformed", name, err)
		case err != nil && (strings.Contains(err.Error(), "wJalr") || strings.Contains(err.Error(), "MfKQ9")):
			t.Errorf("%s: the error repeats the secret", name)
		}
	}
}
