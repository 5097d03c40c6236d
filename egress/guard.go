package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Errors. They name no address.
var (
	// ErrURL: the URL is none that may be given, whatever its host is.
	ErrURL = errors.New("must be an https URL without user information and fragment, to port 443 or one above 1023")
	// ErrAddress: the host does not resolve, or to an address that is not
	// public and not allowed.
	ErrAddress = errors.New("the host is not found, or is not a public address")
)

// MaxURL bounds a URL in bytes: what every server on the way can be expected to
// take.
const MaxURL = 2048

// Resolver finds the addresses of a name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Guard checks addresses and connects to those that pass. The zero value
// allows public addresses only. It is safe for concurrent use and must not be
// changed once it is used.
type Guard struct {
	// Allow are networks that may be connected to though they are not public.
	Allow []netip.Prefix
	// Resolver resolves names; nil: the system's.
	Resolver Resolver
	// Timeout bounds a look-up and a dial, each; 0: DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout bounds a look-up and a dial: what takes longer on the public
// internet will not serve.
const DefaultTimeout = 5 * time.Second

// allowed tells whether an address may be connected to, and own whether that is
// because an operator allows its network.
func (g *Guard) allowed(a netip.Addr) (ok, own bool) {
	if within(a.Unmap(), g.Allow) {
		return true, true
	}
	return Public(a), false
}

// CheckURL checks a URL before it is stored, its host's addresses of this
// moment included. ErrURL or ErrAddress.
func (g *Guard) CheckURL(ctx context.Context, text string) error {
	u, err := parse(text)
	if err != nil {
		return err
	}
	addresses, err := g.resolve(ctx, u.Hostname())
	if err != nil {
		return err
	}
	return g.checkAll(u, addresses)
}

// parse takes a URL apart and checks what needs no address.
func parse(text string) (*url.URL, error) {
	if len(text) > MaxURL {
		return nil, ErrURL
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" ||
		(u.Scheme != "https" && u.Scheme != "http") {
		return nil, ErrURL
	}
	if _, err := port(u); err != nil {
		return nil, err
	}
	return u, nil
}

func port(u *url.URL) (int, error) {
	switch {
	case u.Port() != "":
		p, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || p == 0 {
			return 0, ErrURL
		}
		return int(p), nil
	case u.Scheme == "https":
		return 443, nil
	}
	return 80, nil
}

// checkAll checks all addresses of a host. One that is refused spoils the
// others: a name that has public and private addresses is a trap or a mistake.
func (g *Guard) checkAll(u *url.URL, addresses []netip.Addr) error {
	p, err := port(u)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		ok, own := g.allowed(a)
		switch {
		case !ok:
			return ErrAddress
		case !own && (u.Scheme != "https" || p != 443 && p < 1024):
			return ErrURL
		}
	}
	return nil
}

// resolve returns the addresses of a host, at least one.
func (g *Guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	var resolver Resolver = net.DefaultResolver
	if g.Resolver != nil {
		resolver = g.Resolver
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout())
	defer cancel()
	addresses, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addresses) == 0 {
		return nil, ErrAddress
	}
	return addresses, nil
}

func (g *Guard) timeout() time.Duration {
	if g.Timeout > 0 {
		return g.Timeout
	}
	return DefaultTimeout
}

// dial resolves the host of a URL once, checks every address, and connects to
// one of these and to nothing else.
func (g *Guard) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	addresses, err := g.resolve(ctx, u.Hostname())
	if err != nil {
		return nil, err
	}
	if err := g.checkAll(u, addresses); err != nil {
		return nil, err
	}
	p, err := port(u)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: g.timeout()}
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, uint16(p)).String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Limits of an exchange.
const (
	handshakeTimeout = 5 * time.Second
	// maxHeader bounds the head of an answer, of which nothing but the status
	// is of use.
	maxHeader = 16 << 10
)

// RoundTrip sends a request to the URL that it names, checked now, over a
// connection of its own. It follows no redirect. tlsConfig may name roots to
// trust; nil: the system's. The caller closes the answer's body, with which the
// connection ends.
func (g *Guard) RoundTrip(request *http.Request, tlsConfig *tls.Config) (*http.Response, error) {
	if _, err := parse(request.URL.String()); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		// The addresses of the URL are dialled, whatever host the transport
		// asks for: it is the same, and a look-up of its own must not be.
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return g.dial(ctx, request.URL) },
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}
	return transport.RoundTrip(request)
}
