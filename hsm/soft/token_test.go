package soft_test

import (
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

// conformanceSpecs are all specs; the long RSA keys, whose code is that of
// the short one and whose generation takes seconds, only in a full run.
func conformanceSpecs() []kms.Spec {
	var specs []kms.Spec
	for _, info := range kms.Specs() {
		if testing.Short() && info.Family == kms.FamilyRSA && info.Bits > 2048 {
			continue
		}
		specs = append(specs, info.Spec)
	}
	return specs
}

func TestTokenConforms(t *testing.T) {
	hsmtest.RunToken(t, open, hsmtest.Options{
		Specs:         conformanceSpecs(),
		PublicVerbs:   true,
		BoundMaterial: true,
		Peer:          open,
		Clear: func(t *testing.T, material []byte, spec kms.Spec) []byte {
			return material[materialHeader:]
		},
	})
}
