package hsm

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// loadedPool is a domain of nodes that are up, each as busy as told.
func loadedPool(utilisations ...float64) (*Device, *domainNodes) {
	d := &Device{byID: map[kms.NodeID]*seat{}, clock: time.Now, log: slog.New(slog.DiscardHandler)}
	dom := &domainNodes{Domain: &Domain{ID: uuid.NewV7(), Name: "test"}}
	d.domains = map[uuid.UUID]*domainNodes{dom.ID: dom}
	for i, u := range utilisations {
		id := kms.NodeID(fmt.Sprintf("node-%d", i+1))
		s := &seat{config: NodeConfig{ID: id}, device: d, domain: dom, hash: hashID(id), log: d.log, clock: d.clock}
		s.current.Store(&node{families: []kms.Family{kms.FamilyAES}})
		s.meter.now.Store(math.Float64bits(u))
		dom.seats = append(dom.seats, s)
		d.byID[id] = s
	}
	return d, dom
}

// homed makes a key that is at home on a node by its hash.
func homed(t *testing.T, d *Device, dom *domainNodes, on kms.NodeID) *kms.Key {
	t.Helper()
	for range 10_000 {
		key := &kms.Key{ID: uuid.NewV7(), Spec: kms.SpecAES256, Protection: kms.ProtectionHSM,
			Tenant: &kms.Tenant{Sealing: kms.SealingKey{Domain: dom.ID}}}
		if ids, err := d.up(dom, kms.FamilyAES, key.ID); err == nil && ids[0] == on {
			return key
		}
	}
	t.Fatalf("no key is at home on %s", on)
	return nil
}

func home(t *testing.T, d *Device, dom *domainNodes, key *kms.Key) kms.NodeID {
	t.Helper()
	ids, err := d.up(dom, kms.FamilyAES, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// A new key whose home is busier than the others by more than the bound goes to
// the idlest node; otherwise it goes home, and the table stays empty.
func TestNewKeysAreSpreadByLoad(t *testing.T) {
	for _, c := range []struct {
		name  string
		loads []float64
		want  kms.NodeID
	}{
		{"all alike", []float64{0.6, 0.6, 0.6}, "node-1"},
		{"the home far busier", []float64{0.9, 0.5, 0.3}, "node-3"},
		{"the home within the bound", []float64{0.6, 0.5, 0.5}, "node-1"},
		{"the home the idlest", []float64{0.1, 0.9, 0.9}, "node-1"},
		{"all nearly idle", []float64{0.2, 0, 0}, "node-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, dom := loadedPool(c.loads...)
			key := homed(t, d, dom, "node-1")
			d.placeNew(key)
			if got := home(t, d, dom, key); got != c.want {
				t.Errorf("it is at home on %s, want %s", got, c.want)
			}
			list, all := d.Placements(10)
			if placed := c.want != "node-1"; (all == 1) != placed || placed && (list[0].Node != c.want || list[0].Why != kms.PlacedByLoad) {
				t.Errorf("the table has %d rows: %+v", all, list)
			}
		})
	}
}

// A key that is placed on a node goes to its hash's home while that node does
// not take work, and back.
func TestPlacedKeysGoHomeWhileTheirNodeIsAway(t *testing.T) {
	d, dom := loadedPool(0.9, 0.1)
	key := homed(t, d, dom, "node-1")
	d.placeNew(key)
	if got := home(t, d, dom, key); got != "node-2" {
		t.Fatalf("it is at home on %s", got)
	}
	dom.seats[1].current.Load().down.Store(true)
	if got := home(t, d, dom, key); got != "node-1" {
		t.Errorf("while its node is down it is at home on %s", got)
	}
	dom.seats[1].current.Load().down.Store(false)
	if got := home(t, d, dom, key); got != "node-2" {
		t.Errorf("afterwards it is at home on %s", got)
	}
	// SEALED keys have no node of a domain.
	sealed := *key
	sealed.ID, sealed.Protection = uuid.NewV7(), kms.ProtectionSealed
	d.placeNew(&sealed)
	if _, all := d.Placements(1); all != 1 {
		t.Errorf("the table has %d rows", all)
	}
}

func TestPlacementTableKeepsItsBound(t *testing.T) {
	var p placement
	first := uuid.NewV7()
	p.put(first, placed{node: "a"})
	for range maxPlaced - 1 {
		if !p.put(uuid.NewV7(), placed{node: "a"}) {
			t.Fatal("it is full before its bound")
		}
	}
	if p.put(uuid.NewV7(), placed{node: "b"}) {
		t.Error("it grows beyond its bound")
	}
	if !p.put(first, placed{node: "b"}) {
		t.Error("a row of a full table cannot be changed")
	}
	if node, ok := p.home(first); !ok || node != "b" {
		t.Errorf("the row is %s, %v", node, ok)
	}
}
