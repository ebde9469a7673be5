package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// plugin is a plugin that may be run: what it is was checked, and nothing of it
// has run. One of link and bytes is set.
type plugin struct {
	// name is that in plugins.lock, or what follows "builtin:".
	name    string
	version string
	// sha256 is the digest of bytes in hex; empty for what is linked in.
	sha256 string
	link   exporter.New
	// bytes are a module or a program: what is run is made of them, not of a
	// file.
	bytes     []byte
	isolation grant.Isolation
	// capabilities and hosts are granted. Builtin: the operator who names it
	// grants what it declares.
	capabilities []capability.Name
	hosts        []string
	secrets      []string
	network      bool
	builtin      bool
}

// linkedIn is the isolation of what is part of this program. It cannot be
// chosen.
const linkedIn grant.Isolation = "linked"

// findPlugin finds what a reference names: "builtin:NAME" in this program,
// "wasm:NAME" and "exec:NAME" among the installed, by the name in plugins.lock
// or by the path of the file.
func (h *Host) findPlugin(e config.Exporter, field string) (plugin, error) {
	scheme, name, _ := strings.Cut(e.Plugin, ":")
	var p plugin
	var err error
	switch scheme {
	case "builtin":
		p, err = h.builtin(name, field+".plugin")
	case "wasm", "exec":
		p, err = h.installed(name)
		if err == nil && grant.IsModule(p.bytes) != (scheme == "wasm") {
			err = sdk.Invalid(field+".plugin", "wasm: for a module and exec: for a program")
		}
	default:
		return p, unknownPlugin(field+".plugin", exporterRule, h.builtinExporters())
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", field, err)
	}
	if p.link == nil {
		sum := sha256.Sum256(p.bytes)
		p.sha256 = hex.EncodeToString(sum[:])
	}
	return p, p.isolate(grant.Isolation(e.Isolation), field+".isolation")
}

func (h *Host) builtin(name, field string) (plugin, error) {
	p := plugin{name: name, version: h.cfg.Version, capabilities: exporterCapabilities, builtin: true, isolation: linkedIn}
	if p.link = h.cfg.Builtins.Linked[name]; p.link != nil {
		return p, nil
	}
	load := h.cfg.Builtins.Exporters[name]
	if load == nil {
		return p, unknownPlugin(field, exporterRule, h.builtinExporters())
	}
	var err error
	p.isolation = grant.InProcess
	p.bytes, err = load()
	return p, err
}

const exporterRule = "wasm:NAME or exec:NAME of an installed plugin, or one of"

func (h *Host) builtinExporters() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(h.cfg.Builtins.Exporters)), maps.Keys(h.cfg.Builtins.Linked))
	slices.Sort(names)
	return slices.Compact(names)
}

// installed opens a plugin of plugins.lock: name, digest, signature and grants
// are checked before anything runs.
func (h *Host) installed(name string) (plugin, error) {
	s := h.cfg.Settings.Plugins
	lock, err := grant.LoadLock(s.Lock)
	if err != nil {
		return plugin{}, err
	}
	if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".wasm") {
		// By its file: the entry whose file lies there.
		at := slices.IndexFunc(lock.Plugins, func(l grant.Locked) bool { return sameFile(filepath.Join(s.Dir, l.File), name) })
		if at < 0 {
			return plugin{}, &sdk.Error{
				Tag: sdk.TagInvalid, Code: "plugin_not_installed", Field: "plugin",
				Rule: "a file in " + s.Dir + " that plugins.lock names", Hint: "fencepost plugin install " + name,
			}
		}
		name = lock.Plugins[at].Name
	}
	opened, err := lock.Open(s.Dir, name)
	if err != nil {
		return plugin{}, err
	}
	if opened.Kind != grant.KindExporter {
		return plugin{}, sdk.Invalid("plugin "+opened.Name, "an exporter, not a plugin of kind "+string(opened.Kind))
	}
	return plugin{
		name: opened.Name, version: opened.Version, bytes: opened.Bytes, isolation: opened.Isolation,
		capabilities: opened.Capabilities, hosts: opened.Hosts, secrets: opened.Secrets, network: opened.Network,
	}, nil
}

func sameFile(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

// isolate applies what the configuration says, which counts before the lock.
func (p *plugin) isolate(wanted grant.Isolation, field string) error {
	if wanted == "" {
		return nil
	}
	module := p.link == nil && grant.IsModule(p.bytes)
	switch {
	case module && (wanted == grant.InProcess || wanted == grant.Worker):
		p.isolation = wanted
		return nil
	case !module && p.link == nil && wanted == grant.Process:
		return nil
	case p.link != nil:
		return sdk.Invalid(field, "absent for a plugin that is part of this program")
	case module:
		return sdk.Invalid(field, "inproc or worker for a module")
	default:
		return sdk.Invalid(field, "process for a program")
	}
}
