package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// grace is how long a stopping server takes at most; the last part of it, which
// no request can use up, is for writing what was counted.
const (
	grace      = 15 * time.Second
	writeGrace = 5 * time.Second
)

func serveCommand(a *app) *cobra.Command {
	var listen, level string
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve the HTTP API and deliver what is recorded",
		Example: "  fencepost serve --config fencepost.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if listen != "" {
				cfg.Listen = listen
				if err := cfg.Validate(); err != nil {
					return err
				}
			}
			logger, err := a.logger(level)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), cfg, logger)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on, instead of the configured one")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// logger writes lines for people on a terminal and JSON anywhere else.
func (a *app) logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{errors.New("--log-level: debug, info, warn or error")}
	}
	opts := &slog.HandlerOptions{Level: l}
	if f, ok := a.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(a.err, opts)), nil
	}
	return slog.New(slog.NewJSONHandler(a.err, opts)), nil
}

func (a *app) serve(ctx context.Context, cfg config.Config, logger *slog.Logger) error {
	// The address is taken first: a second server on one configuration should
	// say so before it touches the store.
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return &sdk.Error{Tag: sdk.TagInvalid, Field: "listen", Rule: "an address that is free", Err: err, Hint: "another server may be running; name another address with --listen"}
	}
	started := time.Now()
	push, err := openOTLP(ctx, os.Getenv, logger)
	if err != nil {
		_ = ln.Close()
		return err
	}
	opened := hostConfig(cfg, logger, true)
	opened.Tracer, opened.MetricReaders = push.provider(), push.readers
	opened.Loaded = func(string) { debug.FreeOSMemory() }
	h, err := host.Open(ctx, opened)
	if err != nil {
		_ = ln.Close()
		return err
	}
	// Loading the exporter leaves tens of megabytes of garbage that an idle
	// server would keep for minutes.
	debug.FreeOSMemory()
	srv := &http.Server{
		Handler: loopbackHost(namingStore(h.Handler(), storeName(cfg))), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	logger.InfoContext(ctx, "serving", "address", "http://"+ln.Addr().String(), "version", programVersion(), "started_in", time.Since(started).Round(time.Millisecond).String())
	logger.WarnContext(ctx, "no API keys are configured: whoever reaches this loopback address can record and read usage")
	for _, reason := range h.Degraded() {
		logger.WarnContext(ctx, "degraded", "reason", reason)
	}
	select {
	case err = <-ended:
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		logger.InfoContext(ctx, "stopping", "grace", grace.String())
	}
	err = errors.Join(err, a.stop(srv, h, logger))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	push.close(last, logger)
	return err
}

// namingStore says in every answer which store it is about.
func namingStore(next http.Handler, name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(storeHeader, name)
		next.ServeHTTP(w, r)
	})
}

// hostProblem answers a request that names another host.
const hostProblem = `{"type":"https://fencepost.dev/problems/invalid","title":"The request breaks a rule","status":421,` +
	`"tag":"invalid","field":"host","rule":"localhost or a loopback address","retryable":false}` + "\n"

// loopbackHost refuses requests that name another host than this machine. A
// page that a browser shows can make a name of its own point here and would
// then be let in as if it came from here (DNS rebinding).
func loopbackHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if h, _, err := net.SplitHostPort(name); err == nil {
			name = h
		}
		addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
		if !strings.EqualFold(name, "localhost") && (err != nil || !addr.IsLoopback()) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusMisdirectedRequest)
			_, _ = io.WriteString(w, hostProblem) // the client is not one of ours
			return
		}
		next.ServeHTTP(w, r)
	})
}

// stop ends a server in order: no new claims and no new requests, what is in
// flight may end, then everything closes. Delivery and requests end side by
// side: one grace is for both. A client that sends its request slowly must not
// use up what the counters need (F06).
func (a *app) stop(srv *http.Server, h *host.Host, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	requests, cut := context.WithTimeout(ctx, grace-writeGrace)
	defer cut()
	h.StopDelivery()
	if err := srv.Shutdown(requests); err != nil {
		logger.Warn("requests were cut", "error", err)
		_ = srv.Close()
	}
	if err := h.Close(ctx); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	logger.Info("stopped")
	return nil
}
