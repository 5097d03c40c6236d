package quota

import (
	"maps"

	"github.com/sluice-kms/sluice/kms"
)

// What is added when the key has to be unwrapped into the token first, in
// credits.
const (
	coldSymmetric = 1
	coldPrivate   = 5
)

// pricedSpecs is the table of specs: a row per price, for the specs that share it.
var pricedSpecs = []struct {
	specs                     []kms.Spec
	private, public, generate int64 // credits, as the rest
	coldLoad                  int64
	apart                     map[kms.Op]int64
}{
	{[]kms.Spec{
		kms.SpecAES128, kms.SpecAES192, kms.SpecAES256, kms.SpecSM4,
		kms.SpecHMAC224, kms.SpecHMAC256, kms.SpecHMAC384, kms.SpecHMAC512, kms.SpecHMACSM3,
	}, 1, 1, 5, coldSymmetric, nil},

	{[]kms.Spec{kms.SpecSM2}, 12, 4, 30, coldPrivate, map[kms.Op]int64{kms.OpDecrypt: 14}},
	{[]kms.Spec{kms.SpecP256, kms.SpecSecp256k1, kms.SpecEd25519}, 10, 3, 25, coldPrivate, nil},
	{[]kms.Spec{kms.SpecP384}, 16, 5, 40, coldPrivate, nil},
	{[]kms.Spec{kms.SpecP521}, 24, 8, 60, coldPrivate, nil},

	{[]kms.Spec{kms.SpecRSA2048}, 20, 2, 400, coldPrivate, nil},
	{[]kms.Spec{kms.SpecRSA3072}, 60, 3, 1_200, coldPrivate, nil},
	{[]kms.Spec{kms.SpecRSA4096}, 120, 4, 4_000, coldPrivate, nil},

	{[]kms.Spec{kms.SpecMLKEM512}, 30, 15, 40, coldPrivate, nil},
	{[]kms.Spec{kms.SpecMLKEM768}, 40, 20, 50, coldPrivate, nil},
	{[]kms.Spec{kms.SpecMLKEM1024}, 50, 25, 60, coldPrivate, nil},

	{[]kms.Spec{kms.SpecMLDSA44}, 40, 15, 60, coldPrivate, nil},
	{[]kms.Spec{kms.SpecMLDSA65}, 55, 20, 80, coldPrivate, nil},
	{[]kms.Spec{kms.SpecMLDSA87}, 75, 30, 100, coldPrivate, nil},

	{[]kms.Spec{
		kms.SpecSLHDSASHA2128F, kms.SpecSLHDSASHA2192F, kms.SpecSLHDSASHA2256F,
		kms.SpecSLHDSASHAKE128F, kms.SpecSLHDSASHAKE192F, kms.SpecSLHDSASHAKE256F,
	}, 2_000, 40, 500, coldPrivate, nil},
	{[]kms.Spec{
		kms.SpecSLHDSASHA2128S, kms.SpecSLHDSASHA2192S, kms.SpecSLHDSASHA2256S,
		kms.SpecSLHDSASHAKE128S, kms.SpecSLHDSASHAKE192S, kms.SpecSLHDSASHAKE256S,
	}, 20_000, 20, 5_000, coldPrivate, nil},
}

// pricedOperations is the table of operations that cost the same whatever
// the key, in credits.
var pricedOperations = map[kms.Op]int64{
	kms.OpRandom: 1,
	kms.OpDigest: 1,

	// Of one item; one that the client has already is none.
	kms.OpFetchSecrets:   1,
	kms.OpWatchSecrets:   1,
	kms.OpReportSecrets:  1,
	kms.OpReportRoute:    1,
	kms.OpReadJobResults: 1,

	// Reading one object's metadata.
	kms.OpPublic:         1,
	kms.OpDescribeKey:    1,
	kms.OpReadTenant:     1,
	kms.OpReadProject:    1,
	kms.OpReadCredential: 1,
	kms.OpReadNodes:      1,
	kms.OpReadPolicy:     1,
	kms.OpTestNode:       5,
	kms.OpReadQuota:      1,
	kms.OpReadCapacity:   1,
	kms.OpReadQuotas:     2,
	kms.OpReadWebhook:    1,
	kms.OpReadSecret:     1,
	kms.OpReadRoute:      1,
	kms.OpReadJob:        1,
	kms.OpReadRequest:    1,
	kms.OpLogin:          1,
	kms.OpReadSelf:       1,
	kms.OpLogout:         1,
	kms.OpReadAudit:      2,
	kms.OpReadUsage:      2,

	kms.OpReadApprovals: 1,
	kms.OpImportParams:  1,

	kms.OpListKeys:    2,
	kms.OpListAliases: 2,
	kms.OpListSecrets: 2,
	kms.OpListRoutes:  2,
	kms.OpListJobs:    2,

	kms.OpReadSecretGrants: 2,

	// Other management.
	kms.OpUpdateKey:        5,
	kms.OpEnableKey:        5,
	kms.OpDisableKey:       5,
	kms.OpDeleteKey:        5,
	kms.OpCancelDel:        5,
	kms.OpEnableVersion:    5,
	kms.OpDisableVersion:   5,
	kms.OpDestroyVersion:   5,
	kms.OpCancelDestroy:    5,
	kms.OpSetAlias:         5,
	kms.OpDeleteAlias:      5,
	kms.OpImportKey:        5,
	kms.OpApprove:          5,
	kms.OpSetNodeMode:      5,
	kms.OpCheckPolicy:      5,
	kms.OpPutPolicy:        5,
	kms.OpKeeperDestroy:    5,
	kms.OpKeeperRevoke:     5,
	kms.OpKeeperErase:      5,
	kms.OpKeeperShred:      5,
	kms.OpFoundOld:         1,
	kms.OpRestore:          5,
	kms.OpRewrapTenant:     5,
	kms.OpRewrapKeys:       5,
	kms.OpRetireRoots:      5,
	kms.OpInitDomain:       5,
	kms.OpJoinDomain:       5,
	kms.OpReplaceRoots:     5,
	kms.OpGiveRoots:        5,
	kms.OpCheckBackups:     1,
	kms.OpDeleteTenant:     5,
	kms.OpCreateTenant:     5,
	kms.OpUpdateTenant:     5,
	kms.OpSuspendTenant:    5,
	kms.OpResumeTenant:     5,
	kms.OpCreateProject:    5,
	kms.OpCreateCredential: 5,
	kms.OpRotateCredential: 5,
	kms.OpRevokeCredential: 5,
	kms.OpClearCredential:  5,
	kms.OpEnrolCode:        5,
	kms.OpProveCredential:  5,
	kms.OpKeeperFlag:       5,
	kms.OpCreateWebhook:    5,
	kms.OpLiftCost:         5,
	kms.OpDeleteWebhook:    5,
	kms.OpTestWebhook:      5,
	kms.OpCreateSecret:     5,
	kms.OpUpdateSecret:     5,
	kms.OpDeleteSecret:     5,
	kms.OpAddSecretVersion: 5,
	kms.OpActivateSecret:   5,
	kms.OpRollbackSecret:   5,
	kms.OpDisableSecret:    5,
	kms.OpDestroySecret:    5,
	kms.OpRestoreSecret:    5,
	kms.OpSetSecretGrants:  5,
	kms.OpGiveSecretGrant:  5,
	kms.OpTakeSecretGrant:  5,
	kms.OpPutRoute:         5,
	kms.OpDeleteRoute:      5,
	kms.OpCreateJob:        5,
	kms.OpCancelJob:        5,
	kms.OpDeleteJob:        5,

	kms.OpKeeperAdvanceSecret:  5,
	kms.OpKeeperRollbackSecret: 5,
	kms.OpKeeperDestroySecret:  5,
	kms.OpKeeperTryKey:         1,
}

// DefaultCosts returns the price list that Sluice comes with.
func DefaultCosts() Costs {
	c := Costs{
		Version:    "1",
		Default:    8,
		BlockBytes: 4096,
		// Not free, so that guessing is not, and a tenth, so that honest
		// mistakes hardly count.
		RefusedMicrocredits: int64(kms.Credit / 10),
		Operations:          maps.Clone(pricedOperations),
		Specs:               make(map[kms.Spec]SpecCosts),
	}
	for _, row := range pricedSpecs {
		for _, spec := range row.specs {
			c.Specs[spec] = SpecCosts{
				Private: row.private, Public: row.public, Generate: row.generate,
				ColdLoad: row.coldLoad, Apart: maps.Clone(row.apart),
			}
		}
	}
	return c
}

// DefaultCostTable returns the table of DefaultCosts.
func DefaultCostTable() *CostTable {
	c := DefaultCosts()
	return NewCostTable(&c)
}
