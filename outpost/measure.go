package outpost

import (
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/outpost/state"
)

// reducer is one of the engine's, as the client computes it.
type reducer struct {
	ID         string
	Definition string
	Feature    string
	Function   state.Function
	Filter     map[string]string
}

// settings are the engine's configuration, compiled. They do not change.
type settings struct {
	measures  meter.Set
	reducers  map[string]reducer   // by id
	byFeature map[string][]reducer // in the order of ids
	meters    map[string]string    // name to the id of its reducer
}

// values are what an event is worth to each reducer that it feeds. It is the
// engine's own code that measures it. // C29, C-T23.
func (s *settings) values(e meter.CloudEvent) ([]state.Value, error) {
	measured, err := s.measures.Apply(e)
	if err != nil {
		return nil, err
	}
	var out []state.Value
	for _, m := range measured {
		for _, r := range s.byFeature[m.Feature] {
			if r.takes(m.Dimensions) {
				out = append(out, state.Value{Reducer: r.ID, Definition: r.Definition, Quantity: m.Quantity})
			}
		}
	}
	return out, nil
}

// takes reports whether a filter selects usage with these dimensions.
func (r reducer) takes(dimensions map[string]string) bool {
	for name, want := range r.Filter {
		if got, ok := dimensions[name]; !ok || got != want {
			return false
		}
	}
	return true
}
