package kms

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"net/url"
	"slices"
	"testing"
)

// Go's own parser and verifier judge the encoding.
func TestCSRIsWhatOthersRead(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	uri, _ := url.Parse("spiffe://example.org/app")
	in := CSRInput{
		Subject:  pkix.Name{CommonName: "Größe 1", Organization: []string{"Example"}, Country: []string{"CN"}},
		DNSNames: []string{"a.example.org", "b.example.org"}, Emails: []string{"a@example.org"},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, URIs: []*url.URL{uri},
	}
	cases := []struct {
		alg    Algorithm
		spec   Spec
		signer crypto.Signer
		opts   crypto.SignerOpts
	}{
		{AlgECDSASHA256, SpecP256, ec, crypto.SHA256},
		{AlgRSAPKCS1SHA256, SpecRSA2048, rsaKey, crypto.SHA256},
		{AlgRSAPSSSHA256, SpecRSA2048, rsaKey, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}},
	}
	for _, c := range cases {
		t.Run(string(c.alg), func(t *testing.T) {
			public, err := x509.MarshalPKIXPublicKey(c.signer.Public())
			if err != nil {
				t.Fatal(err)
			}
			info, err := csrInfo(public, in)
			if err != nil {
				t.Fatal(err)
			}
			digest := sha256.Sum256(info)
			signature, err := c.signer.Sign(rand.Reader, digest[:], c.opts)
			if err != nil {
				t.Fatal(err)
			}
			der, err := signedDER(info, c.spec, c.alg, signature)
			if err != nil {
				t.Fatal(err)
			}
			csr, err := x509.ParseCertificateRequest(der)
			if err != nil {
				t.Fatal(err)
			}
			if err := csr.CheckSignature(); err != nil {
				t.Error(err)
			}
			if csr.Subject.CommonName != "Größe 1" || !slices.Equal(csr.DNSNames, in.DNSNames) ||
				!slices.Equal(csr.EmailAddresses, in.Emails) || len(csr.IPAddresses) != 2 || csr.URIs[0].String() != uri.String() {
				t.Errorf("read back as %+v", csr)
			}
		})
	}
	if info, err := csrInfo(nil, CSRInput{DNSNames: []string{"a\x00b"}}); err == nil {
		t.Errorf("a name with a control character gave %x", info)
	}
}
