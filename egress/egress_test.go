package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Written down from the registries, not from the code.
func TestNoAddressThatIsNotPublicPasses(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
		"192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1",
		"64:ff9b::169.254.169.254", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:10::1", "2001:20::1", "2001:db8::1",
		"2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	} {
		if Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.255",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1", "2400:3200::1"} {
		if !Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// What the standard library knows of an address is never contradicted, in any
// form that carries an IPv4 address.
func TestEveryFormOfAnAddressIsJudgedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b [4]byte
		for i := range b {
			b[i] = rapid.Byte().Draw(t, "byte")
		}
		plain := netip.AddrFrom4(b)
		want := Public(plain)
		if want && (!plain.IsGlobalUnicast() || plain.IsPrivate() || plain.IsLoopback() || plain.IsLinkLocalUnicast()) {
			t.Fatalf("%v is public", plain)
		}
		mapped := netip.AddrFrom16(plain.As16())
		translated := nat64.Addr().As16()
		copy(translated[12:], b[:])
		for _, form := range []netip.Addr{mapped, netip.AddrFrom16(translated)} {
			if Public(form) != want {
				t.Fatalf("%v is public: %v, but %v: %v", form, !want, plain, want)
			}
		}
	})
}

// answers resolves names with one list of addresses after the other, the last
// one from then on.
type answers struct {
	lists [][]netip.Addr
	asked atomic.Int32
}

func (a *answers) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n := int(a.asked.Add(1)) - 1
	if len(a.lists) == 0 {
		return nil, errors.New("no such host")
	}
	return a.lists[min(n, len(a.lists)-1)], nil
}

func resolving(lists ...string) *answers {
	a := &answers{}
	for _, list := range lists {
		var addresses []netip.Addr
		for s := range strings.SplitSeq(list, " ") {
			addresses = append(addresses, netip.MustParseAddr(s))
		}
		a.lists = append(a.lists, addresses)
	}
	return a
}

func TestURLsThatMayNotBeGivenAreRefused(t *testing.T) {
	public := "93.184.215.14"
	for text, c := range map[string]struct {
		resolves string
		want     error
	}{
		"https://hooks.example.com/a?b=c":          {public, nil},
		"https://hooks.example.com:8443/":          {public, nil},
		"https://93.184.215.14/":                   {"", nil},
		"https://[2606:4700:4700::1111]/":          {"", nil},
		"http://hooks.example.com/":                {public, ErrURL},
		"https://hooks.example.com:22/":            {public, ErrURL},
		"https://hooks.example.com:0/":             {public, ErrURL},
		"https://hooks.example.com:65536/":         {public, ErrURL},
		"https://user@hooks.example.com/":          {public, ErrURL},
		"https://user:word@hooks.example.com/":     {public, ErrURL},
		"https://hooks.example.com/#part":          {public, ErrURL},
		"ftp://hooks.example.com/":                 {public, ErrURL},
		"file:///etc/passwd":                       {public, ErrURL},
		"https:hooks.example.com":                  {public, ErrURL},
		"//hooks.example.com/":                     {public, ErrURL},
		"https://":                                 {public, ErrURL},
		"https://:443/":                            {public, ErrURL},
		"https://hooks.example.com\n/":             {public, ErrURL},
		"https://h/" + strings.Repeat("x", MaxURL): {public, ErrURL},
		"https://localhost/":                       {"127.0.0.1 ::1", ErrAddress},
		"https://metadata.google.internal/":        {"169.254.169.254", ErrAddress},
		"https://two.example.com/":                 {public + " 10.0.0.1", ErrAddress},
		"https://10.0.0.1/":                        {"", ErrAddress},
		"https://[::1]/":                           {"", ErrAddress},
		"https://[::ffff:127.0.0.1]/":              {"", ErrAddress},
		"https://[fe80::1%25eth0]/":                {"", ErrAddress},
		"https://2130706433/":                      {"127.0.0.1", ErrAddress}, // 127.0.0.1 as one number
		"https://127.1/":                           {"127.0.0.1", ErrAddress},
		"https://missing.example.com/":             {"", ErrAddress},
	} {
		g := &Guard{Resolver: &answers{}}
		if c.resolves != "" {
			g.Resolver = resolving(c.resolves)
		}
		if err := g.CheckURL(t.Context(), text); err != c.want {
			t.Errorf("%.60q: %v, want %v", text, err, c.want)
		}
	}
}

func TestAllowedNetworksTakePlainHTTPAndAnyPort(t *testing.T) {
	g := &Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Resolver: resolving("10.1.2.3")}
	for _, text := range []string{"http://own.example.com/", "https://own.example.com:22/"} {
		if err := g.CheckURL(t.Context(), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"http://10.2.0.1/", "https://10.2.0.1/", "https://[::1]/"} {
		if err := g.CheckURL(t.Context(), text); err != ErrAddress {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// listener counts connections to a server on loopback.
type listener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

func serve(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *listener, *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	l := &listener{Listener: s.Listener}
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, l, &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}

func post(t *testing.T, g *Guard, trust *tls.Config, text string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, text, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := g.RoundTrip(r, trust)
	if err == nil {
		answer.Body.Close()
	}
	return answer, err
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// The name of the certificate is example.com, whatever it resolves to.
func named(t *testing.T, server *httptest.Server) string {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return "https://example.com:" + u.Port() + "/hook"
}

func TestConnectionGoesToTheCheckedAddressOnly(t *testing.T) {
	server, l, trust := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	target := named(t, server)
	resolver := resolving("127.0.0.1")
	answer, err := post(t, &Guard{Allow: loopback, Resolver: resolver}, trust, target)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
	if n := resolver.asked.Load(); n != 1 || l.accepted.Load() != 1 {
		t.Errorf("%d look-ups, %d connections; want one of each", n, l.accepted.Load())
	}
	// Nothing is allowed: the same name, the same server, no connection.
	for name, lists := range map[string][]string{
		"private":                             {"127.0.0.1"},
		"public when checked, then private":   {"93.184.215.14", "127.0.0.1"},
		"public and private":                  {"93.184.215.14 127.0.0.1"},
		"private in the form of IPv6":         {"::ffff:127.0.0.1"},
		"private in the form of a translator": {"64:ff9b::7f00:1"},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.accepted.Load()
			g := &Guard{Resolver: resolving(lists...)}
			if len(lists) > 1 {
				if err := g.CheckURL(t.Context(), target); err != nil {
					t.Errorf("the check: %v", err)
				}
			}
			if _, err := post(t, g, trust, target); err != ErrAddress {
				t.Errorf("%v, want ErrAddress", err)
			}
			if l.accepted.Load() != before {
				t.Error("it was connected to")
			}
		})
	}
}

func TestRedirectsAreNotFollowedAndCertificatesAreVerified(t *testing.T) {
	var followed atomic.Int32
	server, _, trust := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hook" {
			followed.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	g := &Guard{Allow: loopback, Resolver: resolving("127.0.0.1")}
	if answer, err := post(t, g, trust, named(t, server)); err != nil || answer.StatusCode != 307 || followed.Load() != 0 {
		t.Errorf("%v, %v, followed %d times", answer, err, followed.Load())
	}
	if _, err := post(t, g, nil, named(t, server)); err == nil {
		t.Error("a certificate that nobody trusts is believed")
	}
	if _, err := post(t, g, trust, strings.Replace(named(t, server), "example.com", "other.test", 1)); err == nil {
		t.Error("a certificate of another name is believed")
	}
}
