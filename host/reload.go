package host

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// drainTime is how long the calls of a version that was replaced may go on.
const drainTime = 30 * time.Second

// reloadable are the fields of a manifest in which a version may differ from
// the one that the host began with. Everything else decides how usage becomes
// items: a change of it takes a start, in which routes and items follow.
var reloadable = []string{"Version", "Hosts", "Secrets", "Answers", "Capabilities", "Rate", "Concurrency"}

// errDisabled is why a plugin that plugins.lock disables is not called.
var errDisabled = errors.New("the plugin is disabled in plugins.lock")

// Reload loads the plugins of a name anew, an exporter's or an installed
// plugin's; of all exporters if the name is empty. Lock, file and secrets are
// read again, and what runs is made of the bytes that were compared with the
// lock. The new version is loaded, configured and asked what it is while the one
// before goes on; then it gets every batch that begins, and the one before is
// closed when its calls have ended. A version that fails in any of this leaves
// everything as it is.
//
// It fails as a whole only if nobody has the name (not_found), or it is the
// store's (unsupported), or this host delivers nothing or stops.
func (h *Host) Reload(ctx context.Context, name string) ([]api.PluginReload, error) {
	if h.cfg.WithoutDelivery {
		return nil, &sdk.Error{Tag: sdk.TagUnsupported, Code: "no_delivery", Rule: "a host that delivers"}
	}
	if !h.beginLoad() {
		return nil, sdk.Unavailable("stopping", nil)
	}
	defer h.loads.Done()
	var list []api.PluginReload
	for _, x := range h.exporters {
		if name == "" || x.settings.Name == name || x.current().plugin.name == name {
			list = append(list, x.reload(ctx))
		}
	}
	if len(list) == 0 && h.storeIs(name) {
		return nil, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "restart_needed", Field: "name", Rule: "an exporter or its plugin; " + name + " is the store, which changes at a start only",
			Hint: "start the server again: it opens the version in plugins.lock and brings the schema up to date",
		}
	}
	if len(list) == 0 && name != "" {
		return nil, &sdk.Error{Tag: sdk.TagNotFound, Field: "name", Rule: "an exporter of this host, or the plugin of one", Hint: "fencepost plugin list"}
	}
	return list, nil
}

// storeIs reports whether the store is the installed plugin of that name.
func (h *Host) storeIs(name string) bool {
	scheme, store, _ := strings.Cut(h.cfg.Settings.Storage.Plugin, ":")
	return name != "" && store == name && (scheme == "exec" || scheme == "wasm")
}

// beginLoad counts a load that Close waits for, unless the host is closing.
func (h *Host) beginLoad() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.loads.Add(1)
	return true
}

// reload replaces the version that runs, if the new one is fit to.
func (x *exporterRuntime) reload(ctx context.Context) api.PluginReload {
	was := x.current()
	out := api.PluginReload{Exporter: x.settings.Name, Plugin: x.settings.Plugin, Was: version(was), Version: version(was)}
	kept := func(err error) api.PluginReload {
		out.Outcome, out.Err = api.ReloadKept, unfit(x.settings.Plugin, err)
		x.host.cfg.Logger.WarnContext(ctx, "plugin not reloaded: the version before goes on", "exporter", x.settings.Name, "error", err)
		return out
	}
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		return kept(sdk.Unavailable("reloading", errors.New("the reload before is not done: calls of an older version still run")))
	}
	was = x.current()
	out.Was, out.Version = version(was), version(was)
	next, err := x.load(ctx, was)
	switch {
	case err != nil:
		<-x.turn
		return kept(err)
	case next == nil:
		<-x.turn
		out.Outcome = api.ReloadUnchanged
		return out
	}
	out.Version = version(next)
	x.replace(was, next)
	out.Outcome = api.ReloadDone
	if next.err != nil {
		out.Outcome = api.ReloadDisabled
	}
	x.host.cfg.Logger.InfoContext(ctx, "plugin reloaded", "exporter", x.settings.Name, "outcome", string(out.Outcome),
		"version", out.Version.Version, "sha256", out.Version.SHA256, "was", out.Was.Version)
	return out
}

// unfit is an error that names the plugin and a rule, whatever went wrong.
func unfit(plugin string, err error) error {
	_, described := errors.AsType[describeError](err) // what it says itself names no plugin
	if _, ok := errors.AsType[*sdk.Error](err); ok && !described {
		return err
	}
	return &sdk.Error{
		Tag: sdk.TagInvalid, Code: "plugin_unfit", Field: plugin, Rule: "started, configured and asked what it is without a fault: " + grant.Sanitize(err.Error()),
		Hint: "fencepost plugin rollback, then reload again", Err: err,
	}
}

func version(l *loaded) api.PluginVersion {
	return api.PluginVersion{Version: l.manifest.Version, SHA256: l.plugin.sha256}
}

// load opens what is installed now beside the version that runs. It returns nil
// if that is what runs.
func (x *exporterRuntime) load(ctx context.Context, was *loaded) (*loaded, error) {
	p, err := x.host.findPlugin(x.settings, x.field)
	if disabled, ok := errors.AsType[*sdk.Error](err); ok && disabled.Code == "plugin_disabled" {
		if errors.Is(was.err, errDisabled) {
			return nil, nil //nolint:nilnil // nothing to do is no error
		}
		next := x.newLoaded(was.plugin)
		next.manifest = was.manifest
		next.settle(errDisabled)
		return next, nil
	}
	if err != nil {
		return nil, err
	}
	next := x.newLoaded(p)
	if next.runsAlready(was) {
		return nil, nil //nolint:nilnil // nothing to do is no error
	}
	behind, err := next.open(ctx)
	if err == nil && behind {
		if err = next.start(ctx); err == nil {
			next.settle(nil)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("version %s: %w", p.version, err), next.close(context.WithoutCancel(ctx)))
	}
	return next, nil
}

// runsAlready reports whether was is this plugin, with the same rights, and
// well.
func (l *loaded) runsAlready(was *loaded) bool {
	select {
	case <-was.opened:
	default:
		return false // it does not get there
	}
	if was.err != nil || was.parked.Load() {
		return false
	}
	l.manifest = was.manifest // to know which secrets it asks for
	granted, err := l.grant()
	a, b := l.plugin, was.plugin
	a.bytes, b.bytes, a.link, b.link = nil, nil, nil, nil
	return err == nil && reflect.DeepEqual(a, b) && reflect.DeepEqual(granted, was.granted)
}

// checkReplaced refuses a version that differs from the first in what only a
// start can change.
func (l *loaded) checkReplaced() error {
	if l.of.current() == nil {
		return nil
	}
	differ := manifestsDiffer(l.of.manifest, l.manifest)
	if len(differ) == 0 {
		return nil
	}
	return &sdk.Error{
		Tag: sdk.TagInvalid, Code: "restart_needed", Field: "plugin " + l.plugin.name + " version " + l.manifest.Version,
		Rule: "to be reloaded, a version differs from the running one in no more than what it may reach and how fast; this one differs in " + strings.Join(differ, ", "),
		Hint: "start the server again: recorded usage is not affected",
	}
}

// manifestsDiffer names the fields, beside the reloadable ones, in which two
// manifests differ.
func manifestsDiffer(a, b exporter.Manifest) []string {
	var differ []string
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name := va.Type().Field(i).Name
		if !slices.Contains(reloadable, name) && !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			differ = append(differ, name)
		}
	}
	return differ
}

// replace gives next the place of was, and closes was behind it. It gives the
// turn back when that is done.
func (x *exporterRuntime) replace(was, next *loaded) {
	x.mu.Lock()
	x.now = next
	x.mu.Unlock()
	close(was.replaced)
	if next.err == nil {
		x.isReady()
	}
	x.host.loads.Go(func() { // the caller's load is counted, so Close does not wait yet
		defer func() { <-x.turn }()
		<-was.opened // it gives up opening
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if err := was.retire(ctx); err != nil {
			x.host.cfg.Logger.Warn("close the version before", "exporter", x.settings.Name, "error", err)
		}
	})
}
