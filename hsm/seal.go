package hsm

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The sealed blob, format SLB1:
//
//	"SLB1" | kind u8 | domain id 16 | root generation u32be | nonce 12 | ciphertext | tag 16
//
// The generation is that of the domain's roots when the blob was made; of kind
// 1 it is the one whose key root wraps what is inside. The blob is AES-256-GCM
// under a tenant's sealing key, done inside a token. The
// additional data is the header (all before the ciphertext) and then each
// field of the context as u32be length and bytes, so that a blob opens only
// in the row it was made for. What is sealed is 32 zero bytes and the
// material: see kms.Envelope for why.
const (
	blobMagic      = "SLB1"
	blobHeaderSize = len(blobMagic) + 1 + 16 + 4 + gcmNonceSize
	gcmNonceSize   = 12
	gcmTagSize     = 16
	commitmentSize = 32
)

// blobKind says what a blob holds.
type blobKind byte

const (
	blobWrapped blobKind = 1 // a version wrapped under the key root
	blobSealed  blobKind = 2 // the clear material of a SEALED version
	blobSecret  blobKind = 3 // a secret of the service
)

// blobHeader is the parsed head of a blob.
type blobHeader struct {
	kind       blobKind
	domain     uuid.UUID
	generation uint32
}

// root returns the generation of the key root without which the contents are of
// no use; 0 when the blob needs none but the sealing key's.
func (h blobHeader) root() uint32 {
	if h.kind == blobWrapped {
		return h.generation
	}
	return 0
}

func appendBlobHeader(b []byte, h blobHeader, nonce []byte) []byte {
	b = append(b, blobMagic...)
	b = append(b, byte(h.kind))
	b = append(b, h.domain[:]...)
	b = binary.BigEndian.AppendUint32(b, h.generation)
	return append(b, nonce...)
}

func parseBlob(b []byte) (h blobHeader, ok bool) {
	if len(b) < blobHeaderSize+commitmentSize+gcmTagSize || string(b[:len(blobMagic)]) != blobMagic {
		return h, false
	}
	h.kind = blobKind(b[4])
	h.domain = uuid.UUID(b[5:21])
	h.generation = binary.BigEndian.Uint32(b[21:25])
	return h, h.kind >= blobWrapped && h.kind <= blobSecret
}

// sealContext is what a blob is bound to.
type sealContext struct {
	kind   blobKind
	fields [][]byte
}

// versionContext binds a version's blob to its tenant, key, number, spec,
// usage and protection.
func versionContext(key *kms.Key, v *kms.Version) sealContext {
	kind := blobWrapped
	if key.Protection == kms.ProtectionSealed {
		kind = blobSealed
	}
	return sealContext{kind, [][]byte{
		key.Tenant.ID[:], key.ID[:], v.ID[:], binary.BigEndian.AppendUint32(nil, v.Number),
		[]byte(key.Spec), []byte(key.Usage), []byte(key.Protection),
	}}
}

// secretContext binds a secret of the service to its tenant, name and version.
func secretContext(tenant uuid.UUID, name string, version uint32) sealContext {
	return sealContext{blobSecret, [][]byte{tenant[:], []byte(name), binary.BigEndian.AppendUint32(nil, version)}}
}

func (c sealContext) aad(header []byte) []byte {
	n := len(header)
	for _, f := range c.fields {
		n += 4 + len(f)
	}
	b := append(make([]byte, 0, n), header...)
	for _, f := range c.fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

// sealCall plans the sealing of material; blobOf joins its result.
func sealCall(c sealContext, domain *Domain, handle Handle, material []byte) (call *Call, header []byte) {
	nonce := make([]byte, gcmNonceSize)
	rand.Read(nonce)
	header = appendBlobHeader(make([]byte, 0, blobHeaderSize), blobHeader{c.kind, domain.ID, domain.Generation}, nonce)
	input := make([]byte, commitmentSize+len(material))
	copy(input[commitmentSize:], material)
	return &Call{
		Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: handle,
		Input: input, Nonce: nonce, AAD: c.aad(header),
	}, header
}

// openCall plans the opening of a blob whose header was checked.
func openCall(c sealContext, handle Handle, blob []byte) *Call {
	header := blob[:blobHeaderSize]
	return &Call{
		Verb: kms.VerbDecrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: handle,
		Input: blob[blobHeaderSize:], Nonce: header[blobHeaderSize-gcmNonceSize:], AAD: c.aad(header),
	}
}

// committed takes the zeros off an opened blob; false when they are not there.
func committed(opened []byte) ([]byte, bool) {
	var zeros [commitmentSize]byte
	if len(opened) < commitmentSize || subtle.ConstantTimeCompare(opened[:commitmentSize], zeros[:]) != 1 {
		return nil, false
	}
	return opened[commitmentSize:], true
}
