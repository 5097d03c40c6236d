package wire_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

func (p *faultyPool) setMode(t *testing.T, i int, mode kms.NodeMode) {
	t.Helper()
	if err := p.app.Device.SetMode(p.node(i).ID, mode); err != nil {
		t.Fatal(err)
	}
}

// cold uses every key of the load once, one after the other, so that each is
// used where it is at home, and returns how many keys had to be loaded for it.
func (p *faultyPool) cold(t *testing.T) (loaded uint64) {
	t.Helper()
	loads := func() (n uint64) {
		for _, m := range p.modules {
			n += m.Calls(fault.UnwrapKey)
		}
		return n
	}
	before := loads()
	for _, credential := range p.tenants {
		for i := range keysEach {
			p.must(t, credential, fmt.Sprintf("/v1/keys/aes-%d/encrypt", i), `{"plaintext":"aGVsbG8="}`)
		}
	}
	return loads() - before
}

// worked counts the operations that a module has done.
func worked(m *fault.Module) uint64 { return m.Calls(fault.Encrypt) + m.Calls(fault.Decrypt) }

// A node that is drained leaves without a failed request: it ends idle and
// closed, and what was loaded on it is loaded where it is served from then on.
// When it is enabled it has its keys before its first request.
func TestDrainedNodeFailsNoRequestAndItsKeysAreHotElsewhere(t *testing.T) {
	for _, nodes := range []int{2, 4} {
		p := newFaultyPool(t, nodes)
		for _, percent := range []int{50, 90} {
			t.Run(fmt.Sprintf("%d nodes/%d%%", nodes, percent), func(t *testing.T) {
				l := p.load(t, p.slots*percent/100)
				l.after(300)
				p.setMode(t, 0, kms.NodeDrained)
				t.Logf("closed after %v", l.await(t, "closed", func() bool { return p.node(0).State == kms.NodeClosed }))
				done := worked(p.modules[0])
				l.after(300)
				l.end(t)
				if n := p.cold(t); n != 0 {
					t.Errorf("%d keys of the drained node were not hot elsewhere", n)
				}
				if now := worked(p.modules[0]); now != done {
					t.Errorf("the drained node did %d operations more", now-done)
				}
				if n := p.node(0); n.Busy != 0 || n.Handles != 0 || n.Mode != kms.NodeDrained {
					t.Errorf("the drained node is %+v", n)
				}
				p.setMode(t, 0, kms.NodeActive)
				within(t, recovery, "enabling", func() bool { return p.node(0).State == kms.NodeUp })
				if n := p.cold(t); n != 0 {
					t.Errorf("%d keys were not hot on the node that came back", n)
				}
				if worked(p.modules[0]) == done {
					t.Error("the node that came back serves nothing")
				}
			})
		}
	}
}

// The last node of a domain is not drained unless that is forced.
func TestLastNodeOfADomainIsNotDrained(t *testing.T) {
	p := newFaultyPool(t, 2)
	first, second := p.node(0).ID, p.node(1).ID
	if err := p.app.Device.CheckMode(first, kms.NodeDrained); err != nil {
		t.Errorf("one of two nodes: %v", err)
	}
	p.setMode(t, 0, kms.NodeDrained)
	if err := p.app.Device.CheckMode(second, kms.NodeCold); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("the last of two nodes: %v", err)
	}
	for _, mode := range []kms.NodeMode{kms.NodeActive, kms.NodeStandby} {
		if err := p.app.Device.CheckMode(second, mode); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	for _, id := range []kms.NodeID{"cpu", "nobody", first + "/generate"} {
		if err := p.app.Device.CheckMode(id, kms.NodeDrained); err != kms.ErrNotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A node on standby takes what the active one has no slot for, and everything
// when that is lost, without a failed request.
func TestStandbyNodeTakesOverWhatTheActiveOneCannotServe(t *testing.T) {
	p := newFaultyPool(t, 2)
	p.setMode(t, 1, kms.NodeStandby)
	l := p.load(t, engines/2)
	l.after(200)
	before := worked(p.modules[1])
	l.after(200)
	if n := worked(p.modules[1]) - before; n != 0 {
		t.Errorf("%d operations on standby while the active node has slots", n)
	}
	p.modules[0].Die(pkcs11.CKR_DEVICE_ERROR)
	l.await(t, "down", func() bool { return p.node(0).State == kms.NodeDown })
	l.after(200)
	if worked(p.modules[1]) == before {
		t.Error("the node on standby did not take over")
	}
	p.modules[0].Revive()
	l.await(t, "up again", func() bool { return p.node(0).State == kms.NodeUp })
	l.end(t)

	// So many that waiting for the active node costs more than loading a key on
	// the other.
	l = p.load(t, 8*engines)
	l.after(200)
	before = worked(p.modules[1])
	l.after(400)
	if worked(p.modules[1]) == before {
		t.Error("the node on standby takes nothing although the active one has no slot")
	}
	l.end(t)
}

// A cold node is left closed until it is wanted, and serves then.
func TestColdNodeIsNotOpenedUntilItIsWanted(t *testing.T) {
	tokens := 0
	p := newFaultyPool(t, 2, func(c *wire.TokenConfig) {
		if tokens++; tokens == 2 {
			c.Role = string(kms.NodeCold)
		}
	})
	if n := p.node(1); n.State != kms.NodeClosed || p.modules[1].Calls(fault.Login) != 0 {
		t.Errorf("the cold node is %s, after %d logins", n.State, p.modules[1].Calls(fault.Login))
	}
	l := p.load(t, engines)
	l.after(100)
	p.setMode(t, 1, kms.NodeActive)
	l.awaitNode(t, 1, kms.NodeUp)
	before := worked(p.modules[1])
	l.after(200)
	if worked(p.modules[1]) == before {
		t.Error("the node serves nothing")
	}
	l.end(t)
}

// awaitNode waits until a node is in a state, looking after each request.
func (l *traffic) awaitNode(t *testing.T, i int, state kms.NodeState) {
	t.Helper()
	for started := time.Now(); l.pool.node(i).State != state; l.after(1) {
		if time.Since(started) > recovery {
			l.end(t)
			t.Fatalf("the node is not %s: %+v", state, l.pool.node(i))
		}
	}
}

// The PIN can come from the environment, which is asked each time that the
// token is opened.
func TestPINComesFromTheEnvironment(t *testing.T) {
	p := newFaultyPool(t, 2, func(c *wire.TokenConfig) {
		pin, err := os.ReadFile(c.PINFile)
		if err != nil {
			t.Fatal(err)
		}
		c.PINFile, c.PINEnv = "", "TEST_HSM_PIN_"+strings.ReplaceAll(c.ID, "-", "_")
		t.Setenv(c.PINEnv, strings.TrimSpace(string(pin)))
	})
	p.setMode(t, 0, kms.NodeDrained)
	within(t, recovery, "draining", func() bool { return p.node(0).State == kms.NodeClosed })
	p.setMode(t, 0, kms.NodeActive)
	within(t, recovery, "enabling", func() bool { return p.node(0).State == kms.NodeUp })
}

// A token that runs out of something is given less at once, and more again
// when it has recovered, and no request fails.
func TestTokenThatIsOutOfSomethingIsGivenLessAndMoreAgain(t *testing.T) {
	p := newFaultyPool(t, 2)
	l := p.load(t, p.slots)
	l.after(200)
	p.modules[0].FailRate(fault.EncryptInit, pkcs11.CKR_DEVICE_MEMORY, 0.2)
	l.await(t, "shrunk", func() bool { return p.node(0).SlotsNow <= engines/2 })
	if n := p.node(0); n.State != kms.NodeUp || n.Faults["capacity"] == 0 {
		t.Errorf("the node is %+v", n)
	}
	p.modules[0].FailRate(fault.EncryptInit, 0, 0)
	t.Logf("all slots after %v", l.await(t, "whole", func() bool { return p.node(0).SlotsNow == engines }))
	if epoch := p.node(0).Epoch; epoch != 1 {
		t.Errorf("the token was opened anew: epoch %d", epoch)
	}
	l.end(t)
}

// A module that leaks is opened anew after as many loads as it is allowed,
// one node at a time, while the others serve: no request fails.
func TestModuleThatLeaksIsRecycledWithoutAFailedRequest(t *testing.T) {
	const most = 100 // loads
	p := newFaultyPool(t, 2, func(c *wire.TokenConfig) { c.MaxLoads = most })
	l := p.load(t, p.slots/2)
	for i := 0; p.node(0).Epoch < 3 || p.node(1).Epoch < 3; i++ {
		p.must(t, p.tenants[0], "/v1/keys", fmt.Sprintf(`{"name":"cycle-%d","spec":"AES_256"}`, i))
		p.must(t, p.tenants[0], fmt.Sprintf("/v1/keys/cycle-%d/encrypt", i), `{"plaintext":"aGVsbG8="}`)
		if i > 2000 {
			t.Fatalf("after %d keys the nodes are %+v and %+v", i, p.node(0), p.node(1))
		}
	}
	l.after(100)
	l.end(t)
}

// Modes are stored: they hold after a restart, on every node that shares the
// database, and are in the journal.
func TestModeOfANodeHoldsAfterARestart(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	set := func(s *wiretest.Service, mode string) {
		t.Helper()
		if status, a := call(t, s, s.Operator, "POST", "/v1/hsm/nodes/node-2/mode", object{"mode": mode}); status != 200 {
			t.Fatalf("%s: %d %s: %s", mode, status, a.Code, a.Detail)
		}
	}
	await := func(s *wiretest.Service, state kms.NodeState) {
		t.Helper()
		within(t, recovery, "node-2 is "+string(state), func() bool {
			nodes := s.App.Device.Status()
			i := slices.IndexFunc(nodes, func(n kms.NodeStatus) bool { return n.ID == "node-2" })
			return nodes[i].State == state
		})
	}
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "/v1/keys", object{"name": "before", "spec": "AES_256"})
	set(s, "drained")
	await(s, kms.NodeClosed)
	if status, _ := call(t, s, s.Operator, "POST", "/v1/hsm/nodes/node-1/mode", object{"mode": "drained"}); status != 409 {
		t.Errorf("the last node is drained: %d", status)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := wiretest.Start(t, dir)
	await(again, kms.NodeClosed)
	must(t, again, "/v1/keys/before/encrypt", object{"plaintext": "aGVsbG8="})
	set(again, "active")
	await(again, kms.NodeUp)
	if status, _ := call(t, again, again.Operator, "POST", "/v1/hsm/nodes/node-2/self-test", object{}); status != 200 {
		t.Errorf("self-test of a node that is up: %d", status)
	}
}
