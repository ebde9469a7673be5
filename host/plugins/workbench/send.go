package workbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// send is the http capability: it looks at what the plugin asks for, answers as
// the trial says, and notes both.
func (b *bench) send(ctx context.Context, batch []byte) ([]byte, error) {
	requests, err := wirev1.DecodeRequests(batch)
	if err != nil {
		return nil, fmt.Errorf("decode requests: %w", err)
	}
	if b.call == nil {
		return nil, errors.New("nothing is sent before a delivery")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var responses []capability.Response
	if b.trial.Live != nil {
		if responses, err = b.client.Send(ctx, requests); err != nil {
			return wirev1.EncodeResponses(nil, err), nil
		}
	}
	for i, r := range requests {
		sent := Sent{Request: b.shown(r)}
		sent.Refused, sent.Why = b.client.Refuses(b.call, r)
		switch {
		case b.trial.Live != nil:
		case sent.Refused != "":
			responses = append(responses, capability.Response{Failure: capability.FailureNotSent, Reason: sent.Refused})
		default:
			responses = append(responses, b.answer(r))
		}
		if b.trial.Live == nil {
			b.client.Judge(b.call, r, responses[i])
		}
		sent.Answer = answerOf(responses[i])
		b.requests = append(b.requests, sent)
		if sent.Refused == "" { // what is refused is refused again
			b.recorded = append(b.recorded, Exchange{Request: requestOf(r, b.trial.Input.Configuration.BaseURL), Answer: sent.Answer})
		}
	}
	return wirev1.EncodeResponses(responses, nil), nil
}

// answer is what the plugin is told where nothing is sent.
func (b *bench) answer(r capability.Request) capability.Response {
	switch {
	case b.player != nil:
		response, _ := b.player.answer(requestOf(r, b.trial.Input.Configuration.BaseURL))
		return response
	case b.trial.Provider != nil:
		var items []exporter.Item
		for _, id := range r.Items {
			for _, it := range b.trial.Input.Items {
				if it.ID == id {
					items = append(items, it)
				}
			}
		}
		if response, ok := b.trial.Provider.Answer(b.trial.Say, r, items); ok {
			return response
		}
	}
	return capability.Response{Failure: capability.FailureNotSent, Reason: "not_live"}
}

// shown is a request with a mark where the host puts a secret.
func (b *bench) shown(r capability.Request) Request {
	out := requestOf(r, "")
	for _, name := range r.Secrets {
		for _, s := range b.manifest.Secrets {
			if s.Name != name {
				continue
			}
			switch s.Scheme {
			case exporter.SecretHeader:
				out.Headers = append(out.Headers, Header{s.Header, s.Prefix + "<" + name + ">"})
			case exporter.SecretAWS:
				out.Headers = append(out.Headers, Header{"Authorization", "AWS4-HMAC-SHA256 <" + name + ">"})
			case exporter.SecretWebhook:
				out.Headers = append(out.Headers, Header{"webhook-signature", "v1,<" + name + ">"})
			}
		}
	}
	return out
}
