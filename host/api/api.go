// Package api serves the engine over HTTP. It decodes strictly, calls the
// engine, and answers with the documented shapes; it decides nothing.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Config is what the API serves. Engine and Outbox are required.
type Config struct {
	Engine *engine.Engine
	Outbox storage.OutboxStore
	// Ready reports whether Record could work now. Nil: always.
	Ready func(ctx context.Context) error
	// Degraded lists what is wrong without keeping Record from working.
	Degraded func() []string
	// Metrics serves /metrics. Nil: not served.
	Metrics http.Handler
	// MaxBody bounds a request body. Zero: 1 MiB.
	MaxBody int64
	// RequestTimeout bounds one request. Zero: 30 s.
	RequestTimeout time.Duration
	Logger         *slog.Logger
}

// server holds the handlers.
type server struct{ cfg Config }

// New returns the handler of the whole API.
func New(cfg Config) http.Handler {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 1 << 20
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/events", s.postEvents)
	mux.HandleFunc("GET /v1/events", s.listEvents)
	mux.HandleFunc("GET /v1/events/{id...}", s.getEvent)
	mux.HandleFunc("GET /v1/usage", s.usage)
	mux.HandleFunc("PUT /v1/subscriptions/{tenant}", s.putSubscription)
	mux.HandleFunc("GET /v1/subscriptions/{tenant}", s.getSubscription)
	mux.HandleFunc("GET /v1/subscriptions", s.listSubscriptions)
	mux.HandleFunc("GET /v1/outbox", s.listItems)
	mux.HandleFunc("GET /v1/outbox/stats", s.stats)
	mux.HandleFunc("GET /v1/outbox/{id}", s.getItem)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", s.ready)
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	mux.HandleFunc("/", s.fallback)
	return s.guard(mux)
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
				s.cfg.Logger.ErrorContext(ctx, "handler panicked", "request_id", requestID(ctx), "path", r.URL.Path)
				s.problem(w, r, internalProblem())
			}
		}()
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		next.ServeHTTP(w, r)
	})
}

// ready answers 503 only if Record cannot work; what is wrong besides is listed
// as degraded (Q17a).
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(r.Context()); err != nil {
			s.cfg.Logger.WarnContext(r.Context(), "not ready", "error", err)
			writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable"})
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

func (s *server) fallback(w http.ResponseWriter, r *http.Request) {
	p := problem{Status: http.StatusNotFound, Tag: "not_found", Title: "No such resource"}
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		if m != r.Method && isRoute(m, r.URL.Path) {
			p = problem{Status: http.StatusMethodNotAllowed, Tag: "invalid", Title: "Method not allowed", Field: "method"}
			break
		}
	}
	s.problem(w, r, p)
}

// isRoute reports whether a method is served at a path of ours.
func isRoute(method, path string) bool {
	switch path {
	case "/v1/events":
		return method == http.MethodGet || method == http.MethodPost
	case "/v1/usage", "/v1/outbox", "/v1/outbox/stats", "/v1/subscriptions", "/livez", "/readyz", "/metrics":
		return method == http.MethodGet
	}
	return false
}
