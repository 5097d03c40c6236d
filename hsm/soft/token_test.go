package soft_test

import (
	"os"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// materialHeader is the length of what material says before the key.
const materialHeader = 3

func open(t *testing.T) hsm.Token {
	t.Helper()
	token, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// conformanceSpecs are all specs but those that are slow and have the code of
// others: the long RSA keys, whose generation takes seconds, in a short run,
// and most sets of SLH-DSA except in a full one.
func conformanceSpecs() []kms.Spec {
	full := os.Getenv("SLUICE_CHAOS") == "full"
	var specs []kms.Spec
	for _, info := range kms.Specs() {
		switch {
		case testing.Short() && info.Family == kms.FamilyRSA && info.Bits > 2048:
		case !full && info.Family == kms.FamilySLHDSA && (info.Bits > 128 || hsmtest.Slow(info.Spec)):
		default:
			specs = append(specs, info.Spec)
		}
	}
	return specs
}

func TestTokenConforms(t *testing.T) {
	hsmtest.RunToken(t, open, hsmtest.Options{
		Specs:         conformanceSpecs(),
		PublicVerbs:   true,
		BoundMaterial: true,
		Peer:          open,
		Imports:       conformanceSpecs(),
		Clear: func(t *testing.T, material []byte, spec kms.Spec) []byte {
			return material[materialHeader:]
		},
	})
}
