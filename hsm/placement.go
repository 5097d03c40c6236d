package hsm

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Placement of new keys.
const (
	// maxPlaced bounds the placement table: what does not fit is at home where
	// its hash says. At some 100 bytes a row it is 6 MiB.
	maxPlaced = 65536
	// loadFactor is how far above the domain's mean utilisation a node's may
	// be before new keys go elsewhere: the bound of consistent hashing with
	// bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016) at ε = 1/4.
	loadFactor = 1.25
	// idleLoad is the utilisation below which no node is overloaded, whatever
	// the others do.
	idleLoad = 0.25
)

// placement is the table of keys that are at home on another node than their
// hash says. It is this process's own: any node serves any key, so that two
// processes that differ cost handles and nothing else. It is safe for
// concurrent use.
type placement struct {
	count atomic.Int64 // rows, so that an empty table costs one read

	mu   sync.RWMutex
	rows map[uuid.UUID]placed
}

type placed struct {
	node  kms.NodeID
	since time.Time
	why   string
}

// home returns the node that the table names for a key.
func (p *placement) home(key uuid.UUID) (kms.NodeID, bool) {
	if p.count.Load() == 0 {
		return "", false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	row, ok := p.rows[key]
	return row.node, ok
}

// put notes a key's home and tells whether there was room.
func (p *placement) put(key uuid.UUID, row placed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.rows[key]; !known && len(p.rows) >= maxPlaced {
		return false
	}
	if p.rows == nil {
		p.rows = map[uuid.UUID]placed{}
	}
	p.rows[key] = row
	p.count.Store(int64(len(p.rows)))
	return true
}

// list returns up to limit rows, the newest first, and how many there are.
func (p *placement) list(limit int) (list []kms.KeyPlacement, all int) {
	p.mu.RLock()
	for key, row := range p.rows {
		list = append(list, kms.KeyPlacement{Key: key, Node: row.node, Since: row.since, Why: row.why})
	}
	p.mu.RUnlock()
	slices.SortFunc(list, func(a, b kms.KeyPlacement) int {
		return cmp.Or(b.Since.Compare(a.Since), slices.Compare(a.Key[:], b.Key[:]))
	})
	return list[:min(limit, len(list))], len(list)
}

// placeNew gives a new key a home by load: where its hash says, unless that
// node is busier than the others by more than the bound; then on the idlest.
func (d *Device) placeNew(key *kms.Key) {
	dom := d.domains[key.Tenant.Sealing.Domain]
	if dom == nil || key.Protection != kms.ProtectionHSM {
		return
	}
	family := key.Spec.Info().Family
	ids, err := d.up(dom, family, key.ID)
	if err != nil || len(ids) < 2 {
		return
	}
	home := d.byID[ids[0]]
	var sum float64
	var idlest *seat
	n := 0
	for _, s := range dom.seats {
		if !s.usable(family) || s.wanted() != kms.NodeActive {
			continue
		}
		n++
		sum += s.utilisation()
		if idlest == nil || s.utilisation() < idlest.utilisation() {
			idlest = s
		}
	}
	if idlest == nil || idlest == home || home.utilisation() < idleLoad || home.utilisation() <= loadFactor*sum/float64(n) {
		return
	}
	d.placement.put(key.ID, placed{node: idlest.config.ID, since: d.clock(), why: kms.PlacedByLoad})
}
