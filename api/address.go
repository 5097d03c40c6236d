package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxies are the networks of the load balancers whose word on the client's
// address counts. With none of them, only the connection does.
type proxies []netip.Prefix

// maxForwardedHops bounds how much of X-Forwarded-For is looked at: more
// proxies in a row than any deployment has.
const maxForwardedHops = 16

// client returns the address of a request's client: the peer's, or, when the
// peer is a trusted proxy, the rightmost address in X-Forwarded-For that is
// not one, since each proxy appends the peer that it saw and everything to
// the left of that is the client's invention. No other header is believed
// (echo GHSA-246p-cpwv-v3jq and its kin). The result is zero when the
// connection has no IP address.
func (p proxies) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := bare(peer.Addr())
	if !p.trusts(address) {
		return address
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	if len(hops) > maxForwardedHops {
		hops = hops[len(hops)-maxForwardedHops:]
	}
	for _, hop := range slices.Backward(hops) {
		next, err := netip.ParseAddr(strings.Trim(hop, " \t"))
		if err != nil {
			// What is left of a malformed hop cannot be judged: the proxy
			// that wrote it is the last address that is known.
			return address
		}
		address = bare(next)
		if !p.trusts(address) {
			return address
		}
	}
	return address
}

func (p proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// bare is the address in its shortest form, so that one client has one
// address: IPv4 not mapped into IPv6, and no zone.
func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
