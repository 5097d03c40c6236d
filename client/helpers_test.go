package client_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

// testToken is a credential of the right form that nobody issued.
const testToken = "slk_" + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + "_" + "canarycanarycanarycanarycanarycanarycanarycanarycana"

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	if o.Credential.IsZero() {
		o.Credential = client.NewToken(testToken)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve starts a server and returns a client of it.
func serve(t testing.TB, h http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return newClient(t, client.Options{Address: server.URL})
}

// roundTripper answers in memory, so that a test may run in a synctest bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, header http.Header, contentType, body string) *http.Response {
	h := header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", contentType)
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func ok(body string) *http.Response { return answer(http.StatusOK, nil, "application/json", body) }

func problem(status int, code client.Code, header http.Header) *http.Response {
	return answer(status, header, "application/problem+json", `{"code":"`+string(code)+`"}`)
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Error(err)
	}
	return b.String()
}
