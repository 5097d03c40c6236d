package kms_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// stage is a service on fakes that note each step and fail where they are
// told to. The real parts have their own suites; here it is the order of the
// steps and what follows a failure that counts.
type stage struct {
	mu       sync.Mutex // guards what steps note: the keeper takes them too
	steps    []string
	entries  []kms.Entry
	settled  []kms.Settlement
	fail     map[string]error
	panicAt  string
	key      *kms.Key
	nodes    []kms.NodeID
	down     map[kms.NodeID]bool
	svc      *kms.Service
	leased   uint64
	due      int // how often the key is found to be due
	dueFails int // how often looking for that fails first
	failing  int // keys that are due before it and cannot be found
	next     time.Time
	touched  []kms.KeyUse

	// What a deleted tenant has.
	keys        int // in the list
	credentials []*kms.Credential
	domain      uuid.UUID
	generation  uint32 // of its roots
	oldest      uint32 // of those that exist still; 0: generation
	failOnce    string
	reached     func(step string)
	approvals   *approvalBook
	policies    *policyBook
	engine      *policyFake
	sales       stageSales
	// decidedUnder is the version of the policy under which requests are
	// admitted; 0: it is not told.
	decidedUnder uint64
	waits        []kms.Reason // of every slot
	leaseWait    time.Duration
	records      *recordBook
	trail        *trailBook
	clock        time.Time
	now          func() time.Time // in place of clock, if it is not nil
}

// The stage's periods.
const (
	stageRotation  = 300 * 24 * time.Hour
	stageRetention = 30 * 24 * time.Hour
)

func (s *stage) step(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, name)
	if s.reached != nil {
		s.reached(name)
	}
	if s.failOnce == name {
		s.failOnce = ""
		return errors.New("once")
	}
	if s.panicAt == name {
		panic("a value with a secret in it")
	}
	return s.fail[name]
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageFor(t, false)
}

// newStageFor is newStage where some acts may take two operators.
func newStageFor(t *testing.T, twoOperators bool) *stage {
	t.Helper()
	tenant := &kms.Tenant{ID: uuid.NewV7(), Name: "acme", Tier: kms.TierGold, State: kms.TenantActive}
	s := &stage{
		records: &recordBook{}, trail: &trailBook{}, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), waits: []kms.Reason{{Code: "SHARE", Waited: time.Millisecond}},
		fail: map[string]error{}, down: map[kms.NodeID]bool{}, nodes: []kms.NodeID{"a", "b"},
		keys: 1, domain: uuid.NewV7(), generation: 1, approvals: &approvalBook{}, policies: &policyBook{}, engine: &policyFake{},
		key: &kms.Key{ID: uuid.NewV7(), Tenant: tenant, Project: "default", Name: "orders", Spec: kms.SpecAES256,
			Usage: kms.UsageEncryptDecrypt, Protection: kms.ProtectionHSM, State: kms.KeyEnabled, Primary: 1, Revision: 1,
			Versions: []*kms.Version{{ID: uuid.NewV7(), Number: 1, State: kms.VersionEnabled}}},
	}
	pepper, err := kms.NewPepper(map[uint32][]byte{1: make([]byte, kms.MACKeySize)})
	if err != nil {
		t.Fatal(err)
	}
	s.svc = kms.NewService(kms.Config{
		Tenants: stageTenants{stage: s}, Credentials: stageCredentials{stage: s}, Deletions: stageDeletions{s}, Approvals: s.approvals,
		Secrets: noSecrets{}, Routes: noRoutes{}, Jobs: noJobs{}, Policies: s.policies, PolicyEngine: s.engine, Capacity: &s.sales, Records: s.records, Trail: s.trail, ReadEntry: s.trail.read,
		TwoOperators: twoOperators, RootRotation: stageRotation, BackupRetention: stageRetention,
		Keys: stageKeys{s}, Quota: s, Scheduler: stageScheduler{s}, Device: stageDevice{stage: s}, Journal: s, Observer: s, Lifecycle: stageLifecycle{stage: s}, CredentialUses: stageUses{},
		Pepper: pepper, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Clock: func() time.Time {
			if s.now != nil {
				return s.now()
			}
			return s.clock
		},
	})
	return s
}

func (s *stage) ticket(t *testing.T, scopes ...string) *kms.Ticket {
	t.Helper()
	parsed, err := kms.ParseScopes(scopes)
	if err != nil {
		t.Fatal(err)
	}
	return &kms.Ticket{RequestID: uuid.NewV7(), Urgency: kms.UrgencyNormal, Received: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		By: &kms.Principal{Tenant: s.key.Tenant, Project: "default", Credential: uuid.NewV7(), Scopes: parsed}}
}

// operatorTicket is a ticket of an operator with a credential of his own.
func (s *stage) operatorTicket(t *testing.T) *kms.Ticket {
	t.Helper()
	ticket := s.ticket(t, "operator:admin", "tenant:admin")
	ticket.By.Tenant = &kms.Tenant{ID: uuid.NewV7(), Name: kms.SystemTenantName, State: kms.TenantActive}
	return ticket
}

// noSecrets is a store without provider secrets.
type noSecrets struct{ kms.ProviderSecrets }

func (noSecrets) FollowSecrets(func(uuid.UUID)) {}
func (noSecrets) ListSecrets(context.Context, uuid.UUID, string, kms.Page) ([]*kms.ProviderSecret, string, error) {
	return nil, "", nil
}

// noJobs is a store without jobs.
type noJobs struct{ kms.Jobs }

func (noJobs) ListJobs(context.Context, uuid.UUID, uuid.UUID, kms.Page) ([]*kms.Job, string, error) {
	return nil, "", nil
}

// noRoutes is a store without routes.
type noRoutes struct{ kms.ProviderRoutes }

func (noRoutes) ListRoutes(context.Context, uuid.UUID, kms.Page) ([]*kms.ProviderRoute, string, error) {
	return nil, "", nil
}

type stageKeys struct{ *stage }

func (s stageKeys) Lookup(_ context.Context, tenant uuid.UUID, ref string) (*kms.Key, error) {
	if err := s.step("lookup"); err != nil {
		return nil, err
	}
	if tenant != s.key.Tenant.ID || ref != s.key.Name && ref != s.key.ID.String() {
		return nil, kms.ErrNotFound
	}
	return s.key, nil
}
func (s stageKeys) CreateKey(context.Context, *kms.Key) error { return s.step("store") }
func (s stageKeys) AddVersion(_ context.Context, _, _ uuid.UUID, _ uint64, v *kms.Version) (*kms.Key, error) {
	return s.key, s.step("store")
}
func (s stageKeys) UpdateKey(context.Context, uuid.UUID, uuid.UUID, uint64, kms.KeyChange) (*kms.Key, error) {
	return s.key, s.step("store")
}
func (s stageKeys) ListKeys(_ context.Context, _ uuid.UUID, _ string, p kms.Page) ([]*kms.Key, string, error) {
	n := min(s.keys, p.Size)
	next := ""
	if s.keys > n {
		next = "more"
	}
	return slices.Repeat([]*kms.Key{s.key}, n), next, s.step("store")
}

type stageUses struct{}

func (stageUses) TouchCredentials(context.Context, []kms.CredentialUse) error { return nil }

type stageLifecycle struct {
	kms.KeyLifecycle
	*stage
}

func (s stageLifecycle) DueKeys(_ context.Context, _ time.Time, after kms.DueKey, limit int) ([]kms.DueKey, error) {
	if s.dueFails > 0 {
		s.dueFails--
		return nil, kms.Errorf(kms.KindStoreUnavailable, "down")
	}
	if s.failing > 0 {
		return s.dueAmongFailing(after, limit), nil
	}
	if s.due == 0 {
		return nil, nil
	}
	s.due--
	return []kms.DueKey{{Tenant: s.key.Tenant.ID, Key: s.key.ID}}, nil
}
func (s stageLifecycle) DestroyKey(context.Context, uuid.UUID, uuid.UUID, uint64) error {
	if err := s.step("destroy key"); err != nil {
		return err
	}
	s.keys--
	return nil
}
func (s stageLifecycle) DestroyVersion(_ context.Context, _, _ uuid.UUID, _ uint64, number uint32) (*kms.Key, error) {
	return s.key, s.step(fmt.Sprintf("destroy version %d", number))
}
func (s stageLifecycle) SetRotation(_ context.Context, _, _ uuid.UUID, _ uint64, period time.Duration, next time.Time) (*kms.Key, error) {
	s.next = next
	return s.key, s.step("set rotation")
}
func (s stageLifecycle) TouchKeys(_ context.Context, uses []kms.KeyUse) error {
	s.touched = append(s.touched, uses...)
	return nil
}
func (s stageLifecycle) LeaseNonces(_ context.Context, _, _ uuid.UUID, _ uint32, block uint64) (uint64, error) {
	s.leased += block
	return s.leased, s.fail["lease"]
}

func (s *stage) Penalise(*kms.Tenant, uuid.UUID) { s.step("penalise") }

func (s *stage) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	if err := s.step("admit"); err != nil {
		return kms.Reservation{}, err
	}
	return kms.Reservation{RequestID: r.RequestID, Tenant: r.Principal.Tenant.ID, Cost: 12 * kms.Credit, PolicyVersion: s.decidedUnder, LeaseWait: s.leaseWait}, nil
}

func (s *stage) Leave(kms.Reservation) { s.step("leave") }

func (s *stage) Book(_ *kms.Tenant, _ []*kms.Entry, record func() []error) []error { return record() }

func (s *stage) Settle(_ kms.Reservation, outcome kms.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, "settle")
	s.settled = append(s.settled, outcome)
}

type stageScheduler struct{ *stage }

func (s stageScheduler) Do(_ context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	if err := s.step("schedule"); err != nil {
		return kms.Turn{}, err
	}
	work(f.Nodes[0])
	turn := kms.Turn{Class: "MID"}
	for _, w := range s.waits {
		turn.Wait += w.Waited
		turn.Waits = append(turn.Waits, w)
	}
	return turn, nil
}

type stageDevice struct {
	kms.Device
	*stage
}

func (s stageDevice) Status() []kms.NodeStatus {
	return []kms.NodeStatus{{ID: "cpu"}, {ID: "a", Domain: s.domain, Generation: s.generation, OldestGeneration: cmp.Or(s.oldest, s.generation)}}
}
func (s stageDevice) Nodes(*kms.Work) ([]kms.NodeID, error) { return slices.Clone(s.nodes), nil }
func (s stageDevice) CreatorNodes(uuid.UUID, kms.Spec, kms.Protection) ([]kms.NodeID, error) {
	return slices.Clone(s.nodes), nil
}
func (s stageDevice) Do(_ context.Context, n kms.NodeID, w *kms.Work) error {
	err := s.step("device " + string(n))
	if s.down[n] {
		return kms.Errorf(kms.KindHSMUnavailable, "node down")
	}
	if err == nil {
		err = s.fail["device"]
	}
	w.SlotTime = 20 * time.Microsecond
	w.Output = append([]byte{}, w.Input...)
	return err
}
func (s stageDevice) Generate(_ context.Context, n kms.NodeID, _ *kms.Key, v *kms.Version) error {
	v.Blob = []byte("blob")
	return s.step("device " + string(n))
}

func (s *stage) Record(_ context.Context, e *kms.Entry) error {
	s.mu.Lock()
	s.entries = append(s.entries, *e)
	s.mu.Unlock()
	if e.Phase == kms.PhaseIntent {
		return s.step("intent")
	}
	return s.step("journal")
}

func (s *stage) RecordAll(ctx context.Context, entries []*kms.Entry) []error {
	errs := make([]error, len(entries))
	for i, e := range entries {
		errs[i] = s.Record(ctx, e)
	}
	return errs
}

func (s *stage) Request(t *kms.Ticket, err error)     { _ = s.step("observe") }
func (s *stage) JobSubmitted(*kms.Ticket, kms.JobMix) {}

func (s *stage) encrypt(t *testing.T, ticket *kms.Ticket) error {
	_, err := s.svc.Encrypt(context.Background(), ticket, "orders", kms.EncryptInput{Plaintext: []byte("x")})
	return err
}

func TestStepsRunInTheirOrder(t *testing.T) {
	s := newStage(t)
	if err := s.encrypt(t, s.ticket(t, "key:encrypt")); err != nil {
		t.Fatal(err)
	}
	want := []string{"lookup", "admit", "schedule", "device a", "journal", "settle", "observe"}
	if !slices.Equal(s.steps, want) {
		t.Errorf("steps = %v, want %v", s.steps, want)
	}
}

func TestStateChangeWritesItsIntentBeforeAnythingElseHappens(t *testing.T) {
	s := newStage(t)
	if _, err := s.svc.RotateKey(context.Background(), s.ticket(t, "key:*"), "orders"); err != nil {
		t.Fatal(err)
	}
	want := []string{"lookup", "admit", "intent", "device a", "store", "journal", "settle", "observe"}
	got := slices.DeleteFunc(slices.Clone(s.steps), func(step string) bool { return step == "schedule" })
	if !slices.Equal(got, want) {
		t.Errorf("steps = %v, want %v", got, want)
	}
	if s.entries[0].RequestID != s.entries[1].RequestID || s.entries[0].Outcome != "" {
		t.Errorf("intent and outcome do not belong together: %+v", s.entries)
	}
}

// Whatever step fails: one entry, one settlement at most, the right charge,
// the right kind, and no step after the failed one but the closing ones.
func TestFailureAtEachStepIsSettledAndRecordedOnce(t *testing.T) {
	internal := errors.New("boom")
	cases := []struct {
		name    string
		fail    string
		err     error
		kind    kms.Kind
		steps   string
		state   kms.SettlementState
		charged kms.Credits
	}{
		{"key missing", "lookup", kms.ErrNotFound, kms.KindNotFound, "lookup journal penalise observe", "", 0},
		{"store down", "lookup", kms.Errorf(kms.KindStoreUnavailable, "down"), kms.KindStoreUnavailable, "lookup journal observe", "", 0},
		{"quota refuses", "admit", kms.Errorf(kms.KindQuotaExceeded, "no"), kms.KindQuotaExceeded, "lookup admit journal observe", "", 0},
		{"queue full", "schedule", kms.Errorf(kms.KindReducedCapacity, "full"), kms.KindReducedCapacity,
			"lookup admit schedule journal settle observe", kms.Cancelled, 0},
		{"node fails without a code", "device", internal, kms.KindInternal,
			"lookup admit schedule device a journal settle observe", kms.Cancelled, 0},
		{"ciphertext is bad", "device", kms.ErrDecryptionFailed, kms.KindDecryptionFailed,
			"lookup admit schedule device a journal settle observe", kms.Partial, 3 * kms.Credit},
		{"journal fails", "journal", internal, kms.KindAuditUnavailable,
			"lookup admit schedule device a journal settle observe", kms.Cancelled, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.fail[c.fail] = c.err
			err := s.encrypt(t, s.ticket(t, "key:encrypt"))
			if kms.KindOf(err) != c.kind || err == nil {
				t.Errorf("error = %v, want kind %v", err, c.kind)
			}
			if got := strings.Join(s.steps, " "); got != c.steps {
				t.Errorf("steps = %s, want %s", got, c.steps)
			}
			if c.state == "" {
				if len(s.settled) != 0 {
					t.Errorf("settled %v without a reservation", s.settled)
				}
			} else if len(s.settled) != 1 || s.settled[0].State != c.state || s.settled[0].Charged != c.charged {
				t.Errorf("settled = %+v, want %s of %d", s.settled, c.state, c.charged)
			}
			if len(s.entries) != 1 {
				t.Fatalf("%d entries, want 1", len(s.entries))
			}
			if e := s.entries[0]; c.fail != "journal" && e.Outcome != c.kind.String() {
				t.Errorf("entry's outcome = %q, want %q", e.Outcome, c.kind)
			}
		})
	}
}

func TestDeniedOperationIsRecordedAndNotFree(t *testing.T) {
	for _, scopes := range [][]string{{"key:decrypt"}, {"key:encrypt:invoices-*"}, {"key:manage"}, {"tenant:admin"}} {
		t.Run(strings.Join(scopes, ","), func(t *testing.T) {
			s := newStage(t)
			err := s.encrypt(t, s.ticket(t, scopes...))
			if kms.KindOf(err) != kms.KindPermissionDenied {
				t.Errorf("error = %v, want permission denied", err)
			}
			if got := strings.Join(s.steps, " "); got != "lookup journal penalise observe" {
				t.Errorf("steps = %s", got)
			}
		})
	}
}

func TestAnotherProjectsKeyIsMissing(t *testing.T) {
	s := newStage(t)
	ticket := s.ticket(t, "key:*")
	ticket.By.Project = "elsewhere"
	if err := s.encrypt(t, ticket); !errors.Is(err, kms.ErrNotFound) {
		t.Errorf("error = %v, want ErrNotFound", err)
	}
}

func TestPanicFreesRecordsAndTellsNothing(t *testing.T) {
	for _, at := range []string{"lookup", "admit", "device a"} {
		t.Run(at, func(t *testing.T) {
			s := newStage(t)
			s.panicAt = at
			err := s.encrypt(t, s.ticket(t, "key:encrypt"))
			if kms.KindOf(err) != kms.KindInternal || err == nil {
				t.Fatalf("error = %v, want internal", err)
			}
			if strings.Contains(fmt.Sprintf("%+v", err), "a value with a secret in it") {
				t.Errorf("the error holds the panic's value: %v", err)
			}
			if len(s.entries) != 1 || s.entries[0].Outcome != "internal" {
				t.Errorf("entries = %+v", s.entries)
			}
			if at == "device a" && (len(s.settled) != 1 || s.settled[0].State != kms.Cancelled) {
				t.Errorf("settled = %+v", s.settled)
			}
		})
	}
}

func TestFailedNodeIsReplacedByTheNext(t *testing.T) {
	s := newStage(t)
	s.down["a"] = true
	ticket := s.ticket(t, "key:encrypt")
	if err := s.encrypt(t, ticket); err != nil {
		t.Fatal(err)
	}
	if ticket.Node != "b" || ticket.Attempts != 2 || ticket.Wait != 2*time.Millisecond {
		t.Errorf("node %s after %d attempts and %v of waiting", ticket.Node, ticket.Attempts, ticket.Wait)
	}
}

func TestAllNodesDownIsNotCharged(t *testing.T) {
	s := newStage(t)
	s.down["a"], s.down["b"] = true, true
	err := s.encrypt(t, s.ticket(t, "key:encrypt"))
	if kms.KindOf(err) != kms.KindHSMUnavailable {
		t.Errorf("error = %v", err)
	}
	if len(s.settled) != 1 || s.settled[0].Charged != 0 {
		t.Errorf("settled = %+v", s.settled)
	}
}

func TestChangeWithoutIntentIsNotMade(t *testing.T) {
	s := newStage(t)
	s.fail["intent"] = errors.New("disk full")
	_, err := s.svc.RotateKey(context.Background(), s.ticket(t, "key:*"), "orders")
	if kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("error = %v", err)
	}
	if slices.Contains(s.steps, "store") || slices.Contains(s.steps, "device a") {
		t.Errorf("steps = %v: the change was made without its intent", s.steps)
	}
}

func TestClientThatLeavesDoesNotUndoItsChange(t *testing.T) {
	s := newStage(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.svc.DisableKey(ctx, s.ticket(t, "key:manage"), "orders"); err != nil {
		t.Errorf("error = %v: the change was begun and must be finished", err)
	}
}

// Nothing that is refused for its form may reach quota or a device.
func TestBadInputCostsNothing(t *testing.T) {
	userID := "alice"
	empty := ""
	long := strings.Repeat("a", kms.MaxUserID+1)
	sm2 := func(k *kms.Key) { k.Spec, k.Usage = kms.SpecSM2, kms.UsageSignVerify }
	rsaEnc := func(k *kms.Key) { k.Spec, k.Usage = kms.SpecRSA2048, kms.UsageEncryptDecrypt }
	ed := func(k *kms.Key) { k.Spec, k.Usage = kms.SpecEd25519, kms.UsageSignVerify }
	p256 := func(k *kms.Key) { k.Spec, k.Usage = kms.SpecP256, kms.UsageSignVerify }
	hmac := func(k *kms.Key) { k.Spec, k.Usage = kms.SpecHMAC256, kms.UsageGenerateVerifyMAC }
	sign := func(in kms.SignInput) func(*stage, *kms.Ticket) error {
		return func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.Sign(context.Background(), t, "orders", in)
			return err
		}
	}
	encrypt := func(in kms.EncryptInput) func(*stage, *kms.Ticket) error {
		return func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.Encrypt(context.Background(), t, "orders", in)
			return err
		}
	}
	decrypt := func(in kms.DecryptInput) func(*stage, *kms.Ticket) error {
		return func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.Decrypt(context.Background(), t, "orders", in)
			return err
		}
	}
	msg := []byte("m")
	cases := []struct {
		name string
		key  func(*kms.Key)
		call func(*stage, *kms.Ticket) error
		kind kms.Kind
	}{
		{"sign with an encryption key", nil, sign(kms.SignInput{Message: msg}), kms.KindInvalidArgument},
		{"encrypt with a signing key", p256, encrypt(kms.EncryptInput{Plaintext: msg}), kms.KindInvalidArgument},
		{"algorithm of another family", nil, encrypt(kms.EncryptInput{Algorithm: kms.AlgSM4GCM}), kms.KindInvalidArgument},
		{"unknown algorithm", p256, sign(kms.SignInput{Message: msg, Algorithm: "NONE"}), kms.KindInvalidArgument},
		{"neither message nor digest", p256, sign(kms.SignInput{}), kms.KindInvalidArgument},
		{"both message and digest", p256, sign(kms.SignInput{Message: msg, Digest: make([]byte, 32)}), kms.KindInvalidArgument},
		{"empty digest", p256, sign(kms.SignInput{Digest: []byte{}}), kms.KindInvalidArgument},
		{"digest of 31 bytes", p256, sign(kms.SignInput{Digest: make([]byte, 31)}), kms.KindInvalidArgument},
		{"digest of 33 bytes", sm2, sign(kms.SignInput{Digest: make([]byte, 33)}), kms.KindInvalidArgument},
		{"digest for Ed25519", ed, sign(kms.SignInput{Digest: make([]byte, 64)}), kms.KindInvalidArgument},
		{"user id for ECDSA", p256, sign(kms.SignInput{Message: msg, UserID: &userID}), kms.KindInvalidArgument},
		{"user id with a digest", sm2, sign(kms.SignInput{Digest: make([]byte, 32), UserID: &userID}), kms.KindInvalidArgument},
		{"empty user id", sm2, sign(kms.SignInput{Message: msg, UserID: &empty}), kms.KindInvalidArgument},
		{"long user id", sm2, sign(kms.SignInput{Message: msg, UserID: &long}), kms.KindInvalidArgument},
		{"raw format for Ed25519", ed, sign(kms.SignInput{Message: msg, Format: kms.FormatRaw}), kms.KindInvalidArgument},
		{"unknown format", p256, sign(kms.SignInput{Message: msg, Format: "hex"}), kms.KindInvalidArgument},
		{"version that does not exist", p256, sign(kms.SignInput{Message: msg, Version: 9}), kms.KindInvalidArgument},
		{"version for symmetric encryption", nil, encrypt(kms.EncryptInput{Plaintext: msg, Version: 1}), kms.KindInvalidArgument},
		{"plaintext over the bound", nil, encrypt(kms.EncryptInput{Plaintext: make([]byte, kms.MaxInput+1)}), kms.KindTooLarge},
		{"AAD over the bound", nil, encrypt(kms.EncryptInput{AAD: make([]byte, kms.MaxInput+1)}), kms.KindTooLarge},
		{"AAD for RSA", rsaEnc, encrypt(kms.EncryptInput{Plaintext: msg, AAD: msg}), kms.KindInvalidArgument},
		{"order for RSA", rsaEnc, encrypt(kms.EncryptInput{Plaintext: msg, Order: kms.SM2OrderC1C2C3}), kms.KindInvalidArgument},
		{"plaintext too long for OAEP", rsaEnc, encrypt(kms.EncryptInput{Plaintext: make([]byte, 191)}), kms.KindInvalidArgument},
		{"ciphertext of another length than the modulus", rsaEnc, decrypt(kms.DecryptInput{Ciphertext: make([]byte, 255)}), kms.KindDecryptionFailed},
		{"ciphertext without an envelope", nil, decrypt(kms.DecryptInput{Ciphertext: []byte("x")}), kms.KindDecryptionFailed},
		{"MAC without a message", hmac, func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.MAC(context.Background(), t, "orders", kms.MACInput{})
			return err
		}, kms.KindInvalidArgument},
		{"data key of 15 bytes", nil, func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.DataKey(context.Background(), t, "orders", kms.DataKeyInput{Length: 15})
			return err
		}, kms.KindInvalidArgument},
		{"no random bytes", nil, func(s *stage, t *kms.Ticket) error {
			_, err := s.svc.Random(context.Background(), t, 0)
			return err
		}, kms.KindInvalidArgument},
		{"disabled key", func(k *kms.Key) { k.State = kms.KeyDisabled }, encrypt(kms.EncryptInput{}), kms.KindKeyDisabled},
		{"key pending deletion", func(k *kms.Key) { k.State = kms.KeyPendingDeletion }, encrypt(kms.EncryptInput{}), kms.KindPendingDeletion},
		{"disabled version", func(k *kms.Key) { k.Versions[0].State = kms.VersionDisabled }, encrypt(kms.EncryptInput{}), kms.KindKeyDisabled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			if c.key != nil {
				c.key(s.key)
			}
			err := c.call(s, s.ticket(t, "key:*"))
			if err == nil || kms.KindOf(err) != c.kind {
				t.Errorf("error = %v, want kind %v", err, c.kind)
			}
			for _, step := range s.steps {
				if step == "admit" || step == "schedule" || strings.HasPrefix(step, "device") {
					t.Errorf("steps = %v: bad input cost something", s.steps)
				}
			}
			if len(s.entries) != 1 {
				t.Errorf("%d entries, want 1", len(s.entries))
			}
		})
	}
}

// A nonce is counted before it is used, in leases that are stored.
func TestNoncesAreLeasedBeforeTheyAreUsed(t *testing.T) {
	s := newStage(t)
	for range 3000 {
		if err := s.encrypt(t, s.ticket(t, "key:encrypt")); err != nil {
			t.Fatal(err)
		}
	}
	if s.leased < 3000 || s.leased > 10_000 {
		t.Errorf("%d nonces are counted as used after 3000 encryptions", s.leased)
	}
}

func TestSpentNonceBudgetEndsEncryption(t *testing.T) {
	s := newStage(t)
	s.leased = 1 << 32
	if err := s.encrypt(t, s.ticket(t, "key:encrypt")); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("error = %v, want conflict", err)
	}
	for _, step := range s.steps {
		if strings.HasPrefix(step, "device") {
			t.Error("a nonce beyond the budget was used")
		}
	}
}

func TestNoncesThatCannotBeCountedAreNotUsed(t *testing.T) {
	s := newStage(t)
	s.fail["lease"] = kms.Errorf(kms.KindStoreUnavailable, "down")
	if err := s.encrypt(t, s.ticket(t, "key:encrypt")); kms.KindOf(err) != kms.KindStoreUnavailable {
		t.Errorf("error = %v", err)
	}
}

// TestJournalCarriesTheSubjectAndTheMarksOfARequest has what of a ticket must
// reach its entry. No way of authenticating verifies a subject yet.
func TestJournalCarriesTheSubjectAndTheMarksOfARequest(t *testing.T) {
	s := newStage(t)
	ticket := s.ticket(t, "key:encrypt")
	ticket.By.Subject, ticket.DryRun = "spiffe://example.org/pay", true
	if err := s.encrypt(t, ticket); err != nil {
		t.Fatal(err)
	}
	if e := s.entries[0]; e.Subject != "spiffe://example.org/pay" || !e.DryRun || e.Replayed {
		t.Errorf("the journal has %+v", e)
	}
	if _, err := s.svc.Replay(context.Background(), s.ticket(t, "key:rotate"), kms.OpRotateKey, s.key.ID.String()); err != nil {
		t.Fatal(err)
	}
	if e := s.entries[1]; !e.Replayed || e.DryRun || e.Key != s.key.ID {
		t.Errorf("the journal has %+v", e)
	}
}

func TestRepetitionForADestroyedKeyFindsNone(t *testing.T) {
	s := newStage(t)
	ctx := context.Background()
	if _, err := s.svc.Replay(ctx, s.ticket(t, "key:rotate"), kms.OpRotateKey, uuid.NewV7().String()); kms.KindOf(err) != kms.KindNotFound || err == nil {
		t.Errorf("a destroyed key: %v", err)
	}
	if _, err := s.svc.Replay(ctx, s.ticket(t, "key:sign"), kms.OpRotateKey, s.key.ID.String()); kms.KindOf(err) != kms.KindPermissionDenied || err == nil {
		t.Errorf("a caller who may not any more: %v", err)
	}
}
