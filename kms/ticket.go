package kms

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
	"uuid"
)

// Ticket is the record of one request. The caller of a Service method fills
// in the first part; the route fills in the second along the way; answer
// headers, journal entry, log line and metrics are read from it, so nothing
// is computed twice. It belongs to one request and is not safe for concurrent
// use.
type Ticket struct {
	RequestID       uuid.UUID // ours; UUIDv7
	ClientRequestID string    // the client's X-Request-Id, recorded, not trusted
	TraceID         string
	By              *Principal
	Received        time.Time
	Address         netip.Addr
	UserAgent       string
	Urgency         Urgency
	Deadline        time.Time // zero: the operation's default
	DryRun          bool
	// Debug says that the whole decision is to be told; its caller's scopes
	// allow it.
	Debug    bool
	Replayed bool // the answer to an earlier request with the same Idempotency-Key
	// Approval is that of the act: the one that the caller names, or the one
	// that this request asked for. Zero: none.
	Approval uuid.UUID
	// Second verifies the second credential that the request carries, nil:
	// none. It is asked only when the caller has to prove himself. OneTimeCode is
	// the code that it carries, "": none.
	Second      func(context.Context) (*Principal, error)
	OneTimeCode string

	Op        Op
	Resource  string    // id of the object acted on other than a key
	Target    uuid.UUID // tenant of that object; zero: the caller's
	Revision  uint64    // of that object before the change; 0: it is made
	Key       *Key      // nil until found
	Version   uint32
	Algorithm Algorithm
	Bytes     int
	Cost      Credits // reserved; what is charged is in the settlement
	Node      NodeID
	Wait      time.Duration
	SlotTime  time.Duration
	ColdLoad  bool
	Attempts  int // nodes tried
	// Reasons are why the request was refused and what it waited for, the
	// longest first. The Waited of all of them add up to Wait.
	Reasons  []Reason
	Gates    []Reason      // of the quota with their numbers, with Debug
	Class    Class         // as of the last wait for a slot; "": there was none
	Estimate time.Duration // of the wait, made before it
	Aged     bool          // see Turn
	Away     bool
	Settled  Settlement
	// PolicyVersion is that of the policy which decided on the request.
	PolicyVersion uint64
	Elapsed       time.Duration // from Received to the journal's acknowledgement
	// Steps takes when the request's steps ended, nil: nobody asks.
	Steps *Steps
	// Items are what a request on several objects did with each.
	Items []EntryItem
	// Denied is how many of the objects its credential may not have.
	Denied int

	priced      int // see AdmitRequest.Items
	reservation Reservation
	admitted    bool
	ran         bool // a device was asked: the outcome may be known or not

	unguarded bool // the service's own, about a flagged caller

	item  bool  // of a batch, which records and concludes it
	ended ended // of such, from close on
}

// Step is a part of the route, in its order.
type Step uint8

// The steps. A request that is refused ends in one; one that comes to no step
// has no time of it.
const (
	StepAuthenticate Step = iota
	StepLookup
	StepAdmit
	StepIntent // of a change, in the journal
	StepQueue  // the last wait, where there were several
	StepHSM
	StepStore
	StepJournal
	StepCount
)

// Steps are the times at which a request's steps ended, zero for those that it
// did not come to.
type Steps [StepCount]time.Time

// Passed notes that a step has ended, if anybody asks.
func (t *Ticket) Passed(step Step, clock func() time.Time) {
	if t.Steps != nil {
		t.Steps[step] = clock()
	}
}

// Reserved returns what was reserved for the request, false when nothing was.
func (t *Ticket) Reserved() (Reservation, bool) { return t.reservation, t.admitted }

// waited notes what the request waited for.
func (t *Ticket) waited(turn *Turn) {
	t.Wait += turn.Wait
	t.Estimate += turn.Estimate
	t.Class, t.Away = turn.Class, turn.Away
	t.Aged = t.Aged || turn.Aged
	switch {
	case len(turn.Waits) == 0:
		return
	case t.Reasons == nil:
		t.Reasons = turn.Waits
		return
	}
	for _, w := range turn.Waits { // it came again, on another node
		i := slices.IndexFunc(t.Reasons, func(r Reason) bool { return r.Code == w.Code })
		if i < 0 {
			t.Reasons = append(t.Reasons, w)
			continue
		}
		t.Reasons[i].Waited += w.Waited
	}
	slices.SortStableFunc(t.Reasons, func(a, b Reason) int { return cmp.Compare(b.Waited, a.Waited) })
}

// refused notes why the request was refused.
func (t *Ticket) refused(err error) {
	if e, ok := errors.AsType[*Error](err); ok && len(e.Reasons) > 0 {
		t.Reasons = append(slices.Clip(e.Reasons), t.Reasons...)
	}
}

// onTenant notes that the request acts on a stored tenant.
func (t *Ticket) onTenant(tenant *Tenant) {
	t.Target, t.Resource, t.Revision = tenant.ID, tenant.ID.String(), tenant.Revision
}

// onCredential notes that the request acts on a stored credential.
func (t *Ticket) onCredential(c *Credential) {
	t.Target, t.Resource, t.Revision = c.Tenant, c.ID.String(), c.Revision
}

// Entry is one record of the journal. It holds no plaintext, no digest of a
// plaintext, no secret.
type Entry struct {
	Time            time.Time
	Phase           Phase
	RequestID       uuid.UUID
	ClientRequestID string
	TraceID         string
	Tenant          uuid.UUID
	Project         string
	Credential      uuid.UUID
	Subject         string
	Component       string
	Op              Op
	Key             uuid.UUID
	KeyName         string
	Version         uint32
	Spec            Spec
	Algorithm       Algorithm
	Protection      Protection
	Resource        string
	Bytes           int
	Node            NodeID
	Cost            Credits // reserved
	Charged         Credits
	Settlement      SettlementState
	Wait            time.Duration
	SlotTime        time.Duration
	Total           time.Duration
	Outcome         string // "ok" or the kind of the error
	Reasons         []Reason
	Address         netip.Addr
	UserAgent       string
	// Count is the number of requests that an aggregated entry stands for;
	// 0 and 1 are one. Of OpRewrapKeys it is the number of versions.
	Count uint32
	// DryRun and Replayed mark requests that were only priced, or answered
	// before: nothing was done.
	DryRun   bool
	Replayed bool
	// Approval names what a second operator agreed to, or is asked to.
	Approval uuid.UUID
	// Target is the tenant that was acted on, where it is not Tenant.
	Target uuid.UUID
	// Revision is, in an intent, the revision of the object before the change;
	// 0 when the change makes it. It tells later whether the change was made. Of
	// OpFoundOld it is the revision that the row has had.
	Revision uint64
	// PolicyVersion is that of the policy which decided on the request.
	PolicyVersion uint64
	// Class, Urgency and Estimate are told of requests that have Reasons.
	Class    Class
	Urgency  Urgency
	Estimate time.Duration
	// Refused says that the request was turned away before anything was reserved
	// for it or changed. The journal does not keep it: it writes a flood of them
	// as one entry.
	Refused bool
	// Grouped says that the answer did not wait until the entry was durable.
	Grouped bool
	// Durable says that the entry is not to be grouped, whatever its operation.
	// The journal does not keep it.
	Durable bool
	// Items are what a request on several objects did with each.
	Items []EntryItem
}

// EntryItem is what a fetch did with one secret.
type EntryItem struct {
	Secret   uuid.UUID // zero: none was found
	Status   FetchStatus
	Versions []uint32  // that were handed out, or may be used on
	LeaseEnd time.Time // until when; zero: nothing was handed out
}

// following is the ticket of a change that the service makes for a request beside
// the one that was asked for, with an entry of its own.
func (t *Ticket) following(now time.Time) *Ticket {
	return &Ticket{RequestID: newID(), ClientRequestID: t.RequestID.String(), Received: now, Urgency: t.Urgency,
		By: t.By, Address: t.Address, UserAgent: t.UserAgent, unguarded: true}
}

// Phase says which part of a request an entry records.
type Phase string

// The phases. An intent comes before a state change commits; what it led to
// follows as an outcome with the same request id.
const (
	PhaseIntent  Phase = "intent"
	PhaseOutcome Phase = "outcome"
)
