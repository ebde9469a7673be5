package providerdouble

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
)

// Declared is a provider that does what its author says: it takes what carries an
// identifier that it has not seen, and knows the others again.
//
//	GET /__ledger   what it took, as JSON
type Declared struct {
	Server
	// Identify finds the identifier in a request.
	Identify func(header func(string) string, body []byte) (string, bool)
	// Answer is what it says of an identifier that it takes (again false) or has
	// taken before.
	Answer func(identifier string, again bool) Reply

	taken map[string]*Taking
	order []string
}

// Reply is an answer. Take says that it counts what it answers.
type Reply struct {
	Take   bool
	Status int
	Header http.Header
	Body   []byte
}

// Taking is what the double knows of one identifier.
type Taking struct {
	Identifier string `json:"identifier"`
	// Taken is 1 if it counted it, however often it came.
	Taken    int    `json:"taken"`
	Requests int    `json:"requests"`
	Body     string `json:"body"`
}

// Ledger is what the double took.
type Ledger struct {
	Taken    int      `json:"taken"`
	Requests int      `json:"requests"`
	Items    []Taking `json:"items"`
}

// Start listens.
func (d *Declared) Start(ctx context.Context) error {
	d.taken = map[string]*Taking{}
	return d.Server.Start(ctx, d.receive)
}

// Ledger returns what it took until now, in the order in which it came.
func (d *Declared) Ledger() Ledger {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := Ledger{Items: []Taking{}}
	for _, id := range d.order {
		t := *d.taken[id]
		l.Items = append(l.Items, t)
		l.Taken += t.Taken
		l.Requests += t.Requests
	}
	return l
}

func (d *Declared) receive(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.URL.Path == "/__ledger" {
		text, err := json.MarshalIndent(d.Ledger(), "", "  ")
		if err != nil {
			panic(err) // strings and numbers
		}
		answer(w, http.StatusOK, string(text)+"\n")
		return
	}
	id, ok := d.Identify(r.Header.Get, body)
	if !ok {
		answer(w, http.StatusBadRequest, `{"error":"the request has no identifier where provider.json says"}`)
		return
	}
	reply := d.note(id, body)
	for name, values := range reply.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body)
}

// note counts a request and returns what is said of it.
func (d *Declared) note(id string, body []byte) Reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.taken[id]
	if t == nil {
		t = &Taking{Identifier: id, Body: string(body)}
		d.taken[id] = t
		d.order = append(d.order, id)
	}
	t.Requests++
	reply := d.Answer(id, t.Taken > 0)
	if reply.Take && t.Taken == 0 {
		t.Taken, t.Body = 1, string(body)
	}
	return reply
}
