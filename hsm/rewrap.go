package hsm

import (
	"context"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Rewrapper is a backup token's Token, which alone can take material from the
// roots of an earlier generation to those of the newest: a member's roots give
// out nothing that could be wrapped again.
type Rewrapper interface {
	// Rewrap returns material of the key root of a generation as material of
	// the newest. It is in the clear inside the token only, and what comes out
	// was verified to hold the same bytes.
	Rewrap(generation uint32, material []byte) ([]byte, error)
	// RewrapSealingKey is the same for sealing keys and sealing roots.
	RewrapSealingKey(generation uint32, material []byte) ([]byte, error)
}

var _ kms.RootDevice = (*Device)(nil)

// Generation implements kms.RootDevice.
func (d *Device) Generation(domain uuid.UUID) uint32 {
	if dom := d.domains[domain]; dom != nil {
		return dom.Generation
	}
	return 0
}

// BlobRoot implements kms.RootDevice.
func (d *Device) BlobRoot(blob []byte) uint32 {
	h, ok := parseBlob(blob)
	if !ok {
		return 0
	}
	return h.root()
}

// RewrapSealingKey implements kms.RootDevice.
func (d *Device) RewrapSealingKey(ctx context.Context, k kms.SealingKey) (kms.SealingKey, error) {
	err := d.rewrapOn(k.Domain, func(n *node, w Rewrapper) error {
		if !n.domain.has(k.RootGeneration) {
			return errBlob
		}
		var material []byte
		err := n.load(nil, func() (err error) {
			material, err = w.RewrapSealingKey(k.RootGeneration, k.Wrapped)
			return err
		})
		if err != nil {
			return rewrapError(n, err)
		}
		k.RootGeneration, k.Wrapped = n.domain.Generation, material
		return nil
	})
	return k, err
}

// RewrapVersion implements kms.RootDevice.
func (d *Device) RewrapVersion(ctx context.Context, key *kms.Key, v *kms.Version) (blob []byte, err error) {
	err = d.rewrapOn(key.Tenant.Sealing.Domain, func(n *node, w Rewrapper) error {
		sealing, sc := key.Tenant.Sealing, versionContext(key, v)
		if sc.kind != blobWrapped {
			return errBlob
		}
		material, err := d.openOn(n, sealing, sc, v.Blob)
		if err != nil {
			return err
		}
		header, _ := parseBlob(v.Blob) // it was opened
		err = n.load(nil, func() (err error) {
			material, err = w.Rewrap(header.generation, material)
			return err
		})
		if err != nil {
			return rewrapError(n, err)
		}
		blob, err = d.sealOn(n, sealing, sc, material)
		return err
	})
	return blob, err
}

// rewrapOn runs f on a node of the domain that is a backup token.
func (d *Device) rewrapOn(domain uuid.UUID, f func(*node, Rewrapper) error) error {
	return d.onDomain(domain, func(n *node) error {
		w, ok := n.token.(Rewrapper)
		if !ok {
			return kms.Errorf(kms.KindInternal, "node %s is no backup token", n.id)
		}
		return f(n, w)
	})
}

// rewrapError: material that a root of a node that is well does not unwrap is
// the row's fault.
func rewrapError(n *node, err error) error {
	if c := ClassOf(err); c == ClassRequest || c == ClassAmbiguous && n.healthy() {
		return wrapBlob(err)
	}
	return err
}
