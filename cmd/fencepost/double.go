package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

func stripeDoubleCommand(a *app) *cobra.Command {
	var cfg stripedouble.Config
	var faults string
	var reject rejections
	cmd := &cobra.Command{
		Use:   "stripe-double",
		Short: "A stand-in for Stripe on loopback, with a ledger of what it charged",
		Long: "Runs an HTTPS server that answers meter events as Stripe does, keeps a durable ledger\n" +
			"of charges and misbehaves on request. For trying things out and for tests.\n\n" +
			"--faults is rules separated by semicolons, phase:kind(name=value,...)@trigger: before, after\n" +
			"or late; a status, or reset, close, slow and others; p0.1, n7, every13, first3 or id=TEXT.\n" +
			"docs/stripe-double.md lists them all.\n\n" +
			"  /__ledger          what was charged, as JSON\n" +
			"  /__ledger/events   every identifier, one JSON object per line\n" +
			"  /__faults          POST a new schedule\n" +
			"  /__clock           POST {\"advance\":\"25h\"}\n" +
			"  /__reports         what was refused after it was taken, as JSON\n" +
			"  /__reject          POST {\"code\":\"no_meter\",\"identifiers\":[\"fencepost_1\"]}",
		Example: "  fencepost stripe-double --dir ./stripe --listen 127.0.0.1:12111\n" +
			"  fencepost stripe-double --faults 'after:500@p0.1; before:429(retry_after=1)@p0.05'\n" +
			"  fencepost stripe-double --summary-lag 1m --reject-customer cus_2 --reject-delay 30s \\\n" +
			"    --webhook-url http://127.0.0.1:8080/v1/webhooks/stripe --webhook-secret whsec_try",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			late, err := reject.faults()
			if err != nil {
				return usageError{err}
			}
			return a.runDouble(cmd.Context(), cfg, strings.Join(append(late, faults), ";"))
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
	f.DurationVar(&cfg.SummaryLag, "summary-lag", 0, "how long a summary lacks what was taken")
	f.StringVar(&cfg.WebhookURL, "webhook-url", "", "receiver of error reports (default none: they wait at /__reports)")
	f.StringVar(&cfg.WebhookSecret, "webhook-secret", "", "secret that error reports are signed with")
	f.IntVar(&cfg.Samples, "report-samples", 0, fmt.Sprintf("how many events a report names for each code; -1 is none (default %d)", stripedouble.DefaultSamples))
	f.StringSliceVar(&reject.customers, "reject-customer", nil, "refuse this customer's events after they were taken; may be repeated")
	f.StringSliceVar(&reject.meters, "reject-meter", nil, "refuse this meter's events after they were taken; may be repeated")
	f.StringVar(&reject.code, "reject-code", "meter_event_customer_not_found", "code of those refusals")
	f.DurationVar(&reject.delay, "reject-delay", 0, "how long after they were taken, at most 1h")
	return cmd
}

// rejections are the flags that make the double refuse later what it takes.
type rejections struct {
	customers, meters []string
	code              string
	delay             time.Duration
}

// faults are the rules that do it, as --faults takes them.
func (r rejections) faults() ([]string, error) {
	params := "code=" + r.code
	if r.delay != 0 {
		params += ",delay=" + r.delay.String()
	}
	var rules []string
	add := func(trigger, flag string, names []string) error {
		for _, name := range names {
			rule := "late:reject(" + params + ")@" + trigger + "=" + name
			if parsed, err := stripedouble.ParseFaults(rule); err != nil || parsed.Rules() != 1 {
				return fmt.Errorf("--%s, --reject-code, --reject-delay: a name without semicolons, a code of lower-case letters and underscores, at most 1h", flag)
			}
			rules = append(rules, rule)
		}
		return nil
	}
	return rules, errors.Join(add("customer", "reject-customer", r.customers), add("meter", "reject-meter", r.meters))
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
