package host

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// schemeTV1 is the one way of signing that this version verifies.
const schemeTV1 = "t=,v1="

const (
	signaturesMax     = 16 // of one message: a secret is rolled with two
	signatureBytesMax = 4 << 10
	digestsMax        = 100 // of one look-up
	// toleranceMax bounds what a manifest may ask for.
	toleranceMax = 15 * time.Minute
)

// Webhook takes a message of an exporter's provider: it verifies the signature,
// has the plugin read it, and stores what it says beside the items. The same
// message again changes nothing (O12).
func (h *Host) Webhook(ctx context.Context, name string, header http.Header, body []byte) (api.WebhookAnswer, error) {
	i := slices.IndexFunc(h.exporters, func(x *exporterRuntime) bool { return x.settings.Name == name })
	if i < 0 || h.exporters[i].manifest.Webhook == nil {
		return api.WebhookAnswer{}, &sdk.Error{Tag: sdk.TagNotFound, Field: "exporter", Rule: "an exporter of this host whose provider sends messages"}
	}
	x := h.exporters[i]
	if err := x.verify(header, body); err != nil {
		return api.WebhookAnswer{}, err
	}
	raw, err := x.call(ctx, wirev1.MethodWebhook, wirev1.EncodeWebhook(exporter.Webhook{Body: body, ReceivedAt: h.cfg.Now()}))
	if err != nil {
		return api.WebhookAnswer{}, fmt.Errorf("read the message: %w", err)
	}
	said, err := wirev1.DecodeWebhookAnswer(raw)
	if err != nil {
		return api.WebhookAnswer{}, sdk.Unavailable("message_unreadable", err)
	}
	return x.testify(ctx, said)
}

// verify checks a message's signature by the scheme of the manifest. Neither
// body nor signature is in an error.
func (x *exporterRuntime) verify(header http.Header, body []byte) error {
	w := x.manifest.Webhook
	if w.Scheme != schemeTV1 {
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "signature_scheme", Field: "webhook.scheme", Rule: schemeTV1}
	}
	ref, ok := x.settings.Secrets[w.Secret]
	if !ok {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "webhook_secret_missing", Field: "secrets." + w.Secret,
			Rule: "a secret to verify messages with", Hint: "set it under the exporter's secrets, as env:NAME or file:PATH",
		}
	}
	// Read anew for each message, so that a rolled secret needs no restart.
	secret, err := grant.ResolveSecret(ref, x.host.cfg.Getenv, os.ReadFile)
	if err != nil {
		return sdk.Unavailable("webhook_secret_unreadable", err)
	}
	values := header.Values(w.Header)
	if len(values) != 1 || len(values[0]) > signatureBytesMax {
		return unsigned("signature_missing", "one header "+w.Header)
	}
	return verifyTV1(secret, values[0], body, x.host.cfg.Now(), min(w.Tolerance, toleranceMax))
}

// verifyTV1 checks "t=SECONDS,v1=HEX": HMAC-SHA256 over "SECONDS.BODY". Any of
// several v1 counts; fields of other names are left alone.
func verifyTV1(secret grant.Secret, header string, body []byte, now time.Time, tolerance time.Duration) error {
	var at string
	var signatures [][]byte
	for field := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "t":
			if at != "" {
				return unsigned("signature_malformed", "one t=")
			}
			at = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(signatures) < signaturesMax {
				signatures = append(signatures, sum)
			}
		}
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || len(signatures) == 0 {
		return unsigned("signature_malformed", "t=SECONDS,v1=HEX")
	}
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	want, valid := mac.Sum(nil), false
	for _, got := range signatures {
		valid = hmac.Equal(want, got) || valid
	}
	if !valid {
		return unsigned("signature_invalid", "signed with the secret of this exporter's endpoint")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return unsigned("signature_expired", "signed within "+tolerance.String()+" of now")
	}
	return nil
}

func unsigned(code, rule string) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: code, Field: "signature", Rule: rule}
}

// testify stores what a message says of items. Who signed it may speak only of
// what was sent by this exporter.
func (x *exporterRuntime) testify(ctx context.Context, said exporter.WebhookAnswer) (api.WebhookAnswer, error) {
	x.messages.Lock() // two copies of one message must not both be the first
	defer x.messages.Unlock()
	out := api.WebhookAnswer{ID: messageName(said.ID), Code: grant.Sanitize(said.Code), Counted: said.Counted}
	if len(said.Evidence) == 0 {
		x.host.cfg.Logger.InfoContext(ctx, "a provider's message says nothing of items", "exporter", x.settings.Name, "message", out.ID, "code", out.Code)
	}
	of := map[storage.Hash]exporter.Evidence{}
	var digests []storage.Hash
	for _, e := range said.Evidence {
		digest, ok := digestOf(e.Identifier)
		if !ok || !e.Refused {
			out.Unknown++ // somebody else's, or nothing against an item
			continue
		}
		if _, again := of[digest]; !again {
			of[digest] = e
			digests = append(digests, digest)
		}
	}
	items, _ := x.host.store.(storage.OutboxStore)
	for chunk := range slices.Chunk(digests, digestsMax) {
		page, err := items.ListItems(ctx, storage.ItemQuery{
			Exporter: x.settings.Name, Mode: x.settings.Mode, Digests: chunk, Limit: digestsMax,
		})
		if err != nil {
			return out, fmt.Errorf("look up the items of a message: %w", err)
		}
		out.Unknown += len(chunk) - len(page.Items)
		for _, it := range page.Items {
			if err := x.testifyItem(ctx, it, of[it.Digest], &out); err != nil {
				return out, err
			}
		}
	}
	if said.Counted > len(said.Evidence) {
		x.host.cfg.Logger.WarnContext(ctx, "a provider refused more items than it names: reconcile finds the sums that differ",
			"exporter", x.settings.Name, "message", out.ID, "refused", said.Counted, "named", len(said.Evidence))
	}
	return out, nil
}

func (x *exporterRuntime) testifyItem(ctx context.Context, it storage.Item, e exporter.Evidence, out *api.WebhookAnswer) error {
	text := grant.Sanitize(e.Code)
	if message := grant.Sanitize(e.Message); message != "" {
		text += ": " + message
	}
	act := outbox.Act{Actor: "webhook:" + x.settings.Name, Reason: "message " + out.ID + " of type " + out.Code}
	detail, err := x.host.engine.Item(ctx, it.ItemID)
	if err != nil {
		return err
	}
	for _, a := range detail.Actions {
		if a.Kind == storage.ActionEvidence && a.Actor == act.Actor && a.Reason == act.Reason {
			out.Repeated++
			return nil
		}
	}
	if _, err := x.host.engine.AddEvidence(ctx, it.ItemID, engine.Evidence{
		Kind: outbox.EvidenceProvider, Source: outbox.SourceErrorReport, Finding: outbox.FoundRefused, Text: text,
	}, act); err != nil {
		return fmt.Errorf("store evidence: %w", err)
	}
	out.Evidence++
	return nil
}

// plainName is what providers call their messages.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// messageName is a message's name as it is stored. Two messages never share one:
// by it a repetition is known. A name of another form is told by its hash.
func messageName(id string) string {
	if plainName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digestOf reads an identifier of ours.
func digestOf(identifier string) (d storage.Hash, ok bool) {
	text, ours := strings.CutPrefix(identifier, outbox.IdentifierPrefix)
	if !ours || len(identifier) != outbox.IdentifierLength {
		return d, false
	}
	n, err := hex.Decode(d[:], []byte(text))
	return d, err == nil && n == len(d)
}
