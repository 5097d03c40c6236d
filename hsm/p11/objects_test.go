package p11

import (
	"bytes"
	"errors"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Secrets that are objects for a moment, and imported keys, are gone after the
// call, also after one that fails.
func TestNoObjectIsLeftBehind(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes, agreement := aesKey(t, token), newKeyFor(t, token, kms.SpecP256, kms.UsageKeyAgreement)
	point, ok := curves[kms.SpecP256].parsePublicKeyInfo(agreement.public)
	if !ok {
		t.Fatal("the public key is malformed")
	}
	agreeOn := func(object uint, point []byte) *request {
		return &request{operation: opAgree, mechanism: ecdhMechanism, key: object, input: point, room: 32}
	}
	importUnder := func(root uint) *request {
		return &request{operation: opImport, mechanism: token.wrapping, key: root, room: maxMaterial, object: []*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
			pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_AES),
			pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true),
			pkcs11.NewAttribute(pkcs11.CKA_VALUE, message(32)),
		}}
	}
	private := uint(objectOf(t, agreement.handle))
	for name, c := range map[string]struct {
		request *request
		failed  string // the function, "" for none
	}{
		"a secret":                        {agreeOn(private, point), ""},
		"a secret with a point off curve": {agreeOn(private, append(bytes.Clone(point[:64]), ^point[64])), "C_DeriveKey"},
		"a secret of a key that cannot":   {agreeOn(uint(objectOf(t, newKey(t, token, kms.SpecP256))), point), "C_DeriveKey"},
		"an import":                       {importUnder(uint(token.roots[keyRoot])), ""},
		"an import under no root":         {importUnder(uint(objectOf(t, aes))), "C_WrapKey"},
	} {
		t.Run(name, func(t *testing.T) {
			before := countObjects(t, s)
			for range 10 {
				_, err := s.run(c.request)
				err = s.result(err)
				e, failed := errors.AsType[*hsm.Error](err)
				if failed != (c.failed != "") || failed && e.Call != c.failed {
					t.Fatalf("got %v, want a failure of %q", err, c.failed)
				}
				wantWiped(t, s, name)
			}
			if after := countObjects(t, s); after != before {
				t.Errorf("%d objects, %d before", after, before)
			}
			mustWork(t, s, aes)
		})
	}
}

// countObjects counts what the user sees in the token.
func countObjects(t *testing.T, s *session) int {
	t.Helper()
	ctx := s.conn.mod.ctx
	if err := ctx.FindObjectsInit(s.handle, nil); err != nil {
		t.Fatal(err)
	}
	const most = 10_000
	found, _, err := ctx.FindObjects(s.handle, most)
	if err == nil {
		err = ctx.FindObjectsFinal(s.handle)
	}
	if err != nil || len(found) == most {
		t.Fatalf("%d objects, %v", len(found), err)
	}
	return len(found)
}
