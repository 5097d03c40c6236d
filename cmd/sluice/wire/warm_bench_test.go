package wire_test

import (
	"testing"

	"github.com/sluice-kms/sluice/softhsm/fault"
)

// BenchmarkWarmRequest counts what a warm request of a whole service asks others
// for (P3, P4): look-ups that no cache of the store answered, and calls of the
// module beside the two of an encryption. Both budgets are 0.
//
//	go test -run '^$' -bench BenchmarkWarmRequest -benchtime 2000x ./cmd/sluice/wire
func BenchmarkWarmRequest(b *testing.B) {
	p := newFaultyPool(b, 1)
	p.must(b, p.tenants[0], "/v1/keys", `{"name":"warm","spec":"AES_256"}`)
	encrypt := func() { p.must(b, p.tenants[0], "/v1/keys/warm/encrypt", `{"plaintext":"aGVsbG8="}`) }
	encrypt()
	loads := func() (n float64) {
		families, err := p.app.Metrics.Gather()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "sluice_keystore_cache_loads_total" {
				for _, m := range f.GetMetric() {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	calls := func() (encryption, others uint64) {
		for f := fault.Initialize; f <= fault.GenerateRandom; f++ {
			if n := p.modules[0].Calls(f); f == fault.EncryptInit || f == fault.Encrypt {
				encryption += n
			} else {
				others += n
			}
		}
		return encryption, others
	}
	loadsBefore := loads()
	encryptionBefore, othersBefore := calls()
	for b.Loop() {
		encrypt()
	}
	encryption, others := calls()
	b.ReportMetric((loads()-loadsBefore)/float64(b.N), "store-loads/op")
	b.ReportMetric(float64(others-othersBefore)/float64(b.N), "other-calls/op")
	b.ReportMetric(float64(encryption-encryptionBefore)/float64(b.N), "calls/op")
}
