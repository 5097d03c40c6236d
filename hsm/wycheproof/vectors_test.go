package wycheproof

import (
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"testing"

	vectors "github.com/c2sp/wycheproof"
)

// hexBytes are bytes that the files write in hexadecimal.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	*h = b
	return err
}

// vector is what the vectors of all files have in common.
type vector struct {
	ID      int      `json:"tcId"`
	Comment string   `json:"comment"`
	Flags   []string `json:"flags"`
	Result  string   `json:"result"`
}

func (v *vector) valid() bool   { return v.Result == "valid" }
func (v *vector) invalid() bool { return v.Result == "invalid" }

// file is a file of vectors: groups of type G, whose field Tests holds the
// vectors.
type file[G any] struct {
	Groups []G `json:"testGroups"`
	Count  int `json:"numberOfTests"`
}

func read[G any](t *testing.T, name string) file[G] {
	t.Helper()
	raw, err := fs.ReadFile(vectors.TestVectors, name+"_test.json")
	if err != nil {
		t.Fatal(err)
	}
	var f file[G]
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(f.Groups) == 0 || f.Count == 0 {
		t.Fatalf("%s: no vectors", name)
	}
	return f
}

// tally counts the vectors of a file for one provider.
type tally struct {
	t       *testing.T
	name    string
	run     int
	outside int // of what the product does not offer
}

func count(t *testing.T, name string) *tally { return &tally{t: t, name: name} }

// want ends the count: every vector was seen, and as many run as the test
// says.
func (c *tally) want(all, run int) {
	c.t.Helper()
	c.t.Logf("%s: %d vectors run, %d of what is not offered", c.name, c.run, c.outside)
	if c.run+c.outside != all {
		c.t.Errorf("%s: %d vectors run and %d not, of %d", c.name, c.run, c.outside, all)
	}
	if c.run != run {
		c.t.Errorf("%s: %d vectors run, want %d", c.name, c.run, run)
	}
}

// wrong reports a vector.
func (c *tally) wrong(v *vector, format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s, vector %d (%s, %s %v): "+format, append([]any{c.name, v.ID, v.Result, v.Comment, v.Flags}, args...)...)
}
