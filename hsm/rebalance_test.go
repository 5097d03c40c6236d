package hsm_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// atHome makes keys that are at home on a node.
func atHome(t *testing.T, p *pool, node kms.NodeID, n int) (keys []*kms.Key) {
	t.Helper()
	for len(keys) < n {
		k := p.key(t, node, kms.SpecAES256, kms.UsageEncryptDecrypt)
		if homeOf(t, p, k) == node {
			keys = append(keys, k)
		}
	}
	return keys
}

func homeOf(t *testing.T, p *pool, k *kms.Key) kms.NodeID {
	t.Helper()
	ids, err := p.Nodes(&kms.Work{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Key: k, Version: k.Versions[0]})
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// encrypts uses a key on a node and tells whether it had to be loaded.
func encrypts(t *testing.T, p *pool, node kms.NodeID, k *kms.Key, times int) (cold bool) {
	t.Helper()
	for range times {
		w := &kms.Work{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Key: k, Version: k.Versions[0], Input: make([]byte, 64), Nonce: make([]byte, 12)}
		if err := p.do(t, node, w); err != nil {
			t.Fatal(err)
		}
		cold = cold || w.ColdLoad
	}
	return cold
}

// A node that was busier than the others for a minute gives its hottest keys
// away, as many as bring it near the mean, and nothing else moves. They are
// loaded where they go before anybody asks for them there, and the table shows
// them.
func TestHottestKeysLeaveANodeThatStaysOverloaded(t *testing.T) {
	p := makePool(t)
	defer p.Close()
	keys := atHome(t, p, "node-1", 8)
	there := atHome(t, p, "node-2", 2)
	step, release := p.HoldBalance()
	defer release()
	busy := map[kms.NodeID]float64{"node-1": 0.9, "node-2": 0.3}
	_, before := p.Placements(0)
	began := time.Now()
	step(began, busy)
	// Two keys take most of the time; six are used now and then.
	for i, k := range keys {
		encrypts(t, p, "node-1", k, 1)
		p.Heat("node-1", k.Versions[0].ID, 10*time.Millisecond)
		if i < 2 {
			p.Heat("node-1", k.Versions[0].ID, time.Second)
		}
	}
	step(began.Add(59*time.Second), busy)
	if _, moved := p.Placements(0); moved != before {
		t.Fatalf("%d keys moved before a minute was over", moved-before)
	}
	step(began.Add(60*time.Second), busy)
	list, all := p.Placements(10)
	if all-before != 1 || list[0].Why != kms.PlacedByRebalancing || list[0].Node != "node-2" {
		t.Fatalf("the table has %d more rows: %+v", all-before, list)
	}
	moved := slices.IndexFunc(keys, func(k *kms.Key) bool { return k.ID == list[0].Key })
	if moved < 0 || moved > 1 {
		t.Fatalf("key %d moved, which is not one of the hottest", moved)
	}
	for i, k := range keys {
		want := kms.NodeID("node-1")
		if i == moved {
			want = "node-2"
		}
		if got := homeOf(t, p, k); got != want {
			t.Errorf("key %d is at home on %s, want %s", i, got, want)
		}
	}
	if encrypts(t, p, "node-2", keys[moved], 1) {
		t.Error("the key had to be loaded by its first use there")
	}
	for _, k := range there {
		if got := homeOf(t, p, k); got != "node-2" {
			t.Errorf("a key of the other node is at home on %s", got)
		}
	}
}

// Nothing moves from a node that was overloaded for less than a minute at a
// time, none when the nodes are busy alike, and none from a domain that is
// nearly idle.
func TestKeysStayWhereLoadPasses(t *testing.T) {
	p := makePool(t)
	defer p.Close()
	k := atHome(t, p, "node-1", 1)[0]
	step, release := p.HoldBalance()
	defer release()
	began := time.Now()
	for i, loads := range []map[kms.NodeID]float64{
		{"node-1": 0.9, "node-2": 0.1}, {"node-1": 0.5, "node-2": 0.5}, // it passed
		{"node-1": 0.9, "node-2": 0.1}, {"node-1": 0.6, "node-2": 0.55},
		{"node-1": 0.2, "node-2": 0.01}, {"node-1": 0.2, "node-2": 0.01},
	} {
		encrypts(t, p, "node-1", k, 10)
		step(began.Add(time.Duration(i)*50*time.Second), loads)
	}
	if _, all := p.Placements(0); all != 0 {
		t.Errorf("%d keys moved", all)
	}
	// One key that is all of a node's load only would be all of another's.
	step(began.Add(time.Hour), map[kms.NodeID]float64{"node-1": 0.9, "node-2": 0.1})
	encrypts(t, p, "node-1", k, 100)
	step(began.Add(time.Hour+time.Minute), map[kms.NodeID]float64{"node-1": 0.9, "node-2": 0.1})
	if _, all := p.Placements(0); all != 0 {
		t.Errorf("a key moved that overloads any node")
	}
}
