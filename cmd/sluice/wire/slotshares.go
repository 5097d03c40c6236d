package wire

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// nodeSlots tells the scheduler how many slots of each node it may use: what
// the token gives, and of that this process's share.
type nodeSlots struct {
	resize func(kms.NodeID, int)

	mu     sync.Mutex // guards the rest, and orders resizes
	tokens map[kms.NodeID]int
	shares map[kms.NodeID]int // 0, or not there: all of them
}

func newNodeSlots(tokens map[kms.NodeID]int, resize func(kms.NodeID, int)) *nodeSlots {
	return &nodeSlots{resize: resize, tokens: tokens, shares: make(map[kms.NodeID]int)}
}

// token sets how many slots a node gives.
func (n *nodeSlots) token(id kms.NodeID, slots int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tokens[id] = slots
	n.tell(id)
}

// share sets this process's share of a node.
func (n *nodeSlots) share(id kms.NodeID, slots int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shares[id] = slots
	n.tell(id)
}

func (n *nodeSlots) tell(id kms.NodeID) { n.resize(id, n.ofLocked(id)) }

func (n *nodeSlots) ofLocked(id kms.NodeID) int {
	if share := n.shares[id]; share > 0 {
		return min(n.tokens[id], share)
	}
	return n.tokens[id]
}

// utilisation is how much of the slots that this process has of the HSM nodes
// is busy, in thousandths.
func (n *nodeSlots) utilisation(nodes []kms.NodeStatus) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	busy, slots := 0, 0
	for _, node := range nodes {
		if node.ID != hsm.EngineID && node.State == kms.NodeUp {
			has := n.ofLocked(node.ID)
			busy, slots = busy+min(node.Busy, has), slots+has
		}
	}
	if slots == 0 {
		return 0
	}
	return int64(busy) * 1000 / int64(slots)
}

// slotShares shares the HSM nodes' slots with other API nodes.
type slotShares struct {
	sharing *quota.SlotSharing
	stop    context.CancelFunc
	all     sync.WaitGroup
}

// startSlotShares begins to share; log is told when that fails and works again.
func startSlotShares(backing quota.Backing, node string, policies *quota.Policies, device *hsm.Device, s slots, n *nodeSlots, log *slog.Logger) *slotShares {
	nodes := make(map[string]kms.NodeID) // by token
	demands := func() []quota.NodeDemand {
		status := make(map[string]kms.NodeStatus)
		for _, st := range device.Status() {
			status[string(st.ID)] = st
		}
		var demands []quota.NodeDemand
		for _, d := range s.Demands() {
			st, known := status[d.ID]
			if !known || st.Serial == "" { // the engine, a lane, a token that was never open
				continue
			}
			token := st.Domain.String() + "/" + st.Serial
			nodes[token] = st.ID
			demands = append(demands, quota.NodeDemand{
				Token: token, Slots: st.SlotsNow, Busy: d.Busy, Wanted: d.Busy + d.Waiting, Weight: d.Weight,
			})
		}
		return demands
	}
	ctx, stop := context.WithCancel(context.Background())
	shares := &slotShares{stop: stop, sharing: &quota.SlotSharing{
		Backing: backing, Policies: policies, Clock: time.Now, Node: node, Epoch: quota.NewEpoch(), Demands: demands,
		Apply: func(token string, slots int) { n.share(nodes[token], slots) },
		Failed: func(err error) {
			if err != nil {
				log.Warn("the slots of the HSMs are not shared exactly: each API node has an equal part", slog.Any("error", err))
			} else {
				log.Info("the slots of the HSMs are shared again")
			}
		},
	}}
	shares.all.Go(func() { shares.sharing.Run(ctx) })
	return shares
}

// Close gives back what this process holds.
func (s *slotShares) Close() error {
	s.stop()
	s.all.Wait()
	return nil
}
