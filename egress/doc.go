// Package egress confines connections to addresses that tenants give:
// webhooks today, the endpoints of providers and probes of them later. Such an
// address must not make the service a way into the operator's own networks.
//
// # How
//
// A URL is https, without user information and fragment, to port 443 or one
// above 1023. Its host is resolved by us; when any of its addresses is not a
// public one, nothing is connected to. The connection then goes to an address
// of that very answer, so that a name which answers otherwise the second time
// (DNS rebinding) gains nothing: there is no second time. Proxies of the
// environment are not used and redirects are not followed, because both would
// name an address that nobody has checked.
//
// Public is what the registries of IANA for special purposes leave (RFC 6890
// and its updates): not loopback, private, link-local (the metadata services
// of clouds among it), shared by carriers, benchmarking, documentation,
// multicast, unspecified or reserved. IPv6 addresses that carry an IPv4
// address, mapped (RFC 4291, 2.5.5.2) or translated (RFC 6052), are judged by
// it; 6to4 and Teredo, which nobody needs any more, are refused.
//
// Operators can allow networks of their own. In these plain http and any port
// are allowed too.
//
// # What it never does
//
// It says nothing of what a name resolved to: the error of a refused address
// and of a name that does not resolve is the same, so that nobody can map a
// network with it.
package egress
