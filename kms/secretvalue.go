package kms

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"sync"
	"time"
	"uuid"
)

// The value of a version is sealed with AES-256-GCM under a random data key of
// its own, which the HSM seals under the tenant's sealing key:
//
//	nonce 12 | ciphertext | tag 16
//
// The additional data is "SLP1" and then tenant, secret, path and version, each
// with its length before it (u32be), so that no row of another secret, path or
// tenant opens in this one's place. What is encrypted is 32 zero bytes and then
// the value: see the envelope for why. A data key seals one value, so its nonce
// cannot come twice.
const secretFormat = "SLP1"

// dataKeySize is that of AES-256.
const dataKeySize = 32

func secretAAD(s *ProviderSecret, version uint32) []byte {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], version)
	b := []byte(secretFormat)
	for _, part := range lengthPrefixed([][]byte{s.Tenant[:], s.ID[:], []byte(s.Path), number[:]}) {
		b = append(b, part...)
	}
	return b
}

// secretKeyName names a version's data key to Device.Seal.
func secretKeyName(id uuid.UUID) string { return "secret " + id.String() }

func secretAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// sealSecretValue fills a version's DataKey and Value.
func (s *Service) sealSecretValue(ctx context.Context, t *Tenant, secret *ProviderSecret, v *SecretVersion, value []byte) (err error) {
	key := make([]byte, dataKeySize)
	defer clear(key)
	rand.Read(key)
	aead, err := secretAEAD(key)
	if err != nil {
		return err
	}
	if v.DataKey, err = s.device.Seal(ctx, t.Sealing, secretKeyName(secret.ID), v.Number, key); err != nil {
		return err
	}
	plain := make([]byte, commitmentSize+len(value))
	defer clear(plain)
	copy(plain[commitmentSize:], value)
	nonce := make([]byte, nonceSize, nonceSize+len(plain)+tagSize)
	rand.Read(nonce)
	v.Value = aead.Seal(nonce, nonce, plain, secretAAD(secret, v.Number))
	return nil
}

// errSecretValue says that a stored value does not open: somebody changed the
// database past its codes.
var errSecretValue = &Error{Kind: KindInternal, Detail: "a stored value cannot be opened", Err: errors.New("the sealed value of a secret is not authentic")}

// openSecretValue returns a version's value, which the caller wipes.
// KindHSMUnavailable when its data key is not at hand and no HSM opens it.
func (s *Service) openSecretValue(ctx context.Context, t *Tenant, secret *ProviderSecret, v *SecretVersion) ([]byte, error) {
	id := dataKeyID{secret.Tenant, secret.ID, v.Number}
	var key [dataKeySize]byte
	defer clear(key[:])
	if !s.dataKeys.get(id, s.clock(), &key) {
		if err := s.dataKeys.enter(ctx); err != nil {
			return nil, err
		}
		opened, err := s.device.Unseal(ctx, t.Sealing, secretKeyName(secret.ID), v.Number, v.DataKey)
		s.dataKeys.leave()
		if err != nil {
			return nil, err
		}
		defer clear(opened)
		if copy(key[:], opened) != dataKeySize {
			return nil, errSecretValue
		}
		s.dataKeys.put(id, s.clock(), &key)
	}
	aead, err := secretAEAD(key[:])
	if err != nil || len(v.Value) < nonceSize {
		return nil, errSecretValue
	}
	plain, err := aead.Open(nil, v.Value[:nonceSize], v.Value[nonceSize:], secretAAD(secret, v.Number))
	if err != nil || len(plain) < commitmentSize || subtle.ConstantTimeCompare(plain[:commitmentSize], make([]byte, commitmentSize)) != 1 {
		clear(plain)
		return nil, errSecretValue
	}
	return plain[commitmentSize:], nil
}

// Bounds of the opened data keys.
const (
	// maxDataKeys is how many are held: at 100 bytes each, less than 4 MiB.
	maxDataKeys = 1 << 15
	// dataKeyTTL is for how long one is held, used or not: so long values are
	// handed out while no HSM can be reached, and after that none.
	dataKeyTTL = 10 * time.Minute
	// maxOpening is how many are opened by the HSMs at once, so that cold
	// starts of many gateways leave room for everything else.
	maxOpening = 8
)

type dataKeyID struct {
	tenant, secret uuid.UUID
	version        uint32
}

// dataKeyCache holds opened data keys for a while. What goes is wiped. It is
// safe for concurrent use.
type dataKeyCache struct {
	opening chan struct{}

	mu   sync.Mutex // guards the rest
	keys map[dataKeyID]*heldDataKey
	// order has the keys by the time at which they were opened, so that the
	// first are those whose time is over; removed ones stay until they are
	// met there.
	order []*heldDataKey
}

type heldDataKey struct {
	id    dataKeyID
	key   [dataKeySize]byte
	until time.Time
}

func newDataKeyCache() *dataKeyCache {
	return &dataKeyCache{opening: make(chan struct{}, maxOpening), keys: map[dataKeyID]*heldDataKey{}}
}

// enter waits for the turn to open a key.
func (c *dataKeyCache) enter(ctx context.Context) error {
	select {
	case c.opening <- struct{}{}:
		return nil
	case <-ctx.Done():
		return Wrap(KindHSMUnavailable, ctx.Err(), "the value could not be opened in time")
	}
}

func (c *dataKeyCache) leave() { <-c.opening }

// get copies a key that is held.
func (c *dataKeyCache) get(id dataKeyID, now time.Time, key *[dataKeySize]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.keys[id]
	if h == nil || !now.Before(h.until) {
		return false
	}
	*key = h.key
	return true
}

// put holds a copy of a key, and makes room for it.
func (c *dataKeyCache) put(id dataKeyID, now time.Time, key *[dataKeySize]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
	for len(c.order) >= maxDataKeys {
		c.dropFirstLocked()
	}
	if old := c.keys[id]; old != nil {
		clear(old.key[:])
	}
	h := &heldDataKey{id: id, key: *key, until: now.Add(dataKeyTTL)}
	c.keys[id] = h
	c.order = append(c.order, h)
}

// forget wipes a key.
func (c *dataKeyCache) forget(id dataKeyID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.keys[id]; h != nil {
		clear(h.key[:])
		delete(c.keys, id)
	}
}

// expire wipes keys whose time is over.
func (c *dataKeyCache) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
}

func (c *dataKeyCache) expireLocked(now time.Time) {
	for len(c.order) > 0 && !now.Before(c.order[0].until) {
		c.dropFirstLocked()
	}
}

func (c *dataKeyCache) dropFirstLocked() {
	h := c.order[0]
	c.order[0] = nil
	c.order = c.order[1:]
	clear(h.key[:])
	if c.keys[h.id] == h {
		delete(c.keys, h.id)
	}
}

// clear wipes all keys.
func (c *dataKeyCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.order) > 0 {
		c.dropFirstLocked()
	}
}

const labelSecretValue = "sluice secret value\x00"

// valueFingerprint is a code of a value of a secret, under a version of the pepper;
// false when that does not exist. Equal values of two secrets have different
// ones.
func (s *Service) valueFingerprint(version uint32, secret *ProviderSecret, value []byte) ([32]byte, bool) {
	return s.pepper.mac(version, labelSecretValue, secret.Tenant[:], secret.ID[:], value)
}

// sameValue returns the version that has a value, nil when none has.
func (s *Service) sameValue(secret *ProviderSecret, value []byte) *SecretVersion {
	for _, v := range secret.Versions {
		if v.State == SecretDestroyed {
			continue
		}
		mac, ok := s.valueFingerprint(v.FingerprintVersion, secret, value)
		if ok && subtle.ConstantTimeCompare(mac[:], v.Fingerprint[:]) == 1 {
			return v
		}
	}
	return nil
}
