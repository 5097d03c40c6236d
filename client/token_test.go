package client_test

import (
	"bytes"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

func TestATokenShowsItselfOnlyWhenRevealed(t *testing.T) {
	token := client.NewToken(testToken)
	if token.Reveal() != testToken || token.IsZero() {
		t.Fatal("the token is not the one that was given")
	}
	type nested struct {
		Exported   client.Token
		unexported client.Token
		pointer    *client.Token
		list       []client.Token
		table      map[string]client.Token
		any        any
	}
	n := nested{token, token, &token, []client.Token{token}, map[string]client.Token{"k": token}, token}
	c := newClient(t, client.Options{Address: "http://kms.test", Credential: token})
	minted := client.MintedCredential{Token: token}

	shown := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%U", "%e", "%t", "%p", "%T", "%10.3v"} {
		for what, value := range map[string]any{"token": token, "pointer": &token, "nested": n, "pointer to nested": &n,
			"client": c, "client value": *c, "options": client.Options{Credential: token}, "minted": minted, "error": fmt.Errorf("%v", token)} {
			shown[verb+" of "+what] = fmt.Sprintf(verb, value)
		}
	}
	for what, value := range map[string]any{"token": token, "nested": n, "minted": minted, "map": map[string]any{"k": token}} {
		for version, marshal := range map[string]func(any) ([]byte, error){
			"v1": jsonv1.Marshal, "v2": func(v any) ([]byte, error) { return json.Marshal(v) }} {
			b, err := marshal(value)
			if err != nil {
				t.Errorf("JSON %s of %s: %v", version, what, err)
			}
			shown["JSON "+version+" of "+what] = string(b)
		}
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "token", token, "nested", n, "client", c)
	}
	shown["log"] = log.String()

	for what, text := range shown {
		for _, secret := range []string{"canary", "slk_", fmt.Sprintf("%x", "canary"), fmt.Sprintf("%X", "canary")} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s: %s", what, secret, text)
			}
		}
	}
	if got := fmt.Sprintf("%v %s", token, token.String()); got != "[redacted] [redacted]" {
		t.Errorf("printed %q", got)
	}
	if got := shown["JSON v2 of token"]; got != `"[redacted]"` {
		t.Errorf("JSON is %s", got)
	}
}

// Errors of every way in which a call can fail hold none of what was sent.
func TestErrorsHoldNothingThatWasSent(t *testing.T) {
	for name, f := range map[string]roundTripper{
		"no connection": func(*http.Request) (*http.Response, error) { return nil, errRefused },
		"a page":        func(*http.Request) (*http.Response, error) { return answer(200, nil, "text/html", "<p>"), nil },
		"a status":      func(*http.Request) (*http.Response, error) { return answer(500, nil, "text/html", "<p>"), nil },
		"a problem":     func(*http.Request) (*http.Response, error) { return problem(404, client.ErrNotFound, nil), nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, client.Options{Address: "http://canary-host.test/canary-prefix", MaxAttempts: 1,
				UserAgent: "canary-agent", HTTPClient: &http.Client{Transport: f}})
			_, err := c.Sign(t.Context(), "canary-key", client.SignInput{Message: []byte("canary"), UserID: "canary-id"})
			if err == nil {
				t.Fatal("the call succeeded")
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, "canary") || strings.Contains(text, "Y2FuYXJ5") {
					t.Errorf("the error shows what was sent: %s", text)
				}
			}
		})
	}
}
