package api

import (
	"net/url"
	"strings"
)

// canonicalPath tells whether a request's path is in the one spelling that
// the router may see: segments that are not empty and not "." or "..", of
// unreserved characters (RFC 3986, 2.3), in which a slash of a name is
// written %2F. Everything else — other escapes, "//", a trailing slash, path
// parameters — names nothing, so it is not normalised but refused: two
// parties cannot read two routes into one path (echo CVE-2026-55677 and its
// kin, OpenBao CVE-2026-3605).
func canonicalPath(u *url.URL) bool {
	path := u.EscapedPath()
	if u.RawPath != "" && u.RawPath != path {
		// The router would see another path than the one that is checked.
		return false
	}
	if len(path) < 2 || path[0] != '/' {
		return false
	}
	start := 1 // of the segment
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			if segment := path[start:i]; segment == "" || segment == "." || segment == ".." {
				return false
			}
			start = i + 1
			continue
		}
		if path[i] == '%' {
			if i+2 >= len(path) || path[i+1] != '2' || path[i+2]|0x20 != 'f' {
				return false
			}
			i += 2
			continue
		}
		if !unreserved(path[i]) {
			return false
		}
	}
	return true
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

var slashes = strings.NewReplacer("%2F", "/", "%2f", "/")

// unescapeSegment undoes the one escape that canonicalPath lets through.
func unescapeSegment(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	return slashes.Replace(s)
}
