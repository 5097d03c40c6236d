package kms

import (
	"context"
	"net/netip"
	"sync"
	"time"
	"uuid"
)

// useBook remembers the last use of keys and credentials between two times
// that they are stored, so that a use costs no write. A crash loses the last
// interval's. It is safe for concurrent use; its shards share no lock.
type useBook [useShards]useShard

const (
	useShards = 16
	// maxUses bounds a shard's objects: beyond it the uses of further objects
	// are left out until the book is stored. With both kinds it is 32 MiB.
	maxUses = 1 << 12
	// useGrain is how exact a last use is: a use within it after the last one
	// is not noted again.
	useGrain = time.Second
)

type useShard struct {
	mu          sync.Mutex
	keys        map[uuid.UUID]KeyUse
	credentials map[uuid.UUID]credentialUse
}

// credentialUse is a CredentialUse whose address is not yet text.
type credentialUse struct {
	tenant  uuid.UUID
	time    time.Time
	address netip.Addr
}

func newUseBook() *useBook {
	b := &useBook{}
	for i := range b {
		b[i].keys, b[i].credentials = map[uuid.UUID]KeyUse{}, map[uuid.UUID]credentialUse{}
	}
	return b
}

func (b *useBook) shard(id uuid.UUID) *useShard { return &b[id[15]%useShards] }

// note remembers what a request used.
func (b *useBook) note(t *Ticket, now time.Time) {
	if k := t.Key; k != nil && t.ran && t.Op.Info().Class == ClassUse {
		b.shard(k.ID).noteKey(k, t.Op, now)
	}
	if by := t.By; by != nil && by.Credential != (uuid.UUID{}) {
		b.shard(by.Credential).noteCredential(by, t.Address, now)
	}
}

func (s *useShard) noteKey(k *Key, op Op, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.keys[k.ID]
	if !known && len(s.keys) >= maxUses || known && now.Sub(last.Time) < useGrain {
		return
	}
	s.keys[k.ID] = KeyUse{Tenant: k.Tenant.ID, Key: k.ID, Time: now, Op: op}
}

func (s *useShard) noteCredential(by *Principal, from netip.Addr, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.credentials[by.Credential]
	if !known && len(s.credentials) >= maxUses || known && now.Sub(last.time) < useGrain && last.address == from {
		return
	}
	s.credentials[by.Credential] = credentialUse{by.Tenant.ID, now, from}
}

// take empties the book.
func (b *useBook) take() (keys []KeyUse, credentials []CredentialUse) {
	for i := range b {
		s := &b[i]
		s.mu.Lock()
		for _, u := range s.keys {
			keys = append(keys, u)
		}
		for id, u := range s.credentials {
			c := CredentialUse{Tenant: u.tenant, Credential: id, Time: u.time}
			if u.address.IsValid() {
				c.Address = u.address.String()
			}
			credentials = append(credentials, c)
		}
		clear(s.keys)
		clear(s.credentials)
		s.mu.Unlock()
	}
	return keys, credentials
}

// storeUses stores the books. What cannot be stored is lost: it is not worth
// holding memory for.
func (s *Service) storeUses(ctx context.Context) error {
	keys, credentials := s.uses.take()
	if len(keys) > 0 {
		if err := s.lifecycle.TouchKeys(ctx, keys); err != nil {
			return err
		}
	}
	if len(credentials) > 0 {
		return s.credentialUses.TouchCredentials(ctx, credentials)
	}
	return nil
}
