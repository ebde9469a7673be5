package api

import (
	"context"
	"io"
	"net/http"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// WebhookReceiver takes messages of providers. The body is as it came: its
// signature is over these bytes.
type WebhookReceiver interface {
	Webhook(ctx context.Context, exporter string, header http.Header, body []byte) (WebhookAnswer, error)
}

// WebhookAnswer says what a message led to.
type WebhookAnswer struct {
	ID   string `json:"id"`   // the provider's name for it
	Code string `json:"code"` // what it is about
	// Evidence is for how many items something was stored, Repeated for how
	// many it was stored before, Unknown how many are not ours or not refused.
	Evidence int `json:"evidence"`
	Repeated int `json:"repeated"`
	Unknown  int `json:"unknown"`
	// Counted is how many items the message concerns by its own count.
	Counted int `json:"counted"`
}

// postWebhook answers a provider's message: 2xx when all of it is stored, so
// that the provider sends again what was not.
func (s *server) postWebhook(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Webhooks == nil {
		s.fail(w, r, &sdk.Error{Tag: sdk.TagUnsupported, Field: "webhooks", Rule: "a host that takes messages of providers"})
		return
	}
	body, err := io.ReadAll(r.Body) // bounded by guard
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer, err := s.cfg.Webhooks.Webhook(r.Context(), r.PathValue("exporter"), r.Header, body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}
