package hsmtest

import (
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// usageOf returns the usage whose keys serve a private verb.
var usageOf = map[kms.Verb]kms.Usage{
	kms.VerbSign:        kms.UsageSignVerify,
	kms.VerbDecrypt:     kms.UsageEncryptDecrypt,
	kms.VerbEncrypt:     kms.UsageEncryptDecrypt, // of symmetric keys
	kms.VerbMAC:         kms.UsageGenerateVerifyMAC,
	kms.VerbAgree:       kms.UsageKeyAgreement,
	kms.VerbDerive:      kms.UsageDerive,
	kms.VerbWrap:        kms.UsageWrapUnwrap,
	kms.VerbUnwrap:      kms.UsageWrapUnwrap,
	kms.VerbDecapsulate: kms.UsageEncapsulateDecapsulate,
}

// testOtherUses tries every verb with every algorithm that the key is not for.
func (s *suite) testOtherUses(t *testing.T, k *key) {
	c := s.caller(t)
	tried := make(map[string]bool)
	for _, other := range kms.Specs() {
		for _, u := range other.Usages {
			for _, alg := range u.Algorithms {
				for verb, usage := range usageOf {
					what := fmt.Sprintf("verb %d with %s on a %s key for %s", verb, alg, k.spec, k.usage)
					if tried[what] || usage == k.usage && k.spec.Supports(usage, alg) ||
						verb == kms.VerbEncrypt && !k.spec.Info().Symmetric() {
						continue
					}
					tried[what] = true
					c.refused(t, what, misuse(k, verb, alg), hsm.ClassRequest, hsm.ClassUnsupported)
				}
			}
		}
	}
	c.refused(t, "an unknown algorithm", hsm.Call{Verb: kms.VerbSign, Algorithm: "NONE", Spec: k.spec, Handle: k.handle},
		hsm.ClassRequest, hsm.ClassUnsupported)
	c.refused(t, "an unknown verb", hsm.Call{Verb: 255, Spec: k.spec, Handle: k.handle},
		hsm.ClassRequest, hsm.ClassUnsupported)
}

// misuse returns a call in which nothing is wrong but that the key is not for
// it.
func misuse(k *key, verb kms.Verb, alg kms.Algorithm) hsm.Call {
	call := hsm.Call{Verb: verb, Algorithm: alg, Spec: k.spec, Handle: k.handle, Input: []byte("sixteen bytes ok")}
	switch verb {
	case kms.VerbSign:
		call.UserID = userIDFor(alg)
	case kms.VerbEncrypt, kms.VerbDecrypt:
		call.Nonce = make([]byte, nonceSizeOf(alg))
	case kms.VerbAgree:
		call.Input, call.Peer = nil, k.public
	case kms.VerbDerive:
		call.Length = 32
	}
	return call
}
