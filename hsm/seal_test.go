package hsm

import (
	"bytes"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

var sampleDomain = &Domain{ID: uuid.MustParse("0190b2f0-7a2b-7c3d-8e4f-5a6b7c8d9e0f"), Generation: 3}

func sampleKey() (*kms.Key, *kms.Version) {
	v := &kms.Version{ID: uuid.New(), Number: 1}
	return &kms.Key{ID: uuid.New(), Tenant: &kms.Tenant{ID: uuid.New()}, Spec: kms.SpecAES256,
		Usage: kms.UsageEncryptDecrypt, Protection: kms.ProtectionHSM, Versions: []*kms.Version{v}}, v
}

// Each field of the context must change the additional data, or a blob could
// be moved between two rows that differ in it only.
func TestEveryFieldOfTheRowIsBoundToItsBlob(t *testing.T) {
	key, v := sampleKey()
	header := make([]byte, blobHeaderSize)
	base := versionContext(key, v)
	changes := map[string]func(*kms.Key, *kms.Version){
		"tenant":     func(k *kms.Key, v *kms.Version) { k.Tenant = &kms.Tenant{ID: uuid.New()} },
		"key":        func(k *kms.Key, v *kms.Version) { k.ID = uuid.New() },
		"version id": func(k *kms.Key, v *kms.Version) { v.ID = uuid.New() },
		"number":     func(k *kms.Key, v *kms.Version) { v.Number = 2 },
		"spec":       func(k *kms.Key, v *kms.Version) { k.Spec = kms.SpecAES128 },
		"usage":      func(k *kms.Key, v *kms.Version) { k.Usage = kms.UsageSignVerify },
		"protection": func(k *kms.Key, v *kms.Version) { k.Protection = kms.ProtectionSealed },
	}
	for name, change := range changes {
		k, w := *key, *v
		change(&k, &w)
		other := versionContext(&k, &w)
		if bytes.Equal(base.aad(header), other.aad(header)) {
			t.Errorf("%s is not bound", name)
		}
	}
	if versionContext(&kms.Key{Tenant: key.Tenant, Protection: kms.ProtectionSealed}, v).kind == base.kind {
		t.Error("wrapped and sealed material have one kind")
	}
}

// Moving bytes from one field to the next must not give the same data.
func TestContextFieldsCannotBeShifted(t *testing.T) {
	header := make([]byte, blobHeaderSize)
	a := sealContext{blobSecret, [][]byte{[]byte("ab"), []byte("c")}}
	b := sealContext{blobSecret, [][]byte{[]byte("a"), []byte("bc")}}
	if bytes.Equal(a.aad(header), b.aad(header)) {
		t.Error("two contexts give one additional data")
	}
}

func TestHeaderIsPartOfTheAdditionalData(t *testing.T) {
	call, header := sealCall(secretContext(uuid.New(), "n", 1), sampleDomain, 1, []byte("secret"))
	if !bytes.HasPrefix(call.AAD, header) || len(header) != blobHeaderSize {
		t.Errorf("additional data %x does not begin with the header %x", call.AAD, header)
	}
	again, _ := sealCall(secretContext(uuid.New(), "n", 1), sampleDomain, 1, []byte("secret"))
	if bytes.Equal(call.Nonce, again.Nonce) {
		t.Error("a nonce came twice")
	}
}

func TestMaterialWithoutItsCommitmentIsRefused(t *testing.T) {
	good := append(make([]byte, commitmentSize), "material"...)
	if m, ok := committed(good); !ok || string(m) != "material" {
		t.Errorf("got %q, %v", m, ok)
	}
	for i := range commitmentSize {
		bad := bytes.Clone(good)
		bad[i] = 1
		if _, ok := committed(bad); ok {
			t.Errorf("byte %d of the commitment does not count", i)
		}
	}
	if _, ok := committed(good[:commitmentSize-1]); ok {
		t.Error("a short plaintext is accepted")
	}
}

func FuzzBlob(f *testing.F) {
	_, header := sealCall(secretContext(uuid.New(), "n", 1), sampleDomain, 1, nil)
	f.Add(append(header, make([]byte, commitmentSize+gcmTagSize)...))
	f.Add([]byte(blobMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseBlob(b)
		if !ok {
			return
		}
		nonce := b[blobHeaderSize-gcmNonceSize : blobHeaderSize]
		if again := appendBlobHeader(nil, h, nonce); !bytes.Equal(again, b[:blobHeaderSize]) {
			t.Errorf("a header has two spellings: %x and %x", b[:blobHeaderSize], again)
		}
	})
}
