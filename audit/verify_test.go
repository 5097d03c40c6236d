package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// forger holds a journal's segments as an attacker who can write the folder
// and knows the format, but has no copy elsewhere to change.
type forger struct {
	t        *testing.T
	names    []string
	contents [][]byte
}

func forge(t *testing.T, dir string) *forger {
	f := &forger{t: t, names: segments(t, dir)}
	for _, name := range f.names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f.contents = append(f.contents, content)
	}
	return f
}

// save writes the segments into a new folder.
func (f *forger) save() string {
	dir := f.t.TempDir()
	for i, name := range f.names {
		write(f.t, filepath.Join(dir, name), f.contents[i])
	}
	return dir
}

// at returns the bounds of a record: segment and index in it from 0.
func (f *forger) at(segment, index int) (from, to int64) {
	offsets := append(recordOffsets(f.t, f.contents[segment]), int64(len(f.contents[segment])))
	return offsets[index], offsets[index+1]
}

// records returns the number of a segment's records.
func (f *forger) records(segment int) int { return len(recordOffsets(f.t, f.contents[segment])) }

// fixChecksum makes a record's checksum that of its content.
func (f *forger) fixChecksum(segment, index int) {
	from, to := f.at(segment, index)
	b := f.contents[segment][from:to]
	sum := crc32.Checksum(slices.Concat(b[0:4], b[8:len(b)-hashSize]), castagnoli)
	binary.BigEndian.PutUint32(b[4:8], sum)
}

// rechain computes every chain hash anew from the record on, links included.
func (f *forger) rechain(segment, index int) {
	c := newChain(sha256.New)
	for ; segment < len(f.contents); segment++ {
		b := f.contents[segment]
		h, err := parseHeader([headerSize]byte(b))
		if err != nil {
			f.t.Fatal(err)
		}
		previous := c.seed([headerSize]byte(b))
		for i, from := range recordOffsets(f.t, b) {
			to := from + frameSize + int64(binary.BigEndian.Uint32(b[from:])) + hashSize
			if i < index {
				previous = Hash(b[to-hashSize : to])
				continue
			}
			previous = c.next(previous, h.first+uint64(i), b[from+frameSize:to-hashSize])
			copy(b[to-hashSize:to], previous[:])
		}
		index = 0
		if segment+1 < len(f.contents) {
			next := f.contents[segment+1]
			copy(next[84:116], previous[:])
			binary.BigEndian.PutUint32(next[124:128], crc32.Checksum(next[:124], castagnoli))
		}
	}
}

const tamperedEntries = 20

// tampered makes a journal of three segments.
func tampered(t *testing.T) (dir string, head Head) {
	t.Helper()
	c := testConfig(t)
	c.SegmentBytes = 5000
	closedJournal(t, c, tamperedEntries)
	report := mustVerify(t, c.Dir, tamperedEntries)
	if report.Segments != 3 {
		t.Fatalf("the journal has %d segments", report.Segments)
	}
	return c.Dir, report.Head
}

// segmentLength is the number of entries in each full segment of tampered.
const segmentLength = 7

func TestTamperingIsFoundAndNamed(t *testing.T) {
	dir, head := tampered(t)
	// A place: segment, index of the record in it (-1 is the header), fault.
	type place struct {
		segment, record int
		fault           Fault
	}
	tests := []struct {
		name   string
		tamper func(f *forger)
		// noHead: found without an expected head too.
		noHead bool
		faults []place
	}{
		{"payload changed", func(f *forger) {
			from, _ := f.at(1, 2)
			f.contents[1][from+40] ^= 1
		}, true, []place{{1, 2, FaultChecksum}}},

		{"payload changed, checksum fixed", func(f *forger) {
			from, _ := f.at(1, 2)
			f.contents[1][from+40] ^= 1
			f.fixChecksum(1, 2)
		}, true, []place{{1, 2, FaultChain}}},

		{"chain hash changed", func(f *forger) {
			_, to := f.at(1, 2)
			f.contents[1][to-1] ^= 1
		}, true, []place{{1, 2, FaultChain}, {1, 3, FaultChain}}},

		{"two places", func(f *forger) {
			for segment := range 2 {
				from, _ := f.at(segment, 1)
				f.contents[segment][from+40] ^= 1
				f.fixChecksum(segment, 1)
			}
		}, true, []place{{0, 1, FaultChain}, {1, 1, FaultChain}}},

		{"two records exchanged", func(f *forger) {
			a, b := f.at(1, 2)
			_, c := f.at(1, 3)
			s := f.contents[1]
			f.contents[1] = slices.Concat(s[:a], s[b:c], s[a:b], s[c:])
		}, true, []place{{1, 2, FaultChain}, {1, 3, FaultChain}, {1, 4, FaultChain}}},

		{"record dropped", func(f *forger) {
			from, to := f.at(1, 2)
			f.contents[1] = slices.Delete(f.contents[1], int(from), int(to))
		}, true, []place{{1, 2, FaultChain}, {1, 3, FaultChain}, {1, 4, FaultChain}, {1, 5, FaultChain}}},

		{"record repeated", func(f *forger) {
			from, to := f.at(1, 5)
			f.contents[1] = slices.Insert(f.contents[1], int(to), f.contents[1][from:to]...)
		}, true, []place{{1, 6, FaultChain}, {1, 7, FaultChain}, {2, -1, FaultMissing}}},

		{"last record of a segment dropped", func(f *forger) {
			from, _ := f.at(1, segmentLength-1)
			f.contents[1] = f.contents[1][:from]
		}, true, []place{{2, -1, FaultMissing}}},

		{"segment dropped", func(f *forger) {
			f.names, f.contents = slices.Delete(f.names, 1, 2), slices.Delete(f.contents, 1, 2)
		}, true, []place{{1, -1, FaultMissing}}},

		{"first segment dropped", func(f *forger) {
			f.names, f.contents = f.names[1:], f.contents[1:]
		}, true, []place{{0, -1, FaultMissing}}},

		{"segments exchanged", func(f *forger) {
			f.contents[0], f.contents[1] = f.contents[1], f.contents[0]
		}, true, []place{{0, -1, FaultHeader}, {1, -1, FaultHeader}}},

		{"time of creation changed, checksum fixed", func(f *forger) {
			b := f.contents[1]
			b[120] ^= 1
			binary.BigEndian.PutUint32(b[124:128], crc32.Checksum(b[:124], castagnoli))
		}, true, []place{{1, 0, FaultChain}}},

		{"node changed, chain computed anew", func(f *forger) {
			b := f.contents[1]
			b[12+5] = '2'
			binary.BigEndian.PutUint32(b[124:128], crc32.Checksum(b[:124], castagnoli))
			f.rechain(1, 0)
		}, true, []place{{1, -1, FaultHeader}, {2, 5, FaultHead}}},

		{"link changed, checksum fixed", func(f *forger) {
			b := f.contents[1]
			b[90] ^= 1
			binary.BigEndian.PutUint32(b[124:128], crc32.Checksum(b[:124], castagnoli))
		}, true, []place{{1, -1, FaultLink}, {1, 0, FaultChain}}},

		{"header damaged", func(f *forger) { f.contents[1][30] ^= 1 }, true, []place{{1, -1, FaultHeader}}},

		{"length made impossible", func(f *forger) {
			from, _ := f.at(1, 2)
			f.contents[1][from] = 0xff
		}, true, []place{{1, 2, FaultLength}}},

		{"garbage appended", func(f *forger) {
			f.contents[2] = append(f.contents[2], "garbage"...)
		}, true, []place{{2, 6, FaultIncomplete}}},

		{"record appended without the chain", func(f *forger) {
			from, to := f.at(2, 0)
			f.contents[2] = append(f.contents[2], f.contents[2][from:to]...)
		}, true, []place{{2, 6, FaultChain}}},

		{"no entry in the chain", func(f *forger) {
			from, _ := f.at(2, 5)
			f.contents[2][from+frameSize] = ' '
			f.fixChecksum(2, 5)
			f.rechain(2, 5)
		}, true, []place{{2, 5, FaultPayload}}},

		{"record cut", func(f *forger) {
			_, to := f.at(2, 5)
			f.contents[2] = f.contents[2][:to-1]
		}, true, []place{{2, 5, FaultIncomplete}, {2, 5, FaultTail}}},

		{"tail cut at a record", func(f *forger) {
			from, _ := f.at(2, 5)
			f.contents[2] = f.contents[2][:from]
		}, false, []place{{2, 5, FaultTail}}},

		{"last segment dropped", func(f *forger) {
			f.names, f.contents = f.names[:2], f.contents[:2]
		}, false, []place{{1, 7, FaultTail}}},

		{"all dropped", func(f *forger) { f.names, f.contents = nil, nil }, false, []place{{-1, 0, FaultTail}}},

		{"changed, chain computed anew to the end", func(f *forger) {
			from, _ := f.at(1, 2)
			i := slices.Index(f.contents[1][from:], '7') // a digit of the time
			f.contents[1][int(from)+i] = '8'
			f.fixChecksum(1, 2)
			f.rechain(1, 2)
		}, false, []place{{2, 5, FaultHead}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := forge(t, dir)
			tt.tamper(f)
			saved := f.save()
			if _, err := Verify(saved, VerifyOptions{}); (err != nil) != tt.noHead {
				t.Errorf("without an expected head: %v", err)
			}
			report, err := Verify(saved, VerifyOptions{Head: head})
			if err == nil || err != error(report.Faults[0]) {
				t.Fatalf("error %v, faults %v", err, report.Faults)
			}
			if len(report.Faults) != len(tt.faults) {
				t.Errorf("faults %v", report.Faults)
			}
			for i, got := range report.Faults[:min(len(report.Faults), len(tt.faults))] {
				want := tt.faults[i]
				segment, offset := "", int64(0)
				if want.segment >= 0 {
					segment = f.names[want.segment]
					if want.record >= 0 {
						offsets := append(recordOffsets(t, f.contents[want.segment]), int64(len(f.contents[want.segment])))
						offset = offsets[want.record]
					}
				}
				if got.Fault != want.fault || got.Segment != segment || got.Offset != offset {
					t.Errorf("fault %d is %v, want %q at %q, %d", i, got, want.fault, segment, offset)
				}
			}
		})
	}
}

func TestAnyFlippedBitIsFound(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	closedJournal(t, c, 8) // two segments
	f := forge(t, c.Dir)
	saved := f.save()
	for segment, content := range f.contents {
		path := filepath.Join(saved, f.names[segment])
		for at := range content {
			content[at] ^= 1 << (at % 8)
			write(t, path, content)
			_, err := Verify(saved, VerifyOptions{})
			if corrupt, ok := errors.AsType[*CorruptError](err); !ok || corrupt.Segment != f.names[segment] {
				t.Fatalf("byte %d of segment %d: %v", at, segment, err)
			}
			content[at] ^= 1 << (at % 8)
		}
		write(t, path, content)
	}
	if _, err := Verify(saved, VerifyOptions{}); err != nil {
		t.Error(err)
	}
}

func TestJournalWhoseOldSegmentsWereTakenAway(t *testing.T) {
	dir, head := tampered(t)
	f := forge(t, dir)
	_, to := f.at(0, segmentLength-1)
	start := Head{Sequence: segmentLength, Hash: Hash(f.contents[0][to-hashSize : to])}
	f.names, f.contents = f.names[1:], f.contents[1:]
	saved := f.save()
	report, err := Verify(saved, VerifyOptions{Start: start, Head: head})
	if err != nil || report.Entries != tamperedEntries-segmentLength {
		t.Errorf("%d entries, %v", report.Entries, err)
	}
	wrong := start
	wrong.Hash[0] ^= 1
	if _, err := Verify(saved, VerifyOptions{Start: wrong}); err == nil {
		t.Error("verified from a start that is not its own")
	}
	if _, err := Verify(saved, VerifyOptions{Start: start, Head: start}); err != nil {
		t.Errorf("the start as the expected head: %v", err)
	}
	if _, err := Verify(saved, VerifyOptions{Start: start, Head: Head{Sequence: 3}}); err == nil {
		t.Error("a head before the start was verified")
	}
}

func TestHeadInTheMiddleOfTheJournal(t *testing.T) {
	dir, _ := tampered(t)
	f := forge(t, dir)
	_, to := f.at(1, 2)
	middle := Head{Sequence: segmentLength + 3, Hash: Hash(f.contents[1][to-hashSize : to])}
	if _, err := Verify(dir, VerifyOptions{Head: middle}); err != nil {
		t.Error(err)
	}
	middle.Hash[5] ^= 1
	if _, err := Verify(dir, VerifyOptions{Head: middle}); err == nil {
		t.Error("a head that the journal does not have was verified")
	}
}

func TestTornTailIsAcceptedWhenTold(t *testing.T) {
	dir, _ := tampered(t)
	f := forge(t, dir)
	f.contents[2] = f.contents[2][:len(f.contents[2])-1]
	saved := f.save()
	report, err := Verify(saved, VerifyOptions{TornTail: true})
	if err != nil || report.Entries != tamperedEntries-1 {
		t.Errorf("%d entries, %v", report.Entries, err)
	}
	f.contents[1] = f.contents[1][:len(f.contents[1])-1]
	if _, err := Verify(f.save(), VerifyOptions{TornTail: true}); err == nil {
		t.Error("a torn segment in the middle was accepted")
	}
}

func TestFaultsAreBounded(t *testing.T) {
	c := testConfig(t)
	closedJournal(t, c, 3*maxFaults)
	f := forge(t, c.Dir)
	for i := range f.records(0) {
		if i%2 == 0 {
			from, _ := f.at(0, i)
			f.contents[0][from+40] ^= 1
		}
	}
	report, err := Verify(f.save(), VerifyOptions{})
	if err == nil || len(report.Faults) != maxFaults {
		t.Errorf("%d faults, %v", len(report.Faults), err)
	}
}

// renumber makes a segment begin with another sequence, and computes the chain
// from there on anew.
func (f *forger) renumber(segment int, first uint64) {
	b := f.contents[segment]
	binary.BigEndian.PutUint64(b[76:84], first)
	binary.BigEndian.PutUint32(b[124:128], crc32.Checksum(b[:124], castagnoli))
	f.names[segment] = segmentName(first)
	f.rechain(segment, 0)
}
