package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// signedAt are the records of the journal of signedJournal that a head was
// signed of.
var signedAt = []int{4, 9, 16, tamperedEntries}

// signedJournal makes a journal of three segments with some signed heads.
func signedJournal(t *testing.T) (dir string, h *testHSM, heads []SignedHead) {
	t.Helper()
	c := testConfig(t)
	c.SegmentBytes = 5000
	l, h := mustOpen(t, c), newTestHSM(t)
	s := startTestSigner(t, l, h)
	s.cancel() // it signs when it is told to
	s.ended.Wait()
	for i := range tamperedEntries {
		mustRecord(t, l, testEntry(i))
		if slices.Contains(signedAt, i+1) {
			if err := s.sign(t.Context()); err != nil {
				t.Fatal(err)
			}
			head, _ := s.Signed()
			heads = append(heads, head)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	report := verifySigned(t, c.Dir, h, VerifyOptions{})
	if report.Segments != 3 || report.Signed.Sequence != tamperedEntries || len(report.Gaps) == 0 {
		t.Fatalf("made %+v", report)
	}
	return c.Dir, h, heads
}

// copyHeads copies the files of heads to where a forger saved the segments.
func copyHeads(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, headsPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, filepath.Base(path)), content)
	}
}

// dropHeads takes away all heads of the record and after.
func dropHeads(t *testing.T, dir string, from uint64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, headsPrefix+"*"+headsSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		heads, err := ReadHeads(path)
		if err != nil {
			t.Fatal(err)
		}
		var rest []byte
		for _, h := range heads {
			if h.Sequence < from {
				rest = append(rest, h.Line()...)
			}
		}
		write(t, path, rest)
	}
}

// place returns segment and index of a record.
func (f *forger) place(sequence int) (segment, index int) {
	index = sequence - 1
	for index >= f.records(segment) {
		index -= f.records(segment)
		segment++
	}
	return segment, index
}

// rewrite changes a record and computes everything after it anew, as someone
// can who has the folder and the format.
func (f *forger) rewrite(sequence int) {
	segment, index := f.place(sequence)
	from, _ := f.at(segment, index)
	at := bytes.Index(f.contents[segment][from:], []byte(`"out":"ok"`))
	f.contents[segment][from+int64(at)+8] = 'O'
	f.fixChecksum(segment, index)
	f.rechain(segment, index)
}

// cut ends the journal after a record.
func (f *forger) cut(sequence int) {
	segment, index := f.place(sequence)
	_, to := f.at(segment, index)
	f.contents[segment] = f.contents[segment][:to]
	f.names, f.contents = f.names[:segment+1], f.contents[:segment+1]
}

// rangeFault is what a test expects: the first fault, of records in this range.
type rangeFault struct {
	fault       Fault
	first, last uint64
}

func wantRangeFault(t *testing.T, err error, want rangeFault) {
	t.Helper()
	got, ok := errors.AsType[*CorruptError](err)
	if !ok {
		t.Errorf("verified with %v, want %q of the records %d to %d", err, want.fault, want.first, want.last)
		return
	}
	first := got.First
	if first == 0 {
		first = got.Sequence
	}
	if (rangeFault{got.Fault, first, got.Sequence}) != want {
		t.Errorf("found %v, want %q of the records %d to %d", got, want.fault, want.first, want.last)
	}
}

// A chain that was computed anew has no other fault than that nobody signed it:
// without the signatures it verifies.
func TestRecomputedChainIsFoundByItsSignedHeads(t *testing.T) {
	dir, h, _ := signedJournal(t)
	for sequence := 1; sequence <= tamperedEntries; sequence++ {
		f := forge(t, dir)
		f.rewrite(sequence)
		forged := f.save()
		if _, err := Verify(forged, VerifyOptions{}); err != nil {
			t.Fatalf("record %d: the forgery is a bad one: %v", sequence, err)
		}
		copyHeads(t, dir, forged)
		// It lies between the last head that fits and the first that does not.
		want := rangeFault{fault: FaultSigned, first: 1}
		for _, at := range signedAt {
			if at >= sequence {
				want.last = uint64(at)
				break
			}
			want.first = uint64(at) + 1
		}
		report, err := Verify(forged, VerifyOptions{Signed: h.signed})
		wantRangeFault(t, err, want)
		if len(report.Faults) != 1 {
			t.Errorf("record %d: %d faults", sequence, len(report.Faults))
		}
	}
}

func TestRecomputedChainWithoutItsHeadsIsUnsigned(t *testing.T) {
	dir, h, heads := signedJournal(t)
	f := forge(t, dir)
	f.rewrite(12)
	forged := f.save()
	copyHeads(t, dir, forged)
	dropHeads(t, forged, 12)
	_, err := Verify(forged, VerifyOptions{Signed: h.signed})
	wantRangeFault(t, err, rangeFault{FaultUnsigned, 10, tamperedEntries})
	// A service that runs has a tail that is not signed yet. An anchor tells.
	if _, err := Verify(forged, VerifyOptions{Signed: h.signed, TornTail: true}); err != nil {
		t.Errorf("as that of a service that runs: %v", err)
	}
	_, err = Verify(forged, VerifyOptions{Signed: h.signed, TornTail: true, Anchors: heads[3:]})
	wantRangeFault(t, err, rangeFault{FaultSigned, 10, tamperedEntries})
}

func TestHeadsSignedByAnotherKeyAreNone(t *testing.T) {
	dir, h, heads := signedJournal(t)
	f := forge(t, dir)
	f.rewrite(12)
	forged := f.save()
	copyHeads(t, dir, forged)
	report, err := Verify(forged, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The attacker signs the forged head himself, and puts his key in the place
	// of the one beside the journal.
	dropHeads(t, forged, 12)
	attacker := newTestHSM(t)
	his := SignedHead{Node: heads[0].Node, Head: report.Head, Time: heads[3].Time, KeyVersion: 1}
	made, err := attacker.sign(t.Context(), HeadMessage(his))
	if err != nil {
		t.Fatal(err)
	}
	his.Algorithm, his.Signature = made.Algorithm, made.Signature
	path := filepath.Join(forged, headsName(15))
	write(t, path, his.Line())
	_, err = Verify(forged, VerifyOptions{Signed: h.signed})
	wantRangeFault(t, err, rangeFault{FaultSignature, tamperedEntries, tamperedEntries})
	// A head of another journal, signed by the right key.
	other := his
	other.Node = "node-2"
	if made, err = h.sign(t.Context(), HeadMessage(other)); err != nil {
		t.Fatal(err)
	}
	other.Signature = made.Signature
	write(t, path, other.Line())
	_, err = Verify(forged, VerifyOptions{Signed: h.signed})
	wantRangeFault(t, err, rangeFault{FaultSignature, tamperedEntries, tamperedEntries})
}

func TestTruncatedJournalIsFoundByItsSignedHeads(t *testing.T) {
	dir, h, heads := signedJournal(t)
	for sequence := 1; sequence < tamperedEntries; sequence++ {
		f := forge(t, dir)
		f.cut(sequence)
		forged := f.save()
		copyHeads(t, dir, forged)
		signed := uint64(0)
		for _, at := range signedAt {
			if at <= sequence {
				signed = uint64(at)
			}
		}
		cut := rangeFault{FaultTail, uint64(sequence) + 1, tamperedEntries}
		// Heads of later segments are not read: their segments are gone.
		_, err := Verify(forged, VerifyOptions{Signed: h.signed})
		if err == nil && uint64(sequence) != signed {
			t.Errorf("cut after %d: verified", sequence)
		}
		_, err = Verify(forged, VerifyOptions{Signed: h.signed, TornTail: true, Anchors: heads})
		wantRangeFault(t, err, cut)
		// With the heads taken away too, only an anchor tells, or nothing where
		// the cut is at a signed head.
		dropHeads(t, forged, uint64(sequence)+1)
		_, err = Verify(forged, VerifyOptions{Signed: h.signed})
		if uint64(sequence) == signed {
			if err != nil {
				t.Errorf("cut after the signed record %d: %v", sequence, err)
			}
		} else {
			wantRangeFault(t, err, rangeFault{FaultUnsigned, signed + 1, uint64(sequence)})
		}
		_, err = Verify(forged, VerifyOptions{Signed: h.signed, Anchors: heads[3:], TornTail: true})
		wantRangeFault(t, err, cut)
	}
}

func TestAppendedEntriesAreUnsigned(t *testing.T) {
	dir, h, _ := signedJournal(t)
	c := testConfig(t)
	c.Dir = dir
	l := mustOpen(t, c) // the format's own writer, without the key
	mustRecord(t, l, testEntry(100), testEntry(101))
	mustClose(t, l)
	_, err := Verify(dir, VerifyOptions{Signed: h.signed})
	wantRangeFault(t, err, rangeFault{FaultUnsigned, tamperedEntries + 1, tamperedEntries + 2})
	report, err := Verify(dir, VerifyOptions{Signed: h.signed, TornTail: true})
	if err != nil || report.Unsigned != 2 {
		t.Errorf("of a service that runs: %v, %d entries unsigned", err, report.Unsigned)
	}
}

func TestDroppedAndSwappedRangesAreFoundWithTheChainComputedAnew(t *testing.T) {
	dir, h, _ := signedJournal(t)
	for name, test := range map[string]struct {
		tamper func(f *forger)
		want   rangeFault
	}{
		"records 11 and 12 dropped": {func(f *forger) {
			from, _ := f.at(1, 3)
			_, to := f.at(1, 4)
			f.contents[1] = slices.Delete(f.contents[1], int(from), int(to))
			f.rechain(1, 3)
			// The next segment begins where this one ends now.
			f.renumber(2, 13)
		}, rangeFault{FaultSigned, 10, 16}},
		"records 11 and 12 swapped": {func(f *forger) {
			a, b := f.at(1, 3)
			_, c := f.at(1, 4)
			s := f.contents[1]
			f.contents[1] = slices.Concat(s[:a], s[b:c], s[a:b], s[c:])
			f.rechain(1, 3)
		}, rangeFault{FaultSigned, 10, 16}},
		"record 11 repeated": {func(f *forger) {
			from, to := f.at(1, 3)
			f.contents[1] = slices.Insert(f.contents[1], int(to), f.contents[1][from:to]...)
			f.rechain(1, 3)
			f.renumber(2, 16)
		}, rangeFault{FaultSigned, 10, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			f := forge(t, dir)
			test.tamper(f)
			forged := f.save()
			if _, err := Verify(forged, VerifyOptions{}); err != nil {
				t.Fatalf("the forgery is a bad one: %v", err)
			}
			copyHeads(t, dir, forged)
			for i, name := range forge(t, dir).names { // the forger renames them too
				old, _ := parseSegmentName(name)
				now, _ := parseSegmentName(f.names[i])
				if err := os.Rename(filepath.Join(forged, headsName(old)), filepath.Join(forged, headsName(now))); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Verify(forged, VerifyOptions{Signed: h.signed})
			wantRangeFault(t, err, test.want)
		})
	}
}

// Every byte of every file counts: wherever one bit is flipped, Verify fails.
func TestEveryFlippedBitOfASignedJournalIsFound(t *testing.T) {
	dir, h, heads := signedJournal(t)
	step := 13 // bytes; the long form flips every one
	if os.Getenv("SLUICE_CHAOS") == "full" {
		step = 1
	}
	files := make(map[string][]byte)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == headKeysFile { // not believed: the auditor has his own
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	flipped := 0
	faults := make(map[Fault]int)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		path := filepath.Join(dir, name)
		for at := 0; at < len(content); at += step {
			// Algorithm and version of a head say how to check it, and are not
			// signed.
			if strings.HasPrefix(name, headsPrefix) && unsignedField(content, at) {
				continue
			}
			changed := bytes.Clone(content)
			changed[at] ^= 1 << (at % 8)
			write(t, path, changed)
			_, err := Verify(dir, VerifyOptions{Signed: h.signed, Anchors: heads[3:]})
			corrupt, ok := errors.AsType[*CorruptError](err)
			if !ok {
				t.Fatalf("bit %d of byte %d of %s is flipped: %v", at%8, at, name, err)
			}
			faults[corrupt.Fault]++
			flipped++
		}
		write(t, path, content)
	}
	t.Logf("%d bits flipped, each found: %v", flipped, faults)
}

// unsignedField tells whether a byte of a file of heads is in the algorithm or
// version of its line.
func unsignedField(content []byte, at int) bool {
	start := bytes.LastIndexByte(content[:at], '\n') + 1
	line := content[start:]
	from, to := bytes.Index(line, []byte(`"alg"`)), bytes.Index(line, []byte(`"sig"`))
	return at-start >= from && at-start < to
}

func ExampleCorruptError_range() {
	fmt.Println(&CorruptError{Segment: "journal-00000000000000000001.slj", Offset: 4711, First: 10, Sequence: 16, Fault: FaultSigned})
	// Output: journal segment "journal-00000000000000000001.slj", offset 4711, sequences 10 to 16: the records are not those that were signed
}
