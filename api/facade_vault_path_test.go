package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// vaultRouter is a server that can do nothing but find routes of the facade.
func vaultRouter() *Server {
	s := &Server{}
	s.mountVault(Routes())
	return s
}

// secretPath draws a path that a secret can have.
var secretPath = rapid.StringMatching(`[!$&'()+,.0-;=@-\[\]^_a-{}~-]{1,12}(/[!$&'()+,.0-;=@-\[\]^_a-{}~-]{1,12}){0,3}`).Filter(kms.ValidSecretPath)

// TestEveryEscapeOfAPathNamesTheSameSecret escapes some bytes of a path and
// leaves others as clients may leave them.
func TestEveryEscapeOfAPathNamesTheSameSecret(t *testing.T) {
	s := vaultRouter()
	rapid.Check(t, func(t *rapid.T) {
		path := secretPath.Draw(t, "path")
		var escaped strings.Builder
		for i := range len(path) {
			if c := path[i]; !unreserved(c) && c != '/' || rapid.Bool().Draw(t, "escape") {
				fmt.Fprintf(&escaped, "%%%02x", c)
			} else {
				escaped.WriteByte(c)
			}
		}
		before := rapid.SampledFrom([]string{"/v1/secret/data/", "/v1/acme/secret/data/", "/v1/kv/"}).Draw(t, "before")
		slash := rapid.SampledFrom([]string{"", "/"}).Draw(t, "slash")
		u, err := url.ParseRequestURI(before + escaped.String() + slash)
		if err != nil {
			t.Fatal(err)
		}
		m := s.matchVault(u, "GET")
		if m == nil || m.route == nil || m.path != path || m.namespace != map[bool]string{true: "acme"}[strings.Contains(before, "acme")] {
			t.Fatalf("%s is found as %+v, want %s", u.EscapedPath(), m, path)
		}
	})
}

// TestAnyPathIsFoundOnceOrNotAtAll lets what a stranger may send be looked for.
func TestAnyPathIsFoundOnceOrNotAtAll(t *testing.T) {
	s := vaultRouter()
	segment := rapid.SampledFrom([]string{"v1", "secret", "data", "metadata", "kv", "auth", "approle", "login", "token", "sys", "health", "keys", "acme", "..", ".", "", "%2e%2e", "a%2Fb", "%73ecret", "a;b", "%"})
	rapid.Check(t, func(t *rapid.T) {
		text := "/" + strings.Join(rapid.SliceOfN(segment, 0, 8).Draw(t, "segments"), "/")
		u, err := url.ParseRequestURI(text)
		if err != nil {
			return
		}
		m := s.matchVault(u, rapid.SampledFrom([]string{"GET", "LIST", "POST", "PUT", "HEAD", "DELETE"}).Draw(t, "method"))
		switch {
		case m == nil:
		case m.route == nil && m.status < 400:
			t.Fatalf("%s is found nowhere, with status %d", text, m.status)
		case m.namespace != "" && !kms.ValidName(m.namespace):
			t.Fatalf("%s has the namespace %q", text, m.namespace)
		case s.native[strings.Split(text, "/")[2]]:
			t.Fatalf("%s is native", text)
		}
	})
}
