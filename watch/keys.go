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
	// maxKeys bounds the keys that are watched. They fail to decrypt now, so
	// there are few; when there are more, those that fail least are forgotten.
	maxKeys = 512

	// keySpans are the parts in which a minute of failures is counted.
	keySpans = 6
	keySpan  = 10 * time.Second
)

// Keys counts what could not be decrypted, by key, for the last minute. It is
// safe for concurrent use.
type Keys struct {
	mu   sync.Mutex // guards the rest
	keys map[uuid.UUID]*keyFailures
}

type keyFailures struct {
	tenant uuid.UUID
	span   int64 // counted last
	counts [keySpans]int
}

// NewKeys makes a Keys that has seen nothing.
func NewKeys() *Keys { return &Keys{keys: make(map[uuid.UUID]*keyFailures)} }

// Note counts a request that is over, if it could not decrypt.
func (w *Keys) Note(t *kms.Ticket, err error) {
	if err == nil || t.Key == nil || kms.KindOf(err) != kms.KindDecryptionFailed {
		return
	}
	at := t.Received.Add(t.Elapsed).UnixNano() / int64(keySpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[t.Key.ID]
	if k == nil {
		inherited := 0
		if len(w.keys) >= maxKeys {
			inherited = w.forgetLocked(at)
		}
		k = &keyFailures{tenant: t.Key.Tenant.ID, span: at}
		k.counts[at%keySpans] = inherited
		w.keys[t.Key.ID] = k
	}
	k.advance(at)
	k.counts[k.span%keySpans]++
}

// forgetLocked makes room: it forgets the key with the fewest failures and
// returns their number.
func (w *Keys) forgetLocked(at int64) int {
	var least uuid.UUID
	fewest := -1
	for id, k := range w.keys {
		if n := k.sum(at); fewest < 0 || n < fewest {
			least, fewest = id, n
		}
	}
	delete(w.keys, least)
	return fewest
}

// advance forgets what is older than a minute.
func (k *keyFailures) advance(to int64) {
	for s := max(k.span+1, to-keySpans+1); s <= to; s++ {
		k.counts[s%keySpans] = 0
	}
	k.span = max(k.span, to)
}

func (k *keyFailures) sum(at int64) (n int) {
	k.advance(at)
	for _, c := range k.counts {
		n += c
	}
	return n
}

// KeyFailures is how often a key failed to decrypt in the last minute.
type KeyFailures struct {
	Tenant, Key uuid.UUID
	Failures    int
}

// Failing returns the keys with more than a number of failures in the last
// minute, the most first.
func (w *Keys) Failing(now time.Time, more int) (list []KeyFailures) {
	at := now.UnixNano() / int64(keySpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, k := range w.keys {
		switch n := k.sum(at); {
		case n == 0:
			delete(w.keys, id)
		case n > more:
			list = append(list, KeyFailures{Tenant: k.tenant, Key: id, Failures: n})
		}
	}
	slices.SortFunc(list, func(a, b KeyFailures) int {
		return cmp.Or(cmp.Compare(b.Failures, a.Failures), a.Key.Compare(b.Key))
	})
	return list
}
