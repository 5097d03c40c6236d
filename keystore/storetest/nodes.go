package storetest

import (
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testNodeSettings(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()

	if _, err := e.NodeSetting(ctx, "a"); err != kms.ErrNotFound {
		t.Errorf("a node that nobody has set: %v", err)
	}
	if all, err := e.NodeSettings(ctx); len(all) != 0 || err != nil {
		t.Errorf("at the beginning: %v, %v", all, err)
	}
	set := func(node kms.NodeID, revision uint64, mode kms.NodeMode) {
		t.Helper()
		e.advance(time.Second)
		n, err := e.SetNodeMode(ctx, node, revision, mode)
		if err != nil || n.Revision != revision+1 || n.Mode != mode || !n.Changed.Equal(e.clock()) {
			t.Fatalf("SetNodeMode = %+v, %v", n, err)
		}
		if got, err := newEnv(t, e.driver).NodeSetting(ctx, node); err != nil || *got != *n {
			t.Errorf("read back as %+v, %v; want %+v", got, err, n)
		}
	}
	set("b", 0, kms.NodeDrained)
	set("a", 0, kms.NodeStandby)
	set("b", 1, kms.NodeActive)
	for _, revision := range []uint64{0, 1, 3} {
		_, err := e.SetNodeMode(ctx, "b", revision, kms.NodeCold)
		wantKind(t, "another revision", err, kms.KindPreconditionFailed)
	}
	all, err := e.NodeSettings(ctx)
	if err != nil || len(all) != 2 || all[0].Node != "a" || all[1].Node != "b" || all[1].Mode != kms.NodeActive || all[1].Revision != 2 {
		t.Errorf("NodeSettings = %+v, %v", all, err)
	}
	_, err = e.SetNodeMode(ctx, "", 0, kms.NodeActive)
	wantKind(t, "no node", err, kms.KindInvalidArgument)
	_, err = e.SetNodeMode(ctx, "c", 0, "asleep")
	wantKind(t, "a mode that is none", err, kms.KindInvalidArgument)
}
