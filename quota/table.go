package quota

import (
	"maps"

	"github.com/sluice-kms/sluice/kms"
)

// Operations and specs that have a price although the route does not offer
// them yet, so that the list is whole and a version of it stays one.
const (
	opSecretFetch     kms.Op = "secret-fetch"     // one item
	opSecretUnchanged kms.Op = "secret-unchanged" // one item that the client has already

	specMLKEM512  kms.Spec = "ML_KEM_512"
	specMLKEM768  kms.Spec = "ML_KEM_768"
	specMLKEM1024 kms.Spec = "ML_KEM_1024"

	specMLDSA44 kms.Spec = "ML_DSA_44"
	specMLDSA65 kms.Spec = "ML_DSA_65"
	specMLDSA87 kms.Spec = "ML_DSA_87"

	// The parameter sets of FIPS 205, table 2: F signs fast, S small.
	specSLHDSASHA2128F  kms.Spec = "SLH_DSA_SHA2_128F"
	specSLHDSASHA2192F  kms.Spec = "SLH_DSA_SHA2_192F"
	specSLHDSASHA2256F  kms.Spec = "SLH_DSA_SHA2_256F"
	specSLHDSASHAKE128F kms.Spec = "SLH_DSA_SHAKE_128F"
	specSLHDSASHAKE192F kms.Spec = "SLH_DSA_SHAKE_192F"
	specSLHDSASHAKE256F kms.Spec = "SLH_DSA_SHAKE_256F"
	specSLHDSASHA2128S  kms.Spec = "SLH_DSA_SHA2_128S"
	specSLHDSASHA2192S  kms.Spec = "SLH_DSA_SHA2_192S"
	specSLHDSASHA2256S  kms.Spec = "SLH_DSA_SHA2_256S"
	specSLHDSASHAKE128S kms.Spec = "SLH_DSA_SHAKE_128S"
	specSLHDSASHAKE192S kms.Spec = "SLH_DSA_SHAKE_192S"
	specSLHDSASHAKE256S kms.Spec = "SLH_DSA_SHAKE_256S"
)

// credits is a whole number of credits.
func credits(n int64) kms.Credits { return kms.Credits(n) * kms.Credit }

// What is added when the key has to be unwrapped into the token first.
const (
	coldSymmetric = 1 * kms.Credit
	coldPrivate   = 5 * kms.Credit
)

// pricedSpecs is the table of specs: a row per price, for the specs that share it.
var pricedSpecs = []struct {
	specs                     []kms.Spec
	private, public, generate int64 // credits
	coldLoad                  kms.Credits
	apart                     map[kms.Op]kms.Credits
}{
	{[]kms.Spec{
		kms.SpecAES128, kms.SpecAES192, kms.SpecAES256, kms.SpecSM4,
		kms.SpecHMAC224, kms.SpecHMAC256, kms.SpecHMAC384, kms.SpecHMAC512, kms.SpecHMACSM3,
	}, 1, 1, 5, coldSymmetric, nil},

	{[]kms.Spec{kms.SpecSM2}, 12, 4, 30, coldPrivate, map[kms.Op]kms.Credits{kms.OpDecrypt: credits(14)}},
	{[]kms.Spec{kms.SpecP256, kms.SpecSecp256k1, kms.SpecEd25519}, 10, 3, 25, coldPrivate, nil},
	{[]kms.Spec{kms.SpecP384}, 16, 5, 40, coldPrivate, nil},
	{[]kms.Spec{kms.SpecP521}, 24, 8, 60, coldPrivate, nil},

	{[]kms.Spec{kms.SpecRSA2048}, 20, 2, 400, coldPrivate, nil},
	{[]kms.Spec{kms.SpecRSA3072}, 60, 3, 1_200, coldPrivate, nil},
	{[]kms.Spec{kms.SpecRSA4096}, 120, 4, 4_000, coldPrivate, nil},

	{[]kms.Spec{specMLKEM512}, 30, 15, 40, coldPrivate, nil},
	{[]kms.Spec{specMLKEM768}, 40, 20, 50, coldPrivate, nil},
	{[]kms.Spec{specMLKEM1024}, 50, 25, 60, coldPrivate, nil},

	{[]kms.Spec{specMLDSA44}, 40, 15, 60, coldPrivate, nil},
	{[]kms.Spec{specMLDSA65}, 55, 20, 80, coldPrivate, nil},
	{[]kms.Spec{specMLDSA87}, 75, 30, 100, coldPrivate, nil},

	{[]kms.Spec{
		specSLHDSASHA2128F, specSLHDSASHA2192F, specSLHDSASHA2256F,
		specSLHDSASHAKE128F, specSLHDSASHAKE192F, specSLHDSASHAKE256F,
	}, 2_000, 40, 500, coldPrivate, nil},
	{[]kms.Spec{
		specSLHDSASHA2128S, specSLHDSASHA2192S, specSLHDSASHA2256S,
		specSLHDSASHAKE128S, specSLHDSASHAKE192S, specSLHDSASHAKE256S,
	}, 20_000, 20, 5_000, coldPrivate, nil},
}

// pricedOperations is the table of operations that cost the same whatever
// the key.
var pricedOperations = map[kms.Op]kms.Credits{
	kms.OpRandom: credits(1),
	kms.OpDigest: credits(1),

	opSecretFetch:     credits(1),
	opSecretUnchanged: credits(0),

	// Reading one object's metadata.
	kms.OpPublic:         credits(1),
	kms.OpDescribeKey:    credits(1),
	kms.OpReadTenant:     credits(1),
	kms.OpReadProject:    credits(1),
	kms.OpReadCredential: credits(1),
	kms.OpReadNodes:      credits(1),
	kms.OpReadQuota:      credits(1),

	kms.OpReadApprovals: credits(1),
	kms.OpImportParams:  credits(1),

	kms.OpListKeys:    credits(2),
	kms.OpListAliases: credits(2),

	// Other management.
	kms.OpUpdateKey:        credits(5),
	kms.OpEnableKey:        credits(5),
	kms.OpDisableKey:       credits(5),
	kms.OpDeleteKey:        credits(5),
	kms.OpCancelDel:        credits(5),
	kms.OpEnableVersion:    credits(5),
	kms.OpDisableVersion:   credits(5),
	kms.OpDestroyVersion:   credits(5),
	kms.OpCancelDestroy:    credits(5),
	kms.OpSetAlias:         credits(5),
	kms.OpDeleteAlias:      credits(5),
	kms.OpImportKey:        credits(5),
	kms.OpApprove:          credits(5),
	kms.OpKeeperDestroy:    credits(5),
	kms.OpKeeperRevoke:     credits(5),
	kms.OpKeeperErase:      credits(5),
	kms.OpKeeperShred:      credits(5),
	kms.OpDeleteTenant:     credits(5),
	kms.OpCreateTenant:     credits(5),
	kms.OpUpdateTenant:     credits(5),
	kms.OpCreateProject:    credits(5),
	kms.OpCreateCredential: credits(5),
	kms.OpRotateCredential: credits(5),
	kms.OpRevokeCredential: credits(5),
}

// DefaultCostTable returns the price list that Sluice comes with.
func DefaultCostTable() *CostTable {
	t := &CostTable{
		Version:    "1",
		operations: maps.Clone(pricedOperations),
		specs:      make(map[kms.Spec]*specPrices),
		fallback:   credits(8),
		// Not free, so that guessing is not, and a tenth, so that honest
		// mistakes hardly count.
		refused: kms.Credit / 10,
	}
	for _, row := range pricedSpecs {
		p := &specPrices{
			private:  credits(row.private),
			public:   credits(row.public),
			generate: credits(row.generate),
			coldLoad: row.coldLoad,
			apart:    row.apart,
		}
		for _, spec := range row.specs {
			t.specs[spec] = p
		}
	}
	return t
}
