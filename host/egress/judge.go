package egress

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Refuses returns the code of the rule for which a request would not be sent,
// and a sentence for people; empty if it would be. call is what [Client.Begin]
// gave. Nothing is sent: it is for an author who tries a plugin out.
func (c *Client) Refuses(call *Call, r capability.Request) (reason, sentence string) {
	_, reason = c.prepare(call, &r)
	return reason, sentences[reason]
}

// Judge notes in call what [Client.Send] would have noted of a response to a
// request that it sent. Nothing is sent.
func (c *Client) Judge(call *Call, r capability.Request, response capability.Response) {
	now := c.now()
	a := answer{
		failure: response.Failure, reason: response.Reason, status: response.Status,
		headers: response.Headers, body: response.Body, started: now, finished: now,
		read: reads(r.Method),
	}
	header := http.Header{}
	for _, h := range response.Headers {
		header.Add(h.Name, h.Value)
	}
	a.requestID = c.requestID(header)
	if a.status == http.StatusTooManyRequests || a.status >= 500 {
		a.retryAfter = parseRetryAfter(header.Values("Retry-After"), now)
	}
	if a.failure == capability.FailureNone && isJSON(header.Get("Content-Type")) && !strings.EqualFold(r.Method, http.MethodHead) &&
		a.status != http.StatusNoContent && !json.Valid(a.body) {
		a.reason = reasonMalformed
	}
	p := &prepared{}
	_ = p.bindItems(call, r.Items)
	x := &exchange{items: p.items, started: now}
	verdicts := make([]exporter.Exchange, len(x.items))
	for i, it := range x.items {
		verdicts[i] = c.classify(a, it, len(x.items) == 1)
	}
	call.finish(x, verdicts)
}
