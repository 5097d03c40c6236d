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
)

// Recovery is what Open cut off the journal: what a crash left of a write
// that no Record had returned for. The zero Recovery is nothing.
type Recovery struct {
	Segment string // file name
	Offset  int64  // in bytes, where the segment now ends
	Bytes   int64  // cut off
}

// tail is how the journal ends.
type tail struct {
	header   header // of the last segment
	head     Head
	holder   uint64 // the first record of the segment that holds head
	previous Hash   // what the next record's chain hash builds on
	end      int64  // of what is whole
	blank    bool   // zeros follow
	cut      Recovery
}

// readTail verifies the last of the segments and finds where it ends.
func readTail(ctx context.Context, dir string, names []string, sm3 NewHash) (tail, error) {
	name := names[len(names)-1]
	r, err := openSegment(dir, name, sm3)
	if err != nil {
		return tail{}, err
	}
	defer r.close()
	if len(names) > 1 {
		if err := checkLink(dir, names[len(names)-2], r); err != nil {
			return tail{}, err
		}
	}
	t := tail{header: r.header, holder: r.header.first}
	if len(names) > 1 {
		t.holder, _ = parseSegmentName(names[len(names)-2]) // until the last has a record
	}
	for {
		t.head, t.previous, t.end = r.head(), r.previous, r.offset
		if t.head.Sequence >= t.header.first {
			t.holder = t.header.first
		}
		if err := ctx.Err(); err != nil {
			return tail{}, fmt.Errorf("verifying the journal: %w", err)
		}
		_, err := r.next()
		if err == io.EOF {
			t.blank = r.blank
			return t, nil
		}
		if corrupt, ok := errors.AsType[*CorruptError](err); ok {
			rest, err := r.rest(t.end)
			if err != nil {
				return tail{}, err
			}
			if !isTorn(rest.content, t.end) {
				return tail{}, corrupt
			}
			t.cut = Recovery{Segment: name, Offset: t.end, Bytes: int64(len(rest.content))}
			return t, nil
		}
		if err != nil {
			return tail{}, err
		}
	}
}

// checkLink compares the last segment with the end of the one before, whose
// last bytes are its last chain hash.
func checkLink(dir, before string, r *segmentReader) error {
	file, err := os.Open(filepath.Join(dir, before))
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	defer file.Close()
	var last Hash
	if _, err := file.Seek(-hashSize, io.SeekEnd); err == nil {
		_, err = io.ReadFull(file, last[:])
		if err != nil {
			return fmt.Errorf("reading the journal: %w", err)
		}
	}
	if r.header.previous != last {
		return r.corrupt(0, r.header.first, FaultLink)
	}
	return nil
}

// rest is what follows the last record of a segment that verifies.
type rest struct {
	content []byte // to the end of the file, or more than a crash leaves
	written []byte // up to the last byte that is not zero
}

// rest reads the file from offset to its end, or one byte more than a crash
// can leave there.
func (r *segmentReader) rest(offset int64) (rest, error) {
	b, err := io.ReadAll(io.NewSectionReader(r.file, offset, maxRest+1))
	if err != nil {
		return rest{}, fmt.Errorf("reading the journal: %w", err)
	}
	return rest{content: b, written: bytes.TrimRight(b, "\x00")}, nil
}

// judge looks at what follows the last record that verifies, where the next
// one does not for the given fault. io.EOF: nothing was written there.
// FaultIncomplete: it is what a write leaves that is under way or was cut
// short. nil: meanwhile there is a whole record, since a log is writing.
func (r *segmentReader) judge(fault *CorruptError) error {
	rest, err := r.rest(fault.Offset)
	switch {
	case err != nil:
		return err
	case len(rest.content) > maxRest:
		return fault
	case len(rest.written) == 0:
		r.blank = true
		return io.EOF
	case r.verifies(rest.written):
		return nil
	case isTorn(rest.content, fault.Offset), isPrefix(rest.written) && len(rest.content) != extent(rest.content):
		return r.corrupt(fault.Offset, fault.Sequence, FaultIncomplete)
	}
	return fault
}

// extent returns how many bytes the record has that b begins with, by its
// length field, or how many the frame has where that tells nothing.
func extent(b []byte) int {
	if len(b) < frameSize {
		return frameSize
	}
	length := int(binary.BigEndian.Uint32(b[0:4]))
	if length == 0 || length > maxPayload {
		return frameSize
	}
	return frameSize + length + hashSize
}

// verifies tells whether b begins with the next record. Zeros at the end of
// its hash may be missing.
func (r *segmentReader) verifies(b []byte) bool {
	end := extent(b) - hashSize // of the payload
	if end <= frameSize || len(b) <= end {
		return false
	}
	var stored Hash
	copy(stored[:], b[end:])
	payload := b[frameSize:end]
	return checksum(b[0:4], payload) == binary.BigEndian.Uint32(b[4:8]) && r.chain.next(r.previous, r.sequence+1, payload) == stored
}

const (
	// maxTorn bounds an unfinished write: a batch, or one record if that is
	// larger.
	maxTorn = max(maxBatchBytes, frameSize+maxPayload+hashSize)
	// maxRest bounds what a crash leaves behind the last record: a write and
	// the zeros ahead of it.
	maxRest = maxTorn + blankBytes
	// sectorSize is the least that a disk writes at once.
	sectorSize = 512
	// minFirstHole is how many zero bytes in the sector that a record begins
	// in are a hole: two at the begin of a length field may be a record's own.
	// Elsewhere one will do where it is all that the sector has of the record:
	// a payload has no zeros, and a hash that ends with them verifies.
	minFirstHole = 3
)

// isTorn tells whether rest, which begins at the offset with a record that
// does not verify and goes on to the end of the segment, is what an
// unfinished write leaves: a prefix of what was to be written, or not all of
// it, so that whole sectors of the record are zero. Damage to a record that was
// once whole looks different: it has all its bytes, and none of them in a row
// are zero.
func isTorn(rest []byte, offset int64) bool {
	if len(rest) > maxRest || len(bytes.TrimRight(rest, "\x00")) > maxTorn {
		return false
	}
	return isPrefix(rest) || hasHole(rest, offset)
}

// isPrefix tells whether rest could be the beginning of a record. A length
// field that was altered in place does not pass: what it then takes for
// payload holds the hash of the record, or the whole payload fails its
// checksum.
func isPrefix(rest []byte) bool {
	if len(rest) < frameSize {
		return true
	}
	n := extent(rest)
	if n == frameSize || len(rest) >= n {
		return false
	}
	payload := rest[frameSize:min(len(rest), n-hashSize)]
	for _, c := range payload {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return len(rest) < n-hashSize || checksum(rest[0:4], payload) == binary.BigEndian.Uint32(rest[4:8])
}

// hasHole tells whether a sector of the first record of rest is all zero,
// counting only what of the sector belongs to the record. Of the sectors at
// its ends that can be a few bytes.
func hasHole(rest []byte, offset int64) bool {
	n := min(extent(rest), len(rest))
	for at := 0; at < n; {
		end := min(at+sectorSize-int((offset+int64(at))%sectorSize), n)
		if (at > 0 || end >= minFirstHole) && isZero(rest[at:end]) {
			return true
		}
		at = end
	}
	return false
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
