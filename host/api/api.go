// Package api serves the engine over HTTP. It decodes strictly, calls the
// engine, and answers with the documented shapes; it decides nothing.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Config is what the API serves. Engine and Outbox are required.
type Config struct {
	Engine *engine.Engine
	Outbox storage.OutboxStore
	// Ready reports whether Record could work now. Nil: always.
	Ready func(ctx context.Context) error
	// Restorer lets delivery go on after a restore. Nil: it is refused as
	// unsupported.
	Restorer Restorer
	// Reconciler compares with providers. Nil: it is refused as unsupported.
	Reconciler Reconciler
	// Replays runs replays. Nil: they are refused as unsupported.
	Replays Replayer
	// Plugins are those that the host runs. Nil: they are refused as unsupported.
	Plugins Plugins
	// Webhooks takes messages of providers. Nil: they are refused as unsupported.
	Webhooks WebhookReceiver
	// Degraded lists what is wrong without keeping Record from working.
	Degraded func() []string
	// Observer counts events that are refused before the engine sees them.
	// Nil: nobody.
	Observer engine.Observer
	// Outposts serves GET /v1/outpost, a WebSocket that lasts. Nil: not served.
	Outposts http.Handler
	// Metrics serves /metrics. Nil: not served.
	Metrics http.Handler
	// MaxBody bounds a request body in bytes. Zero: 1 MiB, which is also the
	// most that the engine takes.
	MaxBody int64
	// MaxEvents bounds the events of one request. Zero: 500, as above.
	MaxEvents int
	// RequestTimeout bounds one request. Zero: 30 s.
	RequestTimeout time.Duration
	Logger         *slog.Logger
}

// server holds the handlers.
type server struct {
	cfg Config
	mux *http.ServeMux
}

func (cfg Config) withDefaults() Config {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = meter.MaxBatchBytes
	}
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = meter.MaxBatchEvents
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// New returns the handler of the whole API.
func New(cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	mux := http.NewServeMux()
	s := &server{cfg: cfg, mux: mux}
	mux.HandleFunc("POST /v1/events", s.postEvents)
	mux.HandleFunc("POST /v1/corrections", s.postCorrections)
	mux.HandleFunc("GET /v1/corrections", s.listCorrections)
	mux.HandleFunc("GET /v1/events", s.listEvents)
	mux.HandleFunc("GET /v1/events/{id...}", s.getEvent)
	mux.HandleFunc("GET /v1/usage", s.usage)
	mux.HandleFunc("PUT /v1/subscriptions/{tenant}", s.putSubscription)
	mux.HandleFunc("GET /v1/subscriptions/{tenant}", s.getSubscription)
	mux.HandleFunc("GET /v1/subscriptions", s.listSubscriptions)
	mux.HandleFunc("POST /v1/credits", s.postCredit)
	mux.HandleFunc("GET /v1/credits", s.listCredits)
	mux.HandleFunc("GET /v1/balances", s.balances)
	mux.HandleFunc("GET /v1/replays", s.getReplays)
	mux.HandleFunc("POST /v1/replays", s.postReplay)
	mux.HandleFunc("POST /v1/replays/pause", s.pauseReplay)
	mux.HandleFunc("POST /v1/replays/resume", s.resumeReplay)
	mux.HandleFunc("POST /v1/replays/activate", s.activateReplay)
	mux.HandleFunc("POST /v1/replays/prune", s.pruneReplay)
	mux.HandleFunc("POST /v1/retention/prune", s.prune)
	mux.HandleFunc("GET /v1/outbox", s.listItems)
	mux.HandleFunc("GET /v1/outbox/stats", s.stats)
	mux.HandleFunc("GET /v1/outbox/{id}", s.getItem)
	mux.HandleFunc("POST /v1/outbox/{id}/resolve", s.resolveItem)
	mux.HandleFunc("POST /v1/outbox/{id}/requeue", s.requeueItem)
	mux.HandleFunc("POST /v1/outbox/{id}/abandon", s.abandonItem)
	mux.HandleFunc("POST /v1/outbox/{id}/evidence", s.addEvidence)
	mux.HandleFunc("POST /v1/outbox/backfill", s.backfill)
	mux.HandleFunc("GET /v1/actions", s.listActions)
	mux.HandleFunc("POST /v1/recover/plan", s.recoverPlan)
	mux.HandleFunc("POST /v1/recover/apply", s.recoverApply)
	mux.HandleFunc("POST /v1/recover/restore", s.recoverRestore)
	mux.HandleFunc("POST /v1/recover/adopt", s.recoverAdopt)
	mux.HandleFunc("POST /v1/reconciliations", s.postReconciliation)
	mux.HandleFunc("GET /v1/reconciliations", s.listReconciliations)
	mux.HandleFunc("GET /v1/reconciliations/{id}", s.getReconciliation)
	mux.HandleFunc("GET /v1/reconciliations/{id}/lines", s.reconciliationLines)
	mux.HandleFunc("GET /v1/routes", s.listRoutes)
	mux.HandleFunc("POST /v1/routes/rename", s.renameRoute)
	mux.HandleFunc("POST /v1/routes/retire", s.retireRoute)
	mux.HandleFunc("GET /v1/plugins", s.listPlugins)
	mux.HandleFunc("POST /v1/plugins/reload", s.reloadPlugins)
	mux.HandleFunc("POST /v1/webhooks/{exporter}", s.postWebhook)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", s.ready)
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	mux.HandleFunc("/", s.fallback)
	// A page of another origin, in the browser of whoever can reach this port,
	// must not record on their behalf.
	var origins http.CrossOriginProtection
	origins.SetDenyHandler(http.HandlerFunc(s.crossOrigin))
	return s.lasting(s.guard(origins.Handler(mux)))
}

// lasting serves the connections that last, which have bounds of their own, and
// everything else by next.
func (s *server) lasting(next http.Handler) http.Handler {
	if s.cfg.Outposts == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/outpost" {
			s.cfg.Outposts.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) crossOrigin(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, problem{
		Status: http.StatusForbidden, Tag: sdk.TagInvalid, Title: titles[sdk.TagInvalid],
		Field: "origin", Rule: "no request from a page of another origin",
	})
}

// guard bounds every request, gives it an id, and turns a panic of a handler
// into a problem document instead of a cut connection.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(withRequestID(r.Context()), s.cfg.RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Request-Id", requestID(ctx))
		defer func() {
			if p := recover(); p != nil {
				// The value may hold input; the stack holds none.
				s.cfg.Logger.ErrorContext(ctx, "handler panicked", "request_id", requestID(ctx), "stack", string(debug.Stack()))
				s.problem(w, r, internalProblem())
			}
		}()
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		if !plainText(r.URL.Path) {
			s.fail(w, r, sdk.Invalid("path", "valid UTF-8 without NUL"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready answers 503 only if Record cannot work; what is wrong besides is listed
// as degraded (Q17a).
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(r.Context()); err != nil {
			s.cfg.Logger.WarnContext(r.Context(), "not ready", "error", err)
			p := problem{Status: http.StatusServiceUnavailable, Tag: sdk.TagUnavailable, Title: "Nothing can be recorded now", Retryable: true}
			if e, ok := errors.AsType[*sdk.Error](err); ok {
				p.Code, p.Rule = e.Code, e.Rule
			}
			s.problem(w, r, p)
			return
		}
	}
	body := map[string]any{"status": "ok"}
	if s.cfg.Degraded != nil {
		if reasons := s.cfg.Degraded(); len(reasons) > 0 {
			body["status"], body["degraded"] = "degraded", reasons
		}
	}
	writeJSON(w, http.StatusOK, body)
}

// fallback answers what no route does: with the methods of the path, if it has
// any.
func (s *server) fallback(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		s.problem(w, r, problem{Status: http.StatusNotFound, Tag: sdk.TagNotFound, Title: "No such resource"})
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	s.problem(w, r, problem{
		Status: http.StatusMethodNotAllowed, Tag: sdk.TagInvalid, Title: titles[sdk.TagInvalid],
		Field: "method", Rule: "one of " + strings.Join(allow, ", "),
	})
}
