package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// closedJournal makes a journal of so many entries and returns its last
// segment's path and content with the offsets of its records.
func closedJournal(t testing.TB, c Config, entries int) (path string, content []byte, offsets []int64) {
	t.Helper()
	l := mustOpen(t, c)
	for i := range entries {
		mustRecord(t, l, testEntry(i))
	}
	mustClose(t, l)
	names := segments(t, c.Dir)
	path = filepath.Join(c.Dir, names[len(names)-1])
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content, recordOffsets(t, content)
}

// recordOffsets returns where the records of a whole segment begin.
func recordOffsets(t testing.TB, content []byte) (offsets []int64) {
	t.Helper()
	for at := int64(headerSize); at < int64(len(content)); {
		offsets = append(offsets, at)
		at += frameSize + int64(binary.BigEndian.Uint32(content[at:])) + hashSize
	}
	return offsets
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantCut fails unless the journal opens with all from the offset on cut off,
// and goes on so that it verifies.
func wantCut(t *testing.T, c Config, path string, offset, bytes int64, entries int) {
	t.Helper()
	l, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := Recovery{}
	if bytes > 0 {
		want = Recovery{Segment: filepath.Base(path), Offset: offset, Bytes: bytes}
	}
	if l.Recovery() != want {
		t.Errorf("cut %+v, want %+v", l.Recovery(), want)
	}
	if got := l.Head().Sequence; got != uint64(entries) {
		t.Errorf("%d entries are left, want %d", got, entries)
	}
	mustRecord(t, l, testEntry(entries))
	mustClose(t, l)
	mustVerify(t, c.Dir, entries+1)
}

func TestTornTailIsCutWhereverItIsTorn(t *testing.T) {
	const entries = 4
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, entries)
	last := offsets[entries-1]
	for end := last; end <= int64(len(content)); end++ {
		write(t, path, content[:end])
		if end == int64(len(content)) {
			wantCut(t, c, path, 0, 0, entries)
		} else if isZero(content[last:end]) { // the first bytes of a length: as if nothing was written
			wantCut(t, c, path, 0, 0, entries-1)
		} else {
			wantCut(t, c, path, last, end-last, entries-1)
		}
		if t.Failed() {
			t.Fatalf("torn at offset %d of %d", end, len(content))
		}
	}
}

func TestTornWriteOfManyEntriesKeepsTheWholeOnes(t *testing.T) {
	const entries = 40
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, entries)
	for i, from := range offsets {
		write(t, path, content[:from+100])
		wantCut(t, c, path, from, 100, i)
	}
}

// TestHoleInTheLastWriteIsCut is a power cut under a file system that wrote
// the new size, and some of the content, first.
func TestHoleInTheLastWriteIsCut(t *testing.T) {
	const entries = 40
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, entries)
	lastSector := int64(len(content)-1) / sectorSize
	for sector := int64(2); sector <= lastSector; sector++ {
		holed := slices.Clone(content)
		from, to := sector*sectorSize, min((sector+1)*sectorSize, int64(len(content)))
		clear(holed[from:to])
		// The first record that reaches into the hole is the one to go.
		torn, _ := slices.BinarySearch(offsets, from)
		if torn == len(offsets) || offsets[torn] > from {
			torn--
		}
		write(t, path, holed)
		wantCut(t, c, path, offsets[torn], int64(len(content))-offsets[torn], torn)
		if t.Failed() {
			t.Fatalf("sector %d of %d", sector, lastSector)
		}
	}
}

// TestDamagedLastRecordIsNotTakenForTorn flips every bit of the last record:
// none of that is a trace of a crash, so nothing may be cut off.
func TestDamagedLastRecordIsNotTakenForTorn(t *testing.T) {
	const entries = 2
	c := testConfig(t)
	l := mustOpen(t, c)
	mustRecord(t, l, testEntry(1), &kms.Entry{Phase: kms.PhaseOutcome, Op: kms.OpSign}) // short: there are many bits
	mustClose(t, l)
	path := filepath.Join(c.Dir, segmentName(1))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := recordOffsets(t, content)[entries-1]
	for at := last; at < int64(len(content)); at++ {
		for bit := range 8 {
			damaged := slices.Clone(content)
			damaged[at] ^= 1 << bit
			write(t, path, damaged)
			wantRefusal(t, c, path, last, entries)
			if t.Failed() {
				t.Fatalf("bit %d of byte %d of the record", bit, at-last)
			}
		}
	}
}

// TestLengthAlteredIntoTheHashIsNotTakenForTorn makes the bytes that follow
// the payload, and that an altered length takes for more of it, look like
// text.
func TestLengthAlteredIntoTheHashIsNotTakenForTorn(t *testing.T) {
	r := append(make([]byte, frameSize), `{"t":"2026-01-01T00:00:00Z"}`...)
	sealFrame(r)
	r = append(r, strings.Repeat("h", hashSize)...)
	length := binary.BigEndian.Uint32(r)
	for more := uint32(1); more <= hashSize; more++ {
		binary.BigEndian.PutUint32(r, length+more)
		if isTorn(r, headerSize) {
			t.Errorf("with %d bytes more", more)
		}
	}
}

// wantRefusal fails unless Open refuses the journal, names the place and
// leaves the segment as it was.
func wantRefusal(t *testing.T, c Config, path string, offset int64, sequence uint64) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(context.Background(), c)
	if err == nil {
		l.Close()
		t.Fatalf("opened; cut off %+v", l.Recovery())
	}
	corrupt, ok := errors.AsType[*CorruptError](err)
	if !ok || corrupt.Segment != filepath.Base(path) || corrupt.Offset != offset || corrupt.Sequence != sequence {
		t.Errorf("got %v, want offset %d and sequence %d of %s", err, offset, sequence, filepath.Base(path))
	}
	after, err := os.ReadFile(path)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the refused segment was changed: %v", err)
	}
}

func TestDamageIsRefusedAtStart(t *testing.T) {
	const entries = 20
	tests := []struct {
		name     string
		sequence uint64 // of the record that is named; 1 is the header's too
		header   bool
		damage   func(content []byte, offsets []int64) []byte
	}{
		{"record in the middle", 5, false, func(b []byte, at []int64) []byte {
			b[at[4]+50] ^= 1
			return b
		}},
		{"length in the middle, to beyond the end", 15, false, func(b []byte, at []int64) []byte {
			binary.BigEndian.PutUint32(b[at[14]:], 60000)
			return b
		}},
		{"impossible length", 15, false, func(b []byte, at []int64) []byte {
			binary.BigEndian.PutUint32(b[at[14]:], 1<<31)
			return b
		}},
		{"zeros in a record", 20, false, func(b []byte, at []int64) []byte {
			clear(b[at[19]+20 : at[19]+60])
			return b
		}},
		{"two records exchanged", 7, false, func(b []byte, at []int64) []byte {
			return slices.Concat(b[:at[6]], b[at[7]:at[8]], b[at[6]:at[7]], b[at[8]:])
		}},
		{"record left out", 7, false, func(b []byte, at []int64) []byte {
			return slices.Concat(b[:at[6]], b[at[7]:])
		}},
		{"record twice", 8, false, func(b []byte, at []int64) []byte {
			return slices.Concat(b[:at[7]], b[at[6]:])
		}},
		{"text after the end", 21, false, func(b []byte, _ []int64) []byte {
			return append(b, "hello, this is no record at all"...)
		}},
		{"magic", 1, true, func(b []byte, _ []int64) []byte {
			b[0] ^= 1
			return b
		}},
		{"header cut", 1, true, func(b []byte, _ []int64) []byte { return b[:headerSize-1] }},
		{"empty file", 1, true, func([]byte, []int64) []byte { return nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t)
			path, content, offsets := closedJournal(t, c, entries)
			offsets = append(offsets, int64(len(content)))
			write(t, path, tt.damage(slices.Clone(content), offsets))
			offset := int64(0)
			if !tt.header {
				offset = offsets[tt.sequence-1]
			}
			wantRefusal(t, c, path, offset, tt.sequence)
		})
	}
}

func TestSegmentOfAnotherJournalIsRefusedAtStart(t *testing.T) {
	one, other := testConfig(t), testConfig(t)
	one.SegmentBytes, other.SegmentBytes = MinSegmentBytes, MinSegmentBytes
	path, _, _ := closedJournal(t, one, 20)
	l := mustOpen(t, other)
	for i := range 20 {
		e := testEntry(i)
		e.KeyName = "orders/payment" // as long as that of the other
		mustRecord(t, l, e)
	}
	mustClose(t, l)
	content, err := os.ReadFile(filepath.Join(other.Dir, filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, content)
	first, _ := parseSegmentName(filepath.Base(path))
	wantRefusal(t, one, path, 0, first)
}

func TestWriteLargerThanACrashLeavesIsNotCut(t *testing.T) {
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, 3)
	torn := func(bytes int) []byte { // the first sectors of the write are missing
		return append(append(slices.Clone(content[:offsets[2]]), make([]byte, bytes-1)...), 1)
	}
	write(t, path, torn(maxTorn+1))
	wantRefusal(t, c, path, offsets[2], 3)
	write(t, path, torn(maxTorn))
	wantCut(t, c, path, offsets[2], maxTorn, 2)
}

// TestZerosAheadOfTheRecordsAreNoFault is the journal of a log that was killed
// between two writes, and one that still runs.
func TestZerosAheadOfTheRecordsAreNoFault(t *testing.T) {
	const entries = 5
	c := testConfig(t)
	l := mustOpen(t, c)
	for i := range entries {
		mustRecord(t, l, testEntry(i))
	}
	path := filepath.Join(c.Dir, segmentName(1))
	running, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(readAll(t, c.Dir)); n != entries {
		t.Errorf("of a running log %d entries are read", n)
	}
	mustClose(t, l)
	closed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if ahead := running[len(closed):]; len(ahead) == 0 || !isZero(ahead) {
		t.Fatalf("%d bytes ahead of the records of a running log, all zero: %t", len(ahead), isZero(ahead))
	}
	write(t, path, running)
	if _, err := Verify(c.Dir, VerifyOptions{}); !isFault(err, FaultBlank) {
		t.Errorf("verified as closed: %v", err)
	}
	if report, err := Verify(c.Dir, VerifyOptions{TornTail: true}); err != nil || report.Entries != entries {
		t.Errorf("verified as running: %d entries, %v", report.Entries, err)
	}
	wantCut(t, c, path, 0, 0, entries)
}

func isFault(err error, f Fault) bool {
	corrupt, ok := errors.AsType[*CorruptError](err)
	return ok && corrupt.Fault == f
}

// TestWriteIsCutWhereverItTearsWithinZeros is TestTornTailIsCutWhereverItIsTorn
// where the file is longer than what was written: sectors are torn, not bytes.
func TestWriteIsCutWhereverItTearsWithinZeros(t *testing.T) {
	const entries = 4
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, entries)
	for i, from := range offsets {
		for at := from + sectorSize - from%sectorSize; at < int64(len(content)); at += sectorSize {
			torn := append(bytes.Clone(content[:at]), make([]byte, blankBytes)...)
			holder, _ := slices.BinarySearch(offsets, at) // of the first byte that is missing
			if holder == len(offsets) || offsets[holder] > at {
				holder--
			}
			if holder < i {
				continue
			}
			write(t, path, torn)
			want := int64(len(torn)) - offsets[holder]
			if isZero(torn[offsets[holder]:]) {
				want = 0
			}
			wantCut(t, c, path, offsets[holder], want, holder)
		}
	}
}

func TestOnlyTheLastSegmentHasZeros(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	closedJournal(t, c, 20)
	names := segments(t, c.Dir)
	path := filepath.Join(c.Dir, names[0])
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, append(content, make([]byte, sectorSize)...))
	if _, err := Verify(c.Dir, VerifyOptions{TornTail: true}); !isFault(err, FaultBlank) {
		t.Errorf("verified: %v", err)
	}
	err = Read(c.Dir, 1, func(*kms.Entry, Position) error { return nil })
	if !isFault(err, FaultBlank) {
		t.Errorf("read: %v", err)
	}
}

// TestRecordWrittenMeanwhileIsRead is a reader that comes to the end just when
// the next record is written.
func TestRecordWrittenMeanwhileIsRead(t *testing.T) {
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, 3)
	write(t, path, append(bytes.Clone(content[:offsets[1]]), make([]byte, blankBytes)...))
	r, err := openSegment(c.Dir, segmentName(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.next(); err != nil { // and reads ahead into the zeros
		t.Fatal(err)
	}
	write(t, path, append(bytes.Clone(content), make([]byte, blankBytes)...))
	for range 2 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.next(); err != io.EOF || !r.blank {
		t.Errorf("after the last record: %v, blank %t", err, r.blank)
	}
}

// TestRecordIsIncompleteWhileItIsWritten has every part of a record in a file
// that is longer, as a reader of a running log may see it.
func TestRecordIsIncompleteWhileItIsWritten(t *testing.T) {
	c := testConfig(t)
	path, content, offsets := closedJournal(t, c, 2)
	for end := offsets[1]; end < int64(len(content)); end++ {
		write(t, path, append(bytes.Clone(content[:end]), make([]byte, 2<<10)...))
		if n := len(readAll(t, c.Dir)); n < 1 {
			t.Fatalf("with %d bytes of the record %d entries are read", end-offsets[1], n)
		}
	}
}

func FuzzSegment(f *testing.F) {
	c := testConfig(f)
	_, content, _ := closedJournal(f, c, 3)
	f.Add(content[headerSize:])
	f.Add(content[headerSize : len(content)-40])
	header := content[:headerSize:headerSize]
	f.Fuzz(func(t *testing.T, records []byte) {
		dir, names := t.TempDir(), []string{segmentName(1)}
		path := filepath.Join(dir, names[0])
		write(t, path, append(header, records...))
		_, strict := Verify(dir, VerifyOptions{})
		end, err := readTail(t.Context(), dir, names, nil)
		if err != nil {
			if strict == nil {
				t.Errorf("verified, and refused at start by %v", err)
			}
			return
		}
		if strict == nil && end.cut.Bytes > 0 {
			t.Errorf("verified, and cut at start by %+v", end.cut)
		}
		if err := os.Truncate(path, end.end); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, VerifyOptions{Head: end.head}); err != nil && !isFault(err, FaultPayload) /* which Open does not look for */ {
			t.Errorf("accepted at start, and refused by %v", err)
		}
	})
}

func ExampleCorruptError() {
	fmt.Println(&CorruptError{Segment: segmentName(1), Offset: 128, Sequence: 1, Fault: FaultChain})
	// Output: journal segment "journal-00000000000000000001.slj", offset 128, sequence 1: the record fails the hash chain
}
