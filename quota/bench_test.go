package quota

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// requestID makes the request id of a number.
func requestID(n uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// request is of a tenant with a credential and a key, all of a number. It is
// used again for the next: whoever asks has his request at hand, with the
// tenant and the credential that authentication has just read.
type request struct {
	Request
	tenant    kms.Tenant
	principal kms.Principal
}

func newRequest() *request {
	r := &request{tenant: kms.Tenant{Tier: kms.TierPlatinum}, principal: kms.Principal{Project: "default"}}
	r.principal.Tenant = &r.tenant
	r.Request = Request{AdmitRequest: kms.AdmitRequest{Principal: &r.principal, Op: kms.OpSign, Spec: kms.SpecSM2, Bytes: 32}}
	return r
}

// of makes it the nth request, of tenant i.
func (r *request) of(i, n uint64) *Request {
	id := &r.tenant.ID
	binary.BigEndian.PutUint64(id[:], i)
	binary.BigEndian.PutUint64(id[8:], i*0x9e3779b97f4a7c15)
	r.principal.Credential, r.Key = *id, *id
	r.principal.Credential[7] ^= 0x55
	r.Key[7] ^= 0xaa
	r.RequestID = requestID(n)
	return &r.Request
}

func realEngine(t testing.TB) *Engine {
	t.Helper()
	policies, err := NewPolicies(time.Now, 1, DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	return NewEngine(Options{Policies: policies, Clock: time.Now})
}

// The target: 1.5 µs to admit at 10,000 tenants. Each request is of another
// tenant than the one before, with its own credential and key.
func BenchmarkEngineAdmit(b *testing.B) {
	for _, tenants := range []int{1, 10_000} {
		b.Run(fmt.Sprint(tenants, "tenants"), func(b *testing.B) {
			e, r := realEngine(b), newRequest()
			open := make([]kms.Reservation, 0, 10_000)
			settle := func() {
				for _, r := range open {
					e.Settle(r, kms.Settlement{State: kms.Cancelled})
				}
				open = open[:0]
			}
			var n uint64
			admit := func() {
				n++
				res, err := e.AdmitRequest(r.of(n*7919%uint64(tenants), n))
				if err != nil {
					b.Fatal(err)
				}
				open = append(open, res)
			}
			most := min(tenants*100, cap(open)) // within the tenants' concurrency
			for range 2 * tenants {
				if admit(); len(open) == most {
					settle()
				}
			}
			settle()
			b.ReportAllocs()
			var settling int64
			began := processorTime(b)
			for b.Loop() {
				if admit(); len(open) == most {
					b.StopTimer()
					at := processorTime(b)
					settle()
					settling += processorTime(b) - at
					b.StartTimer()
				}
			}
			used := processorTime(b) - began
			b.ReportMetric(float64(used-settling)/float64(b.N), "admit-cpu-ns/op")
			b.ReportMetric(float64(settling)/float64(b.N), "settle-cpu-ns/op")
		})
	}
}

// processorTime is what the process has used of the processors, in ns: what
// counts where the machine has other things to do.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func TestEngineAllocatesNothingPerRequest(t *testing.T) {
	e, r := realEngine(t), newRequest()
	var n uint64
	if got := testing.AllocsPerRun(1000, func() {
		n++
		res, err := e.AdmitRequest(r.of(0, n))
		if err != nil {
			t.Fatal(err)
		}
		e.Settle(res, kms.Settlement{State: kms.Cancelled})
	}); got > 0 {
		t.Errorf("%v allocations per request", got)
	}
}

// idleBytes leaves the rest of the service its part of the kibibyte that is
// promised for an idle tenant: about 200 bytes, see BenchmarkScale.
const idleBytes = 1024 - 256

// An idle tenant is one that used something this month, and nothing now.
func TestIdleTenantTakesAKibibyteAtMost(t *testing.T) {
	const tenants = 20_000
	clock := &handClock{at: morning}
	policies, err := NewPolicies(clock.now, 1, DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest()
	before := heap()
	e := NewEngine(Options{Policies: policies, Clock: clock.now})
	for i := range uint64(tenants) {
		res, err := e.AdmitRequest(r.of(i, i))
		if err != nil {
			t.Fatal(err)
		}
		e.Settle(res, settledInFull(res))
	}
	busy := heap() - before
	clock.pass(2 * time.Minute) // and no use of the last minute
	forgotten := e.Sweep()
	idle := heap() - before
	t.Logf("a tenant takes %d bytes with a credential and a key in use, %d when idle", busy/tenants, idle/tenants)
	if forgotten != 2*tenants || idle/tenants > idleBytes {
		t.Errorf("an idle tenant takes %d bytes; %d things were forgotten", idle/tenants, forgotten)
	}
	runtime.KeepAlive(e)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestWhatIsForgottenIsMadeAgainAsItWas(t *testing.T) {
	credential, key := uuid.New(), uuid.New()
	request := func(e *testEngine, cost int64) *Request {
		r := e.costing(cost)
		r.Principal.Credential, r.Key, r.Principal.Project = credential, key, "a"
		return r
	}
	policy := func(p *Policy) {
		p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {Projects: map[string]*ScopeLimits{"a": {CreditsPerSecond: 100, BurstCredits: 300}}}}
	}
	t.Run("nothing that counts is forgotten", func(t *testing.T) {
		e := newTestEngine(t, kms.TierFree, policy)
		open := e.must(request(e, 100))
		e.clock.pass(time.Minute)
		if n := e.Sweep(); n != 0 {
			t.Errorf("%d with an open reservation", n)
		}
		e.Settle(open, settledInFull(open))
		e.Settle(e.must(request(e, 250)), kms.Settlement{State: kms.Settled, Charged: 250 * kms.Credit})
		if n := e.Sweep(); n != 0 {
			t.Errorf("%d that are not full", n)
		}
		e.clock.pass(time.Minute)
		if n := e.Sweep(); n != 3 {
			t.Errorf("%d of project, credential and key", n)
		}
		if a := e.accounts(); a.DayUsed != 350*kms.Credit {
			t.Errorf("the day has used %d", a.DayUsed)
		}
	})
	t.Run("a tenant that used nothing", func(t *testing.T) {
		e := newTestEngine(t, kms.TierFree, policy)
		e.Settle(e.must(request(e, 100)), kms.Settlement{State: kms.Cancelled})
		e.clock.pass(time.Minute)
		if n := e.Sweep(); n != 4 {
			t.Fatalf("%d are forgotten", n)
		}
		if _, known := e.Accounts(testTenant); known {
			t.Error("the tenant is known")
		}
		e.must(request(e, 300))
		e.refused(request(e, 301), kms.KindUnsatisfiable, ReasonRate, "PROJECT_RATE", "CREDENTIAL_RATE", "KEY_RATE")
	})
	t.Run("a ramp goes on", func(t *testing.T) {
		e := newTestEngine(t, kms.TierFree, nil)
		e.tenant.Created = e.clock.now()
		e.Settle(e.must(e.costing(100)), kms.Settlement{State: kms.Cancelled})
		e.clock.pass(time.Hour)
		if n := e.Sweep(); n != 0 {
			t.Error("a tenant on its ramp is forgotten")
		}
	})
}
