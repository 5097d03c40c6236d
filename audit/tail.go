package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/sluice-kms/sluice/kms"
)

// ParseEntry reads the payload of a record, as Tail gives it. An error says
// nothing of its content.
func ParseEntry(payload []byte) (*kms.Entry, error) { return parseEntry(payload) }

// Tail reads a journal on from a record while a Log writes it. It is for one
// goroutine.
type Tail struct {
	dir    string
	sm3    NewHash
	reader *segmentReader
}

// OpenTail opens the journal in dir behind the record that after names; the
// zero Head is the first record that there is. A *CorruptError says that the
// journal has another record there, or none; ErrNoSuchRecord, that it begins
// later; fs.ErrNotExist, that there is no journal. sm3 is as for Read.
func OpenTail(dir string, after Head, sm3 ...NewHash) (*Tail, error) {
	names, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fs.ErrNotExist
	}
	name := names[0]
	if after != (Head{}) {
		// The last segment that begins at the record behind it or before.
		i, found := slices.BinarySearch(names, segmentName(after.Sequence+1))
		if !found {
			i--
		}
		if i < 0 {
			return nil, ErrNoSuchRecord
		}
		name = names[i]
	}
	t := &Tail{dir: dir, sm3: first(sm3)}
	if t.reader, err = openSegment(dir, name, t.sm3); err != nil {
		return nil, err
	}
	if after == (Head{}) {
		return t, nil
	}
	if err := t.skip(after); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// skip reads up to the record that after names.
func (t *Tail) skip(after Head) error {
	r := t.reader
	for r.sequence < after.Sequence {
		_, err := r.next()
		if err == io.EOF {
			return r.corrupt(r.offset, r.sequence+1, FaultTail)
		}
		if err != nil {
			return err
		}
	}
	if r.head() != after {
		return r.corrupt(r.offset, r.sequence, FaultHead)
	}
	return nil
}

// Head is the last record that was read.
func (t *Tail) Head() Head { return t.reader.head() }

// Read calls fn with the entries behind the last one that was read, up to and
// with the record of the sequence, which must be durable, until fn returns
// false. The payload is fn's for the call, the entry to keep. After an error
// the Tail must be closed.
func (t *Tail) Read(until uint64, fn func(e *kms.Entry, payload []byte, p Position) bool) error {
	if err := t.reader.refresh(); err != nil {
		return err
	}
	for t.reader.sequence < until {
		rec, err := t.reader.next()
		if err == io.EOF {
			if err := t.follow(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		e, err := decodeEntry(rec.payload)
		if err != nil {
			return t.reader.corrupt(rec.position.Offset, rec.position.Sequence, FaultPayload)
		}
		if !fn(e, rec.payload, rec.position) {
			return nil
		}
	}
	return nil
}

// follow goes on to the next segment.
func (t *Tail) follow() error {
	before := t.reader.head()
	next, err := openSegment(t.dir, segmentName(before.Sequence+1), t.sm3)
	if errors.Is(err, fs.ErrNotExist) {
		return t.reader.corrupt(t.reader.offset, before.Sequence+1, FaultTail)
	}
	if err != nil {
		return err
	}
	if err := next.continues(before); err != nil {
		next.close()
		return err
	}
	t.reader.close()
	t.reader = next
	return nil
}

// Close lets go of the journal.
func (t *Tail) Close() { t.reader.close() }

// refresh forgets what was read ahead: it may have been written anew.
func (r *segmentReader) refresh() error {
	if _, err := r.file.Seek(r.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	r.buffer.Reset(r.file)
	return nil
}
