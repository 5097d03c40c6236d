package p11

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"uuid"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// rootKind is one of a domain's two roots.
type rootKind byte

const (
	keyRoot     rootKind = 'K'
	sealingRoot rootKind = 'S'
)

var rootKinds = []rootKind{keyRoot, sealingRoot}

// label is the root's CKA_LABEL, the same in every domain: a token has at
// most one root of a kind and generation, and a second domain's is noticed.
func (k rootKind) label() string {
	if k == keyRoot {
		return "sluice key root"
	}
	return "sluice sealing root"
}

// rootID names a root: domain, generation, kind. It is the root's CKA_ID.
type rootID struct {
	domain     uuid.UUID
	generation uint32
	kind       rootKind
}

// String names the root to people.
func (r rootID) String() string {
	return fmt.Sprintf("%s, generation %d", r.kind.label(), r.generation)
}

// rootIDSize is the length of an encoded rootID in bytes.
const rootIDSize = 16 + 4 + 1

func (r rootID) encode() []byte {
	b := make([]byte, 0, rootIDSize)
	b = append(b, r.domain[:]...)
	b = binary.BigEndian.AppendUint32(b, r.generation)
	return append(b, byte(r.kind))
}

func parseRootID(b []byte) (rootID, error) {
	if len(b) != rootIDSize {
		return rootID{}, errors.New("not the id of a root")
	}
	r := rootID{generation: binary.BigEndian.Uint32(b[16:20]), kind: rootKind(b[20])}
	copy(r.domain[:], b)
	return r, nil
}

// unwrapTemplate is what the root demands of everything that it unwraps,
// whatever the caller's template says (PKCS#11 v2.40, 4.10, CKA_UNWRAP_TEMPLATE). What
// the sealing root unwraps can moreover not be used to wrap.
func (k rootKind) unwrapTemplate() []*pkcs11.Attribute {
	t := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
	}
	if k == sealingRoot {
		t = append(t,
			pkcs11.NewAttribute(pkcs11.CKA_WRAP, false),
			pkcs11.NewAttribute(pkcs11.CKA_UNWRAP, false))
	}
	return t
}

// rootKeySize is the length of a root, AES-256, in bytes.
const rootKeySize = 32

// template is a root's template, for C_GenerateKey or C_UnwrapKey. A backup
// token's root is extractable, to be wrapped under a trusted key only. The
// caller frees the template after its use.
func (r rootID) template(backup bool, extra ...*pkcs11.Attribute) (template []*pkcs11.Attribute, free func()) {
	inner, free := attributeArray(r.kind.unwrapTemplate())
	template = []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_AES),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true),
		pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, r.kind.label()),
		pkcs11.NewAttribute(pkcs11.CKA_ID, r.encode()),
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, backup),
		pkcs11.NewAttribute(pkcs11.CKA_WRAP, true),
		pkcs11.NewAttribute(pkcs11.CKA_UNWRAP, true),
		pkcs11.NewAttribute(pkcs11.CKA_UNWRAP_TEMPLATE, inner),
	}
	if backup {
		template = append(template, pkcs11.NewAttribute(pkcs11.CKA_WRAP_WITH_TRUSTED, true))
	}
	for _, use := range rootForbidden {
		template = append(template, pkcs11.NewAttribute(use, false))
	}
	template = append(template, extra...)
	// Last: SoftHSM refuses whatever follows it.
	return append(template, pkcs11.NewAttribute(pkcs11.CKA_MODIFIABLE, false)), free
}

// rootForbidden are the uses that a root must not have: with ENCRYPT or
// DECRYPT, whoever knows the PIN could take wrapped keys apart.
var rootForbidden = []uint{
	pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT, pkcs11.CKA_SIGN, pkcs11.CKA_VERIFY, pkcs11.CKA_DERIVE,
}

// findRoots returns the token's roots of a kind with their ids.
func (o objects) findRoots(kind rootKind) (map[pkcs11.ObjectHandle]rootID, error) {
	objects, err := o.find([]*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, kind.label()),
	})
	if err != nil {
		return nil, err
	}
	roots := make(map[pkcs11.ObjectHandle]rootID, len(objects))
	for _, object := range objects {
		values, err := o.attributes(object, pkcs11.CKA_ID)
		if err != nil {
			return nil, err
		}
		id, err := parseRootID(values[0])
		if err != nil || id.kind != kind {
			return nil, driverError(hsm.ClassRootGone, "find root", "an object has a root's label but not its id")
		}
		roots[object] = id
	}
	return roots, nil
}

// holds tells whether the token has an object with the root's id.
func (o objects) holds(id rootID) (bool, error) {
	roots, err := o.findRoots(id.kind)
	for _, have := range roots {
		if have == id {
			return true, nil
		}
	}
	return false, err
}

// findRoot returns the one root with the id.
func (o objects) findRoot(id rootID) (pkcs11.ObjectHandle, error) {
	roots, err := o.findRoots(id.kind)
	if err != nil {
		return 0, err
	}
	var found []pkcs11.ObjectHandle
	for object, have := range roots {
		if have == id {
			found = append(found, object)
		}
	}
	if len(found) != 1 {
		return 0, driverError(hsm.ClassRootGone, "find root",
			fmt.Sprintf("the token has %d objects for the domain's %s, not one", len(found), id))
	}
	return found[0], nil
}

// checkFrozen verifies that a root can only wrap and unwrap and, unless the
// token is a backup, never leave.
func (o objects) checkFrozen(root pkcs11.ObjectHandle, backup bool) error {
	want := map[uint]bool{
		pkcs11.CKA_SENSITIVE: true, pkcs11.CKA_EXTRACTABLE: backup, pkcs11.CKA_MODIFIABLE: false,
		pkcs11.CKA_WRAP: true, pkcs11.CKA_UNWRAP: true,
	}
	if backup {
		want[pkcs11.CKA_WRAP_WITH_TRUSTED] = true
	}
	for _, use := range rootForbidden {
		want[use] = false
	}
	for attribute, value := range want {
		have, err := o.flag(root, attribute)
		if err != nil {
			return err
		}
		if have != value {
			return driverError(hsm.ClassRootGone, "check root",
				fmt.Sprintf("attribute 0x%x of the root is %t", attribute, have))
		}
	}
	return nil
}

// checkKey is the fixed, public secret whose wrapped form identifies a root,
// and wrapTestKey wraps it for the known-answer test of the mechanism.
var (
	checkKey    = sha256.Sum256([]byte("sluice root check key"))
	wrapTestKey = sha256.Sum256([]byte("sluice key wrap known-answer test"))
)

// wrapTestAnswer is checkKey wrapped under wrapTestKey by RFC 5649.
var wrapTestAnswer = []byte{
	0x2a, 0x27, 0x6b, 0x88, 0xc7, 0xee, 0x63, 0xb4, 0x59, 0x17,
	0x82, 0x31, 0x3b, 0x46, 0x54, 0x73, 0xa9, 0xbd, 0xe8, 0xb2,
	0x15, 0xbe, 0xee, 0x85, 0xf8, 0xf4, 0xc1, 0xb7, 0x5a, 0xf7,
	0x78, 0x9e, 0x6a, 0xaf, 0x40, 0x86, 0xf6, 0x41, 0x69, 0x72,
}

// ckmAESKeyWrapKWP is RFC 5649 by its name since PKCS#11 v3.0. The older
// CKM_AES_KEY_WRAP_PAD is RFC 5649 in SoftHSM and something else in NSS.
const ckmAESKeyWrapKWP = 0x210B

// wrapMechanism finds the mechanism by which the token wraps as RFC 5649
// says: names and numbers do not tell, a known answer does.
func (s *session) wrapMechanism() (*mechanism, error) {
	kek, err := s.objects().importKey(wrapTestKey[:], pkcs11.CKA_WRAP)
	if err != nil {
		return nil, err
	}
	defer s.objects().destroy(kek)
	for _, id := range []uint{ckmAESKeyWrapKWP, pkcs11.CKM_AES_KEY_WRAP_PAD} {
		if !s.conn.offers(id) {
			continue
		}
		m := &mechanism{id: id}
		answer, err := s.wrapCheckKey(m, kek)
		if err == nil && bytes.Equal(answer, wrapTestAnswer) {
			return m, nil
		}
	}
	return nil, driverError(hsm.ClassUnsupported, "C_WrapKey", "the token does not wrap by RFC 5649")
}

// wrapCheckKey returns checkKey wrapped under kek.
func (s *session) wrapCheckKey(m *mechanism, kek pkcs11.ObjectHandle) ([]byte, error) {
	object, err := s.objects().importKey(checkKey[:], pkcs11.CKA_ENCRYPT)
	if err != nil {
		return nil, err
	}
	defer s.objects().destroy(object)
	return s.wrap(m, kek, object)
}

// checkValue is the public identity of the root that wrapped checkKey.
func checkValue(wrapped []byte) []byte {
	sum := sha256.Sum256(wrapped)
	return slices.Clone(sum[:])
}
