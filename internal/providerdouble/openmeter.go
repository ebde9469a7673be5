package providerdouble

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// OpenMeter takes CloudEvents as OpenMeter's ingestion does: a request is read
// as a whole, then its events are taken one after another, so what fails on the
// way has taken those before it. A repeated source and id is not told apart.
type OpenMeter struct {
	Server
	// Token is what requests carry as a bearer token. Set before Start.
	Token string

	taken  map[string][]string // values by source and id
	failAt int
}

// Start listens.
func (o *OpenMeter) Start(ctx context.Context) error {
	o.taken = map[string][]string{}
	return o.Server.Start(ctx, o.ingest)
}

// FailAt lets the next request fail with a 500 at its n-th event, from 1; those
// before it are taken.
func (o *OpenMeter) FailAt(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failAt = n
}

// Taken returns the values that were counted of an id.
func (o *OpenMeter) Taken(source, id string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.taken[source+"\x00"+id]...)
}

type cloudEvent struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time"`
	Data        map[string]any `json:"data"`
}

func (o *OpenMeter) ingest(w http.ResponseWriter, r *http.Request, body []byte) {
	const problem = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"invalid event"}`
	var events []cloudEvent
	switch {
	case r.Header.Get("Authorization") != "Bearer "+o.Token:
		answer(w, http.StatusUnauthorized, `{"title":"Unauthorized","status":401}`)
		return
	case r.Method != http.MethodPost || r.URL.Path != "/api/v1/events":
		answer(w, http.StatusNotFound, `{"title":"Not Found","status":404}`)
		return
	case r.Header.Get("Content-Type") != "application/cloudevents-batch+json", json.Unmarshal(body, &events) != nil:
		answer(w, http.StatusBadRequest, problem)
		return
	}
	for _, e := range events {
		if e.SpecVersion != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" || e.Subject == "" {
			answer(w, http.StatusBadRequest, problem)
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	failAt := o.failAt
	o.failAt = 0
	for i, e := range events {
		if i+1 == failAt {
			answer(w, http.StatusInternalServerError, `{"title":"Internal Server Error","status":500}`)
			return
		}
		key := e.Source + "\x00" + e.ID
		if value, _ := e.Data["value"].(string); len(o.taken[key]) == 0 {
			o.taken[key] = append(o.taken[key], value)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
