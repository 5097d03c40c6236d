package egress

import "net/netip"

// refused4 are the IPv4 networks that are not public: the special-purpose
// registry of IANA (RFC 6890) without what is globally reachable in it, and
// 168.63.129.16, at which Azure serves its virtual machines.
var refused4 = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)

// global6 is all of IPv6 that is given out as global unicast (RFC 4291, 2.4);
// what lies outside, as loopback, link-local, unique-local and multicast do,
// is refused. refused6 is what lies inside and is not public: protocol
// assignments with Teredo and ORCHID, 6to4, documentation.
var (
	global6  = netip.MustParsePrefix("2000::/3")
	refused6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
	// nat64 is the well-known prefix of addresses that are translated to IPv4;
	// its last 32 bits are the IPv4 address (RFC 6052, 2.1).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public tells whether an address is one of the public internet.
func Public(a netip.Addr) bool {
	a = embedded(a)
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	if a.Is4() {
		return !within(a, refused4)
	}
	return global6.Contains(a) && !within(a, refused6)
}

// embedded returns the IPv4 address that an IPv6 address stands for, and any
// other address as it is.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

func within(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
