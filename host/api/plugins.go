package api

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Plugins are those of a host. Nothing here writes the folder of plugins or its
// lock: what is installed changes by an operator's commands only.
type Plugins interface {
	// Plugins lists what runs.
	Plugins() []PluginState
	// Reload loads anew what is installed under a name; empty: all.
	Reload(ctx context.Context, name string) ([]PluginReload, error)
}

// PluginVersion tells two versions apart.
type PluginVersion struct {
	Version string `json:"version"`
	SHA256  string `json:"sha256,omitempty"` // none of what is linked in
}

// The states of a plugin.
const (
	PluginReady    = "ready"
	PluginLoading  = "loading"  // its code is being compiled or started
	PluginFailed   = "failed"   // it could not be loaded; tried again
	PluginParked   = "parked"   // it failed again and again; tried once a minute
	PluginDisabled = "disabled" // in plugins.lock
)

// PluginState is the plugin of one exporter as it runs.
type PluginState struct {
	Exporter string `json:"exporter"`
	Plugin   string `json:"plugin"`
	PluginVersion

	Isolation   string `json:"isolation"`
	State       string `json:"state"`
	Error       string `json:"error,omitempty"`
	Instances   int    `json:"instances"`
	MemoryBytes uint64 `json:"memory_bytes,string"`
}

// ReloadOutcome is what became of a reload.
type ReloadOutcome string

// The outcomes of a reload.
const (
	ReloadDone      ReloadOutcome = "reloaded"
	ReloadUnchanged ReloadOutcome = "unchanged" // what is installed runs already
	ReloadKept      ReloadOutcome = "kept"      // the new version is not fit: the one before goes on
	ReloadDisabled  ReloadOutcome = "disabled"  // nothing is called any more
)

// PluginReload is what became of one exporter's plugin.
type PluginReload struct {
	Exporter string
	Plugin   string
	Outcome  ReloadOutcome
	// Version is what runs now, Was what ran before.
	Version, Was PluginVersion
	Err          error // of kept
}

// PluginReloadView is a [PluginReload] as the API shows it.
type PluginReloadView struct {
	Exporter string        `json:"exporter"`
	Plugin   string        `json:"plugin"`
	Outcome  ReloadOutcome `json:"outcome"`
	PluginVersion

	Was   PluginVersion `json:"was"`
	Error *errorMessage `json:"error,omitempty"`
}

var errNoPlugins = &sdk.Error{Tag: sdk.TagUnsupported, Field: "plugins", Rule: "a host with exporters"}

func (s *server) listPlugins(w http.ResponseWriter, r *http.Request) {
	err := readQuery(r).err
	if err == nil && s.cfg.Plugins == nil {
		err = errNoPlugins
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"data": s.cfg.Plugins.Plugins()})
}

func (s *server) reloadPlugins(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name string `json:"name"`
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "name")
	}
	if err == nil && s.cfg.Plugins == nil {
		err = errNoPlugins
	}
	var done []PluginReload
	if err == nil {
		done, err = s.cfg.Plugins.Reload(r.Context(), in.Name)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	views := make([]PluginReloadView, len(done))
	for i, d := range done {
		views[i] = PluginReloadView{Exporter: d.Exporter, Plugin: d.Plugin, Outcome: d.Outcome, PluginVersion: d.Version, Was: d.Was}
		if d.Err != nil {
			status = http.StatusMultiStatus
			views[i].Error = message(d.Err)
		}
	}
	writeJSON(w, status, map[string]any{"data": views})
}
