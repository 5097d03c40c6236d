package wire_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/softhsm/fault"
)

// BenchmarkNodes is P10: the throughput of pools of 1, 2 and 4 nodes that
// saturate like hardware (four operations at once of 8 ms each, our processors
// left free), under more callers than there are slots, over that of one node
// times the number of nodes. The budget is 0.95. The pools take turns, and the
// median of the rounds counts.
//
//	go test -run '^$' -bench BenchmarkNodes -benchtime 1x ./cmd/sluice/wire
func BenchmarkNodes(b *testing.B) {
	const service, rounds, window = 8 * time.Millisecond, 5, 1500 * time.Millisecond
	sizes := []int{1, 2, 4}
	pools := make([]*faultyPool, len(sizes))
	for i, nodes := range sizes {
		pools[i] = newFaultyPool(b, nodes)
		for _, m := range pools[i].modules {
			m.SetService(fault.Encrypt, service, 0)
		}
		for k := range keysOf(nodes) {
			pools[i].must(b, pools[i].tenants[0], "/v1/keys", fmt.Sprintf(`{"name":%q,"spec":"AES_256"}`, benchKey(k)))
			pools[i].must(b, pools[i].tenants[0], "/v1/keys/"+benchKey(k)+"/encrypt", `{"plaintext":"aGVsbG8="}`)
		}
	}
	rates := make([][]float64, len(sizes))
	for b.Loop() {
		for range rounds {
			for i, p := range pools {
				rates[i] = append(rates[i], p.saturate(b, keysOf(sizes[i]), window))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of many things at once
	for i, nodes := range sizes {
		ofLinear := make([]float64, len(rates[i]))
		for round, rate := range rates[i] {
			ofLinear[round] = rate / (rates[0][round] * float64(nodes))
		}
		slices.Sort(ofLinear)
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], fmt.Sprintf("%d-requests/s", nodes))
		b.ReportMetric(ofLinear[len(ofLinear)/2], fmt.Sprintf("%d-of-linear", nodes))
	}
}

// keysOf is how many keys are used: enough for every node to be home of some.
func keysOf(nodes int) int { return 64 * nodes }

func benchKey(i int) string { return fmt.Sprintf("bench-%d", i) }

// saturate has three callers for each slot for a time and returns requests/s.
func (p *faultyPool) saturate(b *testing.B, keys int, window time.Duration) float64 {
	callers := 3 * p.slots
	done := make([]int, callers)
	var all sync.WaitGroup
	started := time.Now()
	for caller := range callers {
		all.Go(func() {
			for i := caller; time.Since(started) < window; i++ {
				status, _, err := p.post(p.tenants[0], "/v1/keys/"+benchKey(i%keys)+"/encrypt", `{"plaintext":"aGVsbG8="}`)
				if status != 200 || err != nil {
					b.Errorf("%d %v", status, err)
					return
				}
				done[caller]++
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range done {
		total += n
	}
	return float64(total) / time.Since(started).Seconds()
}
