package providerdouble

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Lago takes batches of events as Lago does: whole or not at all, with the
// positions of what is not valid. A transaction_id is known for ever.
type Lago struct {
	Server
	// Token is what requests carry as a bearer token. Set before Start.
	Token string

	taken map[string]lagoEvent
	order []string
}

// lagoBatchMax is LAGO_EVENTS_BATCH_MAX_LENGTH.
const lagoBatchMax = 100

type lagoEvent struct {
	TransactionID  string         `json:"transaction_id"`
	SubscriptionID string         `json:"external_subscription_id"`
	Code           string         `json:"code"`
	Timestamp      any            `json:"timestamp"`
	Properties     map[string]any `json:"properties"`
}

// Start listens.
func (l *Lago) Start(ctx context.Context) error {
	l.taken = map[string]lagoEvent{}
	return l.Server.Start(ctx, l.serveAPI)
}

// Value returns the value that was taken under a transaction_id.
func (l *Lago) Value(id string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.taken[id]
	value, _ := e.Properties["value"].(string)
	return value, ok
}

// Events is how many were taken.
func (l *Lago) Events() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// Put takes an event that somebody else sent.
func (l *Lago) Put(id, subscription, code, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(lagoEvent{TransactionID: id, SubscriptionID: subscription, Code: code, Properties: map[string]any{"value": value}})
}

func (l *Lago) put(e lagoEvent) {
	l.taken[e.TransactionID] = e
	l.order = append(l.order, e.TransactionID)
}

func (l *Lago) serveAPI(w http.ResponseWriter, r *http.Request, body []byte) {
	const batch, event = "/api/v1/events/batch", "/api/v1/events/"
	id, one := strings.CutPrefix(r.URL.Path, event)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+l.Token:
		answer(w, http.StatusUnauthorized, `{"status":401,"error":"Unauthorized"}`)
	case r.Method == http.MethodPost && r.URL.Path == batch:
		l.batch(w, body)
	case r.Method == http.MethodGet && one:
		l.event(w, id)
	default:
		answer(w, http.StatusNotFound, `{"status":404,"error":"Not Found","code":"not_found"}`)
	}
}

func (l *Lago) event(w http.ResponseWriter, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.taken[id]
	if !ok {
		answer(w, http.StatusNotFound, `{"status":404,"error":"Not Found","code":"event_not_found"}`)
		return
	}
	reply(w, http.StatusOK, map[string]any{"event": e})
}

func (l *Lago) batch(w http.ResponseWriter, body []byte) {
	var request struct {
		Events []lagoEvent `json:"events"`
	}
	if json.Unmarshal(body, &request) != nil {
		answer(w, http.StatusBadRequest, `{"status":400,"error":"Bad Request"}`)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	details := map[string]any{}
	switch n := len(request.Events); {
	case n == 0:
		details["events"] = []string{"no_events"}
	case n > lagoBatchMax:
		details["events"] = []string{"too_many_events"}
	default:
		l.validate(request.Events, details)
	}
	if len(details) > 0 {
		reply(w, http.StatusUnprocessableEntity, map[string]any{
			"status": 422, "error": "Unprocessable Entity", "code": "validation_errors", "error_details": details,
		})
		return
	}
	for _, e := range request.Events {
		l.put(e)
	}
	reply(w, http.StatusOK, map[string]any{"events": request.Events})
}

func (l *Lago) validate(events []lagoEvent, details map[string]any) {
	for i, e := range events {
		if e.TransactionID == "" {
			details[strconv.Itoa(i)] = map[string]any{"transaction_id": []string{"value_is_mandatory"}}
		} else if _, known := l.taken[e.TransactionID]; known {
			details[strconv.Itoa(i)] = map[string]any{"transaction_id": []string{"value_already_exist"}}
		} else if e.Code == "" || e.Code == "broken" {
			details[strconv.Itoa(i)] = map[string]any{"code": []string{"value_is_mandatory"}}
		}
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer(w, status, string(text))
}
