package audit

import (
	"errors"
	"io"
	"slices"
)

const (
	// maxFaults ends a verification: a journal with so many is not looked
	// into one by one.
	maxFaults = 100
	// maxBadRun is the number of bad records in a row after which the rest of
	// a segment is not read: two that changed places make three, more is a
	// sequence that shifted.
	maxBadRun = 4
)

// VerifyOptions says what a journal is measured by. The zero value expects a
// journal from its first record on and an end that is whole.
type VerifyOptions struct {
	// Start is the last record before those in the folder, where older
	// segments were taken away.
	Start Head
	// Head, if not zero, is a record that the journal must have had: only
	// against it a tail that was cut off or computed anew shows.
	Head Head
	// TornTail accepts an incomplete last record, zeros behind the last, and
	// records at the end that are not signed yet, as a log that is running or
	// has crashed leaves.
	TornTail bool
	// Signed tells whether a head was signed by a pinned key. With it every
	// signed head is checked, and so that a chain computed anew shows: nobody
	// else can sign its heads. nil: heads are not looked at.
	Signed func(SignedHead) bool
	// Anchors are signed heads that were kept elsewhere; Signed checks them
	// too. Against them a tail shows that was cut off together with its heads.
	Anchors []SignedHead
	// SM3 is needed where segments are chained with it.
	SM3 NewHash
}

// Report is what Verify found.
type Report struct {
	Segments int
	Entries  uint64 // that verified
	Head     Head   // the last record, as it stands in its file
	// Signed is the last record that a signed head stands for, and with it all
	// before; Unsigned is how many come after it.
	Signed   Head
	Unsigned uint64
	// Gaps are the times in which entries were recorded and not signed, in
	// order, 100 at most.
	Gaps []Gap
	// Faults are the places that do not verify, in order, 100 at most.
	Faults []*CorruptError
}

// Verify reads the journal in dir and checks every checksum, chain hash,
// sequence, entry and link between segments. After a fault it goes on at the
// next record that fits what stands in the file, so that each altered place
// is named; where nothing fits any more it goes on with the next segment.
// The error is the first fault, or what kept the journal from being read.
func Verify(dir string, o VerifyOptions) (Report, error) {
	names, err := listSegments(dir)
	if err != nil {
		return Report{}, err
	}
	v := verifier{dir: dir, options: o, fits: true}
	v.report.Head, v.report.Signed = o.Start, o.Start
	v.proof.anchors = slices.SortedFunc(slices.Values(o.Anchors), bySequence)
	for i, name := range names {
		if len(v.report.Faults) >= maxFaults {
			break
		}
		if err := v.segment(name, i == len(names)-1); err != nil {
			return v.report, err
		}
	}
	v.finish(names)
	if len(v.report.Faults) > 0 {
		return v.report, v.report.Faults[0]
	}
	return v.report, nil
}

type verifier struct {
	dir     string
	options VerifyOptions
	report  Report
	node    string // of the segments so far
	// fits says that the segment so far was read to its end, so that the next
	// one can be measured by it.
	fits bool
	end  int64 // of the last segment
	proof
}

func (v *verifier) fault(f *CorruptError) {
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, f)
	}
}

// segment verifies one segment. An error keeps it from being read.
func (v *verifier) segment(name string, last bool) error {
	v.report.Segments++
	r, err := openSegment(v.dir, name, v.options.SM3)
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		v.fault(corrupt)
		v.fits = false
		return nil
	}
	if err != nil {
		return err
	}
	defer r.close()
	v.enter(r)
	if err := v.readHeads(r.header); err != nil {
		return err
	}
	bad := 0 // records in a row
	for bad < maxBadRun {
		rec, err := r.next()
		if err == io.EOF {
			if r.blank && (!last || !v.options.TornTail) {
				v.fault(r.corrupt(r.offset, r.sequence+1, FaultBlank))
			}
			break
		}
		corrupt, ok := errors.AsType[*CorruptError](err)
		if err != nil && !ok {
			return err
		}
		if ok && (corrupt.Fault == FaultIncomplete || corrupt.Fault == FaultLength) {
			if corrupt.Fault == FaultLength || !last || !v.options.TornTail {
				v.fault(corrupt)
				v.fits = false
			}
			break
		}
		if !ok {
			corrupt = v.content(r, rec)
		}
		v.prove(r, rec)
		if corrupt != nil {
			v.fault(corrupt)
			bad++
			continue
		}
		v.report.Entries++
		bad = 0
	}
	if bad == maxBadRun {
		v.fits = false
	}
	v.leave()
	v.report.Head = r.head()
	v.end = r.offset
	return nil
}

// enter checks that the segment continues the one before.
func (v *verifier) enter(r *segmentReader) {
	if v.node == "" {
		v.node = r.header.node
	}
	if r.header.node != v.node {
		v.fault(r.corrupt(0, r.header.first, FaultHeader))
	}
	if v.fits {
		if corrupt, ok := errors.AsType[*CorruptError](r.continues(v.report.Head)); ok {
			v.fault(corrupt)
		}
	}
	v.fits = true
}

// content checks what the chain cannot: that the payload is an entry and that
// the record is the one that was noted.
func (v *verifier) content(r *segmentReader, rec record) *CorruptError {
	at := rec.position
	if _, err := parseEntry(rec.payload); err != nil {
		return r.corrupt(at.Offset, at.Sequence, FaultPayload)
	}
	if at.Sequence == v.options.Head.Sequence && at.Head != v.options.Head {
		return r.corrupt(at.Offset, at.Sequence, FaultHead)
	}
	return nil
}

// finish checks that the noted record is not before or beyond the journal.
func (v *verifier) finish(names []string) {
	want := v.options.Head
	if want.Sequence <= v.options.Start.Sequence && want != v.options.Start && want != (Head{}) {
		v.fault(&CorruptError{Sequence: want.Sequence, Fault: FaultMissing})
	}
	if v.report.Head.Sequence < want.Sequence {
		last := ""
		if len(names) > 0 {
			last = names[len(names)-1]
		}
		v.fault(&CorruptError{Segment: last, Offset: v.end, Sequence: v.report.Head.Sequence + 1, Fault: FaultTail})
	}
	v.finishProof(names)
}
