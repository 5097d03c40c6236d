package audit

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// perSync returns the entries per fdatasync of the journal so far.
func perSync(t testing.TB, l *Log) float64 {
	t.Helper()
	var m dto.Metric
	if err := l.metrics.batch.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram.GetSampleSum() / float64(m.Histogram.GetSampleCount())
}

func TestManyWritersShareSyncs(t *testing.T) {
	const writers, each = 64, 50
	c := testConfig(t)
	l := mustOpen(t, c)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := l.Record(t.Context(), testEntry(w*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	mustVerify(t, c.Dir, writers*each)
	got := perSync(t, l)
	if got <= 1 {
		t.Errorf("%.1f entries per sync", got)
	}
	t.Logf("%.1f entries per sync", got)
}

func TestRecordAllocatesAtMostOnce(t *testing.T) {
	l := mustOpen(t, testConfig(t))
	defer mustClose(t, l)
	e := testEntry(1)
	ctx := context.Background()
	if got := testing.AllocsPerRun(300, func() {
		if err := l.Record(ctx, e); err != nil {
			t.Fatal(err)
		}
	}); got > 1 {
		t.Errorf("%v allocations per entry", got)
	}
}

func benchmarkRecord(b *testing.B, writers int) {
	c := testConfig(b)
	c.ReserveBytes = 0
	l := mustOpen(b, c)
	defer mustClose(b, l)
	ctx := context.Background()
	b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		e := testEntry(1)
		e.RequestID, e.Tenant, e.Credential, e.Key = uuid.NewV7(), uuid.NewV7(), uuid.NewV7(), uuid.NewV7()
		for pb.Next() {
			if err := l.Record(ctx, e); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(perSync(b, l), "entries/sync")
}

func BenchmarkRecordAlone(b *testing.B) { benchmarkRecord(b, 1) }

func BenchmarkRecord256Writers(b *testing.B) { benchmarkRecord(b, 256) }

func BenchmarkVerify(b *testing.B) {
	const entries = 10_000
	c := testConfig(b)
	l := mustOpen(b, c)
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := range entries / 100 {
				if err := l.Record(context.Background(), testEntry(w*100+i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustClose(b, l)
	for b.Loop() {
		if _, err := Verify(c.Dir, VerifyOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*entries/b.Elapsed().Seconds(), "entries/s")
}
