package p11

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"slices"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// The canary's operation: a fixed block encrypted under checkKey, which is
// public, so the answer is known. The nonce is fixed too, and nothing else is
// ever encrypted under that key.
var (
	canaryNonce = make([]byte, nonceSize)
	canaryBlock = []byte("sluice canary   ")
	canaryReply = func() []byte {
		block, err := aes.NewCipher(checkKey[:])
		if err != nil {
			panic(err) // the key has 32 bytes
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			panic(err) // the block cipher is AES
		}
		return aead.Seal(nil, canaryNonce, canaryBlock, nil)
	}()
)

var canaryKind = keyKind{kms.SpecAES256, kms.UsageEncryptDecrypt}

// Probe unwraps a blob under each of the newest roots and encrypts a known block with what
// the blob holds: what a token can do that serves. It takes 1 ms or so on
// SoftHSM and leaves behind what an unwrap leaves in the module.
func (t *Token) Probe() error {
	t.canaryMu.Lock()
	defer t.canaryMu.Unlock()
	for _, kind := range rootKinds {
		if err := t.probeLocked(kind); err != nil {
			return err
		}
	}
	return nil
}

func (t *Token) probeLocked(kind rootKind) error {
	h, err := t.load(t.checkBlobs[kind], canaryKind, t.roots[kind])
	if err != nil {
		return err
	}
	call := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: canaryKind.spec, Handle: h,
		Nonce: canaryNonce, Input: canaryBlock}
	err = t.canary.Do(&call)
	if unload := t.Unload(h); err == nil {
		err = unload
	}
	if err == nil && bytes.Equal(call.Nonce, canaryNonce) && !bytes.Equal(call.Output, canaryReply) {
		err = driverError(hsm.ClassTokenDown, "Probe", "the token computes wrong results")
	}
	return err
}

// Enforces tries to unwrap what each root wrapped under templates that ask
// for less protection than the root's unwrap template demands. It returns
// false when one of them gave an object that is less protected, and an error
// when a try failed in a way that says nothing.
func (t *Token) Enforces() (bool, error) {
	// Without this a token that unwraps nothing would seem to enforce.
	if err := t.Probe(); err != nil {
		return false, err
	}
	for _, kind := range rootKinds {
		if refused, err := t.enforcesRoot(kind, t.roots[kind], t.checkBlobs[kind]); err != nil || !refused {
			return false, err
		}
	}
	for id, root := range t.earlier {
		if refused, err := t.enforcesRoot(id.kind, root.object, root.blob); err != nil || !refused {
			return false, err
		}
	}
	return t.enforcesVendor()
}

func (t *Token) enforcesRoot(kind rootKind, root pkcs11.ObjectHandle, blob []byte) (bool, error) {
	for _, keyType := range []uint{pkcs11.CKK_AES, pkcs11.CKK_GENERIC_SECRET} {
		as := attempt{kind, root, blob, pkcs11.CKO_SECRET_KEY, keyType}
		if refused, err := t.refusesAll(as); err != nil || !refused {
			return false, err
		}
	}
	return true, nil
}

// enforcesVendor tries the same with the domain's self-test keys of vendors'
// types, which other code of the module may unwrap.
func (t *Token) enforcesVendor() (bool, error) {
	for _, test := range t.vendorTests {
		k := t.conn.keyType(test.Spec)
		if refused, err := t.refusesAll(attempt{keyRoot, t.roots[keyRoot], test.Material, k.class, k.id}); err != nil || !refused {
			return false, err
		}
	}
	return true, nil
}

// attempt is a blob of a root that is to be unwrapped as a key of a type.
type attempt struct {
	kind           rootKind
	root           pkcs11.ObjectHandle
	blob           []byte
	class, keyType uint
}

func (t *Token) refusesAll(a attempt) (bool, error) {
	for _, try := range a.kind.bypasses() {
		if refused, err := t.refuses(a, try); err != nil || !refused {
			return false, err
		}
	}
	return true, nil
}

// bypasses are the templates to try, without class and type: each demand of
// the unwrap template contradicted and left out, and all of them together.
func (k rootKind) bypasses() [][]*pkcs11.Attribute {
	demands := k.unwrapTemplate()
	tries := [][]*pkcs11.Attribute{nil}
	var contradicted []*pkcs11.Attribute
	for i, demand := range demands {
		no := pkcs11.NewAttribute(demand.Type, demand.Value[0] == 0)
		contradicted = append(contradicted, no)
		tries = append(tries,
			slices.Concat(demands[:i], demands[i+1:]),
			slices.Concat(demands[:i], demands[i+1:], []*pkcs11.Attribute{no}))
	}
	return append(tries, contradicted)
}

// refuses tells whether the token kept the root's demands against a template.
func (t *Token) refuses(a attempt, try []*pkcs11.Attribute) (bool, error) {
	t.loadMu.Lock()
	defer t.loadMu.Unlock()
	template := append([]*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, a.class),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, a.keyType),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
	}, try...)
	object, err := t.unwrapLocked(a.root, a.blob, template)
	if err != nil {
		switch hsm.ClassOf(err) {
		case hsm.ClassRequest:
			return true, nil
		case hsm.ClassUnsupported, hsm.ClassAmbiguous:
			// Of a vendor's key type it may only mean that the profile is wrong,
			// for which the token is not to be left out.
			if a.keyType != pkcs11.CKK_AES && a.keyType != pkcs11.CKK_GENERIC_SECRET {
				return true, nil
			}
		}
		return false, err
	}
	kept, err := t.loader.meets(object, a.kind.unwrapTemplate())
	t.loader.destroy(object)
	return kept, err
}

// meets tells whether an object's flags are those of the template: a token
// may overrule a caller instead of refusing him.
func (o objects) meets(object pkcs11.ObjectHandle, template []*pkcs11.Attribute) (bool, error) {
	for _, want := range template {
		have, err := o.flag(object, want.Type)
		if err != nil || have != (want.Value[0] != 0) {
			return false, err
		}
	}
	return true, nil
}
