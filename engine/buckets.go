package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// buildSettings is what a generation's buckets were built with: the text that a
// store keeps with the generation.
type buildSettings struct {
	Features map[string]builtFeature `json:"features"`
}

type builtFeature struct {
	// Revision is that of the stored settings. Buckets that were changed and
	// changed back have the same dimensions and another revision.
	Revision   int64    `json:"revision"`
	Dimensions []string `json:"dimensions"`
}

// settingsOf are the settings to build with: every feature that has buckets.
func settingsOf(set storage.RouteSet) buildSettings {
	s := buildSettings{Features: map[string]builtFeature{}}
	for _, f := range set.Features {
		if f.Buckets != nil {
			s.Features[f.Name] = builtFeature{Revision: f.Revision, Dimensions: f.Buckets}
		}
	}
	return s
}

func (s buildSettings) text() (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode settings: %w", err)
	}
	return string(b), nil
}

// readSettings reads the text of a generation. The empty text is that of the
// first generation, which was never built.
func readSettings(text string) (buildSettings, error) {
	var s buildSettings
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, sdk.Unavailable("settings", errors.New("the settings of a generation cannot be read"))
	}
	return s, nil
}

// featureBuckets says what a feature's buckets hold.
type featureBuckets struct {
	generation int64
	revision   int64 // of the stored settings
	dimensions []string
	// complete: the generation was built with exactly those settings, so the
	// buckets hold everything that was recorded.
	complete bool
}

// bucketsOf reads what is known of a feature's buckets. What this host remembers
// of routes will not do: another host may have changed the settings.
func (e *Engine) bucketsOf(ctx context.Context, feature string) (featureBuckets, error) {
	projections, err := need[storage.ProjectionStore](e.cfg.Store, storage.ProjectionGenerations)
	if err != nil {
		return featureBuckets{}, nil //nolint:nilerr // nothing says what the buckets hold
	}
	set, err := e.store.routes.Routes(ctx)
	if err != nil {
		return featureBuckets{}, fmt.Errorf("read routes: %w", err)
	}
	state, err := projections.ProjectionState(ctx)
	if err != nil {
		return featureBuckets{}, fmt.Errorf("read projections: %w", err)
	}
	built, err := readSettings(state.ActiveSettings)
	if err != nil {
		return featureBuckets{}, err
	}
	stored := byName(set.Features)[feature]
	b := featureBuckets{generation: state.Active, revision: stored.Revision, dimensions: stored.Buckets}
	had, ok := built.Features[feature]
	b.complete = ok && stored.Buckets != nil && had.Revision == stored.Revision && slices.Equal(had.Dimensions, stored.Buckets)
	return b, nil
}

// StaleBuckets names the features whose buckets do not hold everything that was
// recorded: they were switched on, or their dimensions changed, since the last
// replay. Usage is answered from events until a replay has rebuilt them.
func (e *Engine) StaleBuckets(ctx context.Context) ([]string, error) {
	if !e.cfg.Store.Describe().Has(storage.Buckets) {
		return nil, nil
	}
	set, err := e.store.routes.Routes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var stale []string
	for name := range settingsOf(set).Features {
		b, err := e.bucketsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		if !b.complete {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return stale, nil
}
