package kms

import (
	"context"
	"sync"
	"uuid"
)

// A version may encrypt 2^32 times with random 96-bit nonces before the chance
// of a repeated one exceeds 2^-32 (SP 800-38D, 8.3). Uses are counted in
// blocks: a node leases a block durably before it uses it, so a crash loses at
// most a block, never the count. At half of the budget the key is rotated by
// itself; what a version has left then is a reserve that nobody should need.
// Blocks grow with use, so that a key that is hardly used does not spend its
// budget on restarts and a busy one does not ask the store often.
const (
	nonceBudget     = 1 << 32
	nonceRotate     = nonceBudget / 2
	nonceFirstBlock = 1 << 10
	nonceLastBlock  = 1 << 20
	nonceGrowth     = 4
)

// nonceMeter counts the nonces that this node has left of its leases. It is
// safe for concurrent use.
type nonceMeter struct {
	store KeyLifecycle

	mu     sync.Mutex
	leases map[uuid.UUID]*nonceLease // :: version id → lease
}

// nonceLease is what is left of a version's lease. Its mutex is held while
// the store is asked, so that one block is leased however many wait.
type nonceLease struct {
	mu    sync.Mutex
	block uint64 // the next one's size
	left  uint64
	total uint64 // that are counted as used in the store
}

// maxNonceLeases bounds the versions whose leases are remembered: beyond it
// they are forgotten, which counts the rest of their blocks as used.
const maxNonceLeases = 1 << 16

func newNonceMeter(store KeyLifecycle) *nonceMeter {
	return &nonceMeter{store: store, leases: map[uuid.UUID]*nonceLease{}}
}

func (m *nonceMeter) lease(version uuid.UUID) *nonceLease {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[version]
	if l == nil {
		if len(m.leases) >= maxNonceLeases {
			clear(m.leases)
		}
		l = &nonceLease{block: nonceFirstBlock}
		m.leases[version] = l
	}
	return l
}

// take counts one nonce of a version and tells whether the key is due for
// rotation. When the budget is spent it refuses: a repeated nonce would tell
// the plaintexts apart and forge ciphertexts.
func (m *nonceMeter) take(ctx context.Context, key *Key, v *Version) (rotate bool, err error) {
	l := m.lease(v.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		total, err := m.store.LeaseNonces(ctx, key.Tenant.ID, key.ID, v.Number, l.block)
		if err != nil {
			return false, err
		}
		if total > nonceBudget {
			return true, Errorf(KindConflict, "the key version has encrypted as often as is safe; rotate the key")
		}
		l.left, l.total = l.block, total
		l.block = min(l.block*nonceGrowth, nonceLastBlock)
	}
	l.left--
	return l.total >= nonceRotate, nil
}
