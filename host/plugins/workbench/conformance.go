package workbench

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// CaseResult is how one case of the suite ended where the plugin ran.
type CaseResult struct {
	Isolation grant.Isolation    `json:"isolation"`
	Case      string             `json:"case"`
	Rule      string             `json:"rule"`
	Status    conformance.Status `json:"status"`
	Messages  []string           `json:"messages"`
}

// Judging is a run of the suite of exporters.
type Judging struct {
	Artifact Artifact
	Provider conformance.Provider
	// Isolations are where the plugin runs; empty: wherever this artifact can.
	Isolations []grant.Isolation
	// Match selects cases; nil: all.
	Match func(string) bool
	// Each is told of each result as it comes; nil: nobody.
	Each func(CaseResult)
}

// Judge runs the conformance suite over an exporter, wherever it can run.
func (m Machine) Judge(ctx context.Context, j Judging) ([]CaseResult, error) {
	if j.Artifact.Manifest.Kind != grant.KindExporter {
		return nil, sdk.Invalid("file", "an exporter; "+j.Artifact.Manifest.Name+" is of kind "+string(j.Artifact.Manifest.Kind))
	}
	m.Logger = nil // calls that break off are what is tried
	if len(j.Isolations) == 0 {
		j.Isolations = m.isolations(j.Artifact)
	}
	var out []CaseResult
	for _, isolation := range j.Isolations {
		results, err := m.judgeOn(ctx, j, isolation)
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	return out, nil
}

func (m Machine) judgeOn(ctx context.Context, j Judging, isolation grant.Isolation) ([]CaseResult, error) {
	// One instance that is never replaced, so that what it keeps is seen.
	limits := wasm.Limits{MaxInstances: 1, MemoryPages: 512, HighWaterPages: 512, MaxCalls: 1 << 30}
	s, err := conformance.Start(ctx, conformance.Options{
		Provider: j.Provider,
		Open: func(ctx context.Context, double *conformance.Double, setup []conformance.SetupCall) (conformance.Caller, error) {
			at := seat{isolation: isolation, limits: limits, acts: carrier.Host{
				HTTPSend: double.Send, AppendSend: noAppend, SQLDo: noSQL, Now: double.Now, Random: double,
			}}
			for _, c := range setup {
				at.setup = append(at.setup, carrier.SetupCall{Method: c.Method, Request: c.Request})
			}
			c, err := m.open(ctx, j.Artifact, at)
			if err == nil && isolation != grant.InProcess { // it runs before deadlines are measured
				_, _ = c.Call(ctx, uint32(wirev1.MethodDescribe), nil)
			}
			return c, err
		},
		Payload: func(err error) ([]byte, bool) {
			if e, ok := errors.AsType[*carrier.PluginError](err); ok {
				return e.Payload, true
			}
			return nil, false
		},
		Memory: memoryOf(isolation),
	})
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "plugin_broke_off", Field: "plugin " + j.Artifact.Manifest.Name, Rule: "starts as " + string(isolation), Err: err}
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }()
	var out []CaseResult
	for _, c := range conformance.Cases() {
		if j.Match != nil && !j.Match(c.Name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := s.Run(ctx, c)
		res := CaseResult{Isolation: isolation, Case: r.Name, Rule: c.Rule, Status: r.Status, Messages: nonNil(r.Messages)}
		if j.Each != nil {
			j.Each(res)
		}
		out = append(out, res)
	}
	return out, nil
}

// memoryOf is how much a plugin holds, where this process can see it.
func memoryOf(isolation grant.Isolation) func(conformance.Caller) uint64 {
	if isolation != grant.InProcess {
		return nil
	}
	return func(c conformance.Caller) uint64 {
		m, ok := c.(*wasm.Module)
		if !ok || m.Stats().Recycled > 0 {
			return 1 << 62
		}
		return m.Stats().MemoryBytes
	}
}
