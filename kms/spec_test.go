package kms_test

import (
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// The look-up of a spec is on the way of every request.
func TestEverySpecIsFoundWithoutAllocation(t *testing.T) {
	for _, row := range kms.Specs() {
		info := row.Spec.Info()
		if info == nil || info.Spec != row.Spec {
			t.Fatalf("%s: found %v", row.Spec, info)
		}
	}
	if kms.Spec("AES_512").Info() != nil || kms.Spec("").Info() != nil {
		t.Error("found a spec that is none")
	}
	if n := testing.AllocsPerRun(100, func() { kms.SpecSLHDSASHAKE256F.Info() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every row offers something, each usage and algorithm once, and GCM before
// what does not authenticate.
func TestTheTableOfSpecsIsWellFormed(t *testing.T) {
	seen := map[kms.Spec]bool{}
	for _, row := range kms.Specs() {
		if seen[row.Spec] || row.Bits == 0 || row.Family == "" || len(row.Usages) == 0 {
			t.Errorf("%s: twice, or without size, family or usage", row.Spec)
		}
		seen[row.Spec] = true
		usages := map[kms.Usage]bool{}
		for _, u := range row.Usages {
			if usages[u.Usage] || len(u.Algorithms) == 0 {
				t.Errorf("%s: %s twice or without algorithm", row.Spec, u.Usage)
			}
			usages[u.Usage] = true
			algorithms := map[kms.Algorithm]bool{}
			for _, a := range u.Algorithms {
				if algorithms[a] || !row.Spec.Supports(u.Usage, a) {
					t.Errorf("%s: %s twice or not supported", row.Spec, a)
				}
				algorithms[a] = true
			}
		}
		if algs := row.Algorithms(kms.UsageEncryptDecrypt); row.Symmetric() && algs != nil &&
			algs[0] != kms.AlgAESGCM && algs[0] != kms.AlgSM4GCM {
			t.Errorf("%s: the default is %s", row.Spec, algs[0])
		}
	}
}

func TestPrehashSizes(t *testing.T) {
	for a, want := range map[kms.Algorithm]int{
		kms.AlgECDSASHA384: 48, kms.AlgRSAPSSSHA512: 64, kms.AlgSM2DSA: 32,
		kms.AlgMLDSA:   64, // µ
		kms.AlgEd25519: 0, kms.AlgSLHDSA: 0, kms.AlgECDH: 0, kms.AlgHMACSHA256: 0,
	} {
		if got := a.PrehashSize(); got != want {
			t.Errorf("%s takes %d bytes in place of a message, want %d", a, got, want)
		}
	}
}

func BenchmarkInfo(b *testing.B) {
	for _, s := range []kms.Spec{kms.SpecAES128, kms.SpecSLHDSASHAKE256F} {
		b.Run(string(s), func(b *testing.B) {
			for b.Loop() {
				s.Info()
			}
		})
	}
}
