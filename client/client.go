package client

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Urgency is what a caller says of its requests. It shares out the tenant's
// own part of the HSMs and can never take another tenant's.
type Urgency string

// The urgencies.
const (
	UrgencyInteractive Urgency = "interactive" // somebody is waiting
	UrgencyNormal      Urgency = "normal"      // the default
	UrgencyBulk        Urgency = "bulk"        // batches; may wait longest
)

// Options are the settings of a Client.
type Options struct {
	// Address is the service's URL, such as https://kms.example.com:8440,
	// with a path prefix if a proxy adds one. Plain http sends the credential
	// in the clear: use it for the loopback interface, and where the network
	// below encrypts.
	Address string
	// Credential authenticates every request.
	Credential Token
	// HTTPClient sends the requests; its Transport carries TLS settings,
	// proxies and the connection pool, its Timeout bounds one attempt. nil
	// is a client of its own with a pool that fits a busy server. Redirects
	// are never followed, whatever its CheckRedirect: they would repeat
	// plaintexts elsewhere.
	HTTPClient *http.Client
	// UserAgent names the calling program, such as "billing/1.4", in the
	// service's journal: at most 256 printable ASCII characters. "" is
	// DefaultUserAgent.
	UserAgent string
	// Urgency of every request; "" is UrgencyNormal. See WithUrgency.
	Urgency Urgency
	// MaxAttempts bounds how often one call is sent, 1 for no repetition.
	// 0 is DefaultMaxAttempts.
	MaxAttempts int
}

// Defaults of Options.
const (
	DefaultUserAgent = "sluice-go"
	// DefaultMaxAttempts outlasts the loss of a node and the restart of one
	// server behind a load balancer, at back-offs from 0.1 s.
	DefaultMaxAttempts = 4
)

// Bounds of the connection pool of a Client without an HTTPClient.
const (
	// maxIdlePerHost is how many connections to the service are kept. The
	// two of net/http would make 64 goroutines open and close a connection
	// for nearly every request.
	maxIdlePerHost = 64
	// idleTimeout closes a connection before the service does, which keeps
	// idle ones for 90 s, so that a request rarely meets a closed one.
	idleTimeout = 75 * time.Second
)

// Client calls the service. It is safe for concurrent use; one is enough for
// a program.
type Client struct {
	base        *url.URL
	token       Token
	http        *http.Client
	userAgent   string
	urgency     Urgency
	maxAttempts int
	dryRun      bool
	approval    string // "": none
	second      Token  // empty: none
	oneTime     string // "": none
}

// New makes a Client. It sends nothing. An error is about the options and
// matches ErrInvalidArgument.
func New(o Options) (*Client, error) {
	base, err := parseAddress(o.Address)
	if err != nil {
		return nil, err
	}
	if o.Credential.IsZero() {
		return nil, invalid("the credential is missing")
	}
	if token := o.Credential.Reveal(); !printable(token, maxToken) || strings.Contains(token, " ") {
		return nil, invalid("the credential must be at most %d visible ASCII characters", maxToken)
	}
	if o.UserAgent == "" {
		o.UserAgent = DefaultUserAgent
	}
	if !printable(o.UserAgent, maxUserAgent) {
		return nil, invalid("the user agent must be at most %d printable ASCII characters", maxUserAgent)
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = DefaultMaxAttempts
	}
	if o.MaxAttempts < 0 {
		return nil, invalid("the number of attempts must not be negative")
	}
	switch o.Urgency {
	case "", UrgencyInteractive, UrgencyNormal, UrgencyBulk:
	default:
		return nil, invalid("the urgency must be interactive, normal or bulk")
	}
	return &Client{
		base: base, token: o.Credential, http: httpClient(o.HTTPClient),
		userAgent: o.UserAgent, urgency: o.Urgency, maxAttempts: o.MaxAttempts,
	}, nil
}

// WithUrgency returns a Client that differs in the urgency of its requests
// and shares the connections.
func (c *Client) WithUrgency(u Urgency) *Client {
	with := *c
	with.urgency = u
	return &with
}

// Close closes idle connections. Calls under way are not disturbed.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Bounds of headers in bytes.
const (
	// maxToken: ours have 97, and servers refuse headers of more.
	maxToken = 4096
	// maxUserAgent is what the service's journal keeps.
	maxUserAgent = 256
)

// printable tells whether s can be a header's value: at most limit printable
// ASCII characters.
func printable(s string, limit int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= limit
}

// parseAddress never repeats the address in an error: people put passwords
// into URLs.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, invalid("the address must be a URL such as https://kms.example.com:8440")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, invalid("the address must have no user, query or fragment")
	}
	return u, nil
}

func httpClient(given *http.Client) *http.Client {
	own := &http.Client{}
	if given != nil {
		*own = *given
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = maxIdlePerHost
		t.IdleConnTimeout = idleTimeout
		own.Transport = t
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return own
}
