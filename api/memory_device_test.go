package api_test

import (
	"context"
	"crypto/rand"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// device runs work on the in-process engine, whose material it stores as the
// blob: how blobs are sealed is not what is tested here.
type device struct{ *memory }

const memoryNode = kms.NodeID("memory-1")

func (d device) Nodes(*kms.Work) ([]kms.NodeID, error) { return []kms.NodeID{memoryNode}, nil }

func (d device) CreatorNodes(uuid.UUID, kms.Spec, kms.Protection) ([]kms.NodeID, error) {
	return []kms.NodeID{memoryNode}, nil
}

func (d device) ProtectionFor(uuid.UUID, kms.Spec) (kms.Protection, error) {
	return kms.ProtectionHSM, nil
}

func (d device) Do(_ context.Context, _ kms.NodeID, w *kms.Work) error {
	d.nodeCalls.Add(1)
	call := &hsm.Call{
		Verb: w.Verb, Algorithm: w.Algorithm, Digest: w.Digest, Input: w.Input, Prehashed: w.Prehashed,
		Signature: w.Signature, Nonce: w.Nonce, AAD: w.AAD, UserID: w.UserID, Order: w.Order, Length: w.Length,
		Peer: w.Peer,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.Key != nil {
		handle, err := d.token.Load(w.Version.Blob, w.Key.Spec, w.Key.Usage)
		if err != nil {
			return err
		}
		defer d.token.Unload(handle)
		call.Spec, call.Handle, call.PublicKey = w.Key.Spec, handle, w.Version.PublicKey
	}
	if err := d.session.Do(call); err != nil {
		switch w.Verb {
		case kms.VerbDecrypt, kms.VerbUnwrap, kms.VerbDecapsulate:
			return kms.ErrDecryptionFailed
		}
		return kms.Wrap(kms.KindInvalidArgument, err, "the input does not fit the key")
	}
	w.Output, w.Secret, w.Valid, w.SlotTime = call.Output, call.Secret, call.Valid, time.Millisecond
	return nil
}

func (d device) Generate(_ context.Context, _ kms.NodeID, key *kms.Key, v *kms.Version) error {
	d.nodeCalls.Add(1)
	made, err := d.token.Generate(key.Spec, key.Usage)
	if err != nil {
		return err
	}
	v.Blob, v.PublicKey = made.Material, made.PublicKey
	return nil
}

func (d device) ImportNodes() ([]kms.NodeID, error) { return []kms.NodeID{memoryNode}, nil }

// NewImportKey makes no key pair: what Import takes is the key itself.
func (d device) NewImportKey(context.Context, kms.NodeID, kms.ImportWrapping) (public, private []byte, err error) {
	d.nodeCalls.Add(1)
	return []byte("public"), []byte("private"), nil
}

func (d device) Import(_ context.Context, _ kms.NodeID, key *kms.Key, v *kms.Version, m kms.ImportMaterial) error {
	d.nodeCalls.Add(1)
	made, err := d.token.Import(key.Spec, key.Usage, m.Wrapped)
	if err != nil {
		return kms.ErrImport
	}
	v.Blob, v.PublicKey = made.Material, made.PublicKey
	return nil
}

func (d device) NewSealingKey(_ context.Context, tenant, domain uuid.UUID) (kms.SealingKey, error) {
	k := kms.SealingKey{ID: uuid.NewV7(), Tenant: tenant, Domain: domain, RootGeneration: 1, Wrapped: make([]byte, 40)}
	rand.Read(k.Wrapped)
	return k, nil
}

func (d device) Seal(_ context.Context, _ kms.SealingKey, _ string, _ uint32, secret []byte) ([]byte, error) {
	return slices.Clone(secret), nil
}

func (d device) Unseal(_ context.Context, _ kms.SealingKey, _ string, _ uint32, blob []byte) ([]byte, error) {
	return slices.Clone(blob), d.sealFault
}
