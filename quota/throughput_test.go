package quota

import (
	"encoding/json/v2"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// noon is on a minute, so that a test decides when one turns.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (m *Measurement) perCredit() time.Duration { return time.Duration(m.SlotNsPerCredit) }

// noteEvenly notes n operations of a kind, spread over a minute that begins at
// from.
func noteEvenly(t *Throughput, from time.Time, n int, op kms.Op, spec kms.Spec, credits int64, slot time.Duration) {
	for i := range n {
		t.Note(op, spec, kms.Credits(credits)*kms.Credit, slot, from.Add(time.Duration(i)*time.Minute/time.Duration(n)))
	}
}

func TestMeasurementIsThatOfTheDearestOfTheLoad(t *testing.T) {
	type load struct {
		op      kms.Op
		spec    kms.Spec
		credits int64
		slot    time.Duration
		n       int
	}
	sign := load{kms.OpSign, kms.SpecP256, 10, time.Millisecond, 20_000}        // 100 µs a credit, 20 s
	encrypt := load{kms.OpEncrypt, kms.SpecAES256, 1, time.Millisecond, 20_000} // 1 ms a credit, 20 s
	rare := load{kms.OpSign, kms.SpecRSA4096, 1, 100 * time.Millisecond, 3}     // 100 ms a credit, 0.3 s
	for _, c := range []struct {
		name  string
		loads []load
		want  time.Duration // 0: none
		op    kms.Op
	}{
		{"one operation", []load{sign}, 100 * time.Microsecond, kms.OpSign},
		{"the dearer of two", []load{sign, encrypt}, time.Millisecond, kms.OpEncrypt},
		{"not what is no twentieth of the load", []load{sign, rare}, 100 * time.Microsecond, kms.OpSign},
		{"nothing", nil, 0, ""},
		{"too few operations", []load{{kms.OpSign, kms.SpecRSA4096, 120, time.Second, enoughOperations - 1}}, 0, ""},
		{"too little slot time", []load{{kms.OpEncrypt, kms.SpecAES256, 1, 10 * time.Microsecond, 20_000}}, 0, ""},
		{"what costs nothing", []load{{kms.OpSign, kms.SpecP256, 0, time.Millisecond, 20_000}}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			throughput := NewThroughput(nil)
			n := 0
			for _, l := range c.loads {
				noteEvenly(throughput, noon, l.n, l.op, l.spec, l.credits, l.slot)
				n += l.n
			}
			m := throughput.Measured(noon.Add(59 * time.Second))
			if c.want == 0 {
				if m != nil {
					t.Errorf("%+v", m)
				}
				return
			}
			if m == nil || m.perCredit() != c.want || m.Op != c.op || m.Operations != int64(n) {
				t.Errorf("%+v, want %v of %s", m, c.want, c.op)
			}
		})
	}
}

// With spread slot times the figure is that of their mean.
func TestMeasurementConvergesToTheMean(t *testing.T) {
	throughput := NewThroughput(nil)
	random := rand.New(rand.NewPCG(1, 2))
	const mean, credits = 10 * time.Millisecond, 10
	for i := range enoughOperations {
		slot := time.Duration(random.ExpFloat64() * float64(mean))
		throughput.Note(kms.OpSign, kms.SpecP256, credits*kms.Credit, slot, noon.Add(time.Duration(i)*time.Millisecond))
	}
	m := throughput.Measured(noon.Add(10 * time.Second))
	want := mean / credits
	if m == nil || (m.perCredit()-want).Abs() > want/10 { // three standard errors of 1,000
		t.Errorf("%+v, want about %v", m, want)
	}
}

// A pool that becomes slow shows within the window, and what it did before is
// forgotten.
func TestSlowedPoolShowsWithinTheWindow(t *testing.T) {
	throughput := NewThroughput(nil)
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	minute, last := 0, time.Duration(0)
	for ; minute < 3; minute++ {
		noteEvenly(throughput, at(minute), 5000, kms.OpSign, kms.SpecP256, 10, time.Millisecond)
	}
	for ; minute < 3+throughputMinutes; minute++ {
		noteEvenly(throughput, at(minute), 5000, kms.OpSign, kms.SpecP256, 10, 2*time.Millisecond)
		m := throughput.Measured(at(minute).Add(59 * time.Second))
		if m.perCredit() <= last && last < 200*time.Microsecond {
			t.Errorf("minute %d: %v after %v", minute, m.perCredit(), last)
		}
		last = m.perCredit()
	}
	if last != 200*time.Microsecond {
		t.Errorf("after the window a credit takes %v", last)
	}
}

// What was measured stays until there is enough for another measurement: a
// night without load changes nothing.
func TestLastMeasurementStaysWithoutLoad(t *testing.T) {
	throughput := NewThroughput(nil)
	noteEvenly(throughput, noon, 5000, kms.OpSign, kms.SpecP256, 10, 2*time.Millisecond)
	for _, later := range []time.Duration{time.Hour, 30 * time.Hour} {
		m := throughput.Measured(noon.Add(later))
		if m == nil || m.perCredit() != 200*time.Microsecond || !m.At.Equal(noon.Add(time.Minute)) {
			t.Errorf("after %v: %+v", later, m)
		}
	}
	noteEvenly(throughput, noon.Add(31*time.Hour), 100, kms.OpSign, kms.SpecP256, 10, time.Second)
	if m := throughput.Measured(noon.Add(31*time.Hour + 59*time.Second)); m.perCredit() != 200*time.Microsecond {
		t.Errorf("too few operations decide: %+v", m)
	}
	noteEvenly(throughput, noon.Add(32*time.Hour), 5000, kms.OpSign, kms.SpecP256, 10, time.Millisecond)
	if m := throughput.Measured(noon.Add(32*time.Hour + 59*time.Second)); m.perCredit() != 100*time.Microsecond {
		t.Errorf("enough of them do not: %+v", m)
	}
}

func TestMeasurementSurvivesAsJSON(t *testing.T) {
	want := Measurement{SlotNsPerCredit: 83_333, Op: kms.OpSign, Spec: kms.SpecP256, Operations: 5000, At: noon}
	content, err := json.Marshal(&want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseMeasurement(content)
	if err != nil || *got != want {
		t.Errorf("%s is %+v, %v", content, got, err)
	}
	if m := NewThroughput(got).Measured(noon); m == nil || *m != want {
		t.Errorf("a new process begins with %+v", m)
	}
	for _, bad := range []string{"", "{", "{}", `{"slot_ns_per_credit":0}`, `{"slot_ns_per_credit":-1}`, "null"} {
		if m, err := ParseMeasurement([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}

func TestKindsOfOperationsAreBounded(t *testing.T) {
	throughput := NewThroughput(nil)
	for i := range 2 * maxPriced {
		throughput.Note(kms.Op(fmt.Sprint("op-", i)), "", kms.Credit, time.Second, noon)
	}
	if n := len(*throughput.priced.Load()); n != maxPriced {
		t.Errorf("%d are told apart", n)
	}
	if m := throughput.Measured(noon); m == nil || m.Operations != maxPriced {
		t.Errorf("%+v", m)
	}
}

// Nothing is lost when many requests end at once.
func TestConcurrentOperationsAreAllCounted(t *testing.T) {
	throughput := NewThroughput(nil)
	var all sync.WaitGroup
	const each, requests = 5000, 4
	for i := range requests {
		all.Go(func() {
			spec := []kms.Spec{kms.SpecP256, kms.SpecP384}[i%2]
			noteEvenly(throughput, noon, each, kms.OpSign, spec, 10, time.Millisecond)
		})
	}
	all.Wait()
	if m := throughput.Measured(noon.Add(59 * time.Second)); m.Operations != each*requests || m.perCredit() != 100*time.Microsecond {
		t.Errorf("%+v", m)
	}
}

// What it costs a request: the design allows 3 µs for all of quota and
// scheduling.
func BenchmarkNote(b *testing.B) {
	throughput := NewThroughput(nil)
	throughput.Note(kms.OpSign, kms.SpecP256, kms.Credit, time.Millisecond, noon)
	b.ReportAllocs()
	for b.Loop() {
		throughput.Note(kms.OpSign, kms.SpecP256, kms.Credit, time.Millisecond, noon)
	}
}

func TestNotingAllocatesNothing(t *testing.T) {
	throughput := NewThroughput(nil)
	throughput.Note(kms.OpSign, kms.SpecP256, kms.Credit, time.Millisecond, noon)
	if n := testing.AllocsPerRun(100, func() {
		throughput.Note(kms.OpSign, kms.SpecP256, kms.Credit, time.Millisecond, noon)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
