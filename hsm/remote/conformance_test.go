package remote

import (
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/kms"
)

func TestSoftHSMInAProcessConforms(t *testing.T) {
	d := shared(t)
	member := func(i int) func(t *testing.T) hsm.Token {
		return func(t *testing.T) hsm.Token {
			token, err := Open(t.Context(), d.config(t, i))
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	// A key of RSA-4096 takes seconds, and HMAC_512 has the length of another
	// kind of key on SoftHSM: hsm/p11 runs both.
	specs := []kms.Spec{kms.SpecAES128, kms.SpecAES256, kms.SpecRSA2048, kms.SpecP256, kms.SpecP384, kms.SpecP521,
		kms.SpecSecp256k1, kms.SpecHMAC256, kms.SpecHMAC384}
	imports := slices.DeleteFunc(slices.Clone(specs), func(s kms.Spec) bool { return s == kms.SpecSecp256k1 })
	hsmtest.RunToken(t, member(0), hsmtest.Options{Specs: specs, SealingKeys: true, Enforces: true, Peer: member(1), Imports: imports})
}

// The in-process engine runs the verbs and the specs that a token lacks.
func TestTheEngineInAProcessConforms(t *testing.T) {
	specs := []kms.Spec{kms.SpecAES256, kms.SpecSM4, kms.SpecSM2, kms.SpecEd25519, kms.SpecP256, kms.SpecHMAC256,
		kms.SpecMLKEM768, kms.SpecMLDSA65}
	hsmtest.RunToken(t, func(t *testing.T) hsm.Token {
		token, err := Open(t.Context(), wildConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}, hsmtest.Options{Specs: specs, PublicVerbs: true, BoundMaterial: true})
}
