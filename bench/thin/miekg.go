package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/softhsm"
)

// miekg calls the module by github.com/miekg/pkcs11.
type miekg struct {
	ctx          *pkcs11.Ctx
	sessions     chan pkcs11.SessionHandle
	aes, ec, rsa pkcs11.ObjectHandle
}

func openMiekg(soft *softhsm.Token, slots int) (*miekg, error) {
	for name, value := range soft.Env {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	m := &miekg{ctx: pkcs11.New(soft.Module), sessions: make(chan pkcs11.SessionHandle, slots)}
	if m.ctx == nil {
		return nil, fmt.Errorf("the module cannot be loaded")
	}
	if err := m.ctx.Initialize(); err != nil {
		return nil, err
	}
	list, err := m.ctx.GetSlotList(true)
	if err != nil {
		return nil, err
	}
	var first pkcs11.SessionHandle
	for i := range slots {
		s, err := m.ctx.OpenSession(list[0], pkcs11.CKF_SERIAL_SESSION)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = s
			pin, err := soft.UserPIN()
			if err != nil {
				return nil, err
			}
			if err := m.ctx.Login(s, pkcs11.CKU_USER, string(pin)); err != nil {
				return nil, err
			}
		}
		m.sessions <- s
	}
	return m, m.makeKeys(first)
}

// makeKeys makes the keys in a session that stays open, with the attributes
// that Sluice's loaded keys have.
func (m *miekg) makeKeys(s pkcs11.SessionHandle) (err error) {
	mech := func(m uint) []*pkcs11.Mechanism { return []*pkcs11.Mechanism{pkcs11.NewMechanism(m, nil)} }
	private := func(usage uint) []*pkcs11.Attribute {
		return []*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false), pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
			pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
			pkcs11.NewAttribute(usage, true),
		}
	}
	m.aes, err = m.ctx.GenerateKey(s, mech(pkcs11.CKM_AES_KEY_GEN),
		append(private(pkcs11.CKA_ENCRYPT), pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, 32)))
	if err != nil {
		return err
	}
	p256 := []byte{0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07} // OID 1.2.840.10045.3.1.7
	_, m.ec, err = m.ctx.GenerateKeyPair(s, mech(pkcs11.CKM_EC_KEY_PAIR_GEN),
		[]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, p256)}, private(pkcs11.CKA_SIGN))
	if err != nil {
		return err
	}
	_, m.rsa, err = m.ctx.GenerateKeyPair(s, mech(pkcs11.CKM_RSA_PKCS_KEY_PAIR_GEN),
		[]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_MODULUS_BITS, 2048),
			pkcs11.NewAttribute(pkcs11.CKA_PUBLIC_EXPONENT, []byte{1, 0, 1})}, private(pkcs11.CKA_SIGN))
	return err
}

func (m *miekg) encrypt(plaintext []byte) ([]byte, error) {
	s := <-m.sessions
	defer func() { m.sessions <- s }()
	nonce := make([]byte, 12)
	rand.Read(nonce)
	gcm := pkcs11.NewGCMParams(nonce, aad, 128)
	defer gcm.Free()
	if err := m.ctx.EncryptInit(s, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_GCM, gcm)}, m.aes); err != nil {
		return nil, err
	}
	out, err := m.ctx.Encrypt(s, plaintext)
	return append(nonce, out...), err
}

func (m *miekg) sign(key pkcs11.ObjectHandle, mech *pkcs11.Mechanism, message []byte) ([]byte, error) {
	s := <-m.sessions
	defer func() { m.sessions <- s }()
	digest := sha256.Sum256(message)
	if err := m.ctx.SignInit(s, []*pkcs11.Mechanism{mech}, key); err != nil {
		return nil, err
	}
	return m.ctx.Sign(s, digest[:])
}

func (m *miekg) signEC(message []byte) ([]byte, error) {
	return m.sign(m.ec, pkcs11.NewMechanism(pkcs11.CKM_ECDSA, nil), message)
}

func (m *miekg) signRSA(message []byte) ([]byte, error) {
	pss := pkcs11.NewPSSParams(pkcs11.CKM_SHA256, pkcs11.CKG_MGF1_SHA256, sha256.Size)
	return m.sign(m.rsa, pkcs11.NewMechanism(pkcs11.CKM_RSA_PKCS_PSS, pss), message)
}
