package api_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// dial sends bytes as they are on a connection of their own and returns the
// answers and whether the server then closed the connection.
func dial(t *testing.T, w *world, request string) (answers []*http.Response, closed bool) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	// The end of our side makes the server close once it has answered all.
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	for {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			return answers, err == io.ErrUnexpectedEOF || err == io.EOF
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
}

// TestNoSpellingOfAPathReachesAnotherRoute sends paths that other software
// normalises into a route that exists, with a credential that would be let
// in. Only the canonical one is (OpenBao CVE-2026-3605; echo CVE-2026-55677,
// -118650, -118654, -118655).
func TestNoSpellingOfAPathReachesAnotherRoute(t *testing.T) {
	w := newWorld(t)
	w.key(w.acme, kms.SpecAES256, "", "a")
	w.key(w.acme, kms.SpecAES256, "", "b")
	w.key(w.acme, kms.SpecAES256, "", "a/b")
	w.outcomes()
	for _, c := range []struct {
		path string
		// key is the one that is reached, "missing" when one is looked for that
		// does not exist, "" when no verb is.
		key string
	}{
		{"/v1/keys/a", "a"},
		{"/v1/keys/a%2Fb", "a/b"},
		{"/v1/keys/a%2fb", "a/b"},
		{"/v1/keys/a/b", ""},
		{"/v1/keys/a/", ""},
		{"/v1/keys/a//", ""},
		{"//v1/keys/a", ""},
		{"/v1//keys/a", ""},
		{"/v1/keys//a", ""},
		{"/v1/keys//public", ""},
		{"/v1/keys/./a", ""},
		{"/v1/keys/b/../a", ""},
		{"/v1/keys/b/%2e%2e/a", ""},
		{"/v1/keys/b/.%2E/a", ""},
		{"/v1/keys/b%2F..%2Fa", "missing"},
		{"/v1/keys/%2Fa", "missing"},
		{"/v1/keys/a%2F", "missing"},
		{"/v1/keys/%61", ""},
		{"/v1/%6Beys/a", ""},
		{"/V1/keys/a", ""},
		{"/v1/Keys/a", ""},
		{"/v1/keys/A", "missing"},
		{"/v1/keys/a;x=y", ""},
		{"/v1/keys/a;", ""},
		{"/v1/keys;/a", ""},
		{"/v1/keys/a%00", ""},
		{"/v1/keys/a%0d%0a", ""},
		{"/v1/keys/a%252Fb", ""},
		{"/v1/keys/a%25", ""},
		{"/v1/keys/a%5Cb", ""},
		{"/v1/keys/a\\b", ""},
		{"/v1/keys/a%20", ""},
		{"/v1/keys/a%3F", ""},
		{"/v1/keys/a*", ""},
		{"/v1/keys/*", ""},
		{"/v1/keys/:key", ""},
		{"/v1/keys/{key}", ""},
		{"/v1/keys/%C0%AF", ""},
		{"/v1/keys/a%2Fb/", ""},
		{"/v1/keys/", ""},
		{"/v1/", ""},
		{"/", ""},
		{"/v1/keys/a/rotate/extra", ""},
		{"/v1/keys%2Fa", ""},
		{"/v1%2Fkeys%2Fa", ""},
		{"http://elsewhere.example/v1/keys/a", "a"}, // the absolute form (RFC 9112, 3.2.2)
	} {
		t.Run(c.path, func(t *testing.T) {
			answers, _ := dial(t, w, fmt.Sprintf(
				"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", c.path, w.acme.token))
			if len(answers) != 1 {
				t.Fatalf("%d answers", len(answers))
			}
			status, reached := answers[0].StatusCode, ""
			for _, e := range w.outcomes() {
				reached += cmp.Or(e.KeyName, "missing")
			}
			found := c.key != "" && c.key != "missing"
			if reached != c.key || found && status != 200 || !found && status != 404 && status != 400 {
				t.Errorf("%d, reached %q, want %q", status, reached, c.key)
			}
		})
	}
}

// TestPathWithOneSegmentMoreIsAnotherPath would find a route whose path ends
// in an object: echo lets such a parameter swallow further segments.
func TestPathWithOneSegmentMoreIsAnotherPath(t *testing.T) {
	w := newWorld(t)
	for _, r := range api.Routes() {
		if r.Vault != nil {
			continue // its last object takes what is left of the path
		}
		path := paths(&r, missing)[0] + "/extra"
		if other, _ := matchRoute(r.Method, path); other != nil {
			continue // "extra" is an object of it
		}
		if a := w.raw(r.Method, path, w.operator, nil, nil); a.status != 404 && a.status != 405 || a.fields["detail"] == "no such object" {
			t.Errorf("%s %s: %d %s", r.Method, path, a.status, a.body)
		}
	}
	for _, e := range w.outcomes() {
		if e.Outcome == kms.KindNotFound.String() {
			t.Errorf("%s was reached", e.Op)
		}
	}
}

func TestOnlyTheMethodsOfThePathDoAnything(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	w.outcomes()
	for _, path := range []string{"/v1/keys", "/v1/keys/" + key, "/v1/keys/" + key + "/rotate", "/openapi.json"} {
		for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "PUT", "PROPFIND", "get", "REPORT"} {
			a := w.raw(method, path, w.acme.token, nil, nil)
			if a.status != 405 {
				t.Errorf("%s %s: %d", method, path, a.status)
			}
			if allow := a.header.Get("Allow"); allow == "" || strings.Contains(allow, method) {
				t.Errorf("%s %s: Allow is %q", method, path, allow)
			}
			if method != "HEAD" && a.code() != "method_not_allowed" {
				t.Errorf("%s %s: %s", method, path, a.body)
			}
		}
	}
	if allow := w.raw("PUT", "/v1/keys/x", "", nil, nil).header.Get("Allow"); allow != "GET, PATCH, DELETE" {
		t.Errorf("Allow is %q", allow)
	}
	for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		if a := w.send("GET", "/v1/keys/"+key, w.acme.token, "", h, "DELETE"); a.status != 200 || a.text("state") != "ENABLED" {
			t.Errorf("with %s: %d %s", h, a.status, a.body)
		}
	}
	if a := w.sendBad("POST", "/v1/keys/"+key+"/enable?_method=DELETE", w.acme.token, ""); a.status != 400 {
		t.Errorf("_method in the query: %d", a.status)
	}
	for _, e := range w.outcomes() {
		if e.Op != kms.OpDescribeKey && e.Outcome == "ok" {
			t.Errorf("%s was done", e.Op)
		}
	}
	// Go's client would not send it.
	if answers, _ := dial(t, w, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); len(answers) != 1 || answers[0].StatusCode != 404 ||
		answers[0].Header.Get("X-Request-Id") == "" {
		t.Errorf("OPTIONS *: %v", answers)
	}
}

// TestConnectEndsTheConnection keeps what follows a CONNECT from being served
// (CVE-2026-94439).
func TestConnectEndsTheConnection(t *testing.T) {
	w := newWorld(t)
	for _, target := range []string{"elsewhere.example:443", "/v1/keys"} {
		answers, closed := dial(t, w, "CONNECT "+target+" HTTP/1.1\r\nHost: elsewhere.example:443\r\n\r\n"+
			"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
		if len(answers) != 1 || answers[0].StatusCode/100 != 4 || !closed {
			t.Errorf("CONNECT %s: %d answers, closed %v", target, len(answers), closed)
		}
	}
}

// TestAmbiguousFramingIsAnsweredOnceAndClosed covers what makes two parties
// see different requests in one stream (CVE-2025-22871 and its kin).
func TestAmbiguousFramingIsAnsweredOnceAndClosed(t *testing.T) {
	w := newWorld(t)
	w.outcomes()
	body := `{"bytes":16}`
	head := "POST /v1/random HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + w.acme.token + "\r\n"
	next := "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for _, c := range []struct{ name, request string }{
		{"two lengths", head + "Content-Length: 12\r\nContent-Length: 13\r\n\r\n" + body + next},
		{"negative length", head + "Content-Length: -1\r\n\r\n" + body + next},
		{"length of two numbers", head + "Content-Length: 12, 13\r\n\r\n" + body + next},
		{"unknown transfer coding", head + "Transfer-Encoding: xchunked\r\n\r\n" + chunked + next},
		{"chunked twice", head + "Transfer-Encoding: chunked, chunked\r\n\r\n" + chunked + next},
		{"chunk size with bare LF", head + "Transfer-Encoding: chunked\r\n\r\n" + "c\n" + body + "\r\n0\r\n\r\n" + next},
		{"chunk size not hexadecimal", head + "Transfer-Encoding: chunked\r\n\r\n" + "zz\r\n" + body + "\r\n0\r\n\r\n" + next},
		{"folded header", head + "X-A: b\r\n c: d\r\nContent-Length : 12\r\n\r\n" + body + next},
		{"no host", "GET /openapi.json HTTP/1.1\r\n\r\n" + next},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers, closed := dial(t, w, c.request)
			if len(answers) != 1 || answers[0].StatusCode != 400 && answers[0].StatusCode != 501 || !closed {
				t.Errorf("%d answers %v, closed %v", len(answers), answers, closed)
			}
			for _, e := range w.outcomes() {
				if e.Outcome == "ok" {
					t.Errorf("%s was done", e.Op)
				}
			}
		})
	}
}

func TestUpgradeChangesNothing(t *testing.T) {
	w := newWorld(t)
	for _, upgrade := range []string{"websocket", "h2c"} {
		a := w.raw("GET", "/v1/keys", "", nil, http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {upgrade}, "Sec-WebSocket-Key": {"x"}, "Http2-Settings": {"AAMAAABkAAQAAP__"},
		})
		if a.status != 401 {
			t.Errorf("%s: %d", upgrade, a.status)
		}
	}
	// HTTP/2 in the clear is not spoken, not even by prior knowledge.
	if answers, closed := dial(t, w, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); !closed || len(answers) > 1 ||
		len(answers) == 1 && answers[0].StatusCode < 400 {
		t.Errorf("HTTP/2 preface: %v, closed %v", answers, closed)
	}
}
