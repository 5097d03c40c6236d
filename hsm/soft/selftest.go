package soft

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// knownAnswer is one computation whose result a standard prints.
type knownAnswer struct {
	name string
	run  func() ([]byte, error)
	want []byte
}

// knownAnswers exercise every code base that the engine computes with, in the
// way that calls do, without the slab: a full one must not fail the probe.
var knownAnswers = []knownAnswer{
	{
		"SM3, GB/T 32905 A.1",
		func() ([]byte, error) { return digest(kms.DigestSM3, []byte("abc")) },
		unhex("66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"),
	},
	{
		"AES-256-GCM, McGrew and Viega, The Galois/Counter Mode of Operation, test case 14",
		func() ([]byte, error) {
			return runKnown(kms.SpecAES256, kms.UsageEncryptDecrypt, make([]byte, 32), &hsm.Call{
				Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Nonce: make([]byte, nonceSize), Input: make([]byte, 16)})
		},
		unhex("cea7403d4d606b6e074ec5d3baf39d18" + "d0d1c8a799996bf0265b98b5d48ab919"),
	},
	{
		"SM4-GCM, RFC 8998 A.1",
		func() ([]byte, error) {
			return runKnown(kms.SpecSM4, kms.UsageEncryptDecrypt, unhex("0123456789abcdeffedcba9876543210"), &hsm.Call{
				Verb: kms.VerbEncrypt, Algorithm: kms.AlgSM4GCM,
				Nonce: unhex("00001234567800000000abcd"),
				AAD:   unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
				Input: unhex("aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd" +
					"eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa")})
		},
		unhex("17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735" +
			"d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d" +
			"83de3541e4c2b58177e065a9bf7b62ec"),
	},
	{
		"HMAC-SHA-256, RFC 4231 4.7 (test case 6 with its key hashed, as RFC 2104 says)",
		func() ([]byte, error) {
			key, err := digest(kms.DigestSHA256, bytes.Repeat([]byte{0xaa}, 131))
			if err != nil {
				return nil, err
			}
			return runKnown(kms.SpecHMAC256, kms.UsageGenerateVerifyMAC, key, &hsm.Call{
				Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSHA256,
				Input: []byte("Test Using Larger Than Block-Size Key - Hash Key First")})
		},
		unhex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
	},
	{
		"Ed25519, RFC 8032 7.1, test 1",
		func() ([]byte, error) {
			return runKnown(kms.SpecEd25519, kms.UsageSignVerify,
				unhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"),
				&hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgEd25519})
		},
		unhex("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555f" +
			"b8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
	},
	{
		"SM2, GB/T 32918.5 A.2",
		func() ([]byte, error) {
			valid, err := verifyPublic(&hsm.Call{
				Verb: kms.VerbVerify, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2,
				PublicKey: marshalPublic(kms.SpecSM2, unhex("04"+
					"09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"+
					"ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13")),
				Input: []byte("message digest"), UserID: []byte("1234567812345678"),
				Signature: unhex("3046" +
					"022100f5a03b0648d2c4630eeac513e1bb81a15944da3827d5b74143ac7eaceee720b3" +
					"022100b1b6aa29df212fd8763182bc0d421ca1bb9038fd1f7f42d4840b69c485bbc1aa")})
			if err != nil || !valid {
				return nil, err
			}
			return []byte{1}, nil
		},
		[]byte{1},
	},
	{
		"AES-KWP, RFC 5649 6, second example",
		func() ([]byte, error) {
			return runKnown(kms.SpecAES192, kms.UsageWrapUnwrap, unhex("5840df6e29b02af1ab493b705bf16ea1ae8338f4dcc176a8"),
				&hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Input: unhex("466f7250617369")})
		},
		unhex("afbeb0f07dfbf5419200f2ccb50bb24f"),
	},
	{
		"HKDF-SHA-256, RFC 5869 A.1",
		func() ([]byte, error) {
			return runKnown(kms.SpecHMAC256, kms.UsageDerive, unhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"),
				&hsm.Call{Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA256, Input: unhex("f0f1f2f3f4f5f6f7f8f9"), Length: 42})
		},
		unhex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"),
	},
	{
		"ML-KEM-512, Wycheproof mlkem_512_keygen_seed_test 1",
		func() ([]byte, error) { return runKEM(kms.SpecMLKEM512, wycheproofKEMSeed) },
		unhex("852523749efd2b78d1074e5de629060312cd9397933a19ddb7482cfda5e92614"),
	},
	{
		"ML-KEM-768, Wycheproof mlkem_768_keygen_seed_test 1",
		func() ([]byte, error) { return runKEM(kms.SpecMLKEM768, wycheproofKEMSeed) },
		unhex("86adbca81f4fee893e2fb58fb98aa2fe188f501fed268d7f4056f8c05c4e53c4"),
	},
	{
		"ML-DSA-44, Wycheproof mldsa_44_sign_seed_test 1",
		func() ([]byte, error) { return runPair(kms.SpecMLDSA44, kms.AlgMLDSA, bytes.Repeat([]byte{0x2a}, 32)) },
		unhex("d87f8ca136ac1aa55e2d6c4521680efb3a378cbb9bc0bfb446e9c60893931ea3"),
	},
	{
		"SLH-DSA-SHA2-128f, key generation of an ACVP sample",
		func() ([]byte, error) {
			return publicOctetsOf(kms.SpecSLHDSASHA2128F.Info(),
				unhex("d5213ba4bb6470f1b9eda88cbc94e6277a58a951ef7f2b81461dbac41b5a6b83fa495fb834defea7cc96a81309479135"))
		},
		unhex("fa495fb834defea7cc96a81309479135" + "a67029e90668c5a58b96e60111491f3d"),
	},
}

var wycheproofKEMSeed = unhex("7c9935a0b07694aa0c6d10e4db6b1add2fd81a25ccb148032dcd739936737f2d" +
	"8626ed79d451140800e03b59b956f8210e556067407d13dc90fa9e8b872bfb8f")

// runKEM returns the SHA-256 of the public key that belongs to a seed, after
// a secret was encapsulated to it and recovered.
func runKEM(spec kms.Spec, seed []byte) ([]byte, error) {
	info := spec.Info()
	public, err := publicHalf(info, seed)
	if err != nil {
		return nil, err
	}
	secret, ciphertext, err := encapsulatePublic(&hsm.Call{Spec: spec, Algorithm: kms.AlgMLKEM, PublicKey: public})
	if err != nil {
		return nil, err
	}
	recovered, err := runKnown(spec, kms.UsageEncapsulateDecapsulate, seed,
		&hsm.Call{Verb: kms.VerbDecapsulate, Algorithm: kms.AlgMLKEM, Input: ciphertext})
	if err != nil || !bytes.Equal(recovered, secret) {
		return nil, err
	}
	return hashOfKey(info, public)
}

// runPair is the same for a key that signs.
func runPair(spec kms.Spec, alg kms.Algorithm, seed []byte) ([]byte, error) {
	info := spec.Info()
	public, err := publicHalf(info, seed)
	if err != nil {
		return nil, err
	}
	call := &hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: spec, PublicKey: public, Input: []byte("message")}
	if call.Signature, err = runKnown(spec, kms.UsageSignVerify, seed, call); err != nil {
		return nil, err
	}
	if valid, err := verifyPublic(call); err != nil || !valid {
		return nil, err
	}
	return hashOfKey(info, public)
}

func hashOfKey(info *kms.SpecInfo, public []byte) ([]byte, error) {
	octets, err := publicOctets(info, public)
	if err != nil {
		return nil, err
	}
	return digest(kms.DigestSHA256, octets)
}

// runKnown runs a call on a key that is public knowledge.
func runKnown(spec kms.Spec, usage kms.Usage, raw []byte, c *hsm.Call) ([]byte, error) {
	if err := checkFields(c); err != nil {
		return nil, err
	}
	key, err := newPrivateKey(spec.Info(), usage, raw, make([]byte, slotSize))
	if err != nil {
		return nil, err
	}
	return apply(key, c)
}

// selfTest compares known answers.
func selfTest(answers []knownAnswer) error {
	for _, k := range answers {
		got, err := k.run()
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if !bytes.Equal(got, k.want) {
			return fmt.Errorf("%s: %w", k.name, errKnownAnswer)
		}
	}
	return nil
}

// unhex decodes a constant of this file.
func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
