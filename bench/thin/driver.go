package main

import (
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"os"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// driver calls the module by Sluice's own driver.
type driver struct {
	sessions     chan hsm.Session
	aes, ec, rsa hsm.Handle
}

func openDriver(soft *softhsm.Token, description string, slots int) (*driver, error) {
	raw, err := os.ReadFile(description)
	if err != nil {
		return nil, err
	}
	var domain hsm.Domain
	if err := json.Unmarshal(raw, &domain); err != nil {
		return nil, err
	}
	token, err := p11.Open(context.Background(), p11.Config{Module: soft.Module, Env: soft.Env,
		TokenLabel: soft.Label, TokenSerial: soft.Serial, PIN: soft.UserPIN, Domain: domain})
	if err != nil {
		return nil, err
	}
	d := &driver{sessions: make(chan hsm.Session, slots)}
	for range slots {
		s, err := token.NewSession()
		if err != nil {
			return nil, err
		}
		d.sessions <- s
	}
	for handle, key := range map[*hsm.Handle]struct {
		spec  kms.Spec
		usage kms.Usage
	}{
		&d.aes: {kms.SpecAES256, kms.UsageEncryptDecrypt},
		&d.ec:  {kms.SpecP256, kms.UsageSignVerify},
		&d.rsa: {kms.SpecRSA2048, kms.UsageSignVerify},
	} {
		g, err := token.Generate(key.spec, key.usage)
		if err != nil {
			return nil, err
		}
		if *handle, err = token.Load(g.Material, key.spec, key.usage); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *driver) do(c hsm.Call) ([]byte, error) {
	s := <-d.sessions
	defer func() { d.sessions <- s }()
	err := s.Do(&c)
	return c.Output, err
}

func (d *driver) encrypt(plaintext []byte) ([]byte, error) {
	nonce := make([]byte, 12)
	rand.Read(nonce)
	out, err := d.do(hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: d.aes,
		Input: plaintext, Nonce: nonce, AAD: aad})
	return append(nonce, out...), err
}

func (d *driver) signEC(message []byte) ([]byte, error) {
	return d.do(hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgECDSASHA256, Spec: kms.SpecP256, Handle: d.ec, Input: message})
}

func (d *driver) signRSA(message []byte) ([]byte, error) {
	return d.do(hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgRSAPSSSHA256, Spec: kms.SpecRSA2048, Handle: d.rsa, Input: message})
}

// aad is the additional data of every encryption.
var aad = []byte("thin")
