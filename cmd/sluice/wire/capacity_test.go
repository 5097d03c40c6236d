package wire_test

import (
	"encoding/json/jsontext"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// capacityClient is a client of an operator.
func capacityClient(t testing.TB, url, credential string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Address: url, Credential: client.NewToken(credential)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func readCapacity(t testing.TB, c *client.Client) *client.CapacityOutput {
	t.Helper()
	out, err := c.Capacity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantRefused checks that a call was refused because it sells more than there
// is, and returns the reason.
func wantRefused(t testing.TB, err error) client.Reason {
	t.Helper()
	refused, ok := err.(*client.Error)
	if !ok || refused.Status != http.StatusConflict || refused.Code != client.ErrConflict || len(refused.Reasons) != 1 ||
		refused.Reasons[0].Code != client.ReasonCapacity || refused.RetryAfter != 0 {
		t.Fatalf("%v is no refusal for want of capacity", err)
	}
	return refused.Reasons[0]
}

// putRates puts a policy, the document of which changes the default one.
func putRates(t testing.TB, c *client.Client, force bool, change func(*quota.Policy)) error {
	t.Helper()
	now, err := c.GetPolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.PutPolicy(t.Context(), client.PutPolicyInput{Document: jsontext.Value(policy(t, change)), Previous: uint32(now.Stored), Force: force})
	return err
}

// In a service of which nothing was measured, or nothing that can be read, the
// policy's figure is generous; what was sold is counted, and who deletes a tenant
// can sell it again.
func TestCapacityIsThePolicysUntilItIsMeasured(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "capacity.json"), []byte(`{"slot_ns_per_credit":0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := wiretest.Start(t, dir)
	operator := capacityClient(t, s.URL, s.Operator)
	got := readCapacity(t, operator)
	if got.Source != "configured" || got.PerSecond != 1_000_000 || got.Sellable != 800_000 || got.SlotNsPerCredit != 0 || got.Slots != 8 ||
		got.Committed != 20_000 || got.Available != 780_000 || got.Oversold { // the demo tenant's
		t.Errorf("%+v", got)
	}
	if platinum := got.Tiers[0]; platinum != (client.CapacityTier{Tier: client.TierPlatinum, PerSecond: 20_000, Tenants: 1, Fits: 39}) {
		t.Errorf("%+v", platinum)
	}
	if err := putRates(t, operator, false, func(p *quota.Policy) { p.Capacity.CreditsPerSecond = 31_250 }); err != nil {
		t.Fatal(err) // 25,000 may be sold
	}
	create := func(name string, tier client.Tier, force bool) error {
		_, err := operator.CreateTenant(t.Context(), client.CreateTenantInput{Name: name, Tier: tier, Force: force})
		return err
	}
	if err := create("fits", client.TierGold, false); err != nil {
		t.Fatal(err)
	}
	if reason := wantRefused(t, create("full", client.TierFree, false)); reason.Limit != 25_000 || reason.Need != 200 || reason.Have != 0 {
		t.Errorf("%+v", reason)
	}
	if _, err := operator.UpdateTenant(t.Context(), "fits", client.UpdateTenantInput{Tier: client.TierPlatinum}); err == nil {
		t.Error("a higher tier was sold")
	} else if reason := wantRefused(t, err); reason.Need != 15_000 {
		t.Errorf("%+v", reason)
	}
	if err := create("forced", client.TierSilver, true); err != nil {
		t.Fatal(err)
	}
	if got := readCapacity(t, operator); !got.Oversold || got.Available != -1000 || got.Tiers[3].Fits != 0 {
		t.Errorf("%+v", got)
	}
	for _, step := range []func() (*client.TenantOutput, error){
		func() (*client.TenantOutput, error) { return operator.SuspendTenant(t.Context(), "fits") },
		func() (*client.TenantOutput, error) { return operator.ResumeTenant(t.Context(), "fits") }, // although oversold
		func() (*client.TenantOutput, error) { return operator.SuspendTenant(t.Context(), "fits") },
		func() (*client.TenantOutput, error) { return operator.DeleteTenant(t.Context(), "fits") },
	} {
		if _, err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := readCapacity(t, operator); got.Oversold || got.Available != 4000 {
		t.Errorf("after a tenant was deleted: %+v", got)
	}
	if err := create("again", client.TierSilver, false); err != nil {
		t.Errorf("what was given back: %v", err)
	}
}

// A policy that promises more than there is, to all of a tier or to one tenant,
// is refused and changes nothing, unless it is forced.
func TestPolicyThatPromisesTooMuchIsRefused(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	operator := capacityClient(t, s.URL, s.Operator)
	demo, err := operator.GetTenant(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	million := int64(1_000_000)
	dear := func(p *quota.Policy) {
		p.Tenants = map[uuid.UUID]*quota.TenantPolicy{uuid.MustParse(demo.ID): {Limits: quota.TierOverride{CreditsPerSecond: &million, BurstCredits: &million}}}
	}
	if reason := wantRefused(t, putRates(t, operator, false, dear)); reason.Limit != 800_000 || reason.Need != 980_000 || reason.Have != 780_000 {
		t.Errorf("%+v", reason)
	}
	if now, err := operator.GetPolicy(t.Context()); err != nil || now.Version != 0 || now.Stored != 0 {
		t.Errorf("version %d is in force, %d stored", now.Version, now.Stored)
	}
	if err := putRates(t, operator, true, dear); err != nil {
		t.Fatal(err)
	}
	if got := readCapacity(t, operator); !got.Oversold || got.Committed != 1_000_000 {
		t.Errorf("%+v", got)
	}
	// With another figure of the pool in the same document it is none.
	if err := putRates(t, operator, false, func(p *quota.Policy) {
		p.Tiers[kms.TierPlatinum].CreditsPerSecond, p.Tiers[kms.TierPlatinum].BurstCredits = million, million
		p.Capacity.CreditsPerSecond = 10 * million
	}); err != nil {
		t.Errorf("a policy that says that the pool can do it: %v", err)
	}
}

// measuredLoad is closed-loop load, and what its callers saw of it.
type measuredLoad struct {
	credits float64 // charged
	took    time.Duration
	busy    float64 // slot-seconds of the HSM nodes
}

// sign has callers sign under the demo tenant's key for a time.
func sign(t *testing.T, s *wiretest.Service, operator *client.Client, callers int, lasts time.Duration, price float64) measuredLoad {
	t.Helper()
	busy := func() (seconds float64) {
		nodes, err := operator.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Nodes {
			if n.DomainID != "" {
				seconds += n.BusySeconds
			}
		}
		return seconds
	}
	before, started := busy(), time.Now()
	var all sync.WaitGroup
	var done atomic.Int64
	for range callers {
		all.Go(func() {
			for time.Since(started) < lasts {
				if status, _, problem := raw(t, s, s.Demo, http.MethodPost, "/v1/keys/k/sign", `{"message":"aGVsbG8="}`); status != http.StatusOK {
					t.Errorf("%d %v", status, problem)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return measuredLoad{float64(done.Load()) * price, time.Since(started), busy() - before}
}

// What is measured through the REST API is what SoftHSM does: the credits that
// callers were charged a second, divided by the share of the slots that they
// kept busy. It is there again after a restart.
func TestMeasuredCapacityIsWhatTheHSMsDo(t *testing.T) {
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			s.Close()
		}
	}()
	operator := capacityClient(t, s.URL, s.Operator)
	// The demo tenant's rate shall not be what limits it.
	if err := putRates(t, operator, true, func(p *quota.Policy) {
		platinum := p.Tiers[kms.TierPlatinum]
		platinum.CreditsPerSecond, platinum.BurstCredits, platinum.DayCredits = 1_000_000, 4_000_000, 4_000_000_000
	}); err != nil {
		t.Fatal(err)
	}
	must(t, s, "/v1/keys", object{"name": "k", "spec": "RSA_2048"})
	const price, callers = 20, 16
	got := readCapacity(t, operator)
	var l measuredLoad
	for range 10 { // a slow machine needs longer for a thousand
		more := sign(t, s, operator, callers, 2*time.Second, price)
		if t.Failed() {
			return
		}
		l.credits, l.took, l.busy = l.credits+more.credits, l.took+more.took, l.busy+more.busy
		if got = readCapacity(t, operator); got.Source == "measured" {
			break
		}
	}
	if got.Source != "measured" || got.Operation != "sign" || got.Spec != "RSA_2048" || got.MeasuredAt.IsZero() {
		t.Fatalf("%+v", got)
	}
	share := l.busy / (float64(got.Slots) * l.took.Seconds())
	want := l.credits / l.took.Seconds() / share
	t.Logf("%d credits/s are measured: %.0f were used with %.0f %% of the slots busy, so %.0f", got.PerSecond, l.credits/l.took.Seconds(), 100*share, want)
	if difference := math.Abs(float64(got.PerSecond)/want - 1); difference > 0.05 {
		t.Errorf("%d credits/s are measured, %.0f were seen", got.PerSecond, want)
	}
	if got.Sellable != got.PerSecond*80/100 {
		t.Errorf("%d of %d may be sold", got.Sellable, got.PerSecond)
	}

	closed = true
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := wiretest.Start(t, dir)
	after := readCapacity(t, capacityClient(t, again.URL, again.Operator))
	if after.Source != "measured" || after.SlotNsPerCredit != got.SlotNsPerCredit || after.PerSecond != got.PerSecond || after.MeasuredAt.IsZero() {
		t.Errorf("after a restart: %+v, before it %+v", after, got)
	}
}

// HSMs that become slow can keep less, without anybody saying so: then what was
// sold is too much, and nothing more is sold.
func TestSlowedPoolCanSellLess(t *testing.T) {
	p := newFaultyPool(t, 2)
	c := capacityClient(t, p.url, p.operator)
	loaded := func(from int, operations int64) *client.CapacityOutput {
		t.Helper()
		l := p.load(t, p.slots)
		l.after(from)
		l.end(t)
		got := readCapacity(t, c)
		if got.Source != "measured" || got.Operations < operations {
			t.Fatalf("%+v", got)
		}
		return got
	}
	if got := readCapacity(t, c); got.Source != "configured" || got.Oversold {
		t.Errorf("before any load: %+v", got)
	}
	const calls = 4000
	before := loaded(calls, calls)
	// One credit takes the service time at least.
	if most := int64(p.slots) * int64(time.Second/serviceTime); before.PerSecond > most || before.PerSecond < most/3 {
		t.Errorf("%d credits/s are measured; the modules can do %d", before.PerSecond, most)
	}
	for _, m := range p.modules {
		m.SlowDown(8)
	}
	after := loaded(calls/2, calls+calls/2)
	t.Logf("%d credits/s, %d when it was slowed", before.PerSecond, after.PerSecond)
	// Of the window a third of the calls take eight times as long.
	if after.PerSecond > before.PerSecond/2 {
		t.Errorf("%d credits/s are measured when the HSMs are slow, %d were before", after.PerSecond, before.PerSecond)
	}
	if !after.Oversold {
		t.Errorf("two platinum tenants are not too much for it: %+v", after)
	}
	_, err := c.CreateTenant(t.Context(), client.CreateTenantInput{Name: "more", Tier: client.TierFree})
	wantRefused(t, err)
}

// What one API node sells is counted on the other.
func TestAPINodesCountWhatTheOtherSells(t *testing.T) {
	cluster := newCluster(t)
	cluster.more = "two_operators: false\n"
	a, b := cluster.start(t, 1), cluster.start(t, 2)
	credential := cluster.operator(t, a.app)
	onA, onB := capacityClient(t, a.URL, credential), capacityClient(t, b.URL, credential)
	if err := putRates(t, onA, false, func(p *quota.Policy) { p.Capacity.CreditsPerSecond = 2500 }); err != nil {
		t.Fatal(err)
	}
	within(t, recovery, "following the policy", func() bool { return readCapacity(t, onB).Sellable == 2000 })
	for i := range 2 {
		if _, err := onA.CreateTenant(t.Context(), client.CreateTenantInput{Name: fmt.Sprint("t-", i), Tier: client.TierSilver}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, recovery, "looking at the capacity", func() bool { return b.app.Service.CapacitySeen() != nil })
	for name, want := range map[string]float64{"sluice_capacity_credits_per_second": 1_000_000, "sluice_capacity_sellable_credits_per_second": 800_000,
		"sluice_capacity_committed_credits_per_second": 0, "sluice_capacity_oversold": 0, "sluice_capacity_measured": 0} {
		if got := gauge(t, b, name); got != want { // of the look at the start
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := readCapacity(t, onB); got.Committed != 2000 || got.Available != 0 || got.Tiers[2].Tenants != 2 {
		t.Errorf("%+v", got)
	}
	_, err := onB.CreateTenant(t.Context(), client.CreateTenantInput{Name: "full", Tier: client.TierFree})
	wantRefused(t, err)
}
