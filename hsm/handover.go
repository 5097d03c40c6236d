package hsm

import (
	"log/slog"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// warmLimit bounds how long a node that joins is kept waiting for its
	// keys: what is not loaded by then is loaded by its first use.
	warmLimit = 2 * time.Second
	// handOverLimit bounds how long the keys of a node that leaves are loaded
	// elsewhere: a full cache (maxHandles) at 0.9 ms a key takes 15 s.
	handOverLimit = 30 * time.Second
)

// source is what a handle was loaded from: a version of a key. The zero source
// is a tenant's sealing key, which is loaded with the first key that needs it.
type source struct {
	key     *kms.Key
	version *kms.Version
}

// preload loads a key on a node before anybody asks for it there.
func (d *Device) preload(id kms.NodeID, from source) error {
	return d.onNode(id, func(n *node) error {
		return d.preloadOn(n, from)
	})
}

func (d *Device) preloadOn(n *node, from source) error {
	entry, _, err := n.cache.acquire(from.key.Tenant.ID, from.version.ID, from, func() (Handle, error) {
		return d.loadVersion(n, from.key, from.version)
	})
	if err == nil {
		n.cache.release(entry)
	}
	return err
}

// handOver loads the keys of a node that leaves on the nodes that they are at
// home on without it, the last used first.
func (d *Device) handOver(s *seat, n *node, stop <-chan struct{}) {
	end := d.clock().Add(handOverLimit)
	moved := 0
	for _, from := range n.cache.sources() {
		if stopped(stop) || d.clock().After(end) {
			break
		}
		ids, err := d.up(s.domain, from.key.Spec.Info().Family, from.key.ID)
		if err == nil && d.preload(ids[0], from) == nil {
			moved++
		}
	}
	s.log.Info("keys are loaded on other nodes", slog.String("node", string(s.config.ID)), slog.Int("keys", moved))
}

// warm loads on a node that joins what others have loaded and is at home on
// it, so that its first requests find their keys. Of the loads that a module may
// do in one opening it leaves half.
func (d *Device) warm(s *seat, n *node, stop <-chan struct{}) {
	if s.wanted() != kms.NodeActive {
		return
	}
	end := d.clock().Add(warmLimit)
	most := s.maxLoads(n)
	for _, peer := range s.domain.seats {
		other := peer.serving()
		if peer == s || other == nil {
			continue
		}
		for _, from := range other.cache.sources() {
			if stopped(stop) || n.down.Load() || d.clock().After(end) || most > 0 && n.loads.Load() >= most/2 {
				return
			}
			if n.offers(from.key.Spec.Info().Family) && d.homeWith(s, from.key.ID) {
				// What cannot be loaded now is loaded, or refused, by its use.
				_ = d.preloadOn(n, from)
			}
		}
	}
}

// homeWith tells whether a key is at home on the seat when that serves.
func (d *Device) homeWith(s *seat, key uuid.UUID) bool {
	if home, placed := d.placement.home(key); placed {
		return home == s.config.ID
	}
	own := rank(key, s.hash)
	for _, peer := range s.domain.seats {
		if peer != s && peer.serving() != nil && peer.wanted() == kms.NodeActive && rank(key, peer.hash) > own {
			return false
		}
	}
	return true
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
