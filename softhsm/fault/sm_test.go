package fault_test

import (
	"bytes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"encoding/asn1"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/sm4"
	"github.com/emmansun/gmsm/smx509"
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/softhsm/fault"
)

// The numbers of module/sm.h.
const (
	ckkSM2 = 0x80000004
	ckkSM3 = 0x80000005
	ckkSM4 = 0x80000106

	ckmSM4KeyGen     = 0x80000107
	ckmSM4ECB        = 0x80000108
	ckmSM4CBC        = 0x80000109
	ckmSM4GCM        = 0x8000010F
	ckmSM2KeyPairGen = 0x80008001
	ckmSM3SM2        = 0x80008100
	ckmSM3SM2AppID   = 0x80008102
	ckmSM2Sign       = 0x80008104
	ckmSM2SignNoDER  = 0x80008105
	ckmSM2Raw        = 0x80008200
	ckmSM2CipherDER  = 0x80008201
	ckmSM3           = 0x80009000
	ckmSM3HMAC       = 0x80000B02
)

var userID = []byte("1234567812345678") // GM/T 0009-2012, section 10

func newSMClient(t *testing.T) *client { return newClientWith(t, (*fault.Module).OfferSM) }

func mechanism(id uint, parameter any) []*pkcs11.Mechanism {
	return []*pkcs11.Mechanism{pkcs11.NewMechanism(id, parameter)}
}

func attribute(typ uint, value any) *pkcs11.Attribute { return pkcs11.NewAttribute(typ, value) }

// sm2Pair makes an SM2 key pair and returns its public key too.
func (c *client) sm2Pair(t *testing.T, more ...*pkcs11.Attribute) (public, private pkcs11.ObjectHandle, key *ecdsa.PublicKey) {
	t.Helper()
	public, private, err := c.GenerateKeyPair(c.session, mechanism(ckmSM2KeyPairGen, nil),
		[]*pkcs11.Attribute{attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_ENCRYPT, true)},
		append([]*pkcs11.Attribute{attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_SIGN, true), attribute(pkcs11.CKA_DECRYPT, true)}, more...))
	must(t, err)
	got, err := c.GetAttributeValue(c.session, public, []*pkcs11.Attribute{{Type: pkcs11.CKA_EC_POINT}})
	must(t, err)
	var point []byte
	_, err = asn1.Unmarshal(got[0].Value, &point)
	must(t, err)
	key, err = sm2.NewPublicKey(point)
	must(t, err)
	return public, private, key
}

func (c *client) secret(t *testing.T, mech, keyType uint, value []byte, uses ...uint) pkcs11.ObjectHandle {
	t.Helper()
	template := []*pkcs11.Attribute{attribute(pkcs11.CKA_KEY_TYPE, keyType), attribute(pkcs11.CKA_TOKEN, false)}
	for _, use := range uses {
		template = append(template, attribute(use, true))
	}
	var key pkcs11.ObjectHandle
	var err error
	if value == nil {
		key, err = c.GenerateKey(c.session, mechanism(mech, nil), template)
	} else {
		key, err = c.CreateObject(c.session, append(template, attribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY), attribute(pkcs11.CKA_VALUE, value)))
	}
	must(t, err)
	return key
}

func (c *client) sign(t *testing.T, mech uint, key pkcs11.ObjectHandle, message []byte) []byte {
	t.Helper()
	must(t, c.SignInit(c.session, mechanism(mech, nil), key))
	signature, err := c.Sign(c.session, message)
	must(t, err)
	return signature
}

func (c *client) crypt(t *testing.T, encrypt bool, mech uint, parameter any, key pkcs11.ObjectHandle, in []byte) ([]byte, error) {
	t.Helper()
	if encrypt {
		must(t, c.EncryptInit(c.session, mechanism(mech, parameter), key))
		return c.Encrypt(c.session, in)
	}
	must(t, c.DecryptInit(c.session, mechanism(mech, parameter), key))
	return c.Decrypt(c.session, in)
}

func TestSMMechanismsAreThereWhenAskedFor(t *testing.T) {
	for name, c := range map[string]*client{"asked": newSMClient(t), "not asked": newClient(t)} {
		list, err := c.GetMechanismList(c.slot)
		must(t, err)
		listed := slices.ContainsFunc(list, func(m *pkcs11.Mechanism) bool { return m.Mechanism == ckmSM2KeyPairGen })
		_, err = c.GetMechanismInfo(c.slot, mechanism(ckmSM4GCM, nil))
		if want := name == "asked"; listed != want || (err == nil) != want {
			t.Errorf("%s: listed %t, info %v", name, listed, err)
		}
	}
}

func TestSM2SignaturesHold(t *testing.T) {
	c := newSMClient(t)
	_, private, key := c.sm2Pair(t)
	message := []byte("a message")
	withID, err := sm2.CalculateSM2Hash(key, message, userID)
	must(t, err)
	bare := sm3.Sum(message)
	for _, s := range []struct {
		mechanism     uint
		input, digest []byte
		der           bool
	}{
		{ckmSM2Sign, withID, withID, true}, {ckmSM2SignNoDER, withID, withID, false},
		{ckmSM3SM2, message, bare[:], false}, {ckmSM3SM2 + 1, message, bare[:], true},
		{ckmSM3SM2AppID, message, withID, false}, {ckmSM3SM2AppID + 1, message, withID, true},
	} {
		for range 50 { // numbers of all lengths
			signature := c.sign(t, s.mechanism, private, s.input)
			if !s.der {
				signature, err = asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])})
				must(t, err)
			}
			if !sm2.VerifyASN1(key, s.digest, signature) {
				t.Fatalf("0x%x: the signature does not hold", s.mechanism)
			}
		}
	}
	must(t, c.SignInit(c.session, mechanism(ckmSM2Sign, nil), private))
	_, err = c.Sign(c.session, message)
	wantCode(t, err, pkcs11.CKR_DATA_LEN_RANGE)
	opensslVerifies(t, key, message, c.sign(t, ckmSM3SM2AppID+1, private, message))
}

// opensslVerifies has the command-line tool judge a signature.
func opensslVerifies(t *testing.T, key *ecdsa.PublicKey, message, signature []byte) {
	t.Helper()
	der, err := smx509.MarshalPKIXPublicKey(key)
	must(t, err)
	dir := t.TempDir()
	for name, content := range map[string][]byte{"key": der, "message": message, "signature": signature} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	command := exec.Command("openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key", "-rawin", "-digest", "sm3",
		"-pkeyopt", "distid:"+string(userID), "-in", "message", "-sigfile", "signature")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "Verified Successfully") {
		t.Errorf("openssl: %v %s", err, out)
	}
}

func TestSM2CiphertextsGoBothWays(t *testing.T) {
	c := newSMClient(t)
	public, private, key := c.sm2Pair(t)
	for _, mech := range []uint{ckmSM2Raw, ckmSM2CipherDER} {
		for _, size := range []int{0, 1, 31, 32, 33, 100, 5000} {
			plaintext := make([]byte, size)
			rand.Read(plaintext)
			ciphertext, err := c.crypt(t, true, mech, nil, public, plaintext)
			must(t, err)
			got, err := c.crypt(t, false, mech, nil, private, ciphertext)
			if err != nil || !bytes.Equal(got, plaintext) {
				t.Fatalf("0x%x, %d bytes: %v", mech, size, err)
			}
			ciphertext[len(ciphertext)/2] ^= 1
			if _, err := c.crypt(t, false, mech, nil, private, ciphertext); err == nil {
				t.Errorf("0x%x, %d bytes: a changed ciphertext decrypts", mech, size)
			}
		}
	}
	plaintext := []byte("encrypted by another implementation")
	raw, err := sm2.Encrypt(rand.Reader, key, plaintext, nil) // 04 ‖ x ‖ y ‖ C3 ‖ C2
	must(t, err)
	der, err := sm2.EncryptASN1(rand.Reader, key, plaintext)
	must(t, err)
	for mech, ciphertext := range map[uint][]byte{ckmSM2Raw: raw[1:], ckmSM2CipherDER: der} {
		got, err := c.crypt(t, false, mech, nil, private, ciphertext)
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Errorf("0x%x: %v", mech, err)
		}
	}
}

func TestSM4IsThatOfOthers(t *testing.T) {
	c := newSMClient(t)
	value, iv := make([]byte, 16), make([]byte, 16)
	rand.Read(value)
	rand.Read(iv)
	key := c.secret(t, 0, ckkSM4, value, pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT)
	block, err := sm4.NewCipher(value)
	must(t, err)
	aead, err := cipher.NewGCM(block)
	must(t, err)
	plaintext := make([]byte, 4096)
	rand.Read(plaintext)
	ecb, cbc := make([]byte, len(plaintext)), make([]byte, len(plaintext))
	for i := 0; i < len(plaintext); i += 16 {
		block.Encrypt(ecb[i:], plaintext[i:])
	}
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(cbc, plaintext)
	for _, s := range []struct {
		mechanism uint
		parameter any
		want      []byte
	}{
		{ckmSM4ECB, nil, ecb}, {ckmSM4CBC, iv, cbc},
		{ckmSM4GCM, pkcs11.NewGCMParams(iv[:12], []byte("aad"), 128), aead.Seal(nil, iv[:12], plaintext, []byte("aad"))},
	} {
		got, err := c.crypt(t, true, s.mechanism, s.parameter, key, plaintext)
		if err != nil || !bytes.Equal(got, s.want) {
			t.Errorf("0x%x: another ciphertext (%v)", s.mechanism, err)
		}
		got, err = c.crypt(t, false, s.mechanism, s.parameter, key, s.want)
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Errorf("0x%x: another plaintext (%v)", s.mechanism, err)
		}
	}
	opensslEncrypts(t, []string{"-sm4-cbc", "-iv", fmt.Sprintf("%x", iv)}, value, plaintext, cbc)
	opensslEncrypts(t, []string{"-sm4-ecb"}, value, plaintext, ecb)
}

func opensslEncrypts(t *testing.T, args []string, key, plaintext, want []byte) {
	t.Helper()
	command := exec.Command("openssl", append([]string{"enc", "-nopad", "-K", fmt.Sprintf("%x", key)}, args...)...)
	command.Stdin = bytes.NewReader(plaintext)
	got, err := command.Output()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("openssl %v: %v", args, err)
	}
}

func TestSM3IsThatOfOthers(t *testing.T) {
	c := newSMClient(t)
	message := []byte("a message")
	must(t, c.DigestInit(c.session, mechanism(ckmSM3, nil)))
	got, err := c.Digest(c.session, message)
	must(t, err)
	if want := sm3.Sum(message); !bytes.Equal(got, want[:]) {
		t.Error("another digest")
	}
	value := bytes.Repeat([]byte("k"), 32)
	mac := hmac.New(sm3.New, value)
	mac.Write(message)
	key := c.secret(t, 0, ckkSM3, value, pkcs11.CKA_SIGN)
	if !bytes.Equal(c.sign(t, ckmSM3HMAC, key, message), mac.Sum(nil)) {
		t.Error("another MAC")
	}
}

func TestSMKeysObeyTheirAttributes(t *testing.T) {
	c := newSMClient(t)
	_, private, _ := c.sm2Pair(t, attribute(pkcs11.CKA_MODIFIABLE, false))
	sm4Key := c.secret(t, ckmSM4KeyGen, ckkSM4, nil, pkcs11.CKA_ENCRYPT)
	kek, err := c.GenerateKey(c.session, mechanism(pkcs11.CKM_AES_KEY_GEN, nil), []*pkcs11.Attribute{
		attribute(pkcs11.CKA_VALUE_LEN, 32), attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_WRAP, true), attribute(pkcs11.CKA_UNWRAP, true)})
	must(t, err)
	kwp := mechanism(pkcs11.CKM_AES_KEY_WRAP_PAD, nil)
	for name, key := range map[string]pkcs11.ObjectHandle{"SM2": private, "SM4": sm4Key} {
		_, err := c.GetAttributeValue(c.session, key, []*pkcs11.Attribute{{Type: pkcs11.CKA_VALUE}})
		wantCode(t, err, pkcs11.CKR_ATTRIBUTE_SENSITIVE)
		_, err = c.WrapKey(c.session, kwp, kek, key)
		wantCode(t, err, pkcs11.CKR_KEY_UNEXTRACTABLE)
		_, err = c.CopyObject(c.session, key, nil)
		wantCode(t, err, pkcs11.CKR_ACTION_PROHIBITED)
		if err := c.SetAttributeValue(c.session, key, []*pkcs11.Attribute{attribute(pkcs11.CKA_EXTRACTABLE, true)}); err == nil {
			t.Errorf("%s: made extractable", name)
		}
	}
	wantCode(t, c.SetAttributeValue(c.session, private, []*pkcs11.Attribute{attribute(pkcs11.CKA_LABEL, "x")}), pkcs11.CKR_ACTION_PROHIBITED)
	must(t, c.SetAttributeValue(c.session, sm4Key, []*pkcs11.Attribute{attribute(pkcs11.CKA_LABEL, "a label")}))
	wantCode(t, c.DecryptInit(c.session, mechanism(ckmSM4ECB, nil), sm4Key), pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED)
	wantCode(t, c.EncryptInit(c.session, mechanism(ckmSM2Raw, nil), sm4Key), pkcs11.CKR_KEY_TYPE_INCONSISTENT)

	must(t, c.FindObjectsInit(c.session, []*pkcs11.Attribute{attribute(pkcs11.CKA_LABEL, "a label")}))
	found, _, err := c.FindObjects(c.session, 10)
	must(t, err)
	must(t, c.FindObjectsFinal(c.session))
	if len(found) != 1 || found[0] != sm4Key {
		t.Errorf("found %v by the label, want %v", found, sm4Key)
	}
	must(t, c.DestroyObject(c.session, sm4Key))
	wantCode(t, c.EncryptInit(c.session, mechanism(ckmSM4ECB, nil), sm4Key), pkcs11.CKR_KEY_HANDLE_INVALID)
}

func TestAWrappedSMKeyIsTheSameKeyUnderTheSameKeyOnly(t *testing.T) {
	c := newSMClient(t)
	kwp := mechanism(pkcs11.CKM_AES_KEY_WRAP_PAD, nil)
	newKEK := func() pkcs11.ObjectHandle {
		kek, err := c.GenerateKey(c.session, mechanism(pkcs11.CKM_AES_KEY_GEN, nil), []*pkcs11.Attribute{
			attribute(pkcs11.CKA_VALUE_LEN, 32), attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_WRAP, true), attribute(pkcs11.CKA_UNWRAP, true)})
		must(t, err)
		return kek
	}
	kek, other := newKEK(), newKEK()
	_, private, public := c.sm2Pair(t, attribute(pkcs11.CKA_EXTRACTABLE, true))
	wrapped, err := c.WrapKey(c.session, kwp, kek, private)
	must(t, err)
	template := []*pkcs11.Attribute{attribute(pkcs11.CKA_CLASS, pkcs11.CKO_PRIVATE_KEY), attribute(pkcs11.CKA_KEY_TYPE, ckkSM2),
		attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_SIGN, true)}
	key, err := c.UnwrapKey(c.session, kwp, kek, wrapped, template)
	must(t, err)
	digest := bytes.Repeat([]byte{7}, 32)
	if !sm2.VerifyASN1(public, digest, c.sign(t, ckmSM2Sign, key, digest)) {
		t.Error("the unwrapped key is another one")
	}
	if _, err := c.UnwrapKey(c.session, kwp, other, wrapped, template); err == nil {
		t.Error("another key unwraps it")
	}
	wrapped[3] ^= 1
	_, err = c.UnwrapKey(c.session, kwp, kek, wrapped, template)
	wantCode(t, err, pkcs11.CKR_WRAPPED_KEY_INVALID)

	// What the wrapping hangs on is not given away.
	carrier, err := c.CreateObject(c.session, []*pkcs11.Attribute{attribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		attribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_GENERIC_SECRET), attribute(pkcs11.CKA_TOKEN, false), attribute(pkcs11.CKA_EXTRACTABLE, true),
		attribute(pkcs11.CKA_VALUE, []byte("the wrapping key of SM keys here"))})
	must(t, err)
	_, err = c.WrapKey(c.session, kwp, kek, carrier)
	wantCode(t, err, pkcs11.CKR_KEY_NOT_WRAPPABLE)
}

func TestSMKeysEndWithTheirSession(t *testing.T) {
	c := newSMClient(t)
	session, err := c.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION)
	must(t, err)
	mine := c.secret(t, ckmSM4KeyGen, ckkSM4, nil, pkcs11.CKA_ENCRYPT)
	first := c.session
	c.session = session
	theirs := c.secret(t, ckmSM4KeyGen, ckkSM4, nil, pkcs11.CKA_ENCRYPT)
	must(t, c.EncryptInit(session, mechanism(ckmSM4ECB, nil), mine)) // of another session
	must(t, c.CloseSession(session))
	c.session = first
	wantCode(t, c.EncryptInit(first, mechanism(ckmSM4ECB, nil), theirs), pkcs11.CKR_KEY_HANDLE_INVALID)
	must(t, c.EncryptInit(first, mechanism(ckmSM4ECB, nil), mine))
	must(t, c.Logout(first))
	pin, err := c.token.UserPIN()
	must(t, err)
	must(t, c.Login(first, pkcs11.CKU_USER, string(pin)))
	_, err = c.Encrypt(first, make([]byte, 16)) // begun before
	must(t, err)
	wantCode(t, c.EncryptInit(first, mechanism(ckmSM4ECB, nil), mine), pkcs11.CKR_KEY_HANDLE_INVALID)
}

func TestFaultsAreThoseOfSMKeysToo(t *testing.T) {
	c := newSMClient(t)
	_, private, _ := c.sm2Pair(t)
	digest := make([]byte, 32)
	c.module.Fail(fault.SignInit, pkcs11.CKR_DEVICE_MEMORY, 1)
	wantCode(t, c.SignInit(c.session, mechanism(ckmSM2Sign, nil), private), pkcs11.CKR_DEVICE_MEMORY)
	before := c.module.Calls(fault.Sign)
	c.sign(t, ckmSM2Sign, private, digest)
	if got := c.module.Calls(fault.Sign) - before; got != 2 { // miekg asks for the length first
		t.Errorf("%d calls were counted, 2 were made", got)
	}
	c.module.Die(pkcs11.CKR_DEVICE_REMOVED)
	wantCode(t, c.SignInit(c.session, mechanism(ckmSM2Sign, nil), private), pkcs11.CKR_DEVICE_REMOVED)
	c.module.Revive()
	wantCode(t, c.SignInit(c.session, mechanism(ckmSM2Sign, nil), private), pkcs11.CKR_SESSION_HANDLE_INVALID)
	c.open(t)
	wantCode(t, c.SignInit(c.session, mechanism(ckmSM2Sign, nil), private), pkcs11.CKR_KEY_HANDLE_INVALID)
}
