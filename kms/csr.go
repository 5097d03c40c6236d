package kms

import (
	"context"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/netip"
	"net/url"
)

// CSRInput is the input of Service.CSR.
type CSRInput struct {
	Subject   pkix.Name
	DNSNames  []string
	Emails    []string
	Addresses []netip.Addr
	URIs      []*url.URL
	Algorithm Algorithm // "": the key's default
	Version   uint32    // 0: the primary version
}

// MaxCSRNames bounds the subject alternative names of one request.
const MaxCSRNames = 100

// CSR makes a PKCS#10 certification request (RFC 2986) for a key and signs it
// with the key itself. SM2 signs with the default user id, as certificates do
// (GM/T 0015).
func (s *Service) CSR(ctx context.Context, t *Ticket, ref string, in CSRInput) ([]byte, error) {
	var w Work
	var info []byte
	var csr []byte
	err := s.run(ctx, t, &task{
		op: OpCSR, ref: ref,
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, OpCSR); err != nil {
				return err
			}
			v, err := usableVersion(t.Key, in.Version)
			if err != nil {
				return err
			}
			if info, err = csrInfo(v.PublicKey, in); err != nil {
				return err
			}
			w, err = signatureWork(t, VerbSign, SignInput{Message: info, Algorithm: in.Algorithm})
			w.Version, t.Version = v, v.Number
			return err
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			if err := runWork(ctx, s.device, t, node, &w); err != nil {
				return err
			}
			var err error
			csr, err = signedDER(info, t.Key.Spec, t.Algorithm, w.Output)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return csr, nil
}

var (
	oidExtensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14} // RFC 2985, 5.4.2
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}                // RFC 5280, 4.2.1.6
)

// csrInfo encodes a CertificationRequestInfo (RFC 2986, 4.1).
func csrInfo(public []byte, in CSRInput) ([]byte, error) {
	if len(in.DNSNames)+len(in.Emails)+len(in.Addresses)+len(in.URIs) > MaxCSRNames {
		return nil, Errorf(KindInvalidArgument, "at most %d subject alternative names", MaxCSRNames)
	}
	subject, err := asn1.Marshal(in.Subject.ToRDNSequence())
	if err != nil {
		return nil, Errorf(KindInvalidArgument, "subject: cannot be encoded")
	}
	attributes, err := csrAttributes(in)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes asn1.RawValue
	}{0, asn1.RawValue{FullBytes: subject}, asn1.RawValue{FullBytes: public}, attributes})
}

// csrAttributes encodes the attributes: the extension request when there are
// alternative names, nothing else.
func csrAttributes(in CSRInput) (asn1.RawValue, error) {
	attributes := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true}
	var names []asn1.RawValue
	add := func(tag int, value []byte) {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: value})
	}
	text := func(field string, tag int, values []string) error {
		for _, v := range values {
			if len(v) == 0 || len(v) > 253 || !ia5(v) {
				return Errorf(KindInvalidArgument, "%s: must be ASCII of 1 to 253 bytes", field)
			}
			add(tag, []byte(v))
		}
		return nil
	}
	var uris []string
	for _, u := range in.URIs {
		uris = append(uris, u.String())
	}
	for _, err := range []error{text("emails", 1, in.Emails), text("dns_names", 2, in.DNSNames), text("uris", 6, uris)} {
		if err != nil {
			return attributes, err
		}
	}
	for _, a := range in.Addresses {
		add(7, a.Unmap().AsSlice())
	}
	if names == nil {
		return attributes, nil
	}
	san, err := asn1.Marshal(names)
	if err != nil {
		return attributes, err
	}
	extensions, err := asn1.Marshal([]pkix.Extension{{Id: oidSubjectAltName, Value: san}})
	if err != nil {
		return attributes, err
	}
	attributes.Bytes, err = asn1.Marshal(struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}{oidExtensionRequest, []asn1.RawValue{{FullBytes: extensions}}})
	return attributes, err
}

func ia5(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// signedDER joins what was signed, how, and the signature, as certificates and
// requests do (RFC 2986, 4.2).
func signedDER(info []byte, spec Spec, alg Algorithm, signature []byte) ([]byte, error) {
	identifier, err := signatureIdentifier(spec, alg)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: info}, identifier, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
}

// signatureIdentifiers are the identifiers without parameters, but for RSA
// PKCS#1, whose parameters are NULL (RFC 4055, 5).
var signatureIdentifiers = map[Algorithm]asn1.ObjectIdentifier{
	AlgRSAPKCS1SHA256: {1, 2, 840, 113549, 1, 1, 11},
	AlgRSAPKCS1SHA384: {1, 2, 840, 113549, 1, 1, 12},
	AlgRSAPKCS1SHA512: {1, 2, 840, 113549, 1, 1, 13},
	AlgECDSASHA256:    {1, 2, 840, 10045, 4, 3, 2}, // RFC 5758, 3.2
	AlgECDSASHA384:    {1, 2, 840, 10045, 4, 3, 3},
	AlgECDSASHA512:    {1, 2, 840, 10045, 4, 3, 4},
	AlgEd25519:        {1, 3, 101, 112},           // RFC 8410, 3
	AlgSM2DSA:         {1, 2, 156, 10197, 1, 501}, // GM/T 0006
}

// specIdentifiers are those of algorithms whose identifier is the key's own
// (RFC 9881, 2; RFC 9909, 3).
var specIdentifiers = map[Spec]asn1.ObjectIdentifier{
	"ML_DSA_44": {2, 16, 840, 1, 101, 3, 4, 3, 17},
	"ML_DSA_65": {2, 16, 840, 1, 101, 3, 4, 3, 18},
	"ML_DSA_87": {2, 16, 840, 1, 101, 3, 4, 3, 19},

	"SLH_DSA_SHA2_128S":  {2, 16, 840, 1, 101, 3, 4, 3, 20},
	"SLH_DSA_SHA2_128F":  {2, 16, 840, 1, 101, 3, 4, 3, 21},
	"SLH_DSA_SHA2_192S":  {2, 16, 840, 1, 101, 3, 4, 3, 22},
	"SLH_DSA_SHA2_192F":  {2, 16, 840, 1, 101, 3, 4, 3, 23},
	"SLH_DSA_SHA2_256S":  {2, 16, 840, 1, 101, 3, 4, 3, 24},
	"SLH_DSA_SHA2_256F":  {2, 16, 840, 1, 101, 3, 4, 3, 25},
	"SLH_DSA_SHAKE_128S": {2, 16, 840, 1, 101, 3, 4, 3, 26},
	"SLH_DSA_SHAKE_128F": {2, 16, 840, 1, 101, 3, 4, 3, 27},
	"SLH_DSA_SHAKE_192S": {2, 16, 840, 1, 101, 3, 4, 3, 28},
	"SLH_DSA_SHAKE_192F": {2, 16, 840, 1, 101, 3, 4, 3, 29},
	"SLH_DSA_SHAKE_256S": {2, 16, 840, 1, 101, 3, 4, 3, 30},
	"SLH_DSA_SHAKE_256F": {2, 16, 840, 1, 101, 3, 4, 3, 31},
}

func signatureIdentifier(spec Spec, alg Algorithm) (pkix.AlgorithmIdentifier, error) {
	switch alg {
	case AlgRSAPSSSHA256, AlgRSAPSSSHA384, AlgRSAPSSSHA512:
		return pssIdentifier(alg.Hash())
	}
	id := pkix.AlgorithmIdentifier{Algorithm: signatureIdentifiers[alg]}
	if id.Algorithm == nil {
		id.Algorithm = specIdentifiers[spec]
	}
	if id.Algorithm == nil {
		return id, Errorf(KindInvalidArgument, "algorithm: %s has no identifier in certification requests", alg)
	}
	switch alg {
	case AlgRSAPKCS1SHA256, AlgRSAPKCS1SHA384, AlgRSAPKCS1SHA512:
		id.Parameters = asn1.NullRawValue
	}
	return id, nil
}

// pssIdentifier is RSASSA-PSS with MGF1 of the same hash and a salt as long as
// it (RFC 4055, 3.1).
func pssIdentifier(d Digest) (pkix.AlgorithmIdentifier, error) {
	hashes := map[Digest]asn1.ObjectIdentifier{
		DigestSHA256: {2, 16, 840, 1, 101, 3, 4, 2, 1},
		DigestSHA384: {2, 16, 840, 1, 101, 3, 4, 2, 2},
		DigestSHA512: {2, 16, 840, 1, 101, 3, 4, 2, 3},
	}
	hash := pkix.AlgorithmIdentifier{Algorithm: hashes[d], Parameters: asn1.NullRawValue}
	mgf, err := asn1.Marshal(hash)
	if err != nil {
		return pkix.AlgorithmIdentifier{}, err
	}
	parameters, err := asn1.Marshal(struct {
		Hash       pkix.AlgorithmIdentifier `asn1:"explicit,tag:0"`
		MGF        pkix.AlgorithmIdentifier `asn1:"explicit,tag:1"`
		SaltLength int                      `asn1:"explicit,tag:2"`
	}{hash, pkix.AlgorithmIdentifier{
		Algorithm:  asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 8},
		Parameters: asn1.RawValue{FullBytes: mgf},
	}, d.Size()})
	return pkix.AlgorithmIdentifier{
		Algorithm:  asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10},
		Parameters: asn1.RawValue{FullBytes: parameters},
	}, err
}
