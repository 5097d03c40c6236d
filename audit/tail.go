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
	names  names
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

// Next reads the entry behind the last one that was read into e, up to the record
// of the sequence, which must be durable; io.EOF behind that. The payload is valid
// until the next call. After another error the Tail must be closed.
func (t *Tail) Next(until uint64, e *kms.Entry) (payload []byte, sequence uint64, err error) {
	if t.reader.sequence >= until {
		return nil, 0, io.EOF
	}
	rec, err := t.reader.next()
	for err == io.EOF {
		if err = t.follow(); err == nil {
			rec, err = t.reader.next()
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if err := decodeEntry(e, rec.payload, &t.names); err != nil {
		return nil, 0, t.reader.corrupt(rec.position.Offset, rec.position.Sequence, FaultPayload)
	}
	return rec.payload, rec.position.Sequence, nil
}

// refresh makes what was written since visible.
func (t *Tail) refresh() error { return t.reader.refresh() }

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
