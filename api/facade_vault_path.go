package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

// Clients of Vault put a namespace before the path, leave slashes of a secret's
// path as they are, escape what they like and end with a slash. So the facade's
// paths have a router of their own. Where a path goes is decided on the escaped
// text, segment by segment, and only what is behind that is unescaped, once, to
// name a secret, of which kms.ValidSecretPath has the last word: no "..", no
// control character, nothing outside of ASCII. Rights are looked up for the path
// that results, never for the text that was sent.

// vaultMounts are the first segments of the facade's paths.
var vaultMounts = []string{"secret", "kv", "auth", "sys"}

// vaultMatch is where a request to the facade goes.
type vaultMatch struct {
	route     *Route // nil: nowhere; the answer is status and text
	namespace string
	path      string

	status int
	text   string // "": no error is named
	allow  string
}

// mountVault notes the routes of the facade, and which first segments are the
// native interface's, and so no namespaces.
func (s *Server) mountVault(table []Route) {
	s.native = make(map[string]bool)
	for i := range table {
		r := &table[i]
		if r.Vault != nil {
			s.vault = append(s.vault, r)
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/v1/"), "/")
		s.native[first] = true
	}
}

// matchVault finds the route of a request; nil when the facade is not meant.
func (s *Server) matchVault(u *url.URL, method string) *vaultMatch {
	escaped := u.EscapedPath()
	rest, ok := strings.CutPrefix(escaped, "/v1/")
	if !ok || u.RawPath != "" && u.RawPath != escaped {
		return nil
	}
	segments := strings.Split(rest, "/")
	if s.native[segments[0]] {
		return nil
	}
	at := slices.IndexFunc(segments, func(s string) bool { return slices.Contains(vaultMounts, s) })
	if at < 0 {
		return nil
	}
	m := &vaultMatch{namespace: strings.Join(segments[:at], "/")}
	if at > 0 && !kms.ValidName(m.namespace) {
		return nil
	}
	m.find(s.vault, segments[at:], method)
	return m
}

// find sets the route of the segments from the mount on.
func (m *vaultMatch) find(routes []*Route, segments []string, method string) {
	switch method {
	case http.MethodPut:
		method = http.MethodPost
	case http.MethodHead:
		method = http.MethodGet
	}
	var methods []string
	for _, r := range routes {
		rest, matches := matchPattern(strings.Split(r.Path, "/")[2:], segments)
		if !matches {
			continue
		}
		if r.Method != method {
			methods = append(methods, r.Method)
			continue
		}
		var err error
		if m.path, err = url.PathUnescape(rest); err != nil {
			m.status, m.text = http.StatusBadRequest, "the path is not well-formed"
			return
		}
		m.path = strings.TrimSuffix(m.path, "/")
		m.route = r
		return
	}
	m.nowhere(segments[0], methods, method)
}

// matchPattern matches segments with a route's, of which the last may stand for
// all that is left, and returns that.
func matchPattern(pattern, segments []string) (rest string, ok bool) {
	for i, p := range pattern {
		if strings.HasPrefix(p, "{") {
			return strings.Join(segments[min(i, len(segments)):], "/"), len(segments) >= i
		}
		if i >= len(segments) || segments[i] != p {
			return "", false
		}
	}
	left := segments[len(pattern):]
	return "", len(left) == 0 || len(left) == 1 && left[0] == ""
}

// nowhere says what is answered where no route is: a secret cannot be written
// here, and a mount or a path of the system that does not exist is denied, as
// Vault denies it.
func (m *vaultMatch) nowhere(mount string, methods []string, method string) {
	secrets := mount == "secret" || mount == "kv"
	switch {
	case secrets && method != http.MethodGet && method != methodList:
		m.status, m.text = http.StatusMethodNotAllowed, "this mount can only be read; secrets are written at /v1/secrets"
		m.allow = http.MethodGet + ", " + methodList
	case len(methods) > 0:
		m.status, m.text, m.allow = http.StatusMethodNotAllowed, "the path has no such method", strings.Join(methods, ", ")
	case secrets:
		m.status, m.text = http.StatusNotFound, "unsupported path"
	default:
		m.status, m.text = http.StatusForbidden, vaultDenied
	}
}
