package kms

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"
	"uuid"
)

// NodeSettings stores the modes that operators gave to nodes.
type NodeSettings interface {
	// NodeSetting: ErrNotFound when no operator has given the node a mode.
	NodeSetting(ctx context.Context, node NodeID) (*NodeSetting, error)
	// NodeSettings returns all that there are, ordered by node.
	NodeSettings(ctx context.Context) ([]NodeSetting, error)
	// SetNodeMode stores a node's mode if its revision is still the given one,
	// 0 when none is stored; KindPreconditionFailed otherwise.
	SetNodeMode(ctx context.Context, node NodeID, revision uint64, mode NodeMode) (*NodeSetting, error)
}

// NodeSetting is the mode that an operator gave to a node; it holds for every
// API node that has a node of that id.
type NodeSetting struct {
	Node     NodeID
	Mode     NodeMode
	Revision uint64
	Changed  time.Time
}

// nodeSyncInterval is how often the stored modes are read: a mode takes effect
// on every API node within a second, as everything else does (R6), and the
// table has a row per node.
const nodeSyncInterval = time.Second

// maxPlacements bounds the rows of the placement table in one answer.
const maxPlacements = 100

// Nodes reports the nodes of the pool.
func (s *Service) Nodes(ctx context.Context, t *Ticket) ([]NodeStatus, error) {
	if err := s.run(ctx, t, &task{op: OpReadNodes}); err != nil {
		return nil, err
	}
	return s.device.Status(), nil
}

// PoolMap tells which tenant's keys are served where.
type PoolMap struct {
	Domains    []DomainStatus
	Nodes      []NodeStatus
	Tenants    []*Tenant // a page of them
	Next       string    // token of the next page of tenants
	Placements []KeyPlacement
	Placed     int // rows of the placement table in all
}

// Map reports which tenants belong to which domain, which nodes serve it with
// how many slots, and which keys are at home elsewhere than their hash says.
func (s *Service) Map(ctx context.Context, t *Ticket, page Page) (m *PoolMap, err error) {
	err = s.run(ctx, t, &task{op: OpReadNodes,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			m = &PoolMap{Domains: s.device.Domains(), Nodes: s.device.Status()}
			m.Placements, m.Placed = s.device.Placements(maxPlacements)
			m.Tenants, m.Next, err = s.tenants.ListTenants(ctx, page)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// SetNodeMode changes what a node is for, on every API node. A mode that would
// leave a domain without a node for some of its keys is refused with
// KindConflict unless it is forced. It returns before the node has changed:
// its status tells.
func (s *Service) SetNodeMode(ctx context.Context, t *Ticket, node NodeID, mode NodeMode, force bool) (*NodeStatus, error) {
	var revision uint64
	err := s.run(ctx, t, &task{op: OpSetNodeMode,
		prepare: func(t *Ticket) error {
			if !slices.Contains(NodeModes(), mode) {
				return Errorf(KindInvalidArgument, "mode: must be one of %v", NodeModes())
			}
			err := s.device.CheckMode(node, mode)
			if err != nil && !(force && KindOf(err) == KindConflict) {
				return err
			}
			t.Resource = string(node)
			revision, err = s.nodeRevision(ctx, node)
			t.Revision = revision
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			if _, err := s.nodes.SetNodeMode(ctx, node, revision, mode); err != nil {
				return concurrently(err)
			}
			return s.device.SetMode(node, mode)
		}})
	if err != nil {
		return nil, err
	}
	return s.nodeStatus(node)
}

// ReplayNode is Replay for SetNodeMode: it returns the node as it is now.
func (s *Service) ReplayNode(ctx context.Context, t *Ticket, node NodeID) (*NodeStatus, error) {
	err := s.replayOther(ctx, t, OpSetNodeMode, nil, func(t *Ticket) error {
		t.Resource = string(node)
		_, err := s.nodeStatus(node)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.nodeStatus(node)
}

// nodeRevision is the revision of a node's stored mode, 0 when there is none.
func (s *Service) nodeRevision(ctx context.Context, node NodeID) (uint64, error) {
	setting, err := s.nodes.NodeSetting(ctx, node)
	switch {
	case err == nil:
		return setting.Revision, nil
	case KindOf(err) == KindNotFound:
		return 0, nil
	}
	return 0, err
}

func (s *Service) nodeStatus(node NodeID) (*NodeStatus, error) {
	for _, n := range s.device.Status() {
		if n.ID == node {
			return &n, nil
		}
	}
	return nil, ErrNotFound
}

// SelfTestNode tests a node beside its work and returns its status.
// KindHSMUnavailable when it is closed or fails.
func (s *Service) SelfTestNode(ctx context.Context, t *Ticket, node NodeID) (status *NodeStatus, err error) {
	err = s.run(ctx, t, &task{op: OpTestNode,
		prepare: func(t *Ticket) error {
			t.Resource = string(node)
			_, err := s.nodeStatus(node)
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			families, err := s.device.SelfTest(ctx, node)
			if err != nil {
				return err
			}
			status, err = s.nodeStatus(node)
			if err == nil {
				status.Families = families
			}
			return err
		}})
	if err != nil {
		return nil, err
	}
	return status, nil
}

// domain finds a domain by id or name; "" is the default one, for which the
// zero id stands.
func (s *Service) domain(ref string) (uuid.UUID, error) {
	if ref == "" {
		return uuid.UUID{}, nil
	}
	for _, d := range s.device.Domains() {
		if d.Name == ref || d.ID.String() == ref {
			return d.ID, nil
		}
	}
	return uuid.UUID{}, Errorf(KindInvalidArgument, "domain: there is none of that name or id")
}

// NodeSync follows the stored modes of nodes. Each API node has one.
type NodeSync struct {
	service *Service
	applied map[NodeID]uint64 // revisions; the loop's
	stop    chan struct{}
	ended   chan struct{}
}

// StartNodeSync applies the stored modes and goes on to apply what changes;
// Close ends that. An error of the first reading is returned.
func (s *Service) StartNodeSync(ctx context.Context) (*NodeSync, error) {
	n := &NodeSync{service: s, applied: map[NodeID]uint64{}, stop: make(chan struct{}), ended: make(chan struct{})}
	if err := n.apply(ctx); err != nil {
		return nil, err
	}
	go n.loop()
	return n, nil
}

// Close ends the following and waits for a reading under way.
func (n *NodeSync) Close() error {
	close(n.stop)
	<-n.ended
	return nil
}

func (n *NodeSync) loop() {
	defer close(n.ended)
	tick := time.NewTicker(nodeSyncInterval)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err := n.apply(ctx)
		cancel()
		// What a database that is away does to requests is told elsewhere;
		// once is enough here.
		if err != nil && !failed {
			n.service.log.Error("nodes: reading their modes", slog.Any("error", err))
		}
		failed = err != nil
	}
}

func (n *NodeSync) apply(ctx context.Context) error {
	settings, err := n.service.nodes.NodeSettings(ctx)
	if err != nil {
		return err
	}
	for _, setting := range settings {
		if n.applied[setting.Node] == setting.Revision {
			continue
		}
		n.applied[setting.Node] = setting.Revision
		if err := n.service.device.SetMode(setting.Node, setting.Mode); err != nil {
			// It belongs to another API node's configuration, or to none.
			n.service.log.Info("nodes: a mode is stored for a node that is not here",
				slog.String("node", string(setting.Node)), slog.String("revision", strconv.FormatUint(setting.Revision, 10)))
		}
	}
	return nil
}
