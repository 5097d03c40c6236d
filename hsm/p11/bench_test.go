package p11

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// BenchmarkDo compares an operation through Session.Do with the same one
// through miekg/pkcs11. The two take turns in batches, so that other load on
// the machine meets both; "ratio" is the time of Do over that of miekg.
func BenchmarkDo(b *testing.B) {
	token := openMember(b, 0)
	s := newSession(b, token)
	raw, err := token.conn.openSession()
	if err != nil {
		b.Fatal(err)
	}
	ctx := token.conn.mod.ctx
	aes := encryptCall(aesKey(b, token), message(64))
	ec := signCall(kms.SpecP256, kms.AlgECDSASHA256, newKey(b, token, kms.SpecP256))
	rsa := signCall(kms.SpecRSA2048, kms.AlgRSAPKCS1SHA256, newKey(b, token, kms.SpecRSA2048))

	sign := func(call hsm.Call, mech uint, prefix []byte) func() error {
		key, _ := parseHandle(call.Handle)
		return func() error {
			digest := sha256.Sum256(call.Input)
			m := []*pkcs11.Mechanism{pkcs11.NewMechanism(mech, nil)}
			if err := ctx.SignInit(raw, m, pkcs11.ObjectHandle(key.object)); err != nil {
				return err
			}
			_, err := ctx.Sign(raw, append(prefix[:len(prefix):len(prefix)], digest[:]...))
			return err
		}
	}
	for _, c := range []struct {
		name  string
		call  hsm.Call
		miekg func() error
	}{
		{"AES-GCM-64B", aes, func() error {
			key, _ := parseHandle(aes.Handle)
			params := pkcs11.NewGCMParams(aes.Nonce, nil, 8*tagSize)
			defer params.Free()
			if err := ctx.EncryptInit(raw, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_GCM, params)}, pkcs11.ObjectHandle(key.object)); err != nil {
				return err
			}
			_, err := ctx.Encrypt(raw, aes.Input)
			return err
		}},
		{"ECDSA-P256", ec, sign(ec, pkcs11.CKM_ECDSA, nil)},
		{"RSA-2048", rsa, sign(rsa, pkcs11.CKM_RSA_PKCS, digestInfoPrefix[kms.DigestSHA256])},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			compare(b, func() error { call := c.call; return s.Do(&call) }, c.miekg)
		})
	}
}

func signCall(spec kms.Spec, alg kms.Algorithm, h hsm.Handle) hsm.Call {
	return hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: spec, Handle: h, Input: message(64)}
}

// compare runs the two in turns and reports the ratio of their times.
func compare(b *testing.B, ours, theirs func() error) {
	const batch = 16
	run := func(f func() error) {
		for range batch {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
	}
	var times [2]float64
	for b.Loop() {
		for i, f := range []func() error{ours, theirs} {
			before := b.Elapsed()
			run(f)
			times[i] += float64(b.Elapsed() - before)
		}
	}
	b.ReportMetric(times[0]/times[1], "ratio")
	b.ReportMetric(times[0]/float64(b.N*batch), "ns/Do")
	b.ReportMetric(times[1]/float64(b.N*batch), "ns/miekg")
}

// What Do allocates is the output and, for ECDSA, nothing more.
func TestDoAllocatesItsOutputOnly(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	for name, call := range map[string]hsm.Call{
		"AES-GCM encrypt": encryptCall(aesKey(t, token), message(64)),
		"ECDSA":           signCall(kms.SpecP256, kms.AlgECDSASHA256, newKey(t, token, kms.SpecP256)),
		"HMAC": {Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSHA256, Spec: kms.SpecHMAC256,
			Handle: newKey(t, token, kms.SpecHMAC256), Input: message(64)},
		"random": {Verb: kms.VerbRandom, Length: 32},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { do(t, s, call) }); n > 1 {
				t.Errorf("%.1f allocations", n)
			}
		})
	}
}

// BenchmarkVerbs measures the operations that are made of several calls of
// the module in one crossing.
func BenchmarkVerbs(b *testing.B) {
	token := openMember(b, 0)
	s := newSession(b, token)
	wrapKey := newKeyFor(b, token, kms.SpecAES256, kms.UsageWrapUnwrap)
	agreeKey := newKeyFor(b, token, kms.SpecP256, kms.UsageKeyAgreement)
	deriveKey := newKeyFor(b, token, kms.SpecHMAC256, kms.UsageDerive)
	wrap := func(n int) hsm.Call {
		return hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES256, Handle: wrapKey.handle, Input: message(n)}
	}
	unwrap := wrap(32)
	if err := s.Do(&unwrap); err != nil {
		b.Fatal(err)
	}
	unwrap.Verb, unwrap.Input = kms.VerbUnwrap, unwrap.Output
	derive := func(n int) hsm.Call {
		return hsm.Call{Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA256, Spec: kms.SpecHMAC256, Handle: deriveKey.handle, Input: message(32), Length: n}
	}
	cbc := encryptCall(aesKey(b, token), message(64))
	cbc.Algorithm, cbc.Nonce = kms.AlgAESCBC, make([]byte, ivSize)
	for _, c := range []struct {
		name string
		call hsm.Call
	}{
		{"ECDH-P256", hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecP256, Handle: agreeKey.handle, Peer: agreeKey.public}},
		{"HKDF-32B", derive(32)},
		{"HKDF-8160B", derive(kms.MaxDerived)},
		{"KWP-wrap-32B", wrap(32)},
		{"KWP-unwrap-32B", unwrap},
		{"KWP-wrap-4096B", wrap(kms.MaxWrap)},
		{"CBC-64B", cbc},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call := c.call
				if err := s.Do(&call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVendor runs the operations of a vendor's keys: what the driver adds
// to the fault module, whose arithmetic is slow.
func BenchmarkVendor(b *testing.B) {
	for name, change := range map[string]func(*Profile){"": func(*Profile) {}, "other forms/": otherForms} {
		cfg := vendorTokens(b).config(0)
		cfg.Profile = profileWith(b, change)
		token, err := Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		s := newSession(b, token)
		for what, call := range vendorCalls(b, token) {
			b.Run(name+what, func(b *testing.B) {
				for b.Loop() {
					c := call
					if err := s.Do(&c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := token.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRewrap takes an RSA-2048 key from one generation of roots to the
// next, and back to compare: what one version costs at a backup token.
func BenchmarkRewrap(b *testing.B) {
	requireSoftHSM(b)
	d, err := newTestDomain(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	token, err := Open(context.Background(), config(d.members[0], d.domain))
	if err != nil {
		b.Fatal(err)
	}
	g, err := token.Generate(kms.SpecRSA2048, kms.UsageSignVerify)
	if err := errors.Join(err, token.Close()); err != nil {
		b.Fatal(err)
	}
	cfg := d.config("test")
	cfg.Domain = d.domain
	domain, err := Replace(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	backup, err := OpenBackup(context.Background(), ceremonyTokens(d.backups...)[0], *domain)
	if err != nil {
		b.Fatal(err)
	}
	defer backup.Close()
	for b.Loop() {
		if _, err := backup.Rewrap(1, g.Material); err != nil {
			b.Fatal(err)
		}
	}
}
