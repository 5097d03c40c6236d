package wire_test

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// policy is a policy with one change, as a document.
func policy(t testing.TB, change func(*quota.Policy)) []byte {
	t.Helper()
	p := quota.DefaultPolicy()
	change(p)
	document, err := p.Document()
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func goldBurst(credits int64) func(*quota.Policy) {
	return func(p *quota.Policy) { p.Tiers[kms.TierGold].BurstCredits = credits }
}

func TestEngineTakesGoodPoliciesOnly(t *testing.T) {
	e, err := wire.NewPolicyEngine(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if version, document := e.PolicyInForce(); version != 0 || !bytes.Equal(document, e.DefaultPolicy()) || e.PolicyVersion() != 0 {
		t.Errorf("at the beginning version %d is in force", version)
	}
	good, bad := policy(t, goldBurst(20_000)), policy(t, goldBurst(1))
	spaced := jsontext.Value(slices.Clone(good))
	if err := spaced.Indent(); err != nil {
		t.Fatal(err)
	}
	if canonical, mistakes := e.CheckPolicy(spaced); len(mistakes) != 0 || !bytes.Equal(canonical, good) {
		t.Errorf("%s is spelled %s, %v", spaced, canonical, mistakes)
	}
	for document, path := range map[string]string{string(bad): "tiers.gold.burst_credits", "{": "", `{"x":1}`: "x"} {
		if _, mistakes := e.CheckPolicy([]byte(document)); len(mistakes) != 1 || mistakes[0].Path != path || mistakes[0].What == "" {
			t.Errorf("%.100s: %v", document, mistakes)
		}
		if err := e.ApplyPolicy(1, []byte(document)); err == nil || e.PolicyVersion() != 0 {
			t.Errorf("%.100s is in force: %v", document, err)
		}
	}
	changes, err := e.DiffPolicies(e.DefaultPolicy(), good)
	if err != nil || len(changes) != 1 || changes[0] != (kms.PolicyChange{Path: "tiers.gold.burst_credits", From: "15000", To: "20000"}) {
		t.Errorf("%v, %v", changes, err)
	}
	if err := e.ApplyPolicy(3, good); err != nil || e.PolicyVersion() != 3 || e.Current().Policy().Tiers[kms.TierGold].BurstCredits != 20_000 {
		t.Errorf("%v", err)
	}
	if err := e.ApplyPolicy(3, policy(t, goldBurst(30_000))); err == nil || e.Current().Policy().Tiers[kms.TierGold].BurstCredits != 20_000 {
		t.Errorf("a version replaced itself: %v", err)
	}
}

// A policy is in force where it was put with the answer, on the other API node
// within a second, and after a restart; every entry of the journal names the
// one under which its request was decided.
func TestPolicyIsInForceOnEveryNode(t *testing.T) {
	c := newCluster(t)
	a, b := c.start(t, 1), c.start(t, 2)
	operator := c.operator(t, a.app)
	onA := policyClient(t, a, operator)
	in := client.PutPolicyInput{Document: policy(t, goldBurst(20_000)), Comment: "more for gold"}
	_, err := onA.PutPolicy(t.Context(), in)
	asked, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrApprovalRequired) {
		t.Fatalf("one operator alone: %v", err)
	}
	_, second := call(t, a.Service, operator, http.MethodPost, "/v1/credentials", object{"name": "second", "scopes": []string{"operator:admin"}})
	if _, err := policyClient(t, b, second.Credential).Approve(t.Context(), asked.Approval); err != nil {
		t.Fatal(err)
	}
	put, err := onA.WithApproval(asked.Approval).PutPolicy(t.Context(), in)
	if err != nil || put.Version != 1 {
		t.Fatalf("%+v, %v", put, err)
	}
	if got := a.app.Policies.Current(); got.Version != 1 || got.Policy().Tiers[kms.TierGold].BurstCredits != 20_000 {
		t.Errorf("version %d is in force where it was put", got.Version)
	}
	within(t, time.Second, "a policy", func() bool { return b.app.Policies.Current().Version == 1 })
	shown, err := policyClient(t, b, operator).GetPolicy(t.Context())
	if err != nil || shown.Version != 1 || shown.Stored != 1 || shown.Problem != "" || shown.CreatedBy != put.CreatedBy || shown.Comment != "more for gold" {
		t.Errorf("%+v, %v", shown, err)
	}
	for name, want := range map[string]float64{"sluice_policy_version_in_force": 1, "sluice_policy_version_stored": 1, "sluice_policy_failing": 0} {
		if got := gauge(t, b, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	call(t, b.Service, "slk_wrong", http.MethodGet, "/v1/keys", nil)

	versions := map[kms.Op][]uint64{}
	err = audit.Read(filepath.Join(c.dir, "data-2", "journal"), 1, func(e *kms.Entry, _ audit.Position) error {
		versions[e.Op] = append(versions[e.Op], e.PolicyVersion)
		return nil
	})
	if err != nil || !slices.Equal(versions[kms.OpReadPolicy], []uint64{1}) || !slices.Equal(versions[kms.OpListKeys], []uint64{1}) {
		t.Errorf("the journal of the other node has versions %v, %v", versions, err)
	}
}

func policyClient(t *testing.T, n *apiNode, credential string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Address: n.URL, Credential: client.NewToken(credential)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func gauge(t *testing.T, n *apiNode, name string) float64 {
	t.Helper()
	families, err := n.app.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// The policy in force is that of the database after a restart, and what cannot
// be believed there does not replace it by nothing.
func TestPolicySurvivesARestartAndDamage(t *testing.T) {
	site := sqliteSite(t)
	s, stop := site.serve(t)
	for i, burst := range []int64{20_000, 30_000} {
		status, a := call(t, s, s.Operator, http.MethodPut, "/v1/policy", object{"document": jsontext.Value(policy(t, goldBurst(burst))), "previous": i})
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, a.Detail)
		}
	}
	stop()
	s, stop = site.serve(t)
	if got := s.App.Policies.Current(); got.Version != 2 || got.Policy().Tiers[kms.TierGold].BurstCredits != 30_000 {
		t.Errorf("after a restart version %d is in force", got.Version)
	}
	stop()
	raw := site.raw(t)
	if !raw.damage(t, "policies", "document", raw.bytes(string(policy(t, goldBurst(4_000_000)))), "version = 2") {
		t.Fatal("the database cannot be damaged")
	}
	s, stop = site.serve(t)
	defer stop()
	if got := s.App.Policies.Current(); got.Version != 1 || got.Policy().Tiers[kms.TierGold].BurstCredits != 20_000 {
		t.Errorf("with a forged newest version, version %d is in force", got.Version)
	}
	if inForce, stored, problem := s.App.Service.PolicyFollowed(); inForce != 1 || stored != 2 || !strings.Contains(problem, "damaged") {
		t.Errorf("it is told as %d, %d, %q", inForce, stored, problem)
	}
}
