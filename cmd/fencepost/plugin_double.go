package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// doubleFlags are how a provider's double behaves.
type doubleFlags struct{ provider, listen, caFile, answer string }

func pluginDouble(a *app) *cobra.Command {
	var f doubleFlags
	cmd := &cobra.Command{
		Use: "double [DIR]", Short: "A stand-in for an exporter's provider on loopback, with a ledger of what it took", Args: optionalDir,
		Long: "Runs an HTTPS server that answers as provider.json in DIR says: accept for an identifier that it has\n" +
			"not seen, duplicate for one that it has. What it took is at /__ledger. For trying a plugin out with\n" +
			"a server or with run --live; that it speaks as the provider does, nobody checks.",
		Example: "  fencepost plugin double --listen 127.0.0.1:12112 --ca-file ./double.pem\n  fencepost plugin double --answer refuse",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.provider == "" {
				f.provider = filepath.Join(dirOf(args), providerFile)
			}
			return a.runProviderDouble(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.provider, "provider", "", "the provider's answers (default provider.json in DIR)")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:12112", "address; port 0 takes a free one")
	fl.StringVar(&f.caFile, "ca-file", "./double.pem", "where the certificate to trust is written")
	fl.StringVar(&f.answer, "answer", "", "say this of everything: accept, duplicate, refuse or mend")
	return cmd
}

func (a *app) runProviderDouble(ctx context.Context, f doubleFlags) error {
	text, err := os.ReadFile(f.provider)
	if err != nil {
		return usageError{errors.New("--provider: how the provider answers, a JSON file; there is no " + f.provider)}
	}
	declared, err := conformance.ParseProvider(text)
	if err != nil {
		return err
	}
	if f.answer != "" && !slices.Contains([]string{"accept", "duplicate", "refuse", "mend"}, f.answer) {
		return usageError{errors.New("--answer: accept, duplicate, refuse or mend")}
	}
	d := &providerdouble.Declared{Identify: declared.Identify, Answer: replies(declared, conformance.Answer(f.answer))}
	d.Listen = f.listen
	if err := d.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := grant.WriteFile(f.caFile, d.PEM(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "base_url: %s\nca_file: %s\nledger: %s/__ledger\n", d.URL(), f.caFile, d.URL())
	<-ctx.Done()
	return nil
}

// replies are the provider's answers; always is what it says of everything.
func replies(declared conformance.Declared, always conformance.Answer) func(string, bool) providerdouble.Reply {
	return func(identifier string, again bool) providerdouble.Reply {
		say := conformance.Accept
		if again {
			say = conformance.Duplicate
		}
		if always != "" {
			say = always
		}
		response, ok := declared.Answer(say, capability.Request{}, []exporter.Item{{Identifier: identifier}})
		if !ok { // it has no such answer: it takes a repetition as it took the first
			response, _ = declared.Answer(conformance.Accept, capability.Request{}, []exporter.Item{{Identifier: identifier}})
		}
		r := providerdouble.Reply{Take: say == conformance.Accept || say == conformance.Duplicate, Status: response.Status, Body: response.Body, Header: http.Header{}}
		for _, h := range response.Headers {
			r.Header.Add(strings.TrimSpace(h.Name), h.Value)
		}
		return r
	}
}
