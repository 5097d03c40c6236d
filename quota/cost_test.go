package quota

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// The price list once more, written down from the published numbers and not
// from the code, in credits.
func TestEveryRowOfThePriceList(t *testing.T) {
	type price struct {
		op      kms.Op
		credits float64
	}
	uses := func(sign, verify, generate float64) []price {
		return []price{{"sign", sign}, {"csr", sign}, {"verify", verify}, {"create", generate}, {"rotate", generate}}
	}
	symmetric := []price{{"encrypt", 1}, {"decrypt", 1}, {"datakey", 1}, {"create", 5}, {"rotate", 5}}
	mac := []price{{"mac", 1}, {"verify-mac", 1}, {"create", 5}, {"rotate", 5}}
	rsa := func(private, public, generate float64) []price {
		return append(uses(private, public, generate), price{"decrypt", private}, price{"encrypt", public}, price{"datakey", public})
	}
	kem := func(decapsulate, encapsulate, generate float64) []price {
		return []price{{"decapsulate", decapsulate}, {"encapsulate", encapsulate}, {"create", generate}, {"rotate", generate}}
	}
	tests := []struct {
		spec   kms.Spec
		prices []price
		cold   float64
	}{
		{"SM4", symmetric, 1},
		{"AES_128", symmetric, 1},
		{"AES_192", symmetric, 1},
		{"AES_256", symmetric, 1},
		{"HMAC_224", mac, 1},
		{"HMAC_256", mac, 1},
		{"HMAC_384", mac, 1},
		{"HMAC_512", mac, 1},
		{"HMAC_SM3", mac, 1},
		{"SM2", append(uses(12, 4, 30), price{"decrypt", 14}, price{"shared-secret", 12}, price{"encrypt", 4}, price{"datakey", 4}), 5},
		{"ECC_NIST_P256", uses(10, 3, 25), 5},
		{"ECC_SECG_P256K1", uses(10, 3, 25), 5},
		{"ECC_NIST_EDWARDS25519", uses(10, 3, 25), 5},
		{"ECC_NIST_P384", uses(16, 5, 40), 5},
		{"ECC_NIST_P521", uses(24, 8, 60), 5},
		{"RSA_2048", rsa(20, 2, 400), 5},
		{"RSA_3072", rsa(60, 3, 1200), 5},
		{"RSA_4096", rsa(120, 4, 4000), 5},
		{"ML_KEM_512", kem(30, 15, 40), 5},
		{"ML_KEM_768", kem(40, 20, 50), 5},
		{"ML_KEM_1024", kem(50, 25, 60), 5},
		{"ML_DSA_44", uses(40, 15, 60), 5},
		{"ML_DSA_65", uses(55, 20, 80), 5},
		{"ML_DSA_87", uses(75, 30, 100), 5},
		{"SLH_DSA_SHA2_128F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHA2_192F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHA2_256F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHAKE_128F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHAKE_192F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHAKE_256F", uses(2000, 40, 500), 5},
		{"SLH_DSA_SHA2_128S", uses(20000, 20, 5000), 5},
		{"SLH_DSA_SHA2_192S", uses(20000, 20, 5000), 5},
		{"SLH_DSA_SHA2_256S", uses(20000, 20, 5000), 5},
		{"SLH_DSA_SHAKE_128S", uses(20000, 20, 5000), 5},
		{"SLH_DSA_SHAKE_192S", uses(20000, 20, 5000), 5},
		{"SLH_DSA_SHAKE_256S", uses(20000, 20, 5000), 5},
		{"", []price{
			{"random", 1}, {"digest", 1},
			{"fetch-secrets", 1}, {"watch-secrets", 1}, {"report-secrets", 1}, {"report-route", 1}, {"read-route", 1}, {"list-routes", 2}, {"put-route", 5}, {"delete-route", 5},
			{"create-job", 5}, {"read-job", 1}, {"list-jobs", 2}, {"read-job-results", 1}, {"cancel-job", 5}, {"delete-job", 5}, {"read-secret", 1}, {"list-secrets", 2}, {"read-secret-grants", 2},
			{"create-secret", 5}, {"update-secret", 5}, {"delete-secret", 5}, {"add-secret-version", 5}, {"activate-secret", 5}, {"rollback-secret", 5},
			{"disable-secret-version", 5}, {"destroy-secret-version", 5}, {"restore-secret-version", 5}, {"set-secret-grants", 5},
			{"public", 1}, {"describe", 1}, {"list", 2},
			{"list-aliases", 2}, {"read-approvals", 1}, {"import-parameters", 1},
			{"enable-version", 5}, {"disable-version", 5}, {"destroy-version", 5}, {"cancel-destruction", 5},
			{"set-alias", 5}, {"delete-alias", 5}, {"import", 5}, {"approve", 5},
			{"update", 5}, {"enable", 5}, {"disable", 5}, {"destroy", 5}, {"cancel-deletion", 5},
			{"create-tenant", 5}, {"update-tenant", 5}, {"create-project", 5},
			{"rewrap-tenant", 5}, {"rewrap-keys", 5}, {"retire-roots", 5},
			{"create-credential", 5}, {"rotate-credential", 5}, {"revoke-credential", 5},
			{"read-tenant", 1}, {"read-project", 1}, {"read-credential", 1}, {"read-nodes", 1}, {"read-policy", 1}, {"read-quota", 1}, {"read-capacity", 1}, {"read-request", 1},
			{"login", 1}, {"read-self", 1}, {"logout", 1},
			{"sign", 8}, {"never heard of", 8}, {"", 8},
		}, 0},
		{"NEVER_HEARD_OF", []price{{"sign", 8}, {"encrypt", 8}, {"create", 8}, {"describe", 1}}, 0},
	}
	table := DefaultCostTable()
	if table.Version == "" {
		t.Error("the table has no version")
	}
	listed := make(map[kms.Spec]bool)
	for _, tt := range tests {
		listed[tt.spec] = true
		t.Run(string(tt.spec), func(t *testing.T) {
			for _, p := range tt.prices {
				if got, want := table.Price(p.op, tt.spec, 0), kms.Credits(p.credits*1e6); got != want {
					t.Errorf("%s costs %d µcr, want %d", p.op, got, want)
				}
			}
			if got, want := table.ColdLoad(tt.spec), kms.Credits(tt.cold*1e6); got != want {
				t.Errorf("a cold load costs %d µcr, want %d", got, want)
			}
		})
	}
	for spec := range table.specs {
		if !listed[spec] {
			t.Errorf("%s has a price that this test does not know", spec)
		}
	}
	if got := table.Refused(); got != 100_000 {
		t.Errorf("a refused request costs %d µcr, want a tenth of a credit", got)
	}
}

func TestEveryOperationAndSpecHasAPriceOfItsOwn(t *testing.T) {
	table := DefaultCostTable()
	for _, op := range kms.Ops() {
		if op.Op == kms.OpBatch {
			continue // it costs the sum of its items, which are admitted by themselves
		}
		if op.Usage == "" && columnOf(op.Op) == noColumn {
			if _, ok := table.operations[op.Op]; !ok {
				t.Errorf("%s falls to the default price", op.Op)
			}
		}
		for _, spec := range kms.Specs() {
			if got := table.Price(op.Op, spec.Spec, 0); got < kms.Credit {
				t.Errorf("%s with %s costs %d µcr", op.Op, spec.Spec, got)
			}
			usable := op.Usage != "" && spec.Algorithms(op.Usage) != nil
			if _, ok := table.specs[spec.Spec].base(op.Op); usable && !ok {
				t.Errorf("%s with %s falls to the default price", op.Op, spec.Spec)
			}
		}
	}
}

func TestSizeSurcharge(t *testing.T) {
	tests := []struct {
		name  string
		bytes int
		want  kms.Credits // beside the base
	}{
		{"nothing", 0, 0},
		{"negative", -1, 0},
		{"least int", math.MinInt, 0},
		{"one byte", 1, 0},
		{"a block", 4096, 0},
		{"a byte more", 4097, kms.Credit},
		{"two blocks", 8192, kms.Credit},
		{"a byte more than two", 8193, 2 * kms.Credit},
		{"1 MiB", 1 << 20, 255 * kms.Credit},
		{"a terabyte", 1 << 40, (1<<28 - 1) * kms.Credit},
		{"greatest int", math.MaxInt, MaxPrice - kms.Credit},
	}
	table := DefaultCostTable()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := table.Price(kms.OpEncrypt, kms.SpecSM4, tt.bytes); got != kms.Credit+tt.want {
				t.Errorf("price %d µcr, want %d", got, kms.Credit+tt.want)
			}
		})
	}
}

func TestPriceIsTotalAndGrowsWithSize(t *testing.T) {
	table := DefaultCostTable()
	ops := []kms.Op{"", "never heard of"}
	for _, op := range kms.Ops() {
		ops = append(ops, op.Op)
	}
	specs := []kms.Spec{"", "NEVER_HEARD_OF"}
	for spec := range table.specs {
		specs = append(specs, spec)
	}
	rapid.Check(t, func(t *rapid.T) {
		op, spec := rapid.SampledFrom(ops).Draw(t, "op"), rapid.SampledFrom(specs).Draw(t, "spec")
		a, b := rapid.Int().Draw(t, "bytes"), rapid.Int().Draw(t, "more bytes")
		if a > b {
			a, b = b, a
		}
		less, more := table.Price(op, spec, a), table.Price(op, spec, b)
		if less < 0 || more < less || more > MaxPrice {
			t.Fatalf("%s with %q costs %d for %d bytes and %d for %d", op, spec, less, a, more, b)
		}
	})
}

func TestPriceAllocatesNothing(t *testing.T) {
	table := DefaultCostTable()
	var sum kms.Credits
	if got := testing.AllocsPerRun(1000, func() {
		sum += table.Price(kms.OpSign, kms.SpecSM2, 5000) + table.Price(kms.OpListKeys, "", 0) + table.Price("x", "y", 1)
	}); got != 0 || sum == 0 {
		t.Errorf("%v allocations per three prices, which sum to %d", got, sum)
	}
}

func BenchmarkPrice(b *testing.B) {
	table := DefaultCostTable()
	b.ReportAllocs()
	for b.Loop() {
		table.Price(kms.OpSign, kms.SpecSM2, 5000)
	}
}
