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

// Rounds of as many requests at once as the pool holds: the server answers
// when all of a round are there, so that each has a connection of its own.
func TestConnectionsAreReused(t *testing.T) {
	const atOnce, rounds = 16, 10
	var opened atomic.Int64
	arrived := make(chan chan struct{})
	go func() {
		for range rounds {
			var waiting []chan struct{}
			for range atOnce {
				waiting = append(waiting, <-arrived)
			}
			for _, w := range waiting {
				close(w)
			}
		}
	}()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := make(chan struct{})
		arrived <- answer
		<-answer
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
	c := newClient(t, client.Options{Address: server.URL, MaxAttempts: 1})
	for range rounds {
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				if _, err := c.Random(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// A connection goes back to the pool a moment after its answer, so a few
	// are made beside the 16. With the two idle ones of net/http it would be
	// 16 + 9 × 14.
	if n := opened.Load(); n > 3*atOnce {
		t.Errorf("%d connections for rounds of %d", n, atOnce)
	}
	t.Logf("%d connections for %d requests", opened.Load(), atOnce*rounds)
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
