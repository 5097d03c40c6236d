package p11

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/kms"
)

func TestSoftHSMConforms(t *testing.T) {
	d := shared(t)
	open := func(i int) func(t *testing.T) hsm.Token {
		return func(t *testing.T) hsm.Token {
			t.Helper()
			token, err := Open(context.Background(), config(d.members[i], d.domain))
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	var specs []kms.Spec
	for _, info := range kms.Specs() {
		switch {
		case keyTypeOf(info.Spec) == nil:
		case info.Spec == kms.SpecRSA4096:
			// A key takes seconds and the suite makes many;
			// TestAKeyMadeOnOneTokenWorksOnAnother has it.
		case info.Spec == kms.SpecHMAC512:
			// Its secret is as long as SoftHSM's encoding of a secp256k1 key,
			// and RFC 5649 does not name types: the seal around material keeps
			// them apart. So it gets a run of its own.
		default:
			specs = append(specs, info.Spec)
		}
	}
	for name, specs := range map[string][]kms.Spec{"most specs": specs, "HMAC_512": {kms.SpecHMAC512}} {
		t.Run(name, func(t *testing.T) {
			hsmtest.RunToken(t, open(0), hsmtest.Options{Specs: specs, SealingKeys: true, Enforces: true, Peer: open(1),
				Imports: importable(specs)})
		})
	}
}

// importable are the specs whose keys Import takes.
func importable(specs []kms.Spec) []kms.Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s kms.Spec) bool { return s == kms.SpecSecp256k1 })
}
