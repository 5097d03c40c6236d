package abuse

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// trafficSeed draws another population and another week.
var trafficSeed = flag.Uint64("traffic-seed", 7, "seed of the week of usual traffic")

func names(f *Flag) string {
	var list []string
	for _, r := range f.Signals {
		list = append(list, fmt.Sprintf("%s %d/%d", r.Signal, r.Value, r.Usual))
	}
	return strings.Join(list, ", ")
}

// A day in which it is learnt what is usual, and a week: what is told of is
// false, for nobody has stolen anything.
func TestAWeekOfUsualTrafficRaisesAtMostOneAlertInAHundredCredentials(t *testing.T) {
	const credentials = 400
	d := NewDetector(MaxCredentials)
	actors := population(d, credentials, *trafficSeed)
	kinds := make(map[Credential]string)
	for _, a := range actors {
		kinds[a.id] = a.name
	}
	end := monday.Add(8 * 24 * time.Hour)
	told := make(map[string]int)
	alerts := 0
	for at := monday; at.Before(end); at = at.Add(slot) {
		for _, f := range pass(d, actors, at) {
			alerts++
			kind := kinds[Credential{f.Tenant, f.Credential}]
			told[kind]++
			t.Logf("%s %s, learnt %v: %s", f.At.Format("Mon 15:04:05"), kind, f.Learnt, names(&f))
		}
	}
	calls, of := 0, make(map[string]int)
	for _, a := range actors {
		calls += a.send.all
		of[a.name]++
	}
	t.Logf("%d credentials %v, %d calls in 8 days: %d alerts %v, %.2f in 100 credentials", credentials, of, calls, alerts, told, float64(alerts)*100/float64(credentials))
	if alerts*100 > credentials {
		t.Errorf("%d alerts of %d credentials", alerts, credentials)
	}
	if calls < credentials*10_000 {
		t.Errorf("%d calls only", calls)
	}
}

// learnt returns a detector that knows of one usual server, and its actor.
func learnt(t *testing.T) (*Detector, *actor, time.Time) {
	t.Helper()
	d := NewDetector(MaxCredentials)
	a := population(d, 1, 11)[0]
	a.state = 1
	at := monday
	for ; at.Before(monday.Add(26 * time.Hour)); at = at.Add(slot) {
		if f := pass(d, []*actor{a}, at); len(f) > 0 {
			t.Fatal(names(&f[0]))
		}
	}
	return d, a, at
}

// steal lets a thief call for a while and returns the flags. edit changes what
// the credential's record says.
func steal(d *Detector, a *actor, at *time.Time, lasting time.Duration, edit func(*Observation)) (flags []Flag) {
	thief := sender{d: d, rng: rand.New(rand.NewPCG(1, 1)), o: Observation{Tenant: a.id.Tenant, Credential: a.id.Credential}}
	edit(&thief.o)
	edit(&a.send.o)
	for end := at.Add(lasting); at.Before(end); *at = at.Add(slot) {
		thief.from, thief.n = *at, 0
		for range 10 {
			thief.call(0xdeadbeef, ClientOf("curl/8.5.0"), opDecrypt, 9)
		}
		flags = append(flags, pass(d, []*actor{a}, *at)...)
	}
	return flags
}

func unchanged(*Observation) {}

func TestUnderAnOpenFlagNothingBecomesUsual(t *testing.T) {
	d, a, at := learnt(t)
	flags := steal(d, a, &at, 12*time.Hour, unchanged)
	if len(flags) != 1 || !flags[0].Learnt {
		t.Fatalf("%d flags of one theft", len(flags))
	}
	p := d.shard(a.id.Credential).find(a.id.Credential)
	if p.base.network(0xdeadbeef, minutesOf(at.UnixNano())) != stateNew || p.base.client(ClientOf("curl/8.5.0"), minutesOf(at.UnixNano())) != stateNew {
		t.Error("the thief is known")
	}
	if p.base.kinds[opDecrypt] > 0 {
		t.Error("what the thief did is usual")
	}
}

func TestWhatIsClearedIsUsualFromThenOn(t *testing.T) {
	d, a, at := learnt(t)
	flags := steal(d, a, &at, 10*time.Minute, unchanged)
	if len(flags) != 1 {
		t.Fatalf("%d flags", len(flags))
	}
	cleared := at
	again := steal(d, a, &at, time.Hour, func(o *Observation) { o.Flagged, o.Cleared = flags[0].At, cleared })
	for i := range again {
		t.Errorf("after it was cleared: %s", names(&again[i]))
	}
}

// A flag that ends by itself was found in order by nobody.
func TestAFlagThatEndsByItselfIsRaisedAgain(t *testing.T) {
	d, a, at := learnt(t)
	flags := steal(d, a, &at, 10*time.Minute, unchanged)
	if len(flags) != 1 {
		t.Fatalf("%d flags", len(flags))
	}
	ends := at
	again := steal(d, a, &at, 5*time.Minute, func(o *Observation) { o.Flagged, o.Ends = flags[0].At, ends })
	if len(again) != 1 {
		t.Errorf("%d flags after the first has ended", len(again))
	}
}

func TestAFlagOfAnotherNodeHolds(t *testing.T) {
	d, a, at := learnt(t)
	flagged := at
	if flags := steal(d, a, &at, 10*time.Minute, func(o *Observation) { o.Flagged = flagged }); len(flags) > 0 {
		t.Errorf("flagged again: %s", names(&flags[0]))
	}
}

// Of a credential that is new only gross signals are told, as not learnt.
func TestOfANewCredentialOnlyWhatIsGrossIsTold(t *testing.T) {
	d := NewDetector(MaxCredentials)
	a := population(d, 1, 11)[0]
	at := monday
	if flags := steal(d, a, &at, time.Hour, unchanged); len(flags) > 0 {
		t.Fatalf("two clients in two networks: %s", names(&flags[0]))
	}
	spread := sender{d: d, rng: rand.New(rand.NewPCG(1, 1)), o: a.send.o}
	var flags []Flag
	for range 6 {
		spread.from, spread.n = at, 0
		for range 100 {
			spread.call(spread.rng.Uint32(), a.client, opSign, 8)
		}
		flags = append(flags, pass(d, []*actor{a}, at)...)
		at = at.Add(slot)
	}
	if len(flags) != 1 || flags[0].Learnt || flags[0].Signals[0].Signal != kms.AbuseNetworks || !flags[0].Signals[0].Gross {
		t.Errorf("%+v", flags)
	}
}

func TestNothingIsJudgedBeforeWhatIsStoredIsMerged(t *testing.T) {
	known, a, at := learnt(t)
	stored := known.Changed(10)
	if len(stored) != 1 {
		t.Fatalf("%d are to be stored", len(stored))
	}
	d := NewDetector(MaxCredentials)
	a.send.d = d
	for range 6 {
		a.send.from, a.send.n = at, 0
		for range 100 {
			a.send.call(a.send.rng.Uint32(), a.client, opDecrypt, 8)
		}
		if flags := d.Look(at.Add(slot)); len(flags) > 0 {
			t.Fatal("it was judged without a baseline")
		}
		at = at.Add(slot)
	}
	if err := d.Merge(a.id.Credential, stored[0].Document); err != nil {
		t.Fatal(err)
	}
	if flags := steal(d, a, &at, time.Minute, unchanged); len(flags) != 1 || !flags[0].Learnt {
		t.Errorf("%+v", flags)
	}
}

func TestTheOneThatHasNotCalledForLongestIsForgotten(t *testing.T) {
	d := NewDetector(shards * 4)
	var o Observation
	seen := map[byte][]Credential{}
	for i := range uint64(shards * 16) {
		id := testID(i)
		o.Credential, o.At = id, monday.Add(time.Duration(i)*time.Millisecond)
		d.Observe(&o)
		seen[id[15]] = append(seen[id[15]], Credential{Credential: id})
	}
	kept := 0
	for i, list := range seen {
		s := &d.shards[i]
		kept += len(s.last)
		for j, c := range slices.Backward(list) {
			if newest := j >= len(list)-len(s.last); (s.find(c.Credential) != nil) != newest {
				t.Fatalf("of the %d of a shard that keeps %d, the %d. is kept or forgotten", len(list), len(s.last), j+1)
			}
		}
	}
	if kept < shards*4 || kept > shards*5 || d.Len() != kept {
		t.Errorf("%d are kept, counted as %d", kept, d.Len())
	}
}

// As many credentials as are kept call in turn: none is forgotten for another.
func TestAsManyAsAreKeptAreAllKept(t *testing.T) {
	const n = 10_000
	d := NewDetector(n)
	var o Observation
	for round := range 3 {
		for i := range uint64(n) {
			o.Credential, o.At = testID(i), monday.Add(time.Duration(round)*time.Minute)
			d.Observe(&o)
		}
	}
	for i := range uint64(n) {
		id := testID(i)
		if p := d.shard(id).find(id); p == nil || p.base.born != monday.UnixNano() {
			t.Fatalf("the %d. was forgotten", i)
		}
	}
}

// Whoever changes all the time does not keep others from being stored.
func TestEveryBaselineHasItsTurnToBeStored(t *testing.T) {
	const n = 1000
	d := NewDetector(n)
	ids := make(map[uuid.UUID]bool)
	var o Observation
	at := monday
	for range 2 * n / 100 {
		for i := range uint64(n) {
			o.Credential, o.At = testID(i), at
			d.Observe(&o)
			if err := d.Merge(o.Credential, nil); err != nil {
				t.Fatal(err)
			}
		}
		at = at.Add(time.Minute)
		for _, s := range d.Changed(100) {
			ids[s.Credential.Credential] = true
		}
	}
	if len(ids) != n {
		t.Errorf("%d of %d had their turn", len(ids), n)
	}
}

func TestAProfileFitsIntoItsSizeClass(t *testing.T) {
	if n := unsafe.Sizeof(profile{}); n > 1792 {
		t.Errorf("a profile has %d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
}

func TestNetworksAndClientsAreToldApartAsTheyShould(t *testing.T) {
	h := Hasher{Seed: 1}
	one, two := testID(1), testID(2)
	same := [][2]string{{"192.0.2.1", "192.0.2.200"}, {"2001:db8:1:2::1", "2001:db8:1:ffff::2"}, {"192.0.2.1", "::ffff:192.0.2.9"}}
	for _, p := range same {
		if h.Network(one, addr(p[0])) != h.Network(one, addr(p[1])) {
			t.Errorf("%v are two networks", p)
		}
	}
	other := [][2]string{{"192.0.2.1", "192.0.3.1"}, {"2001:db8:1::1", "2001:db8:2::1"}}
	for _, p := range other {
		if h.Network(one, addr(p[0])) == h.Network(one, addr(p[1])) {
			t.Errorf("%v are one network", p)
		}
	}
	if h.Network(one, addr("192.0.2.1")) == h.Network(two, addr("192.0.2.1")) {
		t.Error("two credentials have the same hash of a network")
	}
	if ClientOf("sluice-go/1.4.7") != ClientOf("sluice-go/1.4.12") {
		t.Error("a patch level is another client")
	}
	a, b, c := ClientOf("sluice-go/1.4.7"), ClientOf("sluice-go/1.10.7"), ClientOf("curl/1.4.7")
	if a == b || a.name() != b.name() || a.name() == c.name() {
		t.Errorf("%x %x %x", a, b, c)
	}
}

func TestEveryOperationHasAKind(t *testing.T) {
	for _, info := range kms.Ops() {
		k, ok := kinds[info.Op]
		if !ok || k >= operations {
			t.Errorf("%s: %d", info.Op, k)
		}
		if info.Class == kms.ClassUse && info.Family == "key" && k == opOther {
			t.Errorf("the use %s is of no kind", info.Op)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	d := NewDetector(MaxCredentials)
	const n = MaxCredentials
	list := make([]Observation, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range list {
		list[i] = Observation{Tenant: testID(uint64(i / 10)), Credential: testID(rng.Uint64()), Network: rng.Uint32(), Client: ClientOf("sluice-go/1.4.7"), Operation: opSign, Size: 7, At: monday}
		d.Observe(&list[i])
	}
	ids, networks := make([]uuid.UUID, n), make([]uint32, n) // in an order that no memory knows
	for i, j := range rng.Perm(n) {
		ids[i], networks[i] = list[j].Credential, list[j].Network
	}
	start := monday.Add(24 * time.Hour) // each run goes on where the one before has ended
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			o := &list[0]
			o.At = monday.Add(time.Duration(i) * time.Millisecond)
			d.Observe(o)
		}
	})
	b.Run("hundred thousand", func(b *testing.B) {
		b.ReportAllocs()
		o := list[0]
		for i := range b.N {
			o.Credential, o.Network = ids[i%n], networks[i%n]
			o.At = start.Add(time.Duration(i) * 10 * time.Microsecond)
			d.Observe(&o)
		}
		start = o.At
	})
	b.Run("hundred thousand, each once a minute", func(b *testing.B) {
		b.ReportAllocs()
		o := list[0]
		for i := range b.N {
			o.Credential, o.Network = ids[i%n], networks[i%n]
			o.At = start.Add(time.Duration(i) * time.Minute / n)
			d.Observe(&o)
		}
		start = o.At
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 2))
			o := list[0]
			for i := 0; pb.Next(); i++ {
				o.Credential = list[rng.IntN(1000)].Credential
				o.At = start.Add(2*time.Hour + time.Duration(i)*time.Microsecond)
				d.Observe(&o)
			}
		})
	})
	b.Run("look", func(b *testing.B) {
		at := start.Add(3 * time.Hour)
		for i := range list {
			list[i].At = at
			for range fewCalls {
				d.Observe(&list[i])
			}
			if err := d.Merge(list[i].Credential, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		for range b.N {
			d.Look(at.Add(time.Second))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/credential")
	})
}

func TestMemoryIsWithinTwoKibibytesACredential(t *testing.T) {
	const n = MaxCredentials
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := NewDetector(n)
	var o Observation
	for i := range uint64(n) {
		o.Credential, o.At = testID(i), monday
		d.Observe(&o)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / float64(d.Len())
	t.Logf("%d credentials, %.0f bytes each", d.Len(), each)
	if each > 2048 {
		t.Errorf("%.0f bytes a credential", each)
	}
	if d.Len() != n {
		t.Errorf("%d of %d are kept", d.Len(), n)
	}
	runtime.KeepAlive(d)
}

func TestObservingAllocatesNothing(t *testing.T) {
	d, a, at := learnt(t)
	o := a.send.o
	o.Network, o.Client = a.home(), a.client
	if n := testing.AllocsPerRun(10_000, func() {
		at = at.Add(100 * time.Millisecond)
		o.At = at
		d.Observe(&o)
	}); n > 0 {
		t.Errorf("%.2f allocations a call", n)
	}
}

func TestSignalsHaveReasons(t *testing.T) {
	var covered []kms.AbuseSignal
	for i := range rules {
		covered = append(covered, rules[i].signal)
	}
	all := evidence{network: mostRare, client: mostRare, kind: mostRare, denied: mostRare, hour: mostHour}
	for _, r := range all.readings(new(window), new(measures), new(measures)) {
		covered = append(covered, r.Signal)
	}
	for _, s := range kms.AbuseSignals() {
		if !slices.Contains(covered, s) {
			t.Errorf("nothing measures %s", s)
		}
		r := kms.AbuseReading{Signal: s, Value: 3000, Usual: 1000}
		reason := r.Reason()
		if text, advice := reason.Explain(); text == "" || advice == "" {
			t.Errorf("%s is not explained", s)
		}
	}
}

// Whatever calls in whatever order, even at the same time or back in it, what is
// known stays such that it can be stored and read, and a credential is flagged
// once until somebody clears it.
func TestAnyCallsLeaveWhatCanBeStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := NewDetector(shards)
		id := Credential{testID(1), testID(2)}
		o := Observation{Tenant: id.Tenant, Credential: id.Credential, At: monday}
		open := false
		for range rapid.IntRange(1, 60).Draw(t, "bursts") {
			o.At = o.At.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(3*time.Hour)).Draw(t, "later")))
			o.Network = rapid.Uint32Range(0, 40).Draw(t, "network") << 26
			o.Client = Client(rapid.Uint32Range(0, 9).Draw(t, "client") << 16)
			o.Operation = Operation(rapid.IntRange(0, operations-1).Draw(t, "operation"))
			o.Outcome = Outcome(rapid.IntRange(0, int(outcomes)-1).Draw(t, "outcome"))
			o.Size = rapid.Uint8Range(0, 64).Draw(t, "size")
			o.RetryAfter = time.Duration(rapid.IntRange(0, 3).Draw(t, "retry")) * time.Second
			for range rapid.IntRange(1, 300).Draw(t, "calls") {
				d.Observe(&o)
			}
			if err := d.Merge(id.Credential, nil); err != nil {
				t.Fatal(err)
			}
			for _, f := range d.Look(o.At) {
				if open {
					t.Fatal("it was flagged twice")
				}
				open = true
				if len(f.Signals) == 0 || len(f.Signals) > kms.MaxAbuseReadings {
					t.Fatalf("%d signals", len(f.Signals))
				}
			}
			if open && rapid.Bool().Draw(t, "cleared") {
				o.Cleared, open = o.At, false
			}
		}
		p := d.shard(id.Credential).find(id.Credential)
		if b, err := parseBaseline(p.base.document()); p.base.born != 0 && (err != nil || b != p.base) {
			t.Fatalf("%v: %+v", err, p.base)
		}
	})
}
