package cloudevents

import (
	"context"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Codes of outcomes, beside http_STATUS.
const (
	CodeUnknown  = "unknown_correction" // of a method that was not declared: nothing is sent
	CodeNotSent  = "not_sent"
	CodeNoAnswer = "no_answer"     // sent, and no whole answer came back
	CodeBusy     = "busy"          // 429
	CodeInvalid  = "invalid"       // refused by itself
	CodeConflict = "conflict"      // the identifier is taken with other content
	CodeUnread   = "not_found"     // it exists, and could not be read back
	CodeRefused  = "batch_refused" // with others, and not yet by itself
)

// delivery is one Deliver on its way. An item without an outcome is still open.
type delivery struct {
	*Exporter
	outcomes map[string]exporter.ItemOutcome
}

// Deliver sends the items in one batch. If it is refused as a whole, what it
// names is sorted out, the rest is sent again without it, and at last each by
// itself: one bad item holds back no other.
func (e *Exporter) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	w := &delivery{Exporter: e, outcomes: make(map[string]exporter.ItemOutcome, len(d.Items))}
	if e.shape == nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	var items []*exporter.Item
	for i := range d.Items {
		it := &d.Items[i]
		if it.Corrects != nil && it.Corrects.Method != exporter.CorrectNegative {
			w.outcomes[it.ID] = exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Retry, Code: CodeUnknown}
			continue
		}
		items = append(items, it)
	}
	if len(items) > 0 {
		if err := w.whole(ctx, items); err != nil {
			return nil, err
		}
	}
	out := make([]exporter.ItemOutcome, 0, len(d.Items))
	for i := range d.Items {
		out = append(out, w.outcomes[d.Items[i].ID])
	}
	return out, nil
}

// whole sends a batch, and what is left of it after a refusal.
func (w *delivery) whole(ctx context.Context, items []*exporter.Item) error {
	alone, exist, err := w.send(ctx, [][]*exporter.Item{items})
	if err != nil {
		return err
	}
	var named, rest []*exporter.Item
	for _, it := range alone {
		if w.outcomes[it.ID].Code == CodeInvalid {
			named = append(named, it)
		} else {
			rest = append(rest, it)
		}
	}
	if len(named)+len(exist) > 0 && len(rest) > 1 {
		again, found, err := w.send(ctx, [][]*exporter.Item{rest})
		if err != nil {
			return err
		}
		rest, exist = again, append(exist, found...)
	}
	singles := make([][]*exporter.Item, 0, len(named)+len(rest))
	for _, it := range append(named, rest...) {
		singles = append(singles, []*exporter.Item{it})
	}
	_, found, err := w.send(ctx, singles)
	if err != nil {
		return err
	}
	return w.readBack(ctx, append(exist, found...))
}

// send sends batches and judges their items. It returns those of refused batches
// that are to be sent by themselves, and those that exist.
func (w *delivery) send(ctx context.Context, batches [][]*exporter.Item) (alone, exist []*exporter.Item, err error) {
	if len(batches) == 0 {
		return nil, nil, nil
	}
	requests := make([]capability.Request, len(batches))
	for i, items := range batches {
		path, contentType, body, err := w.shape.request(items)
		if err != nil {
			return nil, nil, sdk.Invalid("items", "times and texts that JSON has").At(i)
		}
		requests[i] = capability.Request{
			Method: http.MethodPost, URL: w.base + path, Body: body, Secrets: []string{SecretAPIKey},
			Headers: []capability.Header{{Name: "Content-Type", Value: contentType}},
		}
		for _, it := range items {
			requests[i].Items = append(requests[i].Items, it.ID)
		}
	}
	responses, err := w.http.Send(ctx, requests)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the host's own refusal says it all
	}
	for i, items := range batches {
		a, e := w.judge(items, &responses[i])
		alone, exist = append(alone, a...), append(exist, e...)
	}
	return alone, exist, nil
}

// judge says what the answer to a batch means for each of its items.
func (w *delivery) judge(items []*exporter.Item, r *capability.Response) (alone, exist []*exporter.Item) {
	o := exporter.ItemOutcome{Kind: exporter.Uncertain, Code: "http_" + strconv.Itoa(r.Status)}
	switch {
	case r.Failure == capability.FailureNotSent:
		o.Kind, o.Code, o.Message = exporter.Retry, CodeNotSent, r.Reason
	case r.Failure != capability.FailureNone:
		o.Code, o.Message = CodeNoAnswer, r.Reason
	case r.Status >= 200 && r.Status < 300:
		o.Kind, o.Code = exporter.Accepted, ""
	case r.Status == http.StatusTooManyRequests:
		o.Kind, o.Code = exporter.RateLimited, CodeBusy
	case w.shape.refuses(r.Status, r.Body):
		return w.refused(items, r)
	}
	w.all(items, o)
	return nil, nil
}

func (w *delivery) all(items []*exporter.Item, o exporter.ItemOutcome) {
	for _, it := range items {
		o.ItemID = it.ID
		w.outcomes[it.ID] = o
	}
}

// refused sorts the items of a batch of which nothing was taken.
func (w *delivery) refused(items []*exporter.Item, r *capability.Response) (alone, exist []*exporter.Item) {
	for i, v := range w.shape.faulty(len(items), r.Body) {
		o := exporter.ItemOutcome{ItemID: items[i].ID, Kind: exporter.Retry, Code: CodeRefused}
		switch {
		case v == verdictExists:
			o.Code = CodeUnread
			exist = append(exist, items[i])
		case len(items) == 1:
			o.Kind, o.Code = exporter.Rejected, CodeInvalid
		case v == verdictFaulty:
			o.Code = CodeInvalid
			alone = append(alone, items[i])
		default:
			alone = append(alone, items[i])
		}
		w.outcomes[items[i].ID] = o
	}
	return alone, exist
}

// readBack asks for items that exist: it is ours if it says what ours says.
func (w *delivery) readBack(ctx context.Context, items []*exporter.Item) error {
	if len(items) == 0 {
		return nil
	}
	requests := make([]capability.Request, len(items))
	for i, it := range items {
		requests[i] = capability.Request{
			Method: http.MethodGet, URL: w.base + w.shape.lookup(it), Items: []string{it.ID}, Secrets: []string{SecretAPIKey},
		}
	}
	responses, err := w.http.Send(ctx, requests)
	if err != nil {
		return err //nolint:wrapcheck // the host's own refusal says it all
	}
	for i, r := range responses {
		o := exporter.ItemOutcome{ItemID: items[i].ID, Kind: exporter.Retry, Code: CodeUnread}
		if r.Failure == capability.FailureNone && r.Status == http.StatusOK {
			switch found, same := w.shape.same(items[i], r.Body); {
			case found && same:
				o.Kind, o.Code, o.ProviderRef = exporter.AcceptedEarlier, "", items[i].Identifier
			case found:
				o.Kind, o.Code = exporter.Conflict, CodeConflict
			}
		}
		w.outcomes[items[i].ID] = o
	}
	return nil
}
