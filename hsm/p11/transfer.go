package p11

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// transportBits is the size of the key pair under which a root travels from
// one token to another: 128 bits of strength (NIST SP 800-57 part 1, table 2)
// for the moment in which it exists.
const transportBits = 3072

// transportPair is a token's key pair for the receipt of roots: session
// objects, so that an interruption leaves none behind.
type transportPair struct {
	public, private pkcs11.ObjectHandle
	key             *rsa.PublicKey
}

// supply brings the roots that a token lacks from the backup tokens.
func (c *ceremony) supply(target *party) (err error) {
	missing := make(map[*party][]rootID)
	for _, id := range target.ids {
		if _, ok := target.roots[id]; !ok {
			giver := c.giver(id)
			missing[giver] = append(missing[giver], id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	pair, err := target.newTransportPair(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.destroyTransportPair(pair)) }()
	print, err := fingerprint(pair.key)
	if err != nil {
		return err
	}
	if err := c.cfg.Confirm(target.String(), print); err != nil {
		return fmt.Errorf("the fingerprint was not confirmed: %w", err)
	}
	for giver, ids := range missing {
		if err := c.give(giver, target, pair, ids); err != nil {
			return err
		}
	}
	return nil
}

// newTransportPair makes a pair. Only one that is not private outlives a change
// of the login on the token itself.
func (p *party) newTransportPair(isPrivate bool) (*transportPair, error) {
	public := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, false),
		pkcs11.NewAttribute(pkcs11.CKA_MODULUS_BITS, transportBits),
		pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, big.NewInt(rsaExponent).Bytes()),
	}
	private := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, isPrivate),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
		pkcs11.NewAttribute(pkcs11.CKA_UNWRAP, true),
		// With DECRYPT the user could read the root that arrives.
		pkcs11.NewAttribute(pkcs11.CKA_DECRYPT, false),
		pkcs11.NewAttribute(pkcs11.CKA_SIGN, false),
		pkcs11.NewAttribute(pkcs11.CKA_SIGN_RECOVER, false),
		pkcs11.NewAttribute(pkcs11.CKA_DERIVE, false),
	}
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS_KEY_PAIR_GEN, nil)}
	pub, priv, err := p.conn.mod.ctx.GenerateKeyPair(p.conn.session, mech, public, private)
	if err != nil {
		return nil, moduleError("C_GenerateKeyPair", err)
	}
	key, err := p.conn.rsaPublicKey(pub)
	pair := &transportPair{pub, priv, key}
	if err != nil {
		return nil, errors.Join(err, p.destroyTransportPair(pair))
	}
	return pair, nil
}

// destroyTransportPair reports failure, as the pair must not outlive the
// transfer.
func (p *party) destroyTransportPair(pair *transportPair) error {
	p.conn.destroy(pair.public)
	return moduleError("C_DestroyObject", p.conn.mod.ctx.DestroyObject(p.conn.session, pair.private))
}

// fingerprint is the SHA-256 of the SubjectPublicKeyInfo, in groups that
// people can read to each other.
func fingerprint(key *rsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return fmt.Sprintf("%x %x %x %x %x %x %x %x", sum[:4], sum[4:8], sum[8:12], sum[12:16],
		sum[16:20], sum[20:24], sum[24:28], sum[28:]), nil
}

// give moves roots from a backup token to the token whose pair it is.
func (c *ceremony) give(giver, target *party, pair *transportPair, ids []rootID) error {
	trusted, err := giver.trust(pair.key)
	if err != nil {
		return fmt.Errorf("backup token %s: %w", giver, err)
	}
	defer giver.conn.destroy(trusted)
	for _, id := range ids {
		wrapped, err := giver.session.wrap(oaepSHA1Mechanism, trusted, giver.roots[id])
		if err != nil {
			return fmt.Errorf("backup token %s: %w", giver, err)
		}
		if err := target.receive(id, pair, wrapped); err != nil {
			return err
		}
		c.progress("moved the %s, from %s to %s", id, giver, target)
	}
	return nil
}

// trust creates a public key as a trusted object, which only the security
// officer may, and returns it usable by the user. A public session object
// survives the change of login (PKCS#11 v2.40, 5.6, C_Logout).
func (p *party) trust(key *rsa.PublicKey) (pkcs11.ObjectHandle, error) {
	if err := p.switchTo(pkcs11.CKU_SO, p.cfg.SOPIN); err != nil {
		return 0, err
	}
	trusted, err := p.createTrusted(key)
	// Back to the user also after a failure; handles of the roots changed.
	err = errors.Join(err, p.switchTo(pkcs11.CKU_USER, p.cfg.UserPIN))
	if err == nil {
		err = p.locate()
	}
	return trusted, err
}

func (p *party) createTrusted(key *rsa.PublicKey) (pkcs11.ObjectHandle, error) {
	object, err := p.conn.mod.ctx.CreateObject(p.conn.session, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_PUBLIC_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_RSA),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, false),
		pkcs11.NewAttribute(pkcs11.CKA_WRAP, true),
		pkcs11.NewAttribute(pkcs11.CKA_ENCRYPT, false),
		pkcs11.NewAttribute(pkcs11.CKA_VERIFY, false),
		pkcs11.NewAttribute(pkcs11.CKA_TRUSTED, true),
		pkcs11.NewAttribute(pkcs11.CKA_MODULUS, key.N.Bytes()),
		pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, big.NewInt(int64(key.E)).Bytes()),
	})
	if err != nil {
		return 0, moduleError("C_CreateObject", err)
	}
	have, err := p.conn.rsaPublicKey(object)
	if err == nil && !have.Equal(key) {
		err = driverError(hsm.ClassAmbiguous, "C_CreateObject", "the token holds another public key than it was given")
	}
	return object, err
}

func (p *party) switchTo(user uint, pin func() ([]byte, error)) error {
	if err := p.conn.mod.ctx.Logout(p.conn.session); err != nil {
		return moduleError("C_Logout", err)
	}
	return p.conn.login(user, pin)
}

// receive unwraps a root straight into its final form.
func (p *party) receive(id rootID, pair *transportPair, wrapped []byte) error {
	template, free := id.template(p.backup)
	defer free()
	root, err := p.unwrapRoot(pair, wrapped, template)
	if err != nil {
		return err
	}
	if err := p.conn.checkFrozen(root, p.backup); err != nil {
		return errors.Join(err, moduleError("C_DestroyObject", p.conn.mod.ctx.DestroyObject(p.conn.session, root)))
	}
	p.roots[id] = root
	return nil
}

func (p *party) unwrapRoot(pair *transportPair, wrapped []byte, template []*pkcs11.Attribute) (pkcs11.ObjectHandle, error) {
	mech := []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS_OAEP,
		pkcs11.NewOAEPParams(pkcs11.CKM_SHA_1, pkcs11.CKG_MGF1_SHA1, pkcs11.CKZ_DATA_SPECIFIED, nil))}
	root, err := p.conn.mod.ctx.UnwrapKey(p.conn.session, mech, pair.private, wrapped, template)
	return root, moduleError("C_UnwrapKey", err)
}
