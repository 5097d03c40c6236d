package wire

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/scheduler"
)

// slots joins the scheduler, which knows nothing of the product's nouns, to
// the port of the route.
type slots struct {
	*scheduler.Scheduler
	policies *quota.Policies // say what tenants have bought
	own      uuid.UUID       // the tenant of what the service does by itself
}

func newSlots(nodes map[kms.NodeID]int, policies *quota.Policies, own uuid.UUID, clock func() time.Time) (slots, error) {
	var list []scheduler.Node
	for id, n := range nodes {
		list = append(list, node(id, n))
	}
	s, err := scheduler.New(list, scheduler.Options{Clock: clock})
	return slots{s, policies, own}, err
}

// node describes a node. The HSM nodes share their work; the engine in the
// process, and each lane of slots set apart for slow work ("node/lane"), is a
// pool of its own.
func node(id kms.NodeID, slots int) scheduler.Node {
	n := scheduler.Node{ID: string(id), Slots: slots}
	if id == hsm.EngineID {
		n.Domain = n.ID
	} else if _, lane, ok := strings.Cut(n.ID, "/"); ok {
		n.Domain = lane
	}
	return n
}

// resize gives a node another number of slots. The device knows its nodes and
// their numbers, so it does not fail.
func (s slots) resize(id kms.NodeID, n int) {
	if err := s.SetNode(node(id, n)); err != nil {
		panic(err)
	}
}

var urgencies = map[kms.Urgency]scheduler.Urgency{
	kms.UrgencyInteractive: scheduler.Interactive,
	kms.UrgencyNormal:      scheduler.Normal,
	kms.UrgencyBulk:        scheduler.Bulk,
}

// classes are the classes of the policy.
var classes = map[string]scheduler.Class{"HIGH": scheduler.High, "MID": scheduler.Mid, "LOW": scheduler.Low}

// Do implements kms.Scheduler.
func (s slots) Do(ctx context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	var fixed [8]string
	nodes := fixed[:0]
	for _, n := range f.Nodes {
		nodes = append(nodes, string(n))
	}
	class, longest := s.policies.Class(f.Tier, f.Urgency), s.policies.MaxWait(f.Tenant, f.Tier, f.Urgency)
	if f.MaxWait != 0 {
		longest = min(longest, f.MaxWait)
	}
	var why scheduler.Explanation
	flow := scheduler.Flow{
		Tenant: f.Tenant, Nodes: nodes, MaxWait: longest, Waited: f.Waited, Aside: f.Tenant == s.own, Urgency: urgencies[f.Urgency],
		Weight: uint32(s.policies.CreditsPerSecond(f.Tenant, f.Tier)), Class: classes[class],
		Op: operation(f.Cost), Prior: time.Duration(f.Cost/kms.Credit) * creditTime, Explain: &why,
	}
	wait, err := s.Scheduler.Do(ctx, flow, func(node string) { work(kms.NodeID(node)) })
	turn := kms.Turn{Wait: wait, Class: kms.Class(class), Estimate: why.Estimate, Aged: why.Aged, Away: why.Away}
	if wait > 0 {
		turn.Waits = waits(&why)
	}
	if err != nil {
		err = s.refusal(err, &f, longest, &turn, &why)
	}
	return turn, err
}

// waitCodes are the codes of the product for what the scheduler makes requests
// wait for.
var waitCodes = func() (codes [scheduler.Reasons]string) {
	for r := range codes {
		codes[r] = strings.ToUpper(scheduler.Reason(r).String())
	}
	return codes
}()

// waits are what a request waited for, the longest first.
func waits(why *scheduler.Explanation) []kms.Reason {
	n := 0
	for i := range why.Waits {
		if why.Waits[i].For > 0 {
			n++
		}
	}
	list := make([]kms.Reason, 0, n)
	for i, w := range &why.Waits {
		if w.For > 0 {
			list = append(list, kms.Reason{Code: waitCodes[i], Have: w.Have, Limit: w.Limit, Waited: w.For})
		}
	}
	slices.SortStableFunc(list, func(a, b kms.Reason) int { return cmp.Compare(b.Waited, a.Waited) })
	return list
}

// creditTime is the slot time to assume of a credit until it was measured: an
// SM2 signature of 12 credits takes about a millisecond on a slow token.
const creditTime = 100 * time.Microsecond

// operation tells operations apart by their price, which depends on algorithm,
// operation and size.
func operation(cost kms.Credits) scheduler.Op {
	return scheduler.Op{Algorithm: uint16(min(cost/kms.Credit, math.MaxUint16))}
}

// refusal makes the answer to a request whose work never ran. When it may come
// back is the scheduler's to say, out of its queue.
func (s slots) refusal(err error, f *kms.Flow, longest time.Duration, turn *kms.Turn, why *scheduler.Explanation) error {
	e := &kms.Error{Kind: kms.KindReducedCapacity, Detail: "the HSMs are too busy", Err: err}
	reason := kms.Reason{Have: why.Have, Limit: why.Limit}
	switch {
	case errors.Is(err, scheduler.ErrTenantQueueFull):
		reason.Code, e.Detail = kms.ReasonOwnQueueFull, "the tenant's part of the queue for the HSMs is full"
	case errors.Is(err, scheduler.ErrQueueFull):
		reason.Code, e.Detail = kms.ReasonQueueFull, "the queue for the HSMs is full"
	case errors.Is(err, scheduler.ErrOverloaded):
		reason.Code = kms.ReasonGate
	case errors.Is(err, scheduler.ErrWaitTooLong):
		reason = kms.Reason{Code: kms.ReasonWaitTooLong, Need: why.Have, Limit: why.Limit}
	case errors.Is(err, scheduler.ErrNoNodes):
		e.Kind, e.Detail = kms.KindHSMUnavailable, "no node is serving"
		reason = kms.Reason{Code: kms.ReasonNodeDown, Limit: int64(len(f.Nodes))}
	default:
		e.Kind, e.Detail = kms.KindWaitExceeded, "no slot became free in time"
		reason = kms.Reason{Code: kms.ReasonWaitExceeded, Have: int64(turn.Wait), Limit: int64(max(longest, 0))}
	}
	if e.Kind != kms.KindHSMUnavailable {
		e.RetryAfter = s.policies.RetryAfter(why.RetryAfter)
		reason.RetryIn = e.RetryAfter
	}
	e.Reasons = []kms.Reason{reason}
	return e
}
