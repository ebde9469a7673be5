package grant

import (
	"encoding/base64"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// AWSKey is an access key of AWS.
type AWSKey struct {
	ID     string
	Secret Secret
	Token  Secret // of temporary credentials; absent otherwise
}

// Sizes of the key of Standard Webhooks 1.0.0, in bytes.
const (
	webhookKeyMin = 24
	webhookKeyMax = 64
)

// webhookKeysMax is how many keys may sign at once: two while one is replaced,
// and some to spare.
const webhookKeysMax = 8

// AWSKeyOf takes apart "ACCESS_KEY_ID:SECRET_ACCESS_KEY" or the same with
// ":SESSION_TOKEN" after it. The error, tag invalid, never holds a part of it.
func AWSKeyOf(s Secret) (AWSKey, error) {
	id, rest, _ := strings.Cut(s.Reveal(), ":")
	secret, token, temporary := strings.Cut(rest, ":")
	ok := len(id) >= 16 && len(id) <= 128 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
	if !ok || len(secret) < 16 || strings.Contains(token, ":") || temporary && len(token) < 16 || !printable(secret+token) {
		return AWSKey{}, sdk.Invalid("secret", "ACCESS_KEY_ID:SECRET_ACCESS_KEY, or with :SESSION_TOKEN after it")
	}
	return AWSKey{ID: id, Secret: NewSecret(secret), Token: NewSecret(token)}, nil
}

// WebhookKeysOf takes apart the keys of Standard Webhooks: "whsec_" and base64
// of 24 to 64 bytes, several separated by spaces. Each result holds the bytes of
// one key. The error, tag invalid, never holds a part of it.
func WebhookKeysOf(s Secret) ([]Secret, error) {
	var keys []Secret
	for word := range strings.FieldsSeq(s.Reveal()) {
		text, marked := strings.CutPrefix(word, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !marked || err != nil || len(key) < webhookKeyMin || len(key) > webhookKeyMax {
			return nil, sdk.Invalid("secret", "whsec_ and base64 of a key of 24 to 64 bytes, several separated by spaces")
		}
		keys = append(keys, NewSecret(string(key)))
	}
	if len(keys) == 0 || len(keys) > webhookKeysMax {
		return nil, sdk.Invalid("secret", "1 to 8 keys of Standard Webhooks, whsec_ and base64 each")
	}
	return keys, nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// checkSchemes refuses a secret that the host cannot use as the manifest says: a
// scheme of a later version, or a value that is not of its form. // F45.
func checkSchemes(manifest exporter.Manifest, g Grant) error {
	for _, s := range manifest.Secrets {
		value := g.Secrets[s.Name]
		var err error
		switch s.Scheme {
		case exporter.SecretHeader:
			continue
		case exporter.SecretAWS:
			_, err = AWSKeyOf(value)
		case exporter.SecretWebhook:
			_, err = WebhookKeysOf(value)
		default:
			err = sdk.Invalid("secret", "a scheme that this version has: in a header, aws_sigv4 or standard_webhooks")
		}
		rule := ""
		if e, ok := err.(*sdk.Error); ok { //nolint:errorlint // made above
			rule = "is " + e.Rule
		}
		if s.Header != "" || s.Prefix != "" {
			rule = "has neither header nor prefix, because it signs"
		}
		if rule != "" {
			return &sdk.Error{
				Tag: sdk.TagInvalid, Code: "secret_malformed",
				Field: "plugin " + quote(manifest.Name) + " version " + quote(manifest.Version),
				Rule:  "the secret " + quote(s.Name) + " " + rule,
				Hint:  "correct what the configuration's reference names under secrets",
			}
		}
	}
	return nil
}
