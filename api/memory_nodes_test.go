package api_test

import (
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// nodeModes is the pool of one node in memory, and what is stored of it.
type nodeModes struct {
	mode     kms.NodeMode
	settings []kms.NodeSetting
}

func (d device) Status() []kms.NodeStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := kms.NodeStatus{ID: memoryNode, Driver: "soft", Mode: kms.NodeActive, State: kms.NodeUp, Breaker: kms.BreakerClosed,
		Slots: 1, SlotsNow: 1, Families: []kms.Family{kms.FamilyAES}, Operations: uint64(d.nodeCalls.Load())}
	if d.modes.mode != "" {
		status.Mode = d.modes.mode
	}
	return []kms.NodeStatus{status}
}

func (d device) CheckMode(node kms.NodeID, mode kms.NodeMode) error {
	switch {
	case node != memoryNode:
		return kms.ErrNotFound
	case mode == kms.NodeDrained || mode == kms.NodeCold:
		return kms.Errorf(kms.KindConflict, "it is the last")
	}
	return nil
}

func (d device) SetMode(_ kms.NodeID, mode kms.NodeMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.modes.mode = mode
	return nil
}

func (d device) SelfTest(context.Context, kms.NodeID) ([]kms.Family, error) {
	d.nodeCalls.Add(1)
	return []kms.Family{kms.FamilyAES}, nil
}

func (d device) Domains() []kms.DomainStatus {
	return []kms.DomainStatus{{ID: uuid.UUID{1}, Name: "memory", Generation: 1, Nodes: []kms.NodeID{memoryNode}}}
}

func (d device) Placements(int) ([]kms.KeyPlacement, int) {
	return []kms.KeyPlacement{{Key: uuid.UUID{2}, Node: memoryNode, Since: time.Unix(1, 0), Why: kms.PlacedByLoad}}, 1
}

func (m *memory) NodeSetting(_ context.Context, node kms.NodeID) (*kms.NodeSetting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.modes.settings {
		if n.Node == node {
			return &n, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) NodeSettings(context.Context) ([]kms.NodeSetting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.modes.settings), nil
}

func (m *memory) SetNodeMode(_ context.Context, node kms.NodeID, revision uint64, mode kms.NodeMode) (*kms.NodeSetting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	setting := kms.NodeSetting{Node: node, Mode: mode, Revision: revision + 1, Changed: time.Now()}
	m.modes.settings = append(slices.DeleteFunc(m.modes.settings, func(n kms.NodeSetting) bool { return n.Node == node }), setting)
	return &setting, nil
}
