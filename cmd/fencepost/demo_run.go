package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// demoTenants is how many customers the demo has.
const demoTenants = 20

// demoKills is how often the server is killed while it delivers.
const demoKills = 2

// demoPatience bounds the wait for delivery to end after the last kill.
const demoPatience = 3 * time.Minute

// demoRun is one run of the demo.
type demoRun struct {
	app     *app
	flags   demoFlags
	dir     string
	double  *stripedouble.Server
	started time.Time

	base   string
	client *client
	server *exec.Cmd
	exited chan struct{}
	result demoResult
}

func (d *demoRun) say(format string, args ...any) {
	fmt.Fprintf(d.app.err, "%6.1fs  "+format+"\n", append([]any{time.Since(d.started).Seconds()}, args...)...)
}

func (d *demoRun) run(ctx context.Context) error {
	if err := d.configure(ctx); err != nil {
		return err
	}
	d.say("starting the server (the first start compiles the exporter)")
	if err := d.startServer(ctx); err != nil {
		return err
	}
	for i := range demoTenants {
		if err := d.subscribe(ctx, i); err != nil {
			return err
		}
	}
	if err := d.record(ctx); err != nil {
		return err
	}
	for range demoKills {
		if err := d.killOnce(ctx); err != nil {
			return err
		}
	}
	d.say("waiting until everything is delivered")
	if err := d.drain(ctx); err != nil {
		return err
	}
	return d.judge(ctx)
}

// configure writes the configuration of the server to be.
func (d *demoRun) configure(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	text := fmt.Sprintf(`storage: {plugin: "builtin:sqlite", dsn: %q}
listen: %s
state_dir: %q
meters:
  - {feature: input_tokens, event_type: llm.completion, aggregation: sum, value: $.usage.input_tokens, dimensions: {model: $.model}}
features:
  input_tokens: {source: events}
exporters:
  - name: stripe
    plugin: builtin:stripe
    account: %s
    mode: test
    secrets: {api_key: env:STRIPE_API_KEY}
    base_url: %q
    ca_file: %q
    allow_private: ["127.0.0.0/8"]
    rate: 1000
    concurrency: 16
    mapping: {version: 1, features: {input_tokens: {event_name: llm_input_tokens}}}
outbox: {tick: 100ms, page: 50, lease: 10s, base: 300ms, cap: 2s, attempts: 50, rate_limit_delay: 500ms}
`, filepath.Join(d.dir, "fencepost.db"), addr, filepath.Join(d.dir, "state"), stripedouble.DefaultAccount, d.double.URL(), d.double.CAFile())
	d.base = "http://" + addr
	if d.client, err = remoteClient(d.base); err != nil {
		return err
	}
	if err := os.WriteFile(d.configPath(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

func (d *demoRun) configPath() string { return filepath.Join(d.dir, "fencepost.yaml") }

// startServer starts this binary as a server and waits until it is ready.
func (d *demoRun) startServer(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(d.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("server log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "serve", "--config", d.configPath()) //nolint:gosec // this program itself
	cmd.Env = append(os.Environ(), "STRIPE_API_KEY=sk_test_fencepost_demo_only")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed on purpose
		close(exited)
	}()
	d.server, d.exited = cmd, exited
	return d.waitReady(ctx)
}

func (d *demoRun) waitReady(ctx context.Context) error {
	deadline := time.After(2 * time.Minute)
	for !d.client.alive(ctx) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.exited:
			log, _ := os.ReadFile(filepath.Join(d.dir, "server.log"))
			return fmt.Errorf("the server ended: %s", log)
		case <-deadline:
			return errors.New("the server did not become ready")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func (d *demoRun) stopServer() {
	if d.server == nil {
		return
	}
	_ = d.server.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-d.exited:
	case <-time.After(grace + 5*time.Second):
		_ = d.server.Process.Kill()
		<-d.exited
	}
}

func (d *demoRun) subscribe(ctx context.Context, i int) error {
	zones := []string{"UTC", "America/New_York", "Europe/Paris", "Asia/Kolkata"}
	body, err := json.Marshal(map[string]any{
		"anchor": fmt.Sprintf("2026-01-%02dT00:00:00Z", 1+i%31), "interval": "month", "timezone": zones[i%len(zones)],
		"customers": map[string]string{"stripe": fmt.Sprintf("cus_demo%02d", i)},
	})
	if err != nil {
		return fmt.Errorf("encode subscription: %w", err)
	}
	var out api.SubscriptionBody
	r := request{method: http.MethodPut, path: "/v1/subscriptions/" + tenantName(i), media: "application/json", body: body}
	if err := d.client.do(ctx, r, &out); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

func tenantName(i int) string { return fmt.Sprintf("customer-%02d", i) }

// record sends every event once and every tenth again, as a client does that
// is not sure whether its request arrived.
func (d *demoRun) record(ctx context.Context) error {
	d.say("recording %d CloudEvents, and every tenth again", d.flags.events)
	rng := rand.New(rand.NewPCG(d.flags.seed, 2)) //nolint:gosec // sample data
	now := time.Now().UTC()
	var batch []json.RawMessage
	send := func() error {
		if len(batch) == 0 {
			return nil
		}
		body, err := json.Marshal(batch)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		batch = batch[:0]
		var answer api.RecordAnswer
		r := request{method: http.MethodPost, path: "/v1/events", media: "application/cloudevents-batch+json", body: body}
		if err := d.client.do(ctx, r, &answer); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		d.result.Recorded += answer.Summary["inserted"]
		d.result.Duplicates += answer.Summary["duplicate"]
		return nil
	}
	for i := range d.flags.events {
		e := demoEvent(rng, i, now)
		batch = append(batch, e)
		if i%10 == 0 {
			batch = append(batch, e)
		}
		if len(batch) >= 200 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// demoEvent is what an LLM gateway reports of one completion.
func demoEvent(rng *rand.Rand, i int, now time.Time) json.RawMessage {
	models := []string{"small-1", "medium-2", "large-3"}
	tokens := decimal.MustParse(strconv.Itoa(1 + rng.IntN(8000)))
	if rng.IntN(5) == 0 { // cached tokens count a quarter
		tokens = tokens.Add(decimal.MustParse("0.25"))
	}
	at := now.Add(-time.Duration(rng.IntN(3600_000)) * time.Millisecond)
	return json.RawMessage(fmt.Sprintf(
		`{"specversion":"1.0","id":"req-%08d","source":"/llm/gateway","type":"llm.completion","subject":%q,"time":%q,`+
			`"datacontenttype":"application/json","data":{"model":%q,"usage":{"input_tokens":%q}}}`,
		i, tenantName(rng.IntN(demoTenants)), at.Format(time.RFC3339Nano), models[rng.IntN(len(models))], tokens))
}

// killOnce waits until delivery is under way, kills the server with SIGKILL and
// starts it again.
func (d *demoRun) killOnce(ctx context.Context) error {
	before := d.double.Ledger().Requests
	want := before + int64(d.flags.events/5)
	for d.double.Ledger().Requests < want {
		st, err := d.stats(ctx)
		if err == nil && st.States["pending"]+st.States["leased"] == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	d.say("kill -9 in the middle of delivery (%d requests sent so far)", d.double.Ledger().Requests)
	if err := d.server.Process.Kill(); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-d.exited
	d.result.Restarts++
	return d.startServer(ctx)
}

func (d *demoRun) stats(ctx context.Context) (api.StatsAnswer, error) {
	var st api.StatsAnswer
	err := d.client.get(ctx, "/v1/outbox/stats", nil, &st)
	return st, err
}

func (d *demoRun) drain(ctx context.Context) error {
	deadline := time.After(demoPatience)
	for {
		st, err := d.stats(ctx)
		if err != nil {
			return fmt.Errorf("outbox stats: %w", err)
		}
		d.result.States, d.result.StaleWorkers = st.States, st.StaleWorkers
		if st.States["pending"]+st.States["leased"] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return sdk.Unavailable("demo_timeout", errors.New("delivery did not end in time"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// judge compares the engine's totals with the provider's ledger.
func (d *demoRun) judge(ctx context.Context) error {
	var recorded decimal.Decimal
	for i := range demoTenants {
		var u api.UsageAnswer
		if err := d.client.get(ctx, "/v1/usage", map[string]string{"tenant": tenantName(i)}, &u); err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		for _, row := range u.Data {
			v, err := decimal.ParseTotal(string(row.Value))
			if err != nil {
				return fmt.Errorf("usage value: %w", err)
			}
			recorded = recorded.Add(v)
		}
	}
	ledger := d.double.Ledger()
	var charged decimal.Decimal
	for _, total := range ledger.ChargesTotal {
		v, err := decimal.ParseTotal(total)
		if err != nil {
			return fmt.Errorf("ledger value: %w", err)
		}
		charged = charged.Add(v)
	}
	r := &d.result
	r.RecordedTotal, r.ChargedTotal = recorded.String(), charged.String()
	r.DoubleCharges = ledger.DoubleCharges
	r.Lost = r.Recorded - ledger.Events
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	return nil
}
