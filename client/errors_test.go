package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client"
)

func TestAProblemIsDecodedWhole(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "40")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"type":"about:blank","title":"Too Many","status":429,"detail":"the tenant's rate","code":"quota_exceeded",
			"request_id":"0190","reasons":[{"code":"tenant_rate","limit":100,"need":12,"have":3,"retry_ms":1500}],"later":{}}`)
	})
	_, err := c.Random(t.Context(), 1)
	e, isError := errors.AsType[*client.Error](err)
	if !isError {
		t.Fatalf("error %v is no *client.Error", err)
	}
	want := &client.Error{Status: 429, Code: client.ErrQuotaExceeded, Title: "Too Many", Detail: "the tenant's rate", RequestID: "0190",
		Reasons:    []client.Reason{{Code: "tenant_rate", Limit: 100, Need: 12, Have: 3, RetryIn: 1500 * time.Millisecond}},
		RetryAfter: 40 * time.Second}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got %+v\nwant %+v", e, want)
	}
	if !errors.Is(err, client.ErrQuotaExceeded) || errors.Is(err, client.ErrQuotaExhausted) {
		t.Error("errors.Is does not tell the codes apart")
	}
	if got := err.Error(); got != "quota_exceeded: the tenant's rate (request 0190)" {
		t.Errorf("text: %s", got)
	}
}

func TestAProxysErrorIsNotRepeated(t *testing.T) {
	const page = "<html>internal-host-7 says no</html>"
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("X-Request-Id", "0190")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, page)
	})
	_, err := c.Random(t.Context(), 1)
	e, isError := errors.AsType[*client.Error](err)
	if !isError || e.Status != 403 || e.Code != "" || e.RequestID != "0190" {
		t.Errorf("error %#v", err)
	}
	if got := err.Error(); got != "HTTP status 403: Forbidden (request 0190)" {
		t.Errorf("text: %s", got)
	}
}

func TestAnAnswerThatIsNotTheServicesIsAnError(t *testing.T) {
	for _, tc := range []struct{ name, contentType, body string }{
		{"a page", "text/html", "<html>log in here</html>"},
		{"no type", "", `{"random":"AA=="}`},
		{"not JSON", "application/json", `{"random":`},
		{"bad base64", "application/json", `{"random":"canary!"}`},
		{"a name twice", "application/json", `{"random":"AA==","random":"AQ=="}`},
		{"more than one value", "application/json", `{} {}`},
		{"nothing", "application/json", ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				fmt.Fprint(w, tc.body)
			})
			out, err := c.Random(t.Context(), 1)
			if !errors.Is(err, client.ErrBadAnswer) || out != nil {
				t.Errorf("got %+v, %v, want ErrBadAnswer", out, err)
			}
			if tc.body != "" && strings.Contains(fmt.Sprint(err), tc.body) || strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("the error repeats the body: %v", err)
			}
		})
	}
}

// endless is a body without an end that counts what is read of it.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func (endless) Close() error { return nil }

func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var read atomic.Int64
			c := newClient(t, client.Options{Address: "http://kms.test", HTTPClient: &http.Client{
				Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: status, Body: endless{&read},
						Header: http.Header{"Content-Type": {"application/json"}}}, nil
				})}})
			if _, err := c.Random(t.Context(), 1); !errors.Is(err, client.ErrBadAnswer) {
				t.Errorf("error %v, want ErrBadAnswer", err)
			}
			// io.ReadAll grows its buffer by a quarter; it reads no further than
			// the limit and what fits behind it.
			if n := read.Load(); n > 64<<20 {
				t.Errorf("read %d bytes", n)
			}
		})
	}
}

func TestABodyThatBreaksOffIsNoAnswer(t *testing.T) {
	var requests atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"random":"AA=="`)
		panic(http.ErrAbortHandler)
	})
	if _, err := c.Random(t.Context(), 1); !errors.Is(err, client.ErrNoAnswer) {
		t.Errorf("error %v, want ErrNoAnswer", err)
	}
	if n := requests.Load(); n != client.DefaultMaxAttempts {
		t.Errorf("%d attempts, want %d", n, client.DefaultMaxAttempts)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	follow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	c := newClient(t, client.Options{Address: server.URL, HTTPClient: follow})
	_, err := c.Encrypt(t.Context(), "k", client.EncryptInput{Plaintext: []byte("p")})
	if e, isError := errors.AsType[*client.Error](err); !isError || e.Status != http.StatusTemporaryRedirect {
		t.Errorf("error %v, want status 307", err)
	}
	if follow.CheckRedirect(nil, nil) != nil {
		t.Error("the caller's HTTP client was changed")
	}
}

func TestNamesThatCannotBeInAPathAreNotSent(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.RequestURI) })
	for _, name := range []string{"", ".", "..", "a/../b", "a/./b", "/a", "a/", "a//b", "a b", "a?b", "a#b", "a%2Fb", "ключ", "a\n"} {
		_, err := c.GetKey(t.Context(), name)
		if !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("name %q: error %v, want ErrInvalidArgument", name, err)
		}
		if len(name) > 2 && strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("the error repeats the name: %v", err)
		}
	}
}
