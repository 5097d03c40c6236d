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
				PublicKey: marshalPoint(kms.SpecSM2, unhex("04"+
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
