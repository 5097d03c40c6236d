package wire_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/sqlite"
	"github.com/sluice-kms/sluice/keystore/storetest"
	"github.com/sluice-kms/sluice/kms"
)

// The sizes that BenchmarkScale compares. Both services have tenants whose keys
// are used; the large one has others beside them, up to 1,000,000 keys.
const (
	workTenants   = 100
	warmKeys      = 10      // of each of them, used over and over
	coldKeys      = 5       // of each of them, used once
	otherCached   = 750_000 // keys of the others at most: as many as the cache holds
	scaleRounds   = 9       // odd: the median counts
	scaleRequests = 1000    // of a round
	scaleStarts   = 3
	scaleClients  = 16 // at a time
)

// scaleTenants is how many tenants the large service has, with ten keys each but
// for those whose keys are used. The short form of a report takes fewer.
var scaleTenants = flag.Int("scale.tenants", 100_000, "tenants of the large service of BenchmarkScale, more than 1000")

// scaled is a service with tenants whose keys can be used.
type scaled struct {
	*wiretest.Service
	dir    string
	work   []workKey // warm ones first
	others []storetest.FilledKey
}

type workKey struct{ credential, name string }

// BenchmarkScale measures how a whole service with 1,000,000 keys of 100,000
// tenants differs from one with 1,500 of 100: until it is ready, for warm and
// cold requests, and in memory. It prints a table. Requests go through the whole
// handler, with authentication, SoftHSM, SQLite and the journal.
func BenchmarkScale(b *testing.B) {
	wiretest.Require(b)
	small, large := newScaledService(b, 0), newScaledService(b, *scaleTenants-workTenants)
	var table strings.Builder
	row := func(format string, args ...any) { fmt.Fprintf(&table, "| "+format+" |\n", args...) }
	row("measure | %d keys | %d keys", len(small.work), len(large.work)+len(large.others))
	row("---|---|---")
	s, l := small.starts(b, large)
	row("start to first answer | %v | %v", s, l)
	b.ReportMetric(float64(l.Milliseconds()), "start-ms")
	for _, service := range []*scaled{small, large} {
		service.open(b)
		for i := range workTenants * warmKeys {
			service.encrypt(b, i)
		}
	}
	pairs := func(what, unit string) {
		m := small.compare(b, large)
		for _, line := range []struct {
			what         string
			small, large float64
		}{
			{"median", m[0].median, m[1].median},
			{"99th percentile", m[0].p99, m[1].p99},
			{fmt.Sprintf("processor time, %d at a time", scaleClients), m[0].processor, m[1].processor},
		} {
			difference := 100 * (line.large/line.small - 1)
			row("warm request, %s, %s | %.0f µs | %.0f µs (%+.1f %%)", what, line.what, line.small, line.large, difference)
			if line.what == "median" {
				b.ReportMetric(difference, unit)
			}
		}
	}
	pairs("nothing else cached", "%slower")
	s, l = small.cold(b, large)
	row("first request for a key, median | %v | %v (%+.1f %%)", s, l, 100*(float64(l)/float64(s)-1))
	cached := min(otherCached, len(large.others))
	large.read(b, cached)
	pairs(fmt.Sprint(cached, " others cached"), "%slower-cached")
	held := large.touch(b)
	row("heap outside of the key store for each of the others who asked once | | %.0f B", held)
	b.ReportMetric(held, "B/tenant")
	fmt.Printf("\n%s", table.String()) // whole: a benchmark's log is cut after ten lines
}

// newScaledService makes a service in a folder of its own, and others tenants
// in its database. It is closed.
func newScaledService(b *testing.B, others int) *scaled {
	b.Helper()
	s := &scaled{dir: b.TempDir()}
	s.open(b)
	ctx := b.Context()
	operator := principal(b, s.App.System, "operator:admin")
	for i := range workTenants {
		tenant, err := s.App.Service.CreateTenant(ctx, ticket(operator), kms.CreateTenantInput{Name: fmt.Sprint("work-", i), Tier: kms.TierPlatinum, Force: true})
		if err != nil {
			b.Fatal(err)
		}
		credential, err := s.App.FirstCredential(ctx, tenant, "work", []string{"key:*", "key:manage"})
		if err != nil {
			b.Fatal(err)
		}
		by := principal(b, tenant, "key:manage")
		for j := range warmKeys + coldKeys {
			k := workKey{credential, fmt.Sprint("orders/key-", j)}
			if _, err := s.App.Service.CreateKey(ctx, ticket(by), kms.CreateKeyInput{Name: k.name, Spec: kms.SpecAES256}); err != nil {
				b.Fatal(err)
			}
			s.work = append(s.work, k)
		}
	}
	// Key j of each tenant before key j+1 of any, so that the first are warm ones.
	slices.SortStableFunc(s.work, func(a, b workKey) int { return strings.Compare(a.name, b.name) })
	if others > 0 {
		s.fill(b, others)
	}
	s.close(b)
	return s
}

func (s *scaled) open(b *testing.B) {
	b.Helper()
	service, err := wiretest.Open(s.dir)
	if err != nil {
		b.Fatal(err)
	}
	s.Service = service
	b.Cleanup(func() { s.close(b) })
}

func (s *scaled) close(b *testing.B) {
	b.Helper()
	if s.Service == nil {
		return
	}
	if err := s.Service.Close(); err != nil {
		b.Error(err)
	}
	s.Service = nil
}

// fill stores the others past the service, with the codes of its row key.
func (s *scaled) fill(b *testing.B, tenants int) {
	b.Helper()
	rows, path := s.App.Secrets.RowKey, s.Config.Database.Path
	s.close(b)
	raw, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(0)")
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	driver, err := sqlite.Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	s.others, err = storetest.FillTenants(b.Context(), driver, rows, tenants,
		func(ctx context.Context, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
			tx, err := raw.BeginTx(ctx, nil)
			if err == nil {
				err = insertRows(ctx, tx, tenants, keys)
			}
			if err != nil {
				return err
			}
			return tx.Commit()
		})
	if err != nil {
		b.Fatal(err)
	}
	rand.Shuffle(len(s.others), func(i, j int) { s.others[i], s.others[j] = s.others[j], s.others[i] })
}

// insertRows does what the driver does, which has a transaction for each.
func insertRows(ctx context.Context, tx *sql.Tx, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
	insert := func(table, columns string, values ...any) error {
		statement := fmt.Sprintf(`INSERT INTO %s (%s) VALUES (?%s)`, table, columns, strings.Repeat(", ?", len(values)-1))
		_, err := tx.ExecContext(ctx, statement, values...)
		return err
	}
	for i := range tenants {
		t, p := &tenants[i].Tenant, &tenants[i].Project
		if err := insert("tenants", `id, name, tier, state, allow_sealed, sealing_id, sealing_domain, sealing_generation, sealing_wrapped,
			created, revision, mac, mac_version`, t.ID[:], t.Name, t.Tier, t.State, t.AllowSealed, t.SealingID[:], t.SealingDomain[:],
			t.SealingGeneration, t.SealingWrapped, t.Created, t.Revision, t.Code.MAC, t.Code.Version); err != nil {
			return err
		}
		if err := insert("projects", `tenant, name, created, mac, mac_version`,
			p.Tenant[:], p.Name, p.Created, p.Code.MAC, p.Code.Version); err != nil {
			return err
		}
	}
	for i := range keys {
		k, v, n := &keys[i].Key, &keys[i].Version, &keys[i].Name
		if err := insert("keys", `tenant, id, project, name, spec, usage, protection, state, description, tags, created,
			deletion_protection, origin, rotation_period, primary_version, highest_version, revision, last_used_op, mac, mac_version`,
			k.Tenant[:], k.ID[:], k.Project, k.Name, k.Spec, k.Usage, k.Protection, k.State, k.Description, k.Tags, k.Created,
			k.DeletionProtection, k.Origin, k.RotationPeriod, k.PrimaryVersion, k.HighestVersion, k.Revision, "",
			k.Code.MAC, k.Code.Version); err != nil {
			return err
		}
		if err := insert("key_versions", `tenant, key_id, id, number, state, created, blob, nonces, mac, mac_version, nonces_mac,
			nonces_mac_version`, k.Tenant[:], k.ID[:], v.ID[:], v.Number, v.State, v.Created, v.Blob, 0, v.Code.MAC, v.Code.Version,
			v.NoncesCode.MAC, v.NoncesCode.Version); err != nil {
			return err
		}
		if err := insert("key_names", `tenant, name, kind, key_id, mac, mac_version`,
			n.Tenant[:], n.Name, n.Kind, n.Key[:], n.Code.MAC, n.Code.Version); err != nil {
			return err
		}
	}
	return nil
}

func principal(b *testing.B, tenant *kms.Tenant, scopes ...string) *kms.Principal {
	b.Helper()
	parsed, err := kms.ParseScopes(scopes)
	if err != nil {
		b.Fatal(err)
	}
	return &kms.Principal{Tenant: tenant, Project: kms.DefaultProject, Scopes: parsed}
}

func ticket(by *kms.Principal) *kms.Ticket {
	return &kms.Ticket{RequestID: uuid.NewV7(), By: by, Received: time.Now(), Urgency: kms.UrgencyNormal}
}

var encryptBody = `{"plaintext":"` + strings.Repeat("bW1t", 21) + `"}`

// encrypt asks for 63 bytes to be encrypted with a key, and returns how long it
// took.
func (s *scaled) encrypt(b *testing.B, key int) time.Duration {
	k := &s.work[key]
	r := httptest.NewRequest(http.MethodPost, "/v1/keys/"+strings.ReplaceAll(k.name, "/", "%2F")+"/encrypt", strings.NewReader(encryptBody))
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("Authorization", "Bearer "+k.credential)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	began := time.Now()
	s.Handler.ServeHTTP(w, r)
	took := time.Since(began)
	if w.Code != http.StatusOK {
		b.Error(w.Code, w.Body)
	}
	return took
}

// starts returns the medians of the times from nothing to a first answer of
// both services, in turns. The services are closed before and after.
func (s *scaled) starts(b *testing.B, other *scaled) (mine, others time.Duration) {
	var all [2][]time.Duration
	for range scaleStarts {
		for i, service := range []*scaled{s, other} {
			began := time.Now()
			service.open(b)
			service.encrypt(b, 0)
			all[i] = append(all[i], time.Since(began))
			service.close(b)
		}
	}
	return middle(all[0]).Round(time.Millisecond), middle(all[1]).Round(time.Millisecond)
}

func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// measured are the costs of a request, in microseconds.
type measured struct{ median, p99, processor float64 }

// compare returns the medians of rounds in turns, of which the first changes, so
// that what else the machine and the garbage collector do meets both.
func (s *scaled) compare(b *testing.B, other *scaled) (m [2]measured) {
	var all [2][]measured
	services := [2]*scaled{s, other}
	for round := range scaleRounds {
		for turn := range services {
			i := (round + turn) % len(services)
			all[i] = append(all[i], services[i].warm(b))
		}
	}
	median := func(rounds []measured, of func(*measured) float64) float64 {
		values := make([]float64, len(rounds))
		for i := range rounds {
			values[i] = of(&rounds[i])
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	for i := range m {
		m[i].median = median(all[i], func(m *measured) float64 { return m.median })
		m[i].p99 = median(all[i], func(m *measured) float64 { return m.p99 })
		m[i].processor = median(all[i], func(m *measured) float64 { return m.processor })
	}
	return m
}

// warm is one round: requests one after the other for their time, then the same
// from many clients for what they cost the processor.
func (s *scaled) warm(b *testing.B) (m measured) {
	random := rand.New(rand.NewPCG(1, 2))
	took := make([]time.Duration, scaleRequests)
	for i := range took {
		took[i] = s.encrypt(b, random.IntN(workTenants*warmKeys))
	}
	slices.Sort(took)
	m.median = float64(took[len(took)/2]) / float64(time.Microsecond)
	m.p99 = float64(took[len(took)*99/100]) / float64(time.Microsecond)
	before := processorTime(b)
	each(scaleRequests, func(i int) { s.encrypt(b, (i*7919)%(workTenants*warmKeys)) })
	m.processor = float64(processorTime(b)-before) / scaleRequests / float64(time.Microsecond)
	return m
}

// each calls f for the numbers below n from many clients.
func each(n int, f func(i int)) {
	var next atomic.Int64
	done := make(chan struct{})
	for range scaleClients {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		}()
	}
	for range scaleClients {
		<-done
	}
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cold returns the medians of the first requests for keys, in turns.
func (s *scaled) cold(b *testing.B, other *scaled) (mine, others time.Duration) {
	var all [2][]time.Duration
	for key := workTenants * warmKeys; key < len(s.work); key++ {
		for i, service := range []*scaled{s, other} {
			all[i] = append(all[i], service.encrypt(b, key))
		}
	}
	return middle(all[0]).Round(time.Microsecond), middle(all[1]).Round(time.Microsecond)
}

// read looks n keys of the others up, so that they are cached.
func (s *scaled) read(b *testing.B, n int) {
	b.Helper()
	each(n, func(i int) {
		if _, err := s.App.Store.Lookup(b.Context(), s.others[i].Tenant, s.others[i].Name); err != nil {
			b.Error(err)
		}
	})
}

// touch makes each of the others ask for something once, and returns the bytes
// that are held for each of them afterwards, without those that the key store
// counts, which it gives back when they are idle.
func (s *scaled) touch(b *testing.B) float64 {
	b.Helper()
	keys := make(map[uuid.UUID]string)
	for _, k := range s.others {
		keys[k.Tenant] = k.Name
	}
	tenants := slices.Collect(func(yield func(uuid.UUID) bool) {
		for id := range keys {
			if !yield(id) {
				return
			}
		}
	})
	outside := func() float64 {
		runtime.GC()
		runtime.GC() // the first one only ends what finalizers hold
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) - s.cachedBytes(b)
	}
	before := outside()
	each(len(tenants), func(i int) {
		tenant, err := s.App.Store.Tenant(b.Context(), tenants[i])
		if err == nil {
			_, err = s.App.Service.DescribeKey(b.Context(), ticket(principal(b, tenant, "key:*")), keys[tenant.ID])
		}
		if err != nil {
			b.Error(err)
		}
	})
	return (outside() - before) / float64(len(tenants))
}

// cachedBytes is what the key store counts.
func (s *scaled) cachedBytes(b *testing.B) (bytes float64) {
	families, err := s.App.Metrics.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "sluice_keystore_cache_bytes" {
			for _, m := range family.GetMetric() {
				bytes += m.GetGauge().GetValue()
			}
		}
	}
	return bytes
}
