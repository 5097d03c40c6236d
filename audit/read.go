package audit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-kms/sluice/kms"
)

// Fault is a way in which a journal does not verify.
type Fault string

// The faults.
const (
	// FaultHeader: the file does not begin with a segment's header, or with
	// that of another segment or node.
	FaultHeader Fault = "the header does not verify"
	// FaultMissing: records are missing between two segments, or before the
	// first.
	FaultMissing Fault = "records before it are missing"
	// FaultLink: the segment does not continue the one before.
	FaultLink Fault = "it does not continue the segment before"
	// FaultLength: the length field of a record is impossible.
	FaultLength Fault = "the record's length is impossible"
	// FaultIncomplete: the file, or what was written of it, ends inside the
	// record.
	FaultIncomplete Fault = "the record is incomplete"
	// FaultBlank: zeros follow the last record, as in the last segment of a log
	// that is running or has crashed.
	FaultBlank Fault = "the segment was not closed"
	// FaultChecksum: the record was altered, by accident at least.
	FaultChecksum Fault = "the record fails its checksum"
	// FaultChain: the record was altered, moved, or put in place of another.
	FaultChain Fault = "the record fails the hash chain"
	// FaultPayload: the record is in the chain but holds no entry.
	FaultPayload Fault = "the record holds no entry"
	// FaultHead: the record is not the one that was noted.
	FaultHead Fault = "the record is not the expected head"
	// FaultTail: the journal ends before the record that was noted.
	FaultTail Fault = "the journal ends before the expected head"
	// FaultSigned: between two signed heads the records are not those that
	// were signed.
	FaultSigned Fault = "the records are not those that were signed"
	// FaultUnsigned: no signed head stands for the records at the end.
	FaultUnsigned Fault = "the records are not signed"
	// FaultSignature: a head was not signed by a pinned key for this journal.
	FaultSignature Fault = "the head's signature does not verify"
	// FaultHeads: a file of heads holds something else, or heads of other
	// records, or in another order.
	FaultHeads Fault = "the line is no head of this segment"
)

// CorruptError names a place at which a journal does not verify.
type CorruptError struct {
	Segment  string // file name; "" for an empty journal
	Offset   int64  // in bytes
	Sequence uint64 // of the record at the place, by its position
	// First, where the fault is of several records, is the first of those
	// that end with Sequence; 0: the fault is of one.
	First uint64
	Fault Fault
}

// Error describes place and fault.
func (e *CorruptError) Error() string {
	if e.First != 0 && e.First != e.Sequence {
		return fmt.Sprintf("journal segment %q, offset %d, sequences %d to %d: %s", e.Segment, e.Offset, e.First, e.Sequence, e.Fault)
	}
	return fmt.Sprintf("journal segment %q, offset %d, sequence %d: %s", e.Segment, e.Offset, e.Sequence, e.Fault)
}

// Position is the place of a record.
type Position struct {
	Segment string // file name
	Offset  int64  // in bytes
	Head           // the record's sequence and chain hash
}

// ErrNoSuchRecord says that the journal begins after the record asked for.
var ErrNoSuchRecord = errors.New("the journal begins after that record")

// Read calls fn with each entry of the journal in dir from sequence from on (0
// and 1 are the beginning), in order and verified, until its end. An error of
// fn ends the reading and is returned; so does a *CorruptError before the
// first entry that does not verify. An incomplete last record ends the reading
// without error, since a log that is being written may have one; entries
// beyond such a log's Head may still be withdrawn. The entry is fn's to keep.
//
// Segments that are chained with SM3 are read where it is given.
func Read(dir string, from uint64, fn func(*kms.Entry, Position) error, sm3 ...NewHash) error {
	names, err := listSegments(dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	start, found := slices.BinarySearch(names, segmentName(max(from, 1)))
	if !found {
		start--
	}
	if start < 0 {
		return ErrNoSuchRecord
	}
	var head Head
	for i, name := range names[start:] {
		last := start+i == len(names)-1
		if head, err = readSegment(dir, name, i > 0, head, last, from, fn, first(sm3)); err != nil {
			return err
		}
	}
	return nil
}

// Holds tells whether the journal in dir has the record of the head. One that
// is older than the journal's first record, which is archived then, counts as
// held. Errors are those of Read.
func Holds(dir string, h Head, sm3 ...NewHash) (bool, error) {
	found := false
	err := Read(dir, h.Sequence, func(_ *kms.Entry, p Position) error {
		found = p.Head == h
		return io.EOF
	}, sm3...)
	switch {
	case err == io.EOF:
		return found, nil
	case errors.Is(err, ErrNoSuchRecord):
		return true, nil
	}
	return false, err
}

// First returns the sequence of the journal's first record, 0 when there is no
// journal: earlier ones are archived elsewhere.
func First(dir string) (uint64, error) {
	names, err := listSegments(dir)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	begin, _ := parseSegmentName(names[0])
	return begin, nil
}

// readSegment reads one segment for Read and returns its head. linked says
// that the segment must continue before.
func readSegment(dir, name string, linked bool, before Head, last bool, from uint64, fn func(*kms.Entry, Position) error, sm3 NewHash) (Head, error) {
	r, err := openSegment(dir, name, sm3)
	if err != nil {
		return Head{}, err
	}
	defer r.close()
	if linked {
		if err := r.continues(before); err != nil {
			return Head{}, err
		}
	}
	for {
		rec, err := r.next()
		if err == io.EOF && r.blank && !last {
			return Head{}, r.corrupt(r.offset, r.sequence+1, FaultBlank)
		}
		if err == io.EOF {
			return r.head(), nil
		}
		if corrupt, ok := errors.AsType[*CorruptError](err); ok && last && corrupt.Fault == FaultIncomplete {
			return r.head(), nil
		}
		if err != nil {
			return Head{}, err
		}
		if rec.position.Sequence < from {
			continue
		}
		e, err := parseEntry(rec.payload)
		if err != nil {
			return Head{}, r.corrupt(rec.position.Offset, rec.position.Sequence, FaultPayload)
		}
		if err := fn(e, rec.position); err != nil {
			return Head{}, err
		}
	}
}

// record is a record as it stands in a segment.
type record struct {
	position Position
	payload  []byte // good until the next is read
}

// segmentReader reads the records of one segment.
type segmentReader struct {
	name   string
	file   *os.File
	buffer *bufio.Reader
	header header
	chain  *chain
	record []byte // reused

	offset   int64  // of the next record
	sequence uint64 // of the last record
	stored   Hash   // chain hash of the last record, as it stands in the file
	blank    bool   // at io.EOF: zeros follow
	previous Hash   // what the next record's chain hash builds on
}

// openSegment opens a segment and reads its header; a *CorruptError when that
// is not the header of the segment of this name.
// sm3 may be nil.
func openSegment(dir, name string, sm3 NewHash) (*segmentReader, error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	r := &segmentReader{name: name, file: file, buffer: bufio.NewReaderSize(file, maxPayload)}
	if err := r.readHeader(sm3); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

func (r *segmentReader) close() { r.file.Close() }

func (r *segmentReader) readHeader(sm3 NewHash) error {
	begin, _ := parseSegmentName(r.name)
	var b [headerSize]byte
	if _, err := io.ReadFull(r.buffer, b[:]); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return r.corrupt(0, begin, FaultHeader)
		}
		return fmt.Errorf("reading the journal: %w", err)
	}
	h, err := parseHeader(b)
	if err != nil || h.first != begin {
		return r.corrupt(0, begin, FaultHeader)
	}
	chained, err := h.chain.in(sm3)
	if err != nil {
		return fmt.Errorf("reading the journal segment %q: %w", r.name, err)
	}
	r.header, r.chain = h, newChain(chained)
	r.offset = headerSize
	r.sequence, r.stored = h.first-1, h.previous
	r.previous = r.chain.seed(b)
	return nil
}

func (r *segmentReader) corrupt(offset int64, sequence uint64, f Fault) *CorruptError {
	return &CorruptError{Segment: r.name, Offset: offset, Sequence: sequence, Fault: f}
}

// continues returns a *CorruptError unless the segment continues the head.
func (r *segmentReader) continues(before Head) error {
	switch {
	case r.header.first != before.Sequence+1:
		return r.corrupt(0, r.header.first, FaultMissing)
	case r.header.previous != before.Hash:
		return r.corrupt(0, r.header.first, FaultLink)
	}
	return nil
}

// head returns the last record read, as it stands in the file.
func (r *segmentReader) head() Head { return Head{Sequence: r.sequence, Hash: r.stored} }

// next reads the next record; io.EOF after the last. With a *CorruptError of
// FaultChecksum or FaultChain the record is returned too, and reading can go
// on: the record after it is measured by the hash that stands in the file.
func (r *segmentReader) next() (record, error) {
	for {
		rec, err := r.read()
		fault, ok := errors.AsType[*CorruptError](err)
		if !ok {
			if err == nil {
				r.take(rec)
			}
			return rec, err
		}
		switch err := r.judge(fault); {
		case err == error(fault):
			if rec.payload != nil {
				r.take(rec)
			}
			return rec, fault
		case err != nil:
			return record{}, err
		}
		if err := r.refresh(); err != nil {
			return record{}, err
		}
	}
}

// take goes on behind the record.
func (r *segmentReader) take(rec record) {
	r.offset += int64(frameSize + len(rec.payload) + hashSize)
	r.sequence, r.stored, r.previous = rec.position.Sequence, rec.position.Hash, rec.position.Hash
}

// read reads the record at offset, for next.
func (r *segmentReader) read() (record, error) {
	offset, sequence := r.offset, r.sequence+1
	var frame [frameSize]byte
	switch _, err := io.ReadFull(r.buffer, frame[:]); {
	case err == io.EOF:
		return record{}, io.EOF
	case err == io.ErrUnexpectedEOF:
		return record{}, r.corrupt(offset, sequence, FaultIncomplete)
	case err != nil:
		return record{}, fmt.Errorf("reading the journal: %w", err)
	}
	length := int(binary.BigEndian.Uint32(frame[0:4]))
	if length == 0 || length > maxPayload {
		return record{}, r.corrupt(offset, sequence, FaultLength)
	}
	r.record = slices.Grow(r.record[:0], length+hashSize)[:length+hashSize]
	switch _, err := io.ReadFull(r.buffer, r.record); {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return record{}, r.corrupt(offset, sequence, FaultIncomplete)
	case err != nil:
		return record{}, fmt.Errorf("reading the journal: %w", err)
	}
	payload, stored := r.record[:length], Hash(r.record[length:])
	rec := record{
		position: Position{Segment: r.name, Offset: offset, Head: Head{Sequence: sequence, Hash: stored}},
		payload:  payload,
	}
	switch {
	case checksum(frame[0:4], payload) != binary.BigEndian.Uint32(frame[4:8]):
		return rec, r.corrupt(offset, sequence, FaultChecksum)
	case r.chain.next(r.previous, sequence, payload) != stored:
		return rec, r.corrupt(offset, sequence, FaultChain)
	}
	return rec, nil
}
