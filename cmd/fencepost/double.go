package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

func stripeDoubleCommand(a *app) *cobra.Command {
	var cfg stripedouble.Config
	var faults string
	cmd := &cobra.Command{
		Use:   "stripe-double",
		Short: "A stand-in for Stripe on loopback, with a ledger of what it charged",
		Long: "Runs an HTTPS server that answers meter events as Stripe does, keeps a durable ledger\n" +
			"of charges and misbehaves on request. For trying things out and for tests.\n\n" +
			"  /__ledger          what was charged, as JSON\n" +
			"  /__ledger/events   every identifier, one JSON object per line\n" +
			"  /__faults          POST a new schedule\n" +
			"  /__clock           POST {\"advance\":\"25h\"}",
		Example: "  fencepost stripe-double --dir ./stripe --listen 127.0.0.1:12111\n" +
			"  fencepost stripe-double --faults 'after:500@p0.1; before:429(retry_after=1)@p0.05'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runDouble(cmd.Context(), cfg, faults)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:12111", "address; port 0 takes a free one")
	f.StringVar(&cfg.Dir, "dir", "", "folder of the ledger and the certificate (default a new temporary one)")
	f.StringVar(&cfg.Account, "account", "", "account that the keys belong to (default "+stripedouble.DefaultAccount+")")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of random faults")
	f.StringVar(&faults, "faults", "", "schedule of faults")
	f.DurationVar(&cfg.Latency, "latency", 0, "least time of one request")
	f.IntVar(&cfg.RateLimit, "rate-limit", 0, "requests per second beyond which 429 is answered; 0 is none")
	f.DurationVar(&cfg.DedupeWindow, "dedupe-window", 24*time.Hour, "how long an identifier is recognised")
	f.BoolVar(&cfg.Sync, "sync", false, "answer only when the ledger is on the disk")
	return cmd
}

func (a *app) runDouble(ctx context.Context, cfg stripedouble.Config, faults string) error {
	var err error
	if cfg.Faults, err = stripedouble.ParseFaults(faults); err != nil {
		return usageError{fmt.Errorf("--faults: %w", err)}
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "fencepost-stripe-"); err != nil {
			return fmt.Errorf("temporary folder: %w", err)
		}
	}
	cfg.Logger = quietLogger(a.err)
	s, err := stripedouble.New(cfg)
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "base_url: %s\nca_file: %s\nledger: %s/__ledger\n", s.URL(), s.CAFile(), s.URL())
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	if err := s.Close(); err != nil && !errors.Is(err, stripedouble.ErrClosed) {
		return fmt.Errorf("stripe double: %w", err)
	}
	return nil
}
