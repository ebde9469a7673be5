package egress

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// HostOf returns the "host:port" of an https URL such as an operator's
// base_url, in the form that [Config] and grants take. It fails with tag invalid
// if the URL is not https, names no host, or carries user information.
func HostOf(baseURL string) (string, error) {
	u, host, reason := parseURL(baseURL)
	if reason != "" {
		return "", sdk.Invalid("base_url", "an absolute https URL without user information")
	}
	if u.RawQuery != "" {
		return "", sdk.Invalid("base_url", "a URL without a query")
	}
	return host, nil
}

func parseHosts(list []string) (map[string]struct{}, error) {
	if len(list) == 0 {
		return nil, sdk.Invalid("hosts", "at least one")
	}
	hosts := make(map[string]struct{}, len(list))
	for i, h := range list {
		host, ok := canonicalHost(h)
		if !ok {
			return nil, invalidAt("hosts", i, "a host name or host:port, in ASCII, without scheme, path or wildcard")
		}
		hosts[host] = struct{}{}
	}
	return hosts, nil
}

// parseURL takes apart what a plugin wants to call. Reason is empty if it is
// well formed; whether it is granted is another question.
func parseURL(raw string) (u *url.URL, hostPort, reason string) {
	if len(raw) > urlBytesMax {
		return nil, "", reasonURLTooLong
	}
	for i := range len(raw) {
		// Blanks, control characters and bytes that different parsers read
		// differently, the backslash above all.
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}", c) >= 0 {
			return nil, "", reasonURLInvalid
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Host == "" || u.Fragment != "" || strings.HasSuffix(raw, "#") {
		return nil, "", reasonURLInvalid
	}
	if u.Scheme != "https" {
		return nil, "", reasonNotHTTPS
	}
	if u.User != nil || strings.Contains(u.Host, "@") {
		return nil, "", reasonUserInfo
	}
	hostPort, ok := canonicalHost(u.Host)
	if !ok {
		return nil, "", reasonURLInvalid
	}
	u.Host = hostPort
	return u, hostPort, ""
}

// canonicalHost returns "host:port" in lower case with the port spelt out.
func canonicalHost(s string) (string, bool) {
	host, port := s, "443"
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", false
		}
		addr, err := netip.ParseAddr(s[1:end])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		host = addr.String()
		if rest := s[end+1:]; rest != "" {
			if rest[0] != ':' {
				return "", false
			}
			port = rest[1:]
		}
	} else {
		if h, p, found := strings.Cut(s, ":"); found {
			host, port = h, p
		}
		host = strings.ToLower(host)
		if !isHostName(host) {
			return "", false
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// isHostName accepts LDH names and dotted IPv4, with underscores as they occur
// in private zones, and no empty label: a trailing dot is another spelling of
// the same name.
func isHostName(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// checkHost reports why the host may not be called, or "".
func (c *Client) checkHost(hostPort string) string {
	if _, ok := c.hosts[hostPort]; !ok {
		return reasonHostNotGranted
	}
	host, _, _ := net.SplitHostPort(hostPort)
	if addr, err := netip.ParseAddr(host); err == nil && !inAny(c.cfg.AllowPrivate, addr) {
		return reasonAddressRefused
	}
	return ""
}
