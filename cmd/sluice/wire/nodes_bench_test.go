package wire_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/softhsm/fault"
)

// BenchmarkNodes is P10: the throughput of pools of 1, 2 and 4 nodes that
// saturate like hardware (four operations at once of 8 ms each, our processors
// left free), under more callers than there are slots, over that of one node
// times the number of nodes. The budget is 0.95. Each pool is measured for as
// long as the benchmark gives it, after a warm-up.
func BenchmarkNodes(b *testing.B) {
	const service = 8 * time.Millisecond
	var single float64
	for _, nodes := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("%d", nodes), func(b *testing.B) {
			p := newFaultyPool(b, nodes)
			for _, m := range p.modules {
				m.SetService(fault.Encrypt, service, 0)
			}
			names := make([]string, 64*nodes)
			for i := range names {
				names[i] = fmt.Sprintf("bench-%d", i)
				p.must(b, p.tenants[0], "/v1/keys", fmt.Sprintf(`{"name":%q,"spec":"AES_256"}`, names[i]))
				p.must(b, p.tenants[0], "/v1/keys/"+names[i]+"/encrypt", `{"plaintext":"aGVsbG8="}`)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			started := time.Now()
			for caller := range 3 * p.slots {
				all.Go(func() {
					for i := caller; left.Add(-1) >= 0; i++ {
						status, _, err := p.post(p.tenants[0], "/v1/keys/"+names[i%len(names)]+"/encrypt", `{"plaintext":"aGVsbG8="}`)
						if status != 200 || err != nil {
							b.Errorf("%d %v", status, err)
							return
						}
					}
				})
			}
			all.Wait()
			rate := float64(b.N) / time.Since(started).Seconds()
			if nodes == 1 {
				single = rate
			}
			b.ReportMetric(rate, "requests/s")
			if single > 0 {
				b.ReportMetric(rate/(single*float64(nodes)), "of-linear")
			}
		})
	}
}
