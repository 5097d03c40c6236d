package client_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

func TestWrongOptionsAreRefused(t *testing.T) {
	token := client.NewToken(testToken)
	for _, tc := range []struct {
		name string
		o    client.Options
	}{
		{"no address", client.Options{Credential: token}},
		{"no scheme", client.Options{Credential: token, Address: "canary.test:8440"}},
		{"another scheme", client.Options{Credential: token, Address: "ftp://canary.test"}},
		{"no host", client.Options{Credential: token, Address: "https:///canary"}},
		{"only a port", client.Options{Credential: token, Address: "https://:8440"}},
		{"a password", client.Options{Credential: token, Address: "https://u:canary@kms.test"}},
		{"a query", client.Options{Credential: token, Address: "https://kms.test?canary"}},
		{"a fragment", client.Options{Credential: token, Address: "https://kms.test#canary"}},
		{"not a URL", client.Options{Credential: token, Address: "https://kms.test/%zz-canary"}},
		{"no credential", client.Options{Address: "https://kms.test"}},
		{"a credential of two lines", client.Options{Address: "https://kms.test", Credential: client.NewToken("canary\r\nX: y")}},
		{"a credential with a space", client.Options{Address: "https://kms.test", Credential: client.NewToken("canary canary")}},
		{"a huge credential", client.Options{Address: "https://kms.test", Credential: client.NewToken(strings.Repeat("canary", 1000))}},
		{"a user agent of two lines", client.Options{Credential: token, Address: "https://kms.test", UserAgent: "canary\r\nX: y"}},
		{"an unknown urgency", client.Options{Credential: token, Address: "https://kms.test", Urgency: "canary"}},
		{"negative attempts", client.Options{Credential: token, Address: "https://kms.test", MaxAttempts: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := client.New(tc.o)
			if !errors.Is(err, client.ErrInvalidArgument) || c != nil {
				t.Errorf("got %v, %v, want ErrInvalidArgument", c, err)
			}
			if strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("the error repeats the option: %v", err)
			}
		})
	}
}

func TestAPrefixOfTheAddressIsKept(t *testing.T) {
	for _, prefix := range []string{"", "/", "/kms", "/kms/", "/a%2Fb"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want := strings.TrimSuffix(prefix, "/") + "/v1/keys/a%2Fb"; r.RequestURI != want {
				t.Errorf("prefix %q: sent %s, want %s", prefix, r.RequestURI, want)
			}
		}))
		_, _ = newClient(t, client.Options{Address: server.URL + prefix}).GetKey(t.Context(), "a/b")
		server.Close()
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{}`)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := newClient(t, client.Options{Address: server.URL})
	const goroutines, each = 16, 50
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				if _, err := c.Random(t.Context(), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// net/http dials a little more than it needs while connections are being
	// made; with its own two idle connections there would be hundreds.
	if n := opened.Load(); n > 3*goroutines {
		t.Errorf("%d connections for %d goroutines", n, goroutines)
	}
}

func TestTLSSettingsOfTheHTTPClientAreUsed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails below
	server.StartTLS()
	defer server.Close()
	if _, err := newClient(t, client.Options{Address: server.URL, HTTPClient: server.Client()}).Random(t.Context(), 1); err != nil {
		t.Errorf("with the server's certificate trusted: %v", err)
	}
	_, err := newClient(t, client.Options{Address: server.URL}).Random(t.Context(), 1)
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); !untrusted || !errors.Is(err, client.ErrNoAnswer) {
		t.Errorf("without: %v, want a certificate error", err)
	}
}
