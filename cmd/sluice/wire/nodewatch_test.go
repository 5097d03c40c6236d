package wire

import (
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

type toldEvents []string

func (e *toldEvents) Publish(event kms.Event) {
	*e = append(*e, string(event.Type)+" "+event.Fields[0].Value)
}

func TestLostNodesAndThoseThatComeBackAreToldOnce(t *testing.T) {
	var told toldEvents
	var now []kms.NodeStatus
	w := &nodeWatch{status: func() []kms.NodeStatus { return now }, events: &told, lost: map[kms.NodeID]kms.NodeState{}, opening: map[kms.NodeID]int{}}
	see := func(states ...kms.NodeState) {
		for _, state := range states {
			now = []kms.NodeStatus{{ID: hsm.EngineID, State: kms.NodeDown}, {ID: "node-1", State: state}, {ID: "node-2", State: kms.NodeUp}}
			w.look()
			w.look()
		}
	}
	see(kms.NodeUp, kms.NodeDraining, kms.NodeClosed, kms.NodeDown, kms.NodeWarming, kms.NodeUp)
	if len(told) != 0 {
		t.Errorf("maintenance tells %q", told)
	}
	see(kms.NodeDown, kms.NodeWarming, kms.NodeDown, kms.NodeUp)
	see(kms.NodeDown, kms.NodeOut, kms.NodeUp, kms.NodeOut, kms.NodeClosed, kms.NodeUp)
	want := []string{"node.down node-1", "node.up node-1", "node.down node-1", "node.out node-1", "node.up node-1", "node.out node-1"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	// One that cannot be opened after it was closed is lost.
	told = nil
	see(kms.NodeClosed)
	for range openLooks {
		see(kms.NodeDown)
	}
	if want := []string{"node.down node-1"}; !slices.Equal(told, want) {
		t.Errorf("of a node that does not come back it told %q, want %q", told, want)
	}
}
