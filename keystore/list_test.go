package keystore

import (
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func TestLongestPositionFitsIntoAToken(t *testing.T) {
	s := scope{kind: 'c', tenant: uuid.NewV7()}
	id := uuid.NewV7()
	want := position{name: strings.Repeat("n", kms.MaxNameLength), id: string(id[:])}
	if got, ok := s.parseToken(s.token(want)); !ok || got != want {
		t.Errorf("parseToken = %q, %v; want %q", got, ok, want)
	}
}

// FuzzPageToken expects of whatever a client sends that it is refused or is
// exactly a token that the list would have given out.
func FuzzPageToken(f *testing.F) {
	s := scope{kind: 'k', tenant: uuid.Max(), project: "default"}
	f.Add(s.token(position{name: "a"}))
	f.Add(s.token(position{name: "a/b-c", id: "0123456789abcdef"}))
	f.Add("")
	f.Add("AAAAAAAAAAAA")
	f.Add(strings.Repeat("_", maxTokenSize))
	f.Fuzz(func(t *testing.T, token string) {
		p, ok := s.parseToken(token)
		if ok && s.token(p) != token {
			t.Errorf("%q and %q mean the same position", token, s.token(p))
		}
		if other := (scope{kind: 'k', tenant: uuid.Max()}); ok {
			if _, ok := other.parseToken(token); ok {
				t.Errorf("%q is good for two lists", token)
			}
		}
	})
}
