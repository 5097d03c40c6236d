package kms

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// MACKeySize is the length in bytes of a secret under which the service
// computes MACs of its own: the credential pepper, the row key.
const MACKeySize = 32

// maxMACVersion bounds the versions of such a secret: tokens name theirs in
// one byte.
const maxMACVersion = 255

// keyedMAC computes HMAC-SHA-256 under the versions of a secret. It is
// immutable and safe for concurrent use.
type keyedMAC struct {
	current  uint32
	versions map[uint32]*sync.Pool // :: version → pool of *macState
}

// macState is a keyed HMAC with memory for its input and output, so that a
// code costs no allocation: credentials are checked on every request.
type macState struct {
	hash.Hash
	in  []byte
	sum [sha256.Size]byte
}

// keptMACInput is the capacity in bytes of an input that is worth keeping.
const keptMACInput = 512

func newKeyedMAC(versions map[uint32][]byte) (keyedMAC, error) {
	m := keyedMAC{versions: make(map[uint32]*sync.Pool, len(versions))}
	for v, secret := range versions {
		if v == 0 || v > maxMACVersion || len(secret) != MACKeySize {
			return keyedMAC{}, Errorf(KindInternal, "version %d of a MAC key is not usable", v)
		}
		key := [MACKeySize]byte(secret)
		m.versions[v] = &sync.Pool{New: func() any {
			return &macState{Hash: hmac.New(sha256.New, key[:]), in: make([]byte, 0, keptMACInput)}
		}}
		m.current = max(m.current, v)
	}
	if m.current == 0 {
		return keyedMAC{}, Errorf(KindInternal, "a MAC key has no version")
	}
	return m, nil
}

// mac computes the code of a label and parts, which the caller has made
// unambiguous; false for an unknown version.
func (m *keyedMAC) mac(version uint32, label string, parts ...[]byte) (sum [32]byte, ok bool) {
	pool := m.versions[version]
	if pool == nil {
		return sum, false
	}
	h := pool.Get().(*macState)
	h.in = append(h.in[:0], label...)
	for _, part := range parts {
		h.in = append(h.in, part...)
	}
	h.Reset()
	h.Write(h.in)
	h.Sum(h.sum[:0])
	sum = h.sum
	clear(h.in) // it may hold a secret
	if cap(h.in) > keptMACInput {
		h.in = make([]byte, 0, keptMACInput)
	}
	pool.Put(h)
	return sum, true
}

// RowKey authenticates the rows of the database, which is not trusted. It
// implements RowAuthenticator, is immutable and safe for concurrent use.
type RowKey struct{ keyedMAC }

// NewRowKey makes a RowKey of its versions, each MACKeySize bytes; the highest
// is current. It keeps no reference to the values.
func NewRowKey(versions map[uint32][]byte) (*RowKey, error) {
	m, err := newKeyedMAC(versions)
	if err != nil {
		return nil, err
	}
	return &RowKey{m}, nil
}

const labelRow = "sluice row\x00"

// MAC implements RowAuthenticator. Table and fields go in with their lengths,
// and fields with their number, so that no two rows give one input.
func (k *RowKey) MAC(version uint32, table string, fields ...[]byte) (code [32]byte, used uint32, ok bool) {
	if version == 0 {
		version = k.current
	}
	n := 8 + len(table)
	for _, f := range fields {
		n += 4 + len(f)
	}
	b := make([]byte, 0, n)
	b = binary.BigEndian.AppendUint32(b, uint32(len(table)))
	b = append(b, table...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(fields)))
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	code, ok = k.mac(version, labelRow, b)
	return code, version, ok
}
