package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emmansun/gmsm/sm3"
)

func headerOf(t *testing.T, dir, name string) header {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	h, err := parseHeader([headerSize]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestChainsHashChangesWithTheNextSegment(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes, c.SM3 = MinSegmentBytes, sm3.New
	n := 0
	for _, chain := range []ChainHash{ChainSHA256, ChainSM3, ChainSHA256} {
		c.Chain = chain
		l := mustOpen(t, c)
		before := headerOf(t, c.Dir, segments(t, c.Dir)[len(segments(t, c.Dir))-1])
		mustRecord(t, l, testEntry(n))
		for range 12 {
			n++
			mustRecord(t, l, testEntry(n))
		}
		n++
		mustClose(t, l)
		names := segments(t, c.Dir)
		if got := headerOf(t, c.Dir, segmentName(before.first)); got.chain != before.chain {
			t.Errorf("the segment that was there has the hash %d now", got.chain)
		}
		if got := headerOf(t, c.Dir, names[len(names)-1]); got.chain != chain {
			t.Errorf("the newest segment has the hash %d, want %d", got.chain, chain)
		}
	}
	report, err := Verify(c.Dir, VerifyOptions{SM3: sm3.New})
	if err != nil || report.Entries != uint64(n) {
		t.Errorf("%d of %d entries verify, %v", report.Entries, n, err)
	}

	// Nobody who has not SM3 takes its segments for damaged ones.
	_, err = Verify(c.Dir, VerifyOptions{})
	if _, corrupt := errors.AsType[*CorruptError](err); corrupt || err == nil || !strings.Contains(err.Error(), "SM3") {
		t.Errorf("without SM3: %v", err)
	}
	c.SM3, c.Chain = nil, ChainSM3
	if l, err := Open(t.Context(), c); err == nil {
		mustClose(t, l)
		t.Error("a log of SM3 was opened without it")
	}

	// The chain of SM3 is one: a change in it shows.
	for _, name := range segments(t, c.Dir) {
		if headerOf(t, c.Dir, name).chain != ChainSM3 {
			continue
		}
		f := forge(t, c.Dir)
		for i := range f.names {
			if f.names[i] == name {
				from, _ := f.at(i, 1)
				f.contents[i][from+40] ^= 1
				f.fixChecksum(i, 1)
			}
		}
		var corrupt *CorruptError
		if _, err := Verify(f.save(), VerifyOptions{SM3: sm3.New}); !errors.As(err, &corrupt) || corrupt.Fault != FaultChain || corrupt.Segment != name {
			t.Errorf("a change in %s: %v", name, err)
		}
		return
	}
	t.Error("no segment is chained with SM3")
}
