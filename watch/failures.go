package watch

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// maxFailing bounds the objects of a kind that are watched. They fail now, so
	// there are few; when there are more, those that fail least are forgotten.
	maxFailing = 512

	// failureSpans are the parts in which a minute of failures is counted.
	failureSpans = 6
	failureSpan  = 10 * time.Second
)

// Failing counts, for the last minute, what people should hear of when it goes
// on: keys that could not decrypt, and credentials that were denied something.
type Failing struct {
	Keys        *Failures
	Credentials *Failures
}

// NewFailing makes a Failing that has seen nothing.
func NewFailing() *Failing { return &Failing{NewFailures(), NewFailures()} }

// Note counts a request that is over, if it failed in one of these ways. The
// items of a fetch that its credential may not have count each.
func (w *Failing) Note(t *kms.Ticket, err error) {
	at := t.Received.Add(t.Elapsed)
	if t.By != nil && t.Denied > 0 {
		w.Credentials.Note(t.By.Tenant.ID, t.By.Credential, t.Denied, at)
	}
	if err == nil {
		return
	}
	switch kms.KindOf(err) {
	case kms.KindDecryptionFailed:
		if t.Key != nil {
			w.Keys.Note(t.Key.Tenant.ID, t.Key.ID, 1, at)
		}
	case kms.KindPermissionDenied:
		if t.By != nil {
			w.Credentials.Note(t.By.Tenant.ID, t.By.Credential, 1, at)
		}
	}
}

// Failures counts failures by the object that they are of, for the last minute.
// It is safe for concurrent use.
type Failures struct {
	mu  sync.Mutex // guards the rest
	all map[uuid.UUID]*failures
}

type failures struct {
	tenant uuid.UUID
	span   int64 // counted last
	counts [failureSpans]int
}

// NewFailures makes a Failures that has seen nothing.
func NewFailures() *Failures { return &Failures{all: make(map[uuid.UUID]*failures)} }

// Note counts n failures of a tenant's object.
func (w *Failures) Note(tenant, object uuid.UUID, n int, at time.Time) {
	span := at.UnixNano() / int64(failureSpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.all[object]
	if f == nil {
		inherited := 0
		if len(w.all) >= maxFailing {
			inherited = w.forgetLocked(span)
		}
		f = &failures{tenant: tenant, span: span}
		f.counts[span%failureSpans] = inherited
		w.all[object] = f
	}
	f.advance(span)
	f.counts[f.span%failureSpans] += n
}

// forgetLocked makes room: it forgets the object with the fewest failures and
// returns their number.
func (w *Failures) forgetLocked(at int64) int {
	var least uuid.UUID
	fewest := -1
	for id, k := range w.all {
		if n := k.sum(at); fewest < 0 || n < fewest {
			least, fewest = id, n
		}
	}
	delete(w.all, least)
	return fewest
}

// advance forgets what is older than a minute.
func (f *failures) advance(to int64) {
	for s := max(f.span+1, to-failureSpans+1); s <= to; s++ {
		f.counts[s%failureSpans] = 0
	}
	f.span = max(f.span, to)
}

func (f *failures) sum(at int64) (n int) {
	f.advance(at)
	for _, c := range f.counts {
		n += c
	}
	return n
}

// Failed is how often an object failed in the last minute.
type Failed struct {
	Tenant, Object uuid.UUID
	Times          int
}

// More returns the objects with more than a number of failures in the last
// minute, the most first.
func (w *Failures) More(now time.Time, than int) (list []Failed) {
	at := now.UnixNano() / int64(failureSpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, f := range w.all {
		switch n := f.sum(at); {
		case n == 0:
			delete(w.all, id)
		case n > than:
			list = append(list, Failed{Tenant: f.tenant, Object: id, Times: n})
		}
	}
	slices.SortFunc(list, func(a, b Failed) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), a.Object.Compare(b.Object))
	})
	return list
}
