package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func outcomeCases() []Case {
	return []Case{
		{"outcomes/accepted", "a success that names the item is accepted", outcomesAccepted},
		{"outcomes/duplicate", "a duplicate of our own identifier is accepted_earlier", outcomesDuplicate},
		{"outcomes/refused", "a refusal that nothing can mend is rejected, and not mendable", func(t *trial) { outcomesRefused(t, Refuse, false) }},
		{"outcomes/mendable", "a refusal that an operator can mend is rejected and mendable", func(t *trial) { outcomesRefused(t, Mend, true) }},
		{"outcomes/foreign", "an answer about another identifier settles nothing", outcomesForeign},
		{"outcomes/unknown-refusal", "a status of 4xx that the exporter does not understand settles nothing", outcomesUnknownRefusal},
		{"outcomes/rate-limited", "429 is rate_limited, for as long as Retry-After says or the host decides", outcomesRateLimited},
		{"outcomes/server-error", "a status of 5xx settles nothing", outcomesServerError},
		{"outcomes/no-answer", "a timeout and a broken connection settle nothing", outcomesNoAnswer},
		{"outcomes/not-sent", "what was not sent is tried again", outcomesNotSent},
		{"outcomes/garbage", "a success with a body that is not the provider's settles nothing, however odd or large it is", outcomesGarbage},
		{"outcomes/batch-refused", "a batch that the host refused is tried again, or an Error that says that nothing was sent", outcomesBatchRefused},
		{"outcomes/answers-lost", "answers that do not parse, or are fewer than the requests, settle nothing", outcomesAnswersLost},
		{"outcomes/mixed", "answers go to the items that they are about", outcomesMixed},
	}
}

// open are the outcomes that leave an item open.
var open = []exporter.OutcomeKind{exporter.Retry, exporter.Uncertain}

func outcomesAccepted(t *trial) {
	d := t.session().deliver(t.says(Accept), t.items(min(3, t.suite.manifest.MaxBatch))...)
	d.want(t, "a success", exporter.Accepted)
}

func outcomesDuplicate(t *trial) {
	t.has(Duplicate)
	d := t.session().deliver(t.says(Duplicate), t.items(min(3, t.suite.manifest.MaxBatch))...)
	d.want(t, "a duplicate", exporter.AcceptedEarlier)
}

func outcomesRefused(t *trial, a Answer, mendable bool) {
	t.has(a)
	d := t.session().deliver(t.says(a), t.items(min(3, t.suite.manifest.MaxBatch))...)
	d.want(t, "a refusal", exporter.Rejected)
	for _, o := range d.outcomes {
		if o.Mendable != mendable {
			t.failf("after a refusal an item is mendable: %v, want %v", o.Mendable, mendable)
		}
	}
}

// outcomesForeign answers as if the request had carried other identifiers.
func outcomesForeign(t *trial) {
	t.has(Accept)
	tried := false
	for _, a := range []Answer{Accept, Duplicate} {
		if a == Accept && t.provider().AnyBody {
			continue
		}
		names := true
		foreign := script{answer: func(r capability.Request, items []exporter.Item) capability.Response {
			own, _ := t.provider().Answer(a, r, items)
			others := slices.Clone(items)
			for i := range others {
				others[i].Identifier += "9"
				others[i].Customer += "9"
			}
			other, ok := t.provider().Answer(a, r, others)
			if !ok || string(own.Body) == string(other.Body) {
				names = false
			}
			return other
		}}
		d := t.session().deliver(foreign, t.items(1)...)
		if names {
			tried = true
			d.want(t, fmt.Sprintf("the answer %q about another identifier", a), exporter.Retry, exporter.Uncertain, exporter.Conflict)
		}
	}
	if !tried {
		t.skipf("this provider's answers name nothing")
	}
}

func outcomesUnknownRefusal(t *trial) {
	t.overHTTP()
	for _, status := range []int{400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 418, 422, 451, 499} {
		if slices.Contains(t.provider().Definite, status) {
			continue
		}
		for _, body := range []string{"", "{}", "<html>no</html>", `{"error":{"code":"no_such_code_at_all","message":"something else"}}`, `{"error":"text"}`, "null", `[]`} {
			d := t.session().deliver(always(response(status, body)), t.items(1)...)
			d.want(t, fmt.Sprintf("status %d with body %q", status, body), open...)
		}
	}
}

func outcomesRateLimited(t *trial) {
	t.overHTTP()
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "0": 0, "86400": 24 * time.Hour, "": 0, "soon": 0, "-5": 0, "99999999999999999999": 0} {
		var headers []capability.Header
		if value != "" {
			headers = []capability.Header{{Name: "retry-after", Value: value}}
		}
		d := t.session().deliver(always(response(429, "{}", headers...)), t.items(min(2, t.suite.manifest.MaxBatch))...)
		d.want(t, "status 429", exporter.RateLimited)
		for _, o := range d.outcomes {
			if o.RetryAfter != 0 && o.RetryAfter != want { // 0: the host decides, which has read it too
				t.failf("after 429 with Retry-After %q an item waits %s, want %s", value, o.RetryAfter, want)
			}
		}
	}
}

func outcomesServerError(t *trial) {
	t.overHTTP()
	for _, status := range []int{500, 501, 502, 503, 504, 529, 599} {
		for _, body := range []string{"", "{}", "<html>", `{"error":{"code":"x"}}`} {
			d := t.session().deliver(always(response(status, body)), t.items(1)...)
			d.want(t, fmt.Sprintf("status %d", status), append(open, exporter.RateLimited)...)
		}
	}
}

func outcomesNoAnswer(t *trial) {
	for name, r := range indefinite() {
		if r.Failure == capability.FailureNone {
			continue
		}
		// What a half-read answer said does not count.
		r.Status, r.Body = 200, []byte(`{"half":`)
		d := t.session().deliver(always(r), t.items(min(2, t.suite.manifest.MaxBatch))...)
		d.want(t, name, open...)
	}
}

func outcomesNotSent(t *trial) {
	for _, reason := range []string{"no_connection", "host_not_granted", "deadline"} {
		r := capability.Response{Failure: capability.FailureNotSent, Reason: reason}
		d := t.session().deliver(always(r), t.items(min(2, t.suite.manifest.MaxBatch))...)
		d.want(t, "not sending ("+reason+")", exporter.Retry)
	}
}

func outcomesGarbage(t *trial) {
	t.overHTTP()
	wanted := open
	if t.provider().AnyBody {
		wanted = append([]exporter.OutcomeKind{exporter.Accepted}, open...)
	}
	identifier := t.items(1)[0].Identifier
	for name, body := range map[string]string{
		"nothing":       "",
		"a page":        "<html><body>Welcome to the hotel's network</body></html>",
		"half":          `{"id":"` + identifier + `","identifier":"` + identifier + `"`,
		"another shape": `[{"id":5},{"identifier":{}}]`,
		"null":          "null",
		"a number":      "1e400",
		"bytes":         "\xff\xfe\x00\x01",
		"depth":         strings.Repeat("[", 20_000),
		"two documents": `{"id":"x"}{"id":"y"}`,
		"a megabyte":    strings.Repeat(" ", 1<<20),
	} {
		it := t.item(0)
		it.Identifier = identifier
		d := t.session().deliver(always(response(200, body)), it)
		d.want(t, "a success with "+name+" for a body", wanted...)
	}
}

func outcomesBatchRefused(t *trial) {
	refused := script{refuse: &sdk.Error{Tag: sdk.TagInvalid, Code: "batch_refused"}}
	s := t.session()
	s.double.play(refused)
	answer, err := s.call(wirev1.MethodDeliver, wirev1.EncodeDelivery(exporter.Delivery{Items: t.items(min(3, t.suite.manifest.MaxBatch))}))
	if err != nil {
		if sdk.TagOf(err) == sdk.TagUnavailable {
			t.failf("after a batch that was refused: %v, as if something could have been sent", err)
		}
		return
	}
	outcomes, err := wirev1.DecodeOutcomes(answer)
	if err != nil {
		t.fatalf("the outcomes do not parse: %v", err)
	}
	d := delivered{outcomes: outcomes}
	d.want(t, "a batch that was refused", exporter.Retry)
}

func outcomesAnswersLost(t *trial) {
	for name, change := range map[string]func([]byte) []byte{
		"nothing":       func([]byte) []byte { return nil },
		"half":          func(b []byte) []byte { return b[:len(b)-1] },
		"bytes":         func([]byte) []byte { return []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff} },
		"one too many":  func(b []byte) []byte { return append(b, 0x0a, 0x00) },
		"a late length": func([]byte) []byte { return []byte{0x0a, 0x02, 0x2a, 0x7f} },
	} {
		lost := t.says(Accept)
		lost.bytes = change
		d := t.session().deliver(lost, t.items(min(2, t.suite.manifest.MaxBatch))...)
		d.want(t, "answers that are "+name, open...)
	}
}

// outcomesMixed gives each request an answer of its own.
func outcomesMixed(t *trial) {
	kinds := map[Answer]exporter.OutcomeKind{Accept: exporter.Accepted, Duplicate: exporter.AcceptedEarlier, Refuse: exporter.Rejected, Mend: exporter.Rejected}
	items := t.items(min(40, t.suite.manifest.MaxBatch))
	want := map[string][]exporter.OutcomeKind{}
	mixed := script{answer: func(r capability.Request, about []exporter.Item) capability.Response {
		var kind []exporter.OutcomeKind
		var out capability.Response
		switch n := t.random.IntN(6); n {
		case 0, 1, 2, 3:
			a := []Answer{Accept, Duplicate, Refuse, Mend}[n]
			var ok bool
			if out, ok = t.provider().Answer(a, r, about); !ok {
				out, _ = t.provider().Answer(Accept, r, about)
				a = Accept
			}
			kind = []exporter.OutcomeKind{kinds[a]}
		case 4:
			if !t.speaksHTTP() {
				out, kind = unknown("io_error"), open
				break
			}
			out, kind = response(429, "{}"), []exporter.OutcomeKind{exporter.RateLimited}
		default:
			out, kind = unknown("reset"), open
		}
		for i := range about {
			want[about[i].ID] = kind
		}
		return out
	}}
	d := t.session().deliver(mixed, items...)
	for i := range items {
		if o := d.of(items[i].ID); !slices.Contains(want[o.ItemID], o.Kind) {
			t.failf("in a batch of mixed answers an item is %s, want %v", o.Kind, want[o.ItemID])
		}
	}
}
