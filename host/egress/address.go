package egress

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

var errAddressRefused = errors.New("address is not public and not granted")

// notPublic are the IPv4 ranges of the IANA special-purpose registry, with
// multicast and what is reserved.
var notPublic = prefixes(
	"0.0.0.0/8",       // this network; 0.0.0.0 reaches the host itself
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local: cloud metadata
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
)

// Of IPv6 only global unicast is public, less what inside it leads elsewhere.
// That leaves out loopback, unspecified, unique local, link-local, multicast,
// NAT64 (64:ff9b::/96 and its private sister) without naming them.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	notPublic6    = prefixes(
		"2001::/23",     // protocol assignments: Teredo, benchmarks, ORCHID
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: carries an IPv4 address
		"3fff::/20",     // documentation
	)
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// public reports whether anybody on the Internet means the same machine by a.
func public(a netip.Addr) bool {
	if a.Is4() {
		return !inAny(notPublic, a)
	}
	// An IPv4 address in IPv6 clothes lies outside 2000::/3 as well.
	return a.Zone() == "" && globalUnicast.Contains(a) && !inAny(notPublic6, a)
}

// allowed reports whether a may be dialled: public, or granted.
func allowed(a netip.Addr, granted []netip.Prefix) bool {
	if inAny(granted, a) || public(a) {
		return true
	}
	return a.Is4In6() && inAny(granted, a.Unmap())
}

// control runs between socket and connect, on the address that the kernel is
// about to use. A name that resolves differently the second time gains nothing.
func (c *Client) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !allowed(ap.Addr(), c.cfg.AllowPrivate) {
		return errAddressRefused
	}
	return nil
}
