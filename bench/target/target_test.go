package target

import (
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/client"
)

const token = "s.0123456789"

func scenario(streams ...scenarios.Stream) *scenarios.Scenario {
	return &scenarios.Scenario{Name: "test", Patience: 20 * time.Second, Seed: 1, Streams: streams}
}

// engine speaks the part of the Transit API that is documented for keys, encrypt
// and sign. There is no Vault or OpenBao to test with.
type engine struct {
	mu    sync.Mutex
	types map[string]string
	used  map[string]int
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	refuse := func(status int, why string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errors":[%q]}`, why)
	}
	if r.Header.Get("X-Vault-Token") != token {
		refuse(http.StatusForbidden, "permission denied")
		return
	}
	var body map[string]string
	raw, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(raw, &body); err != nil || r.Method != http.MethodPost {
		refuse(http.StatusBadRequest, "not the documented request")
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 5 || parts[1] != "v1" || parts[2] != "transit" {
		refuse(http.StatusNotFound, "no handler for route")
		return
	}
	verb, name := parts[3], parts[4]
	field := map[string]string{"encrypt": "plaintext", "sign": "input"}[verb]
	switch {
	case verb == "keys":
		e.types[name] = body["type"]
		w.WriteHeader(http.StatusNoContent)
	case field == "" || e.types[name] == "":
		refuse(http.StatusBadRequest, "encryption key not found")
	default:
		if text, err := base64.StdEncoding.DecodeString(body[field]); err != nil || len(text) == 0 {
			refuse(http.StatusBadRequest, "failed to base64-decode")
			return
		}
		e.used[verb+" "+name]++
		fmt.Fprint(w, `{"data":{"ciphertext":"vault:v1:abcd"}}`)
	}
}

func TestATransitServerIsAskedAsItsAPIIsDocumented(t *testing.T) {
	e := &engine{types: map[string]string{}, used: map[string]int{}}
	server := httptest.NewServer(e)
	defer server.Close()
	target, err := Open(t.Context(), Options{Kind: Transit, URL: server.URL, Token: client.NewToken(token)})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := target.Streams(t.Context(), scenario(
		scenarios.Stream{Name: "a", Operation: scenarios.Encrypt, Spec: "AES_256", Bytes: 64, Keys: 2, Arrivals: scenarios.Closed, Clients: 1},
		scenarios.Stream{Name: "b", Operation: scenarios.Sign, Spec: "RSA_2048", Bytes: 32, Keys: 1, Arrivals: scenarios.Closed, Clients: 1}))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := load.Play(t.Context(), streams, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for i, of := range samples {
		if len(of) == 0 {
			t.Errorf("stream %d sent nothing", i)
		}
		for _, s := range of {
			if s.Status != 200 {
				t.Fatalf("stream %d: status %d", i, s.Status)
			}
		}
	}
	for name, kind := range map[string]string{"bench-encrypt-aes-256-0": "aes256-gcm96", "bench-encrypt-aes-256-1": "aes256-gcm96", "bench-sign-rsa-2048-0": "rsa-2048"} {
		if e.types[name] != kind {
			t.Errorf("the key %s is of type %q", name, e.types[name])
		}
	}
	if len(e.used) != 3 {
		t.Errorf("used: %v", e.used)
	}
}

func TestAServersRefusalIsTold(t *testing.T) {
	server := httptest.NewServer(&engine{types: map[string]string{}, used: map[string]int{}})
	defer server.Close()
	stream := scenarios.Stream{Name: "a", Operation: scenarios.Encrypt, Spec: "AES_256", Bytes: 1, Keys: 1}
	for want, o := range map[string]Options{
		"permission denied":    {Kind: Transit, URL: server.URL, Token: client.NewToken("other-secret")},
		"no handler for route": {Kind: Transit, URL: server.URL, Token: client.NewToken(token), Mount: "elsewhere"},
	} {
		target, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = target.Streams(t.Context(), scenario(stream))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), o.Token.Reveal()) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestWhatATargetCannotDoIsSaidBeforeAnyLoad(t *testing.T) {
	for _, o := range []Options{{Kind: Thin, URL: "http://127.0.0.1:1"}, {Kind: Transit, URL: "http://127.0.0.1:1", Token: client.NewToken(token)}} {
		target, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = target.Streams(t.Context(), scenario(scenarios.Stream{Name: "sm2", Operation: scenarios.Sign, Spec: "SM2", Bytes: 1, Keys: 1}))
		if err == nil || !strings.Contains(err.Error(), "stream sm2") {
			t.Errorf("%s: %v", o.Kind, err)
		}
	}
}

func TestOnlyThisMachineIsDrivenUnlessAllowed(t *testing.T) {
	o := Options{Kind: Thin, URL: "http://192.0.2.1:8440"}
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("another machine is driven")
	}
	o.AllowRemote = true
	if _, err := Open(t.Context(), o); err != nil {
		t.Error(err)
	}
	for _, u := range []string{"127.0.0.1:8440", "ftp://127.0.0.1", "http://user:pw@127.0.0.1", "http://127.0.0.1/path", "http://127.0.0.1?x=y", "http://"} {
		if _, err := Open(t.Context(), Options{Kind: Thin, URL: u}); err == nil {
			t.Errorf("%s is a URL of a target", u)
		}
	}
	for _, k := range []Kind{Sluice, Transit, "other"} {
		if _, err := Open(t.Context(), Options{Kind: k, URL: "http://127.0.0.1:1"}); err == nil {
			t.Errorf("%q without a credential is a target", k)
		}
	}
}
