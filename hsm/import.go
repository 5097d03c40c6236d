package hsm

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-kms/sluice/kms"
)

// importKeys are what keys for imports are: made and used by the engine, since
// what they unwrap is meant for this process.
var importKeys = map[kms.ImportWrapping]struct {
	spec kms.Spec
	alg  kms.Algorithm
}{
	kms.ImportRSAAES: {kms.SpecRSA3072, kms.AlgRSAOAEPSHA256},
	kms.ImportSM2:    {kms.SpecSM2, kms.AlgSM2PKE},

	kms.ImportSM2Enveloped: {kms.SpecSM2, kms.AlgSM2PKE},
}

// rsaWrapSize is the length of the first part of RSA_AES_KEY_WRAP_SHA_256: a
// ciphertext of RSA-3072.
const rsaWrapSize = 3072 / 8

// algAESKWP unwraps its second part.
const algAESKWP kms.Algorithm = "AES_KWP"

// ImportNodes implements kms.Device.
func (d *Device) ImportNodes() ([]kms.NodeID, error) {
	return []kms.NodeID{EngineID + generateLane}, nil
}

// NewImportKey implements kms.Device.
func (d *Device) NewImportKey(ctx context.Context, _ kms.NodeID, w kms.ImportWrapping) (public, private []byte, err error) {
	var g Generated
	err = d.engine.generate(func() (err error) {
		g, err = d.engine.token.Generate(importKeys[w].spec, kms.UsageEncryptDecrypt)
		return err
	})
	if err != nil {
		return nil, nil, d.translate(d.engine, kms.VerbSign, err)
	}
	return g.PublicKey, g.Material, nil
}

// Import implements kms.Device.
func (d *Device) Import(ctx context.Context, id kms.NodeID, key *kms.Key, v *kms.Version, m kms.ImportMaterial) error {
	n, err := d.enter(id)
	if err != nil {
		return err
	}
	defer n.leave()
	importer, ok := n.token.(Importer)
	if !ok {
		return kms.Errorf(kms.KindInvalidArgument, "the node does not take keys from outside")
	}
	clearKey, err := d.unwrapImport(m)
	if err != nil {
		return err
	}
	defer clear(clearKey)
	var g Generated
	err = n.generate(func() (err error) {
		g, err = importer.Import(key.Spec, key.Usage, clearKey)
		return err
	})
	if err != nil {
		if c := ClassOf(err); c == ClassRequest || c == ClassUnsupported || c == ClassAmbiguous && n.healthy() {
			return kms.ErrImport
		}
		return d.translate(n, kms.VerbSign, err)
	}
	return d.sealVersion(key, v, g)
}

// unwrapImport takes a key out of what it travelled in.
func (d *Device) unwrapImport(m kms.ImportMaterial) ([]byte, error) {
	if m.Wrapping == kms.ImportSM2Enveloped {
		return d.openEnveloped(m)
	}
	k := importKeys[m.Wrapping]
	open := Call{Verb: kms.VerbDecrypt, Algorithm: k.alg, Spec: k.spec, Input: m.Wrapped}
	if m.Wrapping == kms.ImportSM2 {
		open.Order = kms.SM2OrderC1C3C2
		err := d.onEngine(&open, m.Private, kms.UsageEncryptDecrypt)
		return open.Output, err
	}
	if len(m.Wrapped) <= rsaWrapSize {
		return nil, kms.ErrImport
	}
	open.Input = m.Wrapped[:rsaWrapSize]
	if err := d.onEngine(&open, m.Private, kms.UsageEncryptDecrypt); err != nil {
		return nil, err
	}
	defer clear(open.Output)
	if len(open.Output) != 32 {
		return nil, kms.ErrImport
	}
	importer, ok := d.engine.token.(Importer)
	if !ok {
		return nil, fmt.Errorf("the engine takes no keys from outside")
	}
	wrapping, err := importer.Import(kms.SpecAES256, kms.UsageWrapUnwrap, open.Output)
	if err != nil {
		return nil, kms.ErrImport
	}
	defer clear(wrapping.Material)
	unwrap := Call{Verb: kms.VerbUnwrap, Algorithm: algAESKWP, Spec: kms.SpecAES256, Input: m.Wrapped[rsaWrapSize:]}
	err = d.onEngine(&unwrap, wrapping.Material, kms.UsageWrapUnwrap)
	return unwrap.Output, err
}

// openEnveloped takes an SM2 key out of an SM2EnvelopedKey.
func (d *Device) openEnveloped(m kms.ImportMaterial) (key []byte, err error) {
	opener, ok := d.engine.token.(EnvelopeOpener)
	if !ok {
		return nil, fmt.Errorf("the engine opens no enveloped keys")
	}
	if key, err = opener.OpenEnveloped(m.Private, m.Wrapped); ClassOf(err) == ClassRequest {
		return nil, kms.ErrImport
	}
	return key, err
}

// onEngine runs one call with a key that is loaded for it alone.
func (d *Device) onEngine(c *Call, material []byte, usage kms.Usage) error {
	n := d.engine
	err := n.load(nil, func() (err error) {
		c.Handle, err = n.token.Load(material, c.Spec, usage)
		return err
	})
	if err == nil {
		_, err = n.call(c)
		err = errors.Join(err, n.load(nil, func() error { return n.token.Unload(c.Handle) }))
	}
	if err == nil {
		return nil
	}
	if c := ClassOf(err); c == ClassRequest || c == ClassAmbiguous {
		return kms.ErrImport
	}
	return d.translate(n, kms.VerbSign, err)
}
