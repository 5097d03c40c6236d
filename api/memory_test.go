package api_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// memory is the ports of a service kept in maps, with faults to inject: what
// the REST interface is tested on where a fault is the point. The same tests
// run on a whole service, see wired_test.go.
type memory struct {
	mu          sync.Mutex
	keys        map[uuid.UUID]*kms.Key
	aliases     map[alias]uuid.UUID
	claims      map[kms.IdempotencyKey]*claim
	tenants     map[uuid.UUID]*kms.Tenant
	projects    map[uuid.UUID][]*kms.Project
	credentials map[uuid.UUID]*kms.Credential
	secrets     []kms.SystemSecret
	entries     []kms.Entry
	approvals   []*kms.Approval
	records     []kms.RequestRecord
	modes       nodeModes
	policies    []*kms.PolicyVersion
	webhooks    []*kms.Webhook
	queued      []kms.Delivery
	book        secretBook
	paths       routeBook
	costs       costBook
	work        jobBook
	published   []kms.Event
	engine      wire.PolicyEngine

	// Faults. They are set while no request runs.
	quotaFault   error
	journalFault error
	storeFault   error
	claimFault   error
	sealFault    error
	panicOnAuth  bool

	token     *soft.Token
	session   hsm.Session
	nodeCalls atomic.Int64 // that reached a node
	penalised atomic.Int64
	exhausted time.Time // of reservations
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	token, err := soft.Open()
	if err != nil {
		t.Fatal(err)
	}
	session, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if err := token.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, err := wire.NewPolicyEngine(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return &memory{
		engine: engine, book: newSecretBook(), paths: newRouteBook(), work: newJobBook(),
		keys: map[uuid.UUID]*kms.Key{}, aliases: map[alias]uuid.UUID{}, claims: map[kms.IdempotencyKey]*claim{},
		tenants:  map[uuid.UUID]*kms.Tenant{},
		projects: map[uuid.UUID][]*kms.Project{}, credentials: map[uuid.UUID]*kms.Credential{},
		token: token, session: session,
	}
}

// page cuts a page out of a list that is ordered by name; its tokens are
// names.
func page[T any](list []T, name func(T) string, p kms.Page) ([]T, string, error) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	start := 0
	for start < len(list) && p.Token != "" && name(list[start]) <= p.Token {
		start++
	}
	list = list[start:]
	if len(list) <= p.Size {
		return list, "", nil
	}
	return list[:p.Size], name(list[p.Size-1]), nil
}

func (m *memory) Lookup(_ context.Context, tenant uuid.UUID, ref string) (*kms.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	id, _ := uuid.Parse(ref)
	for _, k := range m.keys {
		if k.Tenant.ID == tenant && (k.ID == id || k.Name == ref) {
			return k, nil
		}
	}
	if k := m.keys[m.aliases[alias{tenant, ref}]]; k != nil {
		return k, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) CreateKey(_ context.Context, key *kms.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		if k.Tenant.ID == key.Tenant.ID && k.Name == key.Name {
			return kms.Errorf(kms.KindConflict, "name: is taken")
		}
	}
	if _, taken := m.aliases[alias{key.Tenant.ID, key.Name}]; taken {
		return kms.Errorf(kms.KindConflict, "name: is taken")
	}
	m.keys[key.ID] = key
	return nil
}

// change replaces a key by a changed copy, since readers share it.
func (m *memory) change(id uuid.UUID, revision uint64, f func(*kms.Key)) (*kms.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := *m.keys[id]
	if k.Revision != revision {
		return nil, kms.Errorf(kms.KindPreconditionFailed, "the revision is another")
	}
	k.Revision++
	f(&k)
	m.keys[id] = &k
	return &k, nil
}

func (m *memory) AddVersion(_ context.Context, _, key uuid.UUID, revision uint64, v *kms.Version) (*kms.Key, error) {
	return m.change(key, revision, func(k *kms.Key) {
		k.Versions = append(slices.Clone(k.Versions), v)
		k.Primary = v.Number
	})
}

func (m *memory) UpdateKey(_ context.Context, _, key uuid.UUID, revision uint64, c kms.KeyChange) (*kms.Key, error) {
	return m.change(key, revision, func(k *kms.Key) {
		if c.State != nil {
			k.State = *c.State
		}
		if c.DeletionDate != nil {
			k.DeletionDate = *c.DeletionDate
		}
		if c.Description != nil {
			k.Description = *c.Description
		}
		if c.Tags != nil {
			k.Tags = c.Tags
		}
		if c.DeletionProtection != nil {
			k.DeletionProtection = *c.DeletionProtection
		}
	})
}

func (m *memory) ListKeys(_ context.Context, tenant uuid.UUID, project string, p kms.Page) ([]*kms.Key, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*kms.Key
	for _, k := range m.keys {
		if k.Tenant.ID == tenant && (project == "" || k.Project == project) {
			list = append(list, k)
		}
	}
	return page(list, func(k *kms.Key) string { return k.Name }, p)
}

func (m *memory) Tenant(_ context.Context, id uuid.UUID) (*kms.Tenant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tenants[id]; t != nil {
		return t, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) TenantByRef(_ context.Context, ref string) (*kms.Tenant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, _ := uuid.Parse(ref)
	for _, t := range m.tenants {
		if t.ID == id || t.Name == ref {
			return t, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) CreateTenant(ctx context.Context, t *kms.Tenant) error {
	if _, err := m.TenantByRef(ctx, t.Name); err == nil {
		return kms.Errorf(kms.KindConflict, "name: is taken")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tenants[t.ID] = t
	m.projects[t.ID] = []*kms.Project{{Tenant: t.ID, Name: kms.DefaultProject, Created: t.Created}}
	return nil
}

func (m *memory) UpdateTenant(_ context.Context, id uuid.UUID, revision uint64, c kms.TenantChange) (*kms.Tenant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := *m.tenants[id]
	if t.Revision != revision {
		return nil, kms.Errorf(kms.KindPreconditionFailed, "the revision is another")
	}
	t.Revision++
	if c.Tier != nil {
		t.Tier = *c.Tier
	}
	if c.State != nil {
		t.State = *c.State
	}
	if c.AllowSealed != nil {
		t.AllowSealed = *c.AllowSealed
	}
	m.tenants[id] = &t
	return &t, nil
}

func (m *memory) ListTenants(_ context.Context, p kms.Page) ([]*kms.Tenant, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return page(slices.Collect(maps.Values(m.tenants)), func(t *kms.Tenant) string { return t.Name }, p)
}

func (m *memory) CreateProject(ctx context.Context, p *kms.Project) error {
	if _, err := m.Project(ctx, p.Tenant, p.Name); err == nil {
		return kms.Errorf(kms.KindConflict, "name: is taken")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.projects[p.Tenant] = append(m.projects[p.Tenant], p)
	return nil
}

func (m *memory) Project(_ context.Context, tenant uuid.UUID, name string) (*kms.Project, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.projects[tenant] {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListProjects(_ context.Context, tenant uuid.UUID, p kms.Page) ([]*kms.Project, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return page(slices.Clone(m.projects[tenant]), func(p *kms.Project) string { return p.Name }, p)
}

func (m *memory) CredentialForAuthentication(_ context.Context, id uuid.UUID) (*kms.Credential, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.panicOnAuth {
		panic("canary-in-a-panic")
	}
	if c := m.credentials[id]; c != nil {
		return c, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) Credential(_ context.Context, tenant, id uuid.UUID) (*kms.Credential, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.credentials[id]; c != nil && c.Tenant == tenant {
		return c, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) CreateCredential(_ context.Context, c *kms.Credential) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.credentials[c.ID] = c
	return nil
}

func (m *memory) UpdateCredential(_ context.Context, _, id uuid.UUID, revision uint64, change kms.CredentialChange) (*kms.Credential, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := *m.credentials[id]
	if c.Revision != revision {
		return nil, kms.Errorf(kms.KindPreconditionFailed, "the revision is another")
	}
	c.Revision++
	if change.Scopes != nil {
		c.Scopes = change.Scopes
	}
	if change.Secrets != nil {
		c.Secrets = change.Secrets
	}
	if change.Revoked != nil {
		c.Revoked = *change.Revoked
	}
	if change.Guard != nil {
		c.Guard = change.Guard
	}
	m.credentials[id] = &c
	return &c, nil
}

func (m *memory) ListCredentials(_ context.Context, tenant uuid.UUID, p kms.Page) ([]*kms.Credential, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*kms.Credential
	for _, c := range m.credentials {
		if c.Tenant == tenant {
			list = append(list, c)
		}
	}
	return page(list, func(c *kms.Credential) string { return c.Name + c.ID.String() }, p)
}

func (m *memory) SystemSecrets(_ context.Context, name string) (found []kms.SystemSecret, err error) {
	for _, s := range m.secrets {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found, nil
}

func (m *memory) PutSystemSecret(_ context.Context, s kms.SystemSecret) error {
	m.secrets = append(m.secrets, s)
	return nil
}

// Admit prices a signature as the product does and everything else at a
// quarter, so that costs with a fraction occur.
func (m *memory) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	cost := kms.Credit / 4
	if r.Op == kms.OpSign {
		cost = 12 * kms.Credit
	}
	return kms.Reservation{RequestID: r.RequestID, Cost: cost, Exhausted: m.exhausted}, m.quotaFault
}

func (m *memory) Leave(kms.Reservation) {}

func (m *memory) Settle(kms.Reservation, kms.Settlement) {}

func (m *memory) Book(_ *kms.Tenant, _ []*kms.Entry, record func() []error) []error { return record() }

func (m *memory) Penalise(*kms.Tenant, uuid.UUID) { m.penalised.Add(1) }

func (m *memory) Account(t *kms.Tenant) kms.QuotaAccount {
	return kms.QuotaAccount{Tier: t.Tier, PerSecond: kms.Credit, Burst: 2 * kms.Credit, Ramp: 1000, LoadShare: 1000,
		Day: kms.QuotaTotal{Used: kms.Credit, Max: 4 * kms.Credit, Resets: time.Unix(86400, 0)}, Stored: []kms.QuotaStored{{Kind: "keys", Have: 1, Max: 10}},
		Packs: []kms.QuotaPack{{ID: "a", Left: kms.Credit, Expires: time.Unix(86400, 0)}}}
}

func (m *memory) Record(_ context.Context, e *kms.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.journalFault != nil {
		return m.journalFault
	}
	m.entries = append(m.entries, *e)
	return nil
}

func (m *memory) RecordAll(ctx context.Context, entries []*kms.Entry) []error {
	errs := make([]error, len(entries))
	for i, e := range entries {
		errs[i] = m.Record(ctx, e)
	}
	return errs
}

func (m *memory) Request(*kms.Ticket, error)           {}
func (m *memory) JobSubmitted(*kms.Ticket, kms.JobMix) {}

// outcomes returns the journal's outcomes since the last call.
func (m *memory) outcomes() []kms.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []kms.Entry
	for _, e := range m.entries {
		if e.Phase == kms.PhaseOutcome {
			list = append(list, e)
		}
	}
	m.entries = nil
	return list
}

// atOnce is a scheduler that never waits.
type atOnce struct{}

func (atOnce) Do(_ context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	work(f.Nodes[0])
	return kms.Turn{Wait: time.Microsecond, Waits: []kms.Reason{{Code: "SHARE", Have: 500, Limit: 1500, Waited: time.Microsecond}}, Class: "MID"}, nil
}

// flowRecorder is atOnce that remembers what it was told.
type flowRecorder struct {
	atOnce
	mu    sync.Mutex
	flows []kms.Flow
}

func (r *flowRecorder) Do(ctx context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	r.mu.Lock()
	r.flows = append(r.flows, f)
	r.mu.Unlock()
	return r.atOnce.Do(ctx, f, work)
}

func (r *flowRecorder) last() kms.Flow {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flows[len(r.flows)-1]
}
