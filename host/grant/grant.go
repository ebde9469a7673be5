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
	// Mode of the exporter, "test" or "live". Any other allows no secret that
	// its manifest tells apart by mode.
	Mode string
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
// everything that is missing. A secret whose value is not one of the grant's
// mode has code secret_of_other_mode; that error names the secret, the mode and
// how a value must begin, never the value. A secret that signs and whose value
// cannot has code secret_malformed. A nil error means that the plugin may run.
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
		if err := checkModes(manifest, g); err != nil {
			return err
		}
		return checkSchemes(manifest, g)
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

// checkModes refuses a secret of the other mode. A provider may take such a key
// and charge for everything before anybody can see the mistake.
func checkModes(manifest exporter.Manifest, g Grant) error {
	for _, s := range manifest.Secrets {
		var own, other []string
		switch g.Mode {
		case "test":
			own, other = s.TestPrefixes, s.LivePrefixes
		case "live":
			own, other = s.LivePrefixes, s.TestPrefixes
		default:
			if len(s.TestPrefixes)+len(s.LivePrefixes) > 0 {
				return otherMode(manifest, g.Mode, s.Name, "has a mode, test or live, to be checked against")
			}
		}
		value := g.Secrets[s.Name]
		switch {
		case len(own) > 0 && !value.beginsWith(own):
			return otherMode(manifest, g.Mode, s.Name, "begins with "+quoteAny(own))
		case len(own) == 0 && value.beginsWith(other):
			return otherMode(manifest, g.Mode, s.Name, "does not begin with "+quoteAny(other))
		}
	}
	return nil
}

func otherMode(manifest exporter.Manifest, mode, secret, rule string) error {
	return &sdk.Error{
		Tag:   sdk.TagInvalid,
		Code:  "secret_of_other_mode",
		Field: "plugin " + quote(manifest.Name) + " version " + quote(manifest.Version),
		Rule:  "in mode " + quote(mode) + " the secret " + quote(secret) + " " + rule,
		Hint:  "give the exporter a secret of its own mode, or change its mode in the configuration",
	}
}

// quoteAny lists prefixes that a plugin chose, as many as help.
func quoteAny(prefixes []string) string {
	const shown = 8
	var quoted []string
	for _, p := range prefixes[:min(len(prefixes), shown)] {
		quoted = append(quoted, quote(p))
	}
	if n := len(prefixes) - shown; n > 0 {
		quoted = append(quoted, strconv.Itoa(n)+" more")
	}
	return strings.Join(quoted, " or ")
}

// quote bounds and quotes a name that a plugin chose.
func quote(s string) string { return strconv.Quote(Sanitize(s)) }
