package audit

import (
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
			return t, nil
		}
		if corrupt, ok := errors.AsType[*CorruptError](err); ok {
			rest, err := readRest(r.file, t.end)
			if err != nil {
				return tail{}, err
			}
			if !isTorn(rest, t.end) {
				return tail{}, corrupt
			}
			t.cut = Recovery{Segment: name, Offset: t.end, Bytes: int64(len(rest))}
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

// readRest reads the file from offset to its end, or one byte more than an
// unfinished write can have.
func readRest(file *os.File, offset int64) ([]byte, error) {
	rest, err := io.ReadAll(io.NewSectionReader(file, offset, maxTorn+1))
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	return rest, nil
}

const (
	// maxTorn bounds an unfinished write: a batch, or one record if that is
	// larger.
	maxTorn = max(maxBatchBytes, frameSize+maxPayload+hashSize)
	// sectorSize is the least that a disk writes at once.
	sectorSize = 512
	// minHole is how many zero bytes in a row no record holds: a payload has
	// none, a length field three at most, and a hash has 8 at a chance of
	// 2⁻⁶⁴.
	minHole = 8
)

// isTorn tells whether rest, which begins at the offset with a record that
// does not verify and goes on to the end of the segment, is what an
// unfinished write leaves: a prefix of what was to be written, or a file that
// has its new size but not all of its new content, so that whole sectors of
// the record are zero. Damage to a record that was once whole looks
// different: it has all its bytes, and none of them in a row are zero.
func isTorn(rest []byte, offset int64) bool {
	if len(rest) > maxTorn {
		return false
	}
	return isPrefix(rest) || isPrefix(withoutShortHole(rest, offset)) || hasHole(rest, offset)
}

// withoutShortHole leaves out of an incomplete record what it has of its last
// sector if that is zero and too short for hasHole.
func withoutShortHole(rest []byte, offset int64) []byte {
	if len(rest) == 0 || len(rest) >= frameSize && len(rest) >= frameSize+int(binary.BigEndian.Uint32(rest[0:4]))+hashSize {
		return rest
	}
	last := offset + int64(len(rest)) - 1
	at := max(last-last%sectorSize-offset, 0)
	if int64(len(rest))-at >= minHole || !isZero(rest[at:]) {
		return rest
	}
	return rest[:at]
}

// isPrefix tells whether rest could be the beginning of a record. A length
// field that was altered in place does not pass: what it then takes for
// payload holds the hash of the record, or the whole payload fails its
// checksum.
func isPrefix(rest []byte) bool {
	if len(rest) < frameSize {
		return true
	}
	length := int(binary.BigEndian.Uint32(rest[0:4]))
	if length == 0 || length > maxPayload || len(rest) >= frameSize+length+hashSize {
		return false
	}
	payload := rest[frameSize:min(len(rest), frameSize+length)]
	for _, c := range payload {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return len(payload) < length || checksum(rest[0:4], payload) == binary.BigEndian.Uint32(rest[4:8])
}

// hasHole tells whether a sector of the first record of rest is all zero,
// counting only what of the sector is in rest.
func hasHole(rest []byte, offset int64) bool {
	extent := frameSize
	if len(rest) >= frameSize {
		if length := int(binary.BigEndian.Uint32(rest[0:4])); length <= maxPayload {
			extent += length + hashSize
		}
	}
	for at := 0; at < min(extent, len(rest)); {
		end := min(at+sectorSize-int((offset+int64(at))%sectorSize), len(rest))
		if end-at >= minHole && isZero(rest[at:end]) {
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
