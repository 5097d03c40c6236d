package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/client"
)

// Kind is a kind of server.
type Kind string

// The kinds.
const (
	Sluice  Kind = "sluice"
	Thin    Kind = "thin"
	Transit Kind = "transit"
)

// Kinds lists them.
func Kinds() []string { return []string{string(Sluice), string(Thin), string(Transit)} }

// Options say where a target is.
type Options struct {
	Kind Kind
	URL  string // http or https, with host and port
	// Token authenticates at Sluice or a Transit server; the thin wrapper knows
	// nobody.
	Token client.Token
	// Mount is the path of the Transit engine; "": transit.
	Mount string
	// CAFile has the certificates to trust, PEM; "": those of the system.
	CAFile string
	// AllowRemote lets the target be elsewhere than on loopback.
	AllowRemote bool
	// SetupTimeout bounds each call that makes a key; 0: defaultSetupTimeout.
	SetupTimeout time.Duration
}

// Target is a server under load.
type Target struct {
	Options
	address string // host:port that is dialled
	url     *url.URL
	tls     *tls.Config
}

// defaultSetupTimeout is enough for RSA keys of a slow token, which take seconds.
const defaultSetupTimeout = 30 * time.Second

// Open checks the options and finds the server's address. It sends nothing but
// what resolving a name takes.
func Open(ctx context.Context, o Options) (*Target, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("target: the URL must be as http://127.0.0.1:8440")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("target: the URL must have a host and a port, and nothing else")
	}
	t := &Target{Options: o, url: &url.URL{Scheme: u.Scheme, Host: u.Host}}
	if t.Mount == "" {
		t.Mount = "transit"
	}
	if err := t.resolve(ctx); err != nil {
		return nil, err
	}
	if u.Scheme == "https" {
		if t.tls, err = trust(u.Hostname(), o.CAFile); err != nil {
			return nil, err
		}
	}
	switch o.Kind {
	case Sluice, Transit:
		if o.Token.Reveal() == "" {
			return nil, fmt.Errorf("target: %s takes a credential", o.Kind)
		}
	case Thin:
	default:
		return nil, fmt.Errorf("target: the kind must be one of %s", strings.Join(Kinds(), ", "))
	}
	return t, nil
}

// resolve chooses the address once, so that what was checked is what is driven.
func (t *Target) resolve(ctx context.Context) error {
	port := t.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[t.url.Scheme]
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.url.Hostname())
	if err != nil {
		return fmt.Errorf("target: finding the server: %w", err)
	}
	var chosen netip.Addr
	for _, a := range all {
		if !a.Unmap().IsLoopback() && !t.AllowRemote {
			return fmt.Errorf("target: %s is not on this machine: load on another one has to be allowed", t.url.Hostname())
		}
		// A server of this machine listens on IPv4 more often than on IPv6 alone.
		if !chosen.IsValid() || !chosen.Unmap().Is4() && a.Unmap().Is4() {
			chosen = a
		}
	}
	t.address = net.JoinHostPort(chosen.Unmap().String(), port)
	return nil
}

func trust(host, file string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if file == "" {
		return c, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("target: reading the certificates to trust: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("target: %s has no certificate", file)
	}
	return c, nil
}

// String names the target without a secret.
func (t *Target) String() string { return string(t.Kind) + " at " + t.url.String() }

// Streams makes the keys of a scenario and returns its streams with their rates
// at a step of 1. They are tolerant: a server that breaks connections has
// failures, and the run goes on.
func (t *Target) Streams(ctx context.Context, s *scenarios.Scenario) ([]load.Stream, error) {
	var all []load.Stream
	for i := range s.Streams {
		st := &s.Streams[i]
		requests, err := t.requests(ctx, st)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", st.Name, err)
		}
		for k := range requests {
			r := &requests[k]
			r.Address, r.Host, r.TLS = t.address, t.url.Host, t.tls
		}
		all = append(all, load.Stream{Request: requests[0], More: requests[1:], Rate: st.Rate, Constant: st.Arrivals == scenarios.Constant,
			Clients: st.Clients, Seed: s.Seed, Patience: s.Patience, Remote: t.AllowRemote, Tolerant: true})
	}
	return all, nil
}

func (t *Target) requests(ctx context.Context, st *scenarios.Stream) ([]load.Request, error) {
	switch t.Kind {
	case Thin:
		return thinRequests(st)
	case Transit:
		return t.transitRequests(ctx, st)
	}
	return t.sluiceRequests(ctx, st)
}

// input is what is encrypted or signed, in base64.
func input(st *scenarios.Stream) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("m", st.Bytes)))
}

// keyName is the name of a stream's key. Streams of the same kind share them.
func keyName(st *scenarios.Stream, k int) string {
	spec := strings.ReplaceAll(strings.ToLower(st.Spec), "_", "-")
	return fmt.Sprintf("bench-%s-%s-%d", st.Operation, spec, k)
}

// httpClient is what makes keys. It follows no redirect: one would carry the
// token, and what is measured would be another server.
func (t *Target) httpClient() *http.Client {
	return &http.Client{
		Timeout:       cmp.Or(t.SetupTimeout, defaultSetupTimeout),
		Transport:     &http.Transport{TLSClientConfig: t.tls.Clone(), DialContext: t.dial},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects to the address that was checked.
func (t *Target) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, t.address)
}
