// Command all is a plugin that uses every capability.
package main

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

type loud struct{ host capability.Host }

func (loud) Describe(context.Context) (exporter.Manifest, error) {
	return exporter.Manifest{
		Name: "all", Version: "1", MaxBatch: 10,
		Capabilities: []capability.Name{capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName, capability.AppendName, capability.SQLName},
		Hosts:        []string{"api.example.com"},
	}, nil
}

func (loud) Configure(context.Context, exporter.Configuration) error { return nil }

// Deliver asks each capability once and tells what they said in the message.
func (l loud) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	l.host.Log.Write(capability.LevelInfo, "deliver")
	random := make([]byte, 8)
	if err := l.host.Random.Read(random); err != nil {
		return nil, err
	}
	if _, err := l.host.SQL.Do(ctx, capability.Work{Statements: []capability.Statement{{SQL: "SELECT 1", Rows: true}}, End: capability.Rollback}); err != nil {
		return nil, err
	}
	now := l.host.Clock.Now().Format(time.RFC3339Nano)
	out := make([]exporter.ItemOutcome, 0, len(d.Items))
	for _, it := range d.Items {
		responses, err := l.host.HTTP.Send(ctx, []capability.Request{{
			Method: "POST", URL: "https://api.example.com/" + it.Identifier, Items: []string{it.ID},
		}})
		if err != nil {
			return nil, err
		}
		if _, err := l.host.Append.Append(ctx, []capability.Record{{
			Item: it.ID, Identifier: it.Identifier, JSON: []byte(`{"identifier":"` + it.Identifier + `"}`),
		}}); err != nil {
			return nil, err
		}
		out = append(out, exporter.ItemOutcome{
			ItemID: it.ID, Kind: exporter.Uncertain, Code: responses[0].Reason,
			Message: now + " " + hex.EncodeToString(random) + " " + string(responses[0].Body),
		})
	}
	return out, nil
}

func (loud) Close(context.Context) error { return nil }

var plugin = guest.Serve(func(h capability.Host) exporter.Exporter { return loud{h} },
	guest.WithHTTP(), guest.WithLog(), guest.WithClock(), guest.WithRandom(), guest.WithAppend(), guest.WithSQL())

func main() { plugin.Main() }
