package wire

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

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
}

func newSlots(nodes map[kms.NodeID]int, policies *quota.Policies, clock func() time.Time) (slots, error) {
	var list []scheduler.Node
	for id, n := range nodes {
		list = append(list, node(id, n))
	}
	s, err := scheduler.New(list, scheduler.Options{Clock: clock})
	return slots{s, policies}, err
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
func (s slots) Do(ctx context.Context, f kms.Flow, work func(kms.NodeID)) (time.Duration, error) {
	var fixed [8]string
	nodes := fixed[:0]
	for _, n := range f.Nodes {
		nodes = append(nodes, string(n))
	}
	flow := scheduler.Flow{
		Tenant: f.Tenant, Nodes: nodes, MaxWait: f.MaxWait, Urgency: urgencies[f.Urgency],
		Weight: uint32(s.policies.CreditsPerSecond(f.Tenant, f.Tier)), Class: classes[s.policies.Class(f.Tier, f.Urgency)],
		Op: operation(f.Cost), Prior: time.Duration(f.Cost/kms.Credit) * creditTime,
	}
	wait, err := s.Scheduler.Do(ctx, flow, func(node string) { work(kms.NodeID(node)) })
	if err != nil {
		err = scheduleError(err, wait)
	}
	return wait, err
}

// creditTime is the slot time to assume of a credit until it was measured: an
// SM2 signature of 12 credits takes about a millisecond on a slow token.
const creditTime = 100 * time.Microsecond

// operation tells operations apart by their price, which depends on algorithm,
// operation and size.
func operation(cost kms.Credits) scheduler.Op {
	return scheduler.Op{Algorithm: uint16(min(cost/kms.Credit, math.MaxUint16))}
}

func scheduleError(err error, wait time.Duration) error {
	switch {
	case errors.Is(err, scheduler.ErrQueueFull):
		return &kms.Error{Kind: kms.KindReducedCapacity, Detail: "the queue for the HSMs is full",
			Reasons: []kms.Reason{{Code: "queue_full"}}, RetryAfter: time.Second, Err: err}
	case errors.Is(err, scheduler.ErrOverloaded), errors.Is(err, scheduler.ErrWaitTooLong):
		return &kms.Error{Kind: kms.KindReducedCapacity, Detail: "the HSMs are too busy",
			Reasons: []kms.Reason{{Code: "slot_wait"}}, RetryAfter: time.Second, Err: err}
	case errors.Is(err, scheduler.ErrNoNodes):
		return kms.Wrap(kms.KindHSMUnavailable, err, "no node is serving")
	}
	return &kms.Error{Kind: kms.KindWaitExceeded, Detail: "no slot became free in time",
		Reasons: []kms.Reason{{Code: "slot_wait", Have: wait.Milliseconds()}}, RetryAfter: time.Second, Err: err}
}
