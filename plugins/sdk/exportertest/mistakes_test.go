package exportertest_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline"
	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// wrong is the sample exporter with one thing done wrong. Nil fields leave it
// right.
type wrong struct {
	exporter.Exporter
	host capability.Host

	manifest  func(*wrong, *exporter.Manifest)
	configure func(*wrong, exporter.Configuration, error) error
	delivery  func(*wrong, *exporter.Delivery)
	outcomes  func(*wrong, exporter.Delivery, []exporter.ItemOutcome) ([]exporter.ItemOutcome, error)
	request   func(w *wrong, i int, r *capability.Request)
	response  func(*capability.Response)
	send      func(*wrong, []capability.Request) []capability.Request
	again     bool // tries again by itself
	lenient   bool // takes a refused batch for an accepted one
	close     error
	// bytes acts on encoded calls.
	bytes func(method uint32, request, output []byte, err error) ([]byte, error)

	seen     []capability.Response // of the last batch
	attempts map[string]int
	kept     [][]byte
}

func (w *wrong) Describe(ctx context.Context) (exporter.Manifest, error) {
	m, err := w.Exporter.Describe(ctx)
	if w.manifest != nil {
		w.manifest(w, &m)
	}
	return m, err
}

func (w *wrong) Configure(ctx context.Context, c exporter.Configuration) error {
	err := w.Exporter.Configure(ctx, c)
	if w.configure != nil {
		err = w.configure(w, c, err)
	}
	return err
}

func (w *wrong) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	w.attempts = map[string]int{}
	for _, it := range d.Items {
		w.attempts[it.ID] = it.Attempt
	}
	asked := d
	if w.delivery != nil {
		d.Items = slices.Clone(d.Items)
		w.delivery(w, &d)
	}
	w.seen = nil
	out, err := w.Exporter.Deliver(ctx, d)
	if w.outcomes != nil && err == nil {
		return w.outcomes(w, asked, out)
	}
	return out, err
}

func (w *wrong) Close(context.Context) error { return w.close }

// Send is the host of the sample below.
func (w *wrong) Send(ctx context.Context, requests []capability.Request) ([]capability.Response, error) {
	for i := range requests {
		if w.request != nil {
			w.request(w, i, &requests[i])
		}
	}
	if w.send != nil {
		requests = w.send(w, requests)
	}
	responses, err := w.host.HTTP.Send(ctx, requests)
	for range 2 {
		if w.again && err == nil && (responses[0].Failure != "" || responses[0].Status >= 500) {
			responses, err = w.host.HTTP.Send(ctx, requests)
		}
	}
	if err != nil && w.lenient {
		responses, err = make([]capability.Response, len(requests)), nil
		for i := range responses {
			responses[i] = capability.Response{Status: 200, Body: []byte(`{"id":` + strconv.Quote(requests[i].Headers[1].Value) + `}`)}
		}
	}
	for i := range responses {
		if w.response != nil {
			w.response(&responses[i])
		}
	}
	w.seen = responses
	return responses, err
}

// carrier runs the sample with a mistake.
func carrier(m wrong) exportertest.Carrier {
	c := exportertest.Linked(func(host capability.Host) exporter.Exporter {
		w := m
		w.host = host
		w.Exporter = meterline.New(capability.Host{HTTP: &w})
		return &w
	})
	open := c.Open
	if m.bytes == nil {
		return c
	}
	c.Open = func(ctx context.Context, d *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error) {
		next, err := open(ctx, d, setup)
		return bytewise{next, m.bytes}, err
	}
	return c
}

type bytewise struct {
	conformance.Caller
	change func(method uint32, request, output []byte, err error) ([]byte, error)
}

func (b bytewise) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	output, err := b.Caller.Call(ctx, method, request)
	return b.change(method, request, output, err)
}

// judged changes the outcomes of answers that f is true for.
func judged(f func(capability.Response) bool, change func(*exporter.ItemOutcome)) func(*wrong, exporter.Delivery, []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
	return func(w *wrong, _ exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
		for i, r := range w.seen {
			if f(r) {
				change(&out[i])
			}
		}
		return out, nil
	}
}

func status(codes ...int) func(capability.Response) bool {
	return func(r capability.Response) bool { return r.Failure == "" && slices.Contains(codes, r.Status) }
}

func failed(f capability.Failure) func(capability.Response) bool {
	return func(r capability.Response) bool { return r.Failure == f }
}

func becomes(k exporter.OutcomeKind) func(*exporter.ItemOutcome) {
	return func(o *exporter.ItemOutcome) { o.Kind = k }
}

func replaced(r *capability.Request, from, to string) {
	r.Body = bytes.ReplaceAll(r.Body, []byte(from), []byte(to))
}

func header(r *capability.Request, name, value string) {
	r.Headers = append(r.Headers, capability.Header{Name: name, Value: value})
}

// throughFloat is how values are most often broken.
func throughFloat(_ *wrong, d *exporter.Delivery) {
	for i := range d.Items {
		f, err := strconv.ParseFloat(d.Items[i].Value, 64)
		if err == nil {
			d.Items[i].Value = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
}

// mistake is one, and the cases that must find it.
type mistake struct {
	name  string
	wrong wrong
	found []string
}

func mistakes() []mistake {
	return slices.Concat(mistakesOfManifest(), mistakesOfItems(), mistakesOfRequests(), mistakesOfOutcomes(), mistakesOfWire())
}

func mistakesOfManifest() []mistake {
	return []mistake{
		{"no largest batch", wrong{manifest: func(_ *wrong, m *exporter.Manifest) { m.MaxBatch = 0 }}, []string{"manifest/sane"}},
		{"a host with its scheme", wrong{manifest: func(_ *wrong, m *exporter.Manifest) { m.Hosts = []string{"https://a.example"} }}, []string{"manifest/sane"}},
		{"a duplicate without our identifier", wrong{manifest: func(_ *wrong, m *exporter.Manifest) {
			m.Answers[0].Contains = "duplicate"
		}}, []string{"manifest/sane", "manifest/answers"}},
		{"a version from the clock", wrong{manifest: func(w *wrong, m *exporter.Manifest) {
			m.Version = w.host.Clock.Now().Format("2006.1.2+150405")
		}}, []string{"manifest/stable"}},
		{"no pattern of the duplicate", wrong{manifest: func(_ *wrong, m *exporter.Manifest) { m.Answers = m.Answers[1:] }}, []string{"manifest/answers"}},
		{"takes any configuration", wrong{configure: func(*wrong, exporter.Configuration, error) error { return nil }}, []string{"configure/nonsense"}},
		{"a refusal without tag", wrong{configure: func(_ *wrong, _ exporter.Configuration, err error) error {
			if err != nil {
				return errors.New("bad")
			}
			return nil
		}}, []string{"configure/nonsense"}},
		{"an address of its own", wrong{request: func(_ *wrong, _ int, r *capability.Request) {
			r.URL = "https://api.meterline.example/v1/usage"
		}}, []string{"configure/base-url"}},
		{"works without configuration", wrong{bytes: func(method uint32, _, output []byte, err error) ([]byte, error) {
			if r, ok := errors.AsType[*conformance.Refusal](err); ok && method == uint32(wirev1.MethodDeliver) && bytes.Contains(r.Payload, []byte("not_configured")) {
				return nil, nil
			}
			return output, err
		}}, []string{"configure/first"}},
	}
}

func mistakesOfItems() []mistake {
	return []mistake{
		{"forgets the last item", wrong{outcomes: func(_ *wrong, _ exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
			return out[:max(len(out)-1, 0)], nil
		}}, []string{"items/each-once"}},
		{"answers the first item twice", wrong{outcomes: func(_ *wrong, _ exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
			for i := range out {
				out[i].ItemID = out[0].ItemID
			}
			return out, nil
		}}, []string{"items/each-once"}},
		{"sends something for nothing", wrong{outcomes: func(w *wrong, d exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
			if len(d.Items) == 0 {
				_, _ = w.host.HTTP.Send(context.Background(), []capability.Request{{Method: "GET", URL: "https://a.example"}})
			}
			return out, nil
		}}, []string{"items/none"}},
		{"cuts identifiers", wrong{delivery: func(_ *wrong, d *exporter.Delivery) {
			for i := range d.Items {
				d.Items[i].Identifier = d.Items[i].Identifier[:min(len(d.Items[i].Identifier), 64)]
			}
		}}, []string{"items/identifier"}},
		{"writes identifiers small", wrong{delivery: func(_ *wrong, d *exporter.Delivery) {
			for i := range d.Items {
				d.Items[i].Identifier = strings.ToLower(d.Items[i].Identifier)
			}
		}}, []string{"items/identifier"}},
		{"a key from randomness", wrong{request: func(w *wrong, _ int, r *capability.Request) {
			var b [8]byte
			_ = w.host.Random.Read(b[:])
			header(r, "X-Request-Id", hex.EncodeToString(b[:]))
		}}, []string{"items/no-chance", "requests/again"}},
		{"a key from the clock", wrong{request: func(w *wrong, _ int, r *capability.Request) {
			header(r, "X-Sent-At", w.host.Clock.Now().Format(time.RFC3339))
		}}, []string{"items/no-chance"}},
		{"a key from the place in the batch", wrong{request: func(_ *wrong, i int, r *capability.Request) {
			header(r, "X-Place", strconv.Itoa(i))
		}}, []string{"items/alone"}},
		{"values through floating point", wrong{delivery: throughFloat}, []string{"items/values"}},
		{"values through floating point, and says so", wrong{delivery: throughFloat, manifest: func(_ *wrong, m *exporter.Manifest) {
			m.Values.SignificantDigits, m.Values.MaxDecimals = 15, 12
		}}, []string{"items/beyond"}},
		{"text in ASCII only", wrong{request: func(_ *wrong, _ int, r *capability.Request) {
			for i, c := range r.Body {
				if c >= 0x80 {
					r.Body[i] = '?'
				}
			}
		}}, []string{"items/unicode"}},
		{"tells every correction as an event", wrong{delivery: func(_ *wrong, d *exporter.Delivery) {
			for i := range d.Items {
				d.Items[i].Corrects = nil
			}
		}}, []string{"items/correction"}},
	}
}

func mistakesOfRequests() []mistake {
	return []mistake{
		{"a key of its own", wrong{request: func(_ *wrong, _ int, r *capability.Request) {
			r.Secrets = nil
			header(r, "Authorization", "Bearer built-in")
		}}, []string{"requests/whole"}},
		{"without encryption", wrong{request: func(_ *wrong, _ int, r *capability.Request) {
			r.URL = strings.Replace(r.URL, "https:", "http:", 1)
		}}, []string{"requests/whole"}},
		{"forgets whom a request reports", wrong{send: func(_ *wrong, requests []capability.Request) []capability.Request {
			for i := range requests {
				requests[i].Items = nil
			}
			return requests
		}}, []string{"requests/whole", "items/each-once"}},
		{"tries again by itself", wrong{again: true}, []string{"requests/once"}},
		{"the attempt in the body", wrong{request: func(w *wrong, _ int, r *capability.Request) {
			replaced(r, `{"id"`, `{"attempt":`+strconv.Itoa(w.attempts[r.Items[0]])+`,"id"`)
		}}, []string{"requests/again"}},
		{"an identifier for each attempt", wrong{request: func(w *wrong, _ int, r *capability.Request) {
			r.Headers[1].Value += "-" + strconv.Itoa(w.attempts[r.Items[0]])
		}}, []string{"requests/again"}},
	}
}

func mistakesOfOutcomes() []mistake {
	return []mistake{
		{"a success is uncertain", wrong{outcomes: judged(status(200), becomes(exporter.Uncertain))}, []string{"outcomes/accepted"}},
		{"a duplicate is a conflict", wrong{outcomes: judged(status(409), becomes(exporter.Conflict))}, []string{"outcomes/duplicate"}},
		{"every refusal can be mended", wrong{outcomes: judged(status(400, 422), func(o *exporter.ItemOutcome) { o.Mendable = true })}, []string{"outcomes/refused"}},
		{"no refusal can be mended", wrong{outcomes: judged(status(400, 422), func(o *exporter.ItemOutcome) { o.Mendable = false })}, []string{"outcomes/mendable"}},
		{"every success is ours", wrong{outcomes: judged(status(200), becomes(exporter.Accepted))}, []string{"outcomes/foreign", "outcomes/garbage"}},
		{"every duplicate is ours", wrong{outcomes: judged(status(409), becomes(exporter.AcceptedEarlier))}, []string{"outcomes/foreign", "outcomes/unknown-refusal"}},
		{"every 4xx is a rejection", wrong{outcomes: judged(status(400, 401, 403, 404, 422), becomes(exporter.Rejected))}, []string{"outcomes/unknown-refusal"}},
		{"429 is any retry", wrong{outcomes: judged(status(429), becomes(exporter.Retry))}, []string{"outcomes/rate-limited"}},
		{"Retry-After in milliseconds", wrong{outcomes: judged(status(429), func(o *exporter.ItemOutcome) { o.RetryAfter /= 1000 })}, []string{"outcomes/rate-limited"}},
		{"an error of the server is a rejection", wrong{outcomes: judged(status(500, 503), becomes(exporter.Rejected))}, []string{"outcomes/server-error"}},
		{"a timeout is a success", wrong{outcomes: judged(failed(capability.FailureUnknown), becomes(exporter.Accepted))}, []string{"outcomes/no-answer", "outcomes/answers-lost", "calls/deadline"}},
		{"a timeout is a rejection", wrong{outcomes: judged(failed(capability.FailureUnknown), becomes(exporter.Rejected))}, []string{"outcomes/no-answer", "calls/deadline"}},
		{"what was not sent is rejected", wrong{outcomes: judged(failed(capability.FailureNotSent), becomes(exporter.Rejected))}, []string{"outcomes/not-sent"}},
		{"breaks off at an odd body", wrong{response: func(r *capability.Response) {
			if r.Status == 200 && !bytes.HasPrefix(r.Body, []byte("{")) {
				panic("unexpected end of JSON input")
			}
		}}, []string{"outcomes/garbage"}},
		{"a refused batch is an error", wrong{outcomes: func(w *wrong, _ exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
			if len(out) > 0 && w.seen == nil {
				return nil, sdk.Unavailable("refused", nil)
			}
			return out, nil
		}}, []string{"outcomes/batch-refused"}},
		{"no answers are good answers", wrong{lenient: true}, []string{"outcomes/batch-refused"}},
		{"answers slip by one", wrong{outcomes: func(_ *wrong, _ exporter.Delivery, out []exporter.ItemOutcome) ([]exporter.ItemOutcome, error) {
			for i := range out {
				j := (i + 1) % len(out)
				out[i].ItemID, out[j].ItemID = out[j].ItemID, out[i].ItemID
			}
			return out, nil
		}}, []string{"outcomes/mixed"}},
	}
}

func mistakesOfWire() []mistake {
	refuse := func(tag sdk.Tag) error {
		return &conformance.Refusal{Payload: wirev1.EncodeError(&sdk.Error{Tag: tag})}
	}
	return []mistake{
		{"knows every field", wrong{bytes: func(_ uint32, request, output []byte, err error) ([]byte, error) {
			if bytes.Contains(request, []byte("\x03new")) {
				return nil, refuse(sdk.TagInvalid)
			}
			return output, err
		}}, []string{"wire/unknown-fields"}},
		{"an unknown failure is none", wrong{response: func(r *capability.Response) {
			if r.Reason == wirev1.ReasonUnknownFailure {
				r.Failure = capability.FailureNone
			}
		}}, []string{"wire/unknown-failure"}},
		{"reads what it can", wrong{bytes: func(_ uint32, _, output []byte, err error) ([]byte, error) {
			if r, ok := errors.AsType[*conformance.Refusal](err); ok && bytes.Contains(r.Payload, []byte("malformed")) {
				return nil, nil
			}
			return output, err
		}}, []string{"wire/malformed"}},
		{"breaks off at what it cannot read", wrong{bytes: func(_ uint32, _, output []byte, err error) ([]byte, error) {
			if r, ok := errors.AsType[*conformance.Refusal](err); ok && bytes.Contains(r.Payload, []byte("malformed")) {
				return nil, errors.New("trap")
			}
			return output, err
		}}, []string{"wire/malformed"}},
		{"answers every method", wrong{bytes: func(method uint32, _, output []byte, err error) ([]byte, error) {
			if method == 0 || method > uint32(wirev1.MethodClose) {
				return nil, nil
			}
			return output, err
		}}, []string{"wire/unknown-method"}},
		{"does not close", wrong{close: errors.New("busy")}, []string{"wire/close"}},
		{"keeps what it was sent", wrong{delivery: func(w *wrong, _ *exporter.Delivery) {
			w.kept = append(w.kept, make([]byte, 64<<10))
		}}, []string{"calls/memory"}},
	}
}

// TestMistakes shows that the suite is not blind: each case finds a mistake, and
// each mistake is found. The last ones measure memory, so nothing runs beside.
func TestMistakes(t *testing.T) { //nolint:paralleltest // memory is measured
	cases := map[string]conformance.Case{}
	for _, c := range conformance.Cases() {
		cases[c.Name] = c
	}
	finds := map[string]int{}
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			c := carrier(m.wrong)
			s, err := conformance.Start(t.Context(), conformance.Options{
				Open: c.Open, Payload: c.Payload, Memory: c.Memory, Provider: meterlinetest.Provider(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			for _, name := range m.found {
				r := s.Run(t.Context(), cases[name])
				if r.Status != conformance.Failed {
					t.Errorf("%s: %s, want a failure", name, r.Status)
				}
				t.Logf("%s: %s", name, strings.Join(r.Messages, "; "))
				finds[name]++
			}
		})
	}
	for name := range cases {
		if finds[name] == 0 {
			t.Errorf("no mistake shows that %s can fail", name)
		}
	}
}

// The sample without a mistake passes everything through the same wrapper.
func TestNoMistake(t *testing.T) { //nolint:paralleltest // memory is measured
	exportertest.Run(t, carrier(wrong{}), meterlinetest.Provider())
}
