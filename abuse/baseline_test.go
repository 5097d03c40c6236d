package abuse

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// anyBaseline draws a baseline such as calls make.
func anyBaseline(t *rapid.T) *baseline {
	weight := rapid.Float32Range(0, 1e9)
	b := &baseline{born: monday.UnixNano() + rapid.Int64Range(0, int64(time.Hour)).Draw(t, "born")}
	b.at = b.born + rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, "at")
	for _, f := range append(b.numbers(), b.often.numbers()...) {
		*f = weight.Draw(t, "number")
	}
	for _, table := range [][]seen{b.networks[:], b.clients[:]} {
		used := rapid.IntRange(0, len(table)).Draw(t, "used")
		for i := range table[:used] {
			table[i] = seenAt(uint32(i+1+100*rapid.IntRange(0, 3).Draw(t, "set")), weight.Draw(t, "weight"), rapid.Uint32().Draw(t, "since"), rapid.Bool().Draw(t, "suspect"))
		}
	}
	return b
}

func TestAStoredBaselineIsReadAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBaseline(t)
		d := b.document()
		if len(d) > maxDocument {
			t.Fatalf("%d bytes", len(d))
		}
		got, err := parseBaseline(d)
		if err != nil || got != *b {
			t.Fatalf("%v\n%+v\n%+v", err, got, *b)
		}
	})
}

func TestMergingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyBaseline(t), anyBaseline(t)
		once, other := *a, *b
		once.merge(&other)
		twice, other := once, *b
		twice.merge(&other)
		if twice != once {
			t.Fatalf("\n%+v\n%+v", once, twice)
		}
	})
}

// Whoever reads a document that was made up gets a baseline with numbers that
// can be reckoned with, or an error.
func FuzzParseBaseline(f *testing.F) {
	b := baseline{born: 1, at: 2, calls: 3}
	b.networks[0] = seenAt(1, 2, 3, true)
	f.Add(b.document())
	f.Add([]byte{documentFormat})
	f.Fuzz(func(t *testing.T, d []byte) {
		b, err := parseBaseline(d)
		if err != nil {
			return
		}
		for _, n := range append(b.numbers(), b.often.numbers()...) {
			if !(*n >= 0) || math.IsInf(float64(*n), 0) {
				t.Fatal("a number that is none")
			}
		}
		again, err := parseBaseline(b.document())
		if err != nil || again != b {
			t.Fatalf("%v", err)
		}
	})
}
