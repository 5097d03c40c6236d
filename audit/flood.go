package audit

import (
	"math"
	"net/netip"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// floodWindow is how long refusals are counted before their number is
	// written.
	floodWindow = time.Second
	// floodRate is the number of refusals of one source that are written one
	// by one in a window; an honest client with a wrong setting stays below.
	floodRate = 10
	// maxFloodSources bounds the sources told apart in a window, and so what
	// refusals can write: 1024 × 10 entries, some 7 MB, a second at worst.
	// Sources beyond it count as one.
	maxFloodSources = 1024
	// maxFloodGroups bounds the aggregated entries of a window; beyond it
	// only outcomes are told apart.
	maxFloodGroups = 2 * maxFloodSources
	// sourceBits is how much of an IPv6 address tells two clients apart: a
	// customer is given a /64 at least (RFC 6177), and may use all of it.
	sourceBits = 64
)

// isRefusal tells whether the entry records a refusal that cost the client
// next to nothing: it was turned away before anything was reserved for it, for
// want of a credential, a permission, a key or credits, or for what it sent.
func isRefusal(e *kms.Entry) bool { return e.Refused && e.Phase == kms.PhaseOutcome }

// source is who is refused: a credential, or without one the client's
// address or IPv6 network. The zero source stands for all that are not told
// apart.
type source struct {
	credential uuid.UUID
	address    netip.Addr
}

func sourceOf(e *kms.Entry) source {
	if e.Credential != (uuid.UUID{}) {
		return source{credential: e.Credential}
	}
	address := e.Address.Unmap().WithZone("")
	if address.Is6() {
		network, _ := address.Prefix(sourceBits) // 64 bits always fit
		address = network.Addr()
	}
	return source{address: address}
}

// group is what one aggregated entry stands for.
type group struct {
	source  source
	op      kms.Op
	outcome string
	reason  string // that refused it, if one did
}

func groupOf(from source, e *kms.Entry) group {
	g := group{source: from, op: e.Op, outcome: e.Outcome}
	for i := range e.Reasons {
		if e.Reasons[i].Waited == 0 {
			g.reason = e.Reasons[i].Code
			break
		}
	}
	return g
}

// flood counts the refusals that are not written one by one. All methods are
// safe for concurrent use.
type flood struct {
	mu      sync.Mutex // guards the rest; nothing else is locked under it
	closed  bool
	opened  time.Time // start of the window
	written map[source]int
	groups  map[group]*kms.Entry
}

func newFlood() *flood {
	return &flood{written: make(map[source]int), groups: make(map[group]*kms.Entry)}
}

// absorb counts e, a refusal, and returns true, or returns false when e is to
// be written.
func (f *flood) absorb(now time.Time, e *kms.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	if age := now.Sub(f.opened); age < 0 || age >= floodWindow {
		clear(f.written)
		f.opened = now
	}
	from := sourceOf(e)
	if _, known := f.written[from]; !known && len(f.written) >= maxFloodSources {
		from = source{}
	}
	if f.written[from] < floodRate {
		f.written[from]++
		return false
	}
	f.addLocked(from, e)
	return true
}

// addLocked counts e, which may itself stand for several requests, to the
// group of the source.
func (f *flood) addLocked(from source, e *kms.Entry) {
	key := groupOf(from, e)
	if f.groups[key] == nil && len(f.groups) >= maxFloodGroups {
		key = group{outcome: e.Outcome}
	}
	sum := f.groups[key]
	if sum == nil {
		f.groups[key] = summary(key, e)
		return
	}
	if e.Time.Before(sum.Time) {
		sum.Time = e.Time
	}
	sum.Count = uint32(min(uint64(sum.Count)+uint64(requests(e)), math.MaxUint32))
	sum.Charged += e.Charged
}

// summary is the entry for a group that begins with e: what its requests have
// in common, with the time and the request id of the first.
func summary(key group, e *kms.Entry) *kms.Entry {
	sum := &kms.Entry{
		Time:       e.Time,
		Phase:      e.Phase,
		RequestID:  e.RequestID,
		Op:         key.op,
		Charged:    e.Charged,
		Settlement: e.Settlement,
		Outcome:    key.outcome,
		Count:      requests(e),
	}
	if key.reason != "" {
		sum.Reasons = []kms.Reason{{Code: key.reason}}
	}
	if key.source != (source{}) {
		sum.Tenant, sum.Project, sum.Credential = e.Tenant, e.Project, e.Credential
		sum.Subject, sum.Component, sum.Address = e.Subject, e.Component, e.Address
	}
	return sum
}

// requests is the number of requests that e stands for.
func requests(e *kms.Entry) uint32 { return max(e.Count, 1) }

// drain returns what was counted, to be written, and forgets it.
func (f *flood) drain() []*kms.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.groups) == 0 {
		return nil
	}
	entries := make([]*kms.Entry, 0, len(f.groups))
	for _, e := range f.groups {
		entries = append(entries, e)
	}
	clear(f.groups)
	return entries
}

// restore takes back what drain returned and could not be written.
func (f *flood) restore(entries []*kms.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		f.addLocked(sourceOf(e), e)
	}
}

// close makes absorb count nothing more, so that the next drain is the last.
func (f *flood) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}
