package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// gapAfter is how long an entry may wait for a signed head before that is
// called a gap. In service it is a second; ten are more than a busy HSM takes.
const gapAfter = 10 * time.Second

// Gap is a run of entries for which a signed head came late: the HSM was away,
// the service was down after a crash, or heads were taken away since.
type Gap struct {
	First, Last uint64        // records
	Delay       time.Duration // from the first entry to the head
}

// proof is what a verifier knows of signed heads. A head stands for its record
// and all before it, so between two heads that fit nothing was changed, and
// where one does not fit, what was changed lies after the one before.
type proof struct {
	anchors []SignedHead // from elsewhere, by sequence
	heads   []SignedHead // of the present segment that are to come, by sequence
	// since is the time of the first entry that no head stands for yet.
	since time.Time
	// broken says that the last head did not fit: the next ones will not
	// either, and one fault names them all.
	broken *CorruptError
}

func bySequence(a, b SignedHead) int { return cmp.Compare(a.Sequence, b.Sequence) }

// readHeads reads the heads beside a segment, and takes the anchors of its
// records from where they are. An error kept them from being read.
func (v *verifier) readHeads(h header) error {
	v.heads = nil
	if v.options.Signed == nil {
		return nil
	}
	name := headsName(h.first)
	content, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading signed heads: %w", err)
	}
	var offset int64
	last := h.first
	for line := range bytes.Lines(content) {
		at := CorruptError{Segment: name, Offset: offset, Sequence: last}
		offset += int64(len(line))
		if line[len(line)-1] != '\n' && v.options.TornTail {
			break
		}
		head, err := parseHeadLine(line)
		switch {
		case err != nil || head.Sequence < last:
			at.Fault = FaultHeads
		case head.Node != h.node || !v.options.Signed(head):
			at.Sequence, at.Fault = head.Sequence, FaultSignature
		default:
			last = head.Sequence
			v.heads = append(v.heads, head)
			continue
		}
		v.fault(&at)
	}
	return nil
}

// prove measures a record by the heads that are of it.
func (v *verifier) prove(r *segmentReader, rec record) {
	if v.options.Signed == nil {
		return
	}
	if v.since.IsZero() {
		if e, err := parseEntry(rec.payload); err == nil {
			v.since = e.Time
		}
	}
	for len(v.heads) > 0 && v.heads[0].Sequence <= rec.position.Sequence {
		v.measure(r, rec, v.heads[0], false)
		v.heads = v.heads[1:]
	}
	for len(v.anchors) > 0 && v.anchors[0].Sequence <= rec.position.Sequence {
		v.measure(r, rec, v.anchors[0], true)
		v.anchors = v.anchors[1:]
	}
}

// measure compares a record with a head. Those of records before it are of
// archived segments, or of what could not be read, which is a fault already.
func (v *verifier) measure(r *segmentReader, rec record, head SignedHead, anchor bool) {
	at := rec.position
	if head.Sequence != at.Sequence {
		return
	}
	if anchor && (head.Node != r.header.node || !v.options.Signed(head)) {
		v.fault(r.corrupt(at.Offset, at.Sequence, FaultSignature))
		return
	}
	if head.Head != at.Head {
		if v.broken == nil {
			v.broken = r.corrupt(at.Offset, at.Sequence, FaultSigned)
			v.broken.First = v.report.Signed.Sequence + 1
			v.fault(v.broken)
		}
		return
	}
	v.broken = nil
	if delay := head.Time.Sub(v.since); delay > gapAfter && at.Sequence > v.report.Signed.Sequence && len(v.report.Gaps) < maxFaults {
		v.report.Gaps = append(v.report.Gaps, Gap{First: v.report.Signed.Sequence + 1, Last: at.Sequence, Delay: delay})
	}
	v.report.Signed, v.since = at.Head, time.Time{}
}

// leave ends a segment: the journal once reached as far as the heads that are
// left over.
func (v *verifier) leave() {
	if len(v.heads) > 0 && v.fits {
		v.anchors = slices.SortedFunc(slices.Values(slices.Concat(v.anchors, v.heads)), bySequence)
	}
}

// finishProof checks that the journal is as long as its signed heads say, and
// that its end is signed.
func (v *verifier) finishProof(names []string) {
	if v.options.Signed == nil || !v.fits {
		return
	}
	end := CorruptError{Offset: v.end}
	if len(names) > 0 {
		end.Segment = names[len(names)-1]
	}
	for _, head := range v.anchors {
		if head.Sequence > v.report.Head.Sequence && (v.node == "" || head.Node == v.node) && v.options.Signed(head) {
			end.First, end.Sequence, end.Fault = v.report.Head.Sequence+1, v.anchors[len(v.anchors)-1].Sequence, FaultTail
			v.fault(&end)
			return
		}
	}
	v.report.Unsigned = v.report.Head.Sequence - min(v.report.Signed.Sequence, v.report.Head.Sequence)
	if v.report.Unsigned > 0 && !v.options.TornTail && v.broken == nil {
		end.First, end.Sequence, end.Fault = v.report.Signed.Sequence+1, v.report.Head.Sequence, FaultUnsigned
		v.fault(&end)
	}
}
