package p11

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// Backup is an open backup token. Beside what every token does it rewraps:
// it takes material from the roots of an earlier generation to the newest.
//
// What the roots unwrap can never be wrapped again: their unwrap template
// forbids it, on backup tokens too. But on a backup token the security officer
// can have a root copied under another template, as for a transfer: the token
// is giver and target at once. The copies are session objects that can unwrap
// and nothing else; they end with the session, and no other process sees them.
// What they unwrap is sensitive, of no use but to be wrapped, and lives for one
// call each of unwrapping and wrapping. Whoever could misuse it in that moment
// holds both PINs, with which he could move the roots themselves.
type Backup struct {
	*Token
	newest uint32
	copies map[rootID]pkcs11.ObjectHandle
}

var _ hsm.Rewrapper = (*Backup)(nil)

// OpenBackup opens a backup token of the domain, as Open opens a member, and
// copies its roots for rewrapping.
func OpenBackup(ctx context.Context, t CeremonyToken, domain hsm.Domain) (*Backup, error) {
	profile, err := loadProfile(t.Profile)
	if err != nil {
		return nil, err
	}
	place := t.place()
	place.profile = profile
	// The security officer cannot log in beside read-only sessions.
	conn, err := connect(place, pkcs11.CKF_RW_SESSION)
	if err != nil {
		return nil, err
	}
	b := &Backup{Token: newToken(conn), newest: domain.Generation}
	b.backup = true
	if err = b.copyRoots(t, &domain); err == nil {
		err = b.open(ctx, &domain)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// copyRoots makes the copies. It comes before all else: changing the login
// ends what belongs to it.
func (b *Backup) copyRoots(t CeremonyToken, domain *hsm.Domain) (err error) {
	p := &party{cfg: t, backup: true, conn: b.conn, ids: rootIDs(domain)}
	if p.session, err = b.conn.newSession(); err != nil {
		return err
	}
	defer p.session.Close()
	if p.wrapping, err = p.session.wrapMechanism(); err != nil {
		return err
	}
	pair, err := p.newTransportPair(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.destroyTransportPair(pair)) }()
	trusted, err := p.trust(pair.key)
	if err != nil {
		return err
	}
	defer b.conn.destroy(trusted)
	b.copies = make(map[rootID]pkcs11.ObjectHandle)
	for id, root := range p.roots {
		wrapped, err := p.session.wrap(oaepSHA1Mechanism, trusted, root)
		if err != nil {
			return err
		}
		template, free := copyTemplate()
		b.copies[id], err = p.unwrapRoot(pair, wrapped, template)
		free()
		if err != nil {
			return fmt.Errorf("copying the %s: %w", id, err)
		}
	}
	return nil
}

// copyTemplate is the template of a root's copy.
func copyTemplate() (template []*pkcs11.Attribute, free func()) {
	inner, free := attributeArray(slices.Concat([]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true)}, noUses()))
	template = []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_AES),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
		pkcs11.NewAttribute(pkcs11.CKA_WRAP, false),
		pkcs11.NewAttribute(pkcs11.CKA_UNWRAP, true),
		pkcs11.NewAttribute(pkcs11.CKA_UNWRAP_TEMPLATE, inner),
	}
	for _, use := range rootForbidden {
		template = append(template, pkcs11.NewAttribute(use, false))
	}
	return append(template, pkcs11.NewAttribute(pkcs11.CKA_MODIFIABLE, false)), free
}

// noUses are all uses of a secret key, denied.
func noUses() []*pkcs11.Attribute {
	var denied []*pkcs11.Attribute
	for _, use := range append(slices.Clone(rootForbidden), pkcs11.CKA_WRAP, pkcs11.CKA_UNWRAP) {
		denied = append(denied, pkcs11.NewAttribute(use, false))
	}
	return denied
}

// passageTemplate is that of material on its way: whatever key it is, to RFC
// 5649 it is a string of bytes, so that it passes as a generic secret and a
// backup token needs no mechanism, and no vendor's profile, but for wrapping.
func passageTemplate() []*pkcs11.Attribute {
	return slices.Concat([]*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_GENERIC_SECRET),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true),
	}, noUses())
}

// Rewrap implements hsm.Rewrapper.
func (b *Backup) Rewrap(generation uint32, material []byte) ([]byte, error) {
	return b.rewrap(keyRoot, generation, material)
}

// RewrapSealingKey implements hsm.Rewrapper.
func (b *Backup) RewrapSealingKey(generation uint32, material []byte) ([]byte, error) {
	return b.rewrap(sealingRoot, generation, material)
}

// rewrap also takes the way back and compares, since what is lost here is lost
// for good once the earlier roots are retired. RFC 5649 is deterministic.
// ClassUnsupported when the token does not hold the generation's roots.
func (b *Backup) rewrap(kind rootKind, generation uint32, material []byte) ([]byte, error) {
	from, to := rootID{b.domain, generation, kind}, rootID{b.domain, b.newest, kind}
	root, ok := b.earlier[from]
	if !ok {
		return nil, driverError(hsm.ClassUnsupported, "C_UnwrapKey", "the token does not hold the "+from.String()+" as an earlier one")
	}
	moved, err := b.pass(b.copies[from], b.roots[kind], material)
	if err != nil {
		return nil, err
	}
	back, err := b.pass(b.copies[to], root.object, moved)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, material) {
		return nil, driverError(hsm.ClassAmbiguous, "C_WrapKey", "what was rewrapped does not hold the same bytes")
	}
	return moved, nil
}

// pass takes material from one root to another through an object that is
// destroyed at once.
func (b *Backup) pass(from, to pkcs11.ObjectHandle, material []byte) ([]byte, error) {
	if len(material) == 0 || len(material) > maxMaterial || len(material)%8 != 0 {
		return nil, driverError(hsm.ClassRequest, "C_UnwrapKey", "the material's length is not that of a wrapped key")
	}
	b.loadMu.Lock()
	object, err := b.unwrapLocked(from, material, passageTemplate())
	b.loadMu.Unlock()
	if err != nil {
		return nil, err
	}
	defer func() {
		b.loadMu.Lock()
		b.loader.destroy(object)
		b.loadMu.Unlock()
	}()
	b.generateMu.Lock()
	defer b.generateMu.Unlock()
	return b.generator.wrap(b.wrapping, to, object)
}
