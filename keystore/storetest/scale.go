package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
)

// The sizes that Scale compares: what the service is made for, and one that
// fits a processor's caches. Both have ten keys for each tenant.
const (
	scaleTenants   = 100_000
	scaleSmall     = 100
	scaleRounds    = 9 // odd: the median counts
	scaleLookups   = 500_000
	scaleWorkers   = 4
	scaleStarts    = 5
	scaleWorkSmall = 1000 // keys: all of the small store
	// scaleIdle is an idle time that a benchmark can wait for.
	scaleIdle = 2 * time.Second
)

// ScaleDatabase is a database for Scale.
type ScaleDatabase struct {
	Open func(context.Context) (keystore.Driver, error)
	// Load stores many rows in one transaction. They carry their codes.
	Load func(context.Context, []keystore.InsertTenantParams, []keystore.InsertKeyParams) error
}

// Scale measures what must not depend on how much is stored: the start, a warm
// look-up, and what a tenant costs of whom nothing is asked, or no more. It
// prints a table.
// create makes an empty database; cached bounds how many keys are read into the
// cache of the large store.
func Scale(b *testing.B, create func(b *testing.B) ScaleDatabase, cached int) {
	small, large := newScaled(b, create(b), scaleSmall), newScaled(b, create(b), scaleTenants)
	var table strings.Builder
	row := func(format string, args ...any) { fmt.Fprintf(&table, "| "+format+" |\n", args...) }
	row("measure | %d keys | %d keys", len(small.keys), len(large.keys))
	row("---|---|---")
	row("start to first look-up | %v | %v", small.start(b), large.start(b))

	before := heap()
	large.open(b, 0)
	stored := float64(heap()-before) / scaleTenants
	row("heap after the start, for each stored tenant | | %.1f B", stored)
	small.open(b, 0)
	small.read(b, len(small.keys))

	large.read(b, scaleWorkSmall)
	s, l := compare(b, small, large, scaleWorkSmall)
	row("warm look-up among 1000, nothing else cached | %.0f ns | %.0f ns (%+.0f %%)", s, l, difference(s, l))
	before = heap()
	large.read(b, cached)
	held := float64(heap()-before) / float64(cached-scaleWorkSmall)
	row("heap for each cached key, its name and a tenth of its tenant | | %.0f B", held)
	s, l = compare(b, small, large, scaleWorkSmall)
	row("warm look-up among 1000, %d cached | %.0f ns | %.0f ns (%+.0f %%)", cached, s, l, difference(s, l))
	b.ReportMetric(difference(s, l), "%slower")
	for _, among := range []int{10_000, cached} {
		row("warm look-up among %d | | %.0f ns", among, large.warm(b, among))
	}
	idle := large.idle(b, cached)
	row("heap for each tenant who was read and then idle | | %.1f B", idle)
	b.ReportMetric(idle, "B/idle-tenant")
	fmt.Printf("\n%s", table.String()) // whole: a benchmark's log is cut after ten lines
}

// scaled is a database that is full, and a store on it.
type scaled struct {
	database ScaleDatabase
	store    *keystore.Store
	keys     []FilledKey // in random order
}

func newScaled(b *testing.B, database ScaleDatabase, tenants int) *scaled {
	b.Helper()
	driver, err := database.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	s := &scaled{database: database}
	if s.keys, err = FillTenants(b.Context(), driver, nil, tenants, database.Load); err != nil {
		b.Fatal(err)
	}
	rand.Shuffle(len(s.keys), func(i, j int) { s.keys[i], s.keys[j] = s.keys[j], s.keys[i] })
	return s
}

// open opens the store, as a service does when it starts; idle is as in
// keystore.Options.
func (s *scaled) open(b *testing.B, idle time.Duration) {
	b.Helper()
	driver, err := s.database.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	store := keystore.New(driver, keystore.Options{Idle: idle})
	b.Cleanup(func() { store.Close() })
	if err := Bootstrap(b.Context(), store, nil); err != nil {
		b.Fatal(err)
	}
	s.store = store
}

// start returns the median time to open the store and find a key.
func (s *scaled) start(b *testing.B) time.Duration {
	b.Helper()
	var all []time.Duration
	for range scaleStarts {
		begin := time.Now()
		s.open(b, 0)
		s.lookup(b, 0)
		all = append(all, time.Since(begin))
		if err := s.store.Close(); err != nil {
			b.Fatal(err)
		}
		s.store = nil
	}
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// idle opens the store anew, looks n keys up, waits, and returns the bytes that
// are left in the heap for each of their tenants.
func (s *scaled) idle(b *testing.B, n int) float64 {
	b.Helper()
	if err := s.store.Close(); err != nil {
		b.Fatal(err)
	}
	s.open(b, scaleIdle)
	before := heap()
	s.read(b, n)
	time.Sleep(2 * scaleIdle)
	tenants := make(map[uuid.UUID]bool)
	for _, k := range s.keys[:n] {
		tenants[k.Tenant] = true
	}
	count := float64(len(tenants))
	tenants = nil
	left := float64(heap()-before) / count
	s.lookup(b, 0) // the store is alive, and so counted
	return left
}

func (s *scaled) lookup(b *testing.B, i int) {
	if _, err := s.store.Lookup(b.Context(), s.keys[i].Tenant, s.keys[i].Name); err != nil {
		b.Error(err)
	}
}

// read looks the first n keys up, so that they are cached.
func (s *scaled) read(b *testing.B, n int) {
	b.Helper()
	var next atomic.Int64
	done := make(chan struct{})
	for range scaleWorkers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := next.Add(1) - 1; i < int64(n) && !b.Failed(); i = next.Add(1) - 1 {
				s.lookup(b, int(i))
			}
		}()
	}
	for range scaleWorkers {
		<-done
	}
	if b.Failed() {
		b.FailNow()
	}
}

// warm returns the time of one look-up among the first keys, which are cached,
// uniformly at random, in nanoseconds.
func (s *scaled) warm(b *testing.B, among int) float64 {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range among {
		s.lookup(b, i)
	}
	begin := time.Now()
	for range scaleLookups {
		s.lookup(b, random.IntN(among))
	}
	return float64(time.Since(begin)) / scaleLookups
}

// compare returns the medians of rounds in turns, so that what else the machine
// does meets both.
func compare(b *testing.B, small, large *scaled, among int) (s, l float64) {
	var all [2][]float64
	for range scaleRounds {
		all[0] = append(all[0], small.warm(b, among))
		all[1] = append(all[1], large.warm(b, among))
	}
	slices.Sort(all[0])
	slices.Sort(all[1])
	return all[0][scaleRounds/2], all[1][scaleRounds/2]
}

func difference(small, large float64) float64 { return 100 * (large/small - 1) }

func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one only ends what finalizers hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
