// Package grant holds what an operator allows a plugin, and keeps what nobody
// may see out of sight: typed secrets, and redaction of text that is stored or
// logged.
package grant

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Grant is what an operator allows one plugin. The zero value allows nothing.
// It is not changed once in use.
type Grant struct {
	// Capabilities that the plugin may import.
	Capabilities []capability.Name
	// Hosts, "api.stripe.com" or "host:port", that it may call.
	Hosts []string
	// Endpoint is the "host:port" of the operator's own base_url. If set, it
	// takes the place of the manifest's hosts: the plugin calls it and no
	// other.
	Endpoint string
	// Secrets by the name that the manifest gives them.
	Secrets map[string]Secret
	// AllowPrivate are address ranges that are not public and may be dialled
	// all the same.
	AllowPrivate []netip.Prefix
	// CAFile names a file of certificates trusted beside the system's.
	// Empty: none.
	CAFile string
}

// HostsFor returns the hosts that a plugin with this manifest may call: the
// operator's endpoint, or else what is both declared and granted.
func (g Grant) HostsFor(manifest exporter.Manifest) []string {
	if g.Endpoint != "" {
		return []string{g.Endpoint}
	}
	var hosts []string
	for _, h := range manifest.Hosts {
		if g.hasHost(h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

func (g Grant) hasHost(h string) bool {
	return slices.ContainsFunc(g.Hosts, func(have string) bool { return strings.EqualFold(have, h) })
}

// Check reports what the manifest declares and the grant does not allow. The
// error has tag invalid and code not_granted, names the plugin, its version and
// everything that is missing. A nil error means that the plugin may run.
func Check(manifest exporter.Manifest, g Grant) error {
	var missing []string
	for _, c := range manifest.Capabilities {
		if !slices.Contains(g.Capabilities, c) {
			missing = append(missing, "capability "+quote(string(c)))
		}
	}
	if g.Endpoint == "" {
		for _, h := range manifest.Hosts {
			if !g.hasHost(h) {
				missing = append(missing, "host "+quote(h))
			}
		}
	}
	for _, s := range manifest.Secrets {
		if !g.Secrets[s.Name].Present() {
			missing = append(missing, "secret "+quote(s.Name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	const shown = 20 // a manifest is a stranger's; its lists may be long
	if n := len(missing) - shown; n > 0 {
		missing = append(missing[:shown], "and "+strconv.Itoa(n)+" more")
	}
	return &sdk.Error{
		Tag:   sdk.TagInvalid,
		Code:  "not_granted",
		Field: "plugin " + quote(manifest.Name) + " version " + quote(manifest.Version),
		Rule:  "needs what is not granted: " + strings.Join(missing, ", "),
		Hint:  "grant it under exporters in the configuration, or remove the plugin",
	}
}

// quote bounds and quotes a name that a plugin chose.
func quote(s string) string { return strconv.Quote(Sanitize(s)) }
