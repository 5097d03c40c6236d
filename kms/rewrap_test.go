package kms_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// rootWorld is a domain's tenants and keys with a device that moves them from
// generation 1 to 2. A blob is its generation and 's' for a SEALED one.
type rootWorld struct {
	kms.Tenants
	kms.Keys
	domain  uuid.UUID
	tenants []*kms.Tenant
	keys    map[uuid.UUID][]*kms.Key
	entries []kms.Entry

	mu        sync.Mutex          // guards what rewrapping changes
	conflicts int                 // writes that find another revision first
	broken    map[uuid.UUID]error // of a tenant or key
	refuses   error               // the journal's
}

func newRootWorld(tenants, keys int) *rootWorld {
	w := &rootWorld{domain: uuid.NewV7(), keys: map[uuid.UUID][]*kms.Key{}, broken: map[uuid.UUID]error{}}
	for i := range tenants {
		t := &kms.Tenant{ID: uuid.NewV7(), Name: fmt.Sprint("t", i), State: kms.TenantActive, Revision: 3,
			Sealing: kms.SealingKey{ID: uuid.NewV7(), Domain: w.domain, RootGeneration: 1, Wrapped: []byte{1}}}
		w.tenants = append(w.tenants, t)
		for j := range keys {
			w.keys[t.ID] = append(w.keys[t.ID], &kms.Key{ID: uuid.NewV7(), Tenant: t, Name: fmt.Sprint("k", j), Revision: 1,
				Versions: []*kms.Version{{Number: 1, Blob: []byte{1}}, {Number: 2, Blob: []byte{1}}, {Number: 3, State: kms.VersionDestroyed}}})
		}
	}
	return w
}

func (w *rootWorld) service() *kms.Service {
	return kms.NewService(kms.Config{Tenants: w, Keys: w, Journal: w, PolicyEngine: &policyFake{version: stagePolicy},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: func() time.Time { return stageNow }})
}

func (w *rootWorld) rewrap(ctx context.Context, progress func(kms.RewrapProgress)) (kms.RewrapProgress, error) {
	return w.service().Rewrap(ctx, kms.Rewrap{Domain: w.domain, Device: w, Store: w, Batch: 2, Progress: progress})
}

func (w *rootWorld) Record(_ context.Context, e *kms.Entry) error {
	if w.refuses == nil {
		w.entries = append(w.entries, *e)
	}
	return w.refuses
}

func (w *rootWorld) RecordAll(ctx context.Context, entries []*kms.Entry) []error {
	errs := make([]error, len(entries))
	for i, e := range entries {
		errs[i] = w.Record(ctx, e)
	}
	return errs
}

func (w *rootWorld) ListTenants(context.Context, kms.Page) ([]*kms.Tenant, string, error) {
	return w.tenants, "", nil
}

func (w *rootWorld) TenantByRef(context.Context, string) (*kms.Tenant, error) {
	return w.tenants[0], nil
}

func (w *rootWorld) ListKeys(_ context.Context, tenant uuid.UUID, _ string, p kms.Page) ([]*kms.Key, string, error) {
	at := 0
	fmt.Sscan(p.Token, &at)
	keys := w.keys[tenant][at:]
	if len(keys) > p.Size {
		return keys[:p.Size], fmt.Sprint(at + p.Size), nil
	}
	return keys, "", nil
}

// conflict has a write meet another's first.
func (w *rootWorld) conflict() error {
	if w.conflicts > 0 {
		w.conflicts--
		return kms.Errorf(kms.KindPreconditionFailed, "changed")
	}
	return nil
}

func (w *rootWorld) RewrapTenant(_ context.Context, id uuid.UUID, rewrap func(*kms.Tenant) (*kms.SealingKey, error)) error {
	for _, t := range w.tenants {
		if t.ID != id {
			continue
		}
		k, err := rewrap(t)
		if err != nil || k == nil {
			return err
		}
		if err := w.conflict(); err != nil {
			return err
		}
		t.Sealing = *k
		t.Revision++
		return nil
	}
	return kms.ErrNotFound
}

func (w *rootWorld) RewrapKey(_ context.Context, tenant, key uuid.UUID, rewrap func(*kms.Key) (map[uint32][]byte, error)) error {
	for _, k := range w.keys[tenant] {
		if k.ID != key {
			continue
		}
		blobs, err := rewrap(k)
		if err != nil || blobs == nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.conflict(); err != nil {
			return err
		}
		for n, blob := range blobs {
			k.Version(n).Blob = blob
		}
		k.Revision++
		return nil
	}
	return kms.ErrNotFound
}

func (w *rootWorld) Generation(uuid.UUID) uint32 { return 2 }

func (w *rootWorld) BlobRoot(blob []byte) uint32 {
	if len(blob) != 1 {
		return 0
	}
	return uint32(blob[0])
}

func (w *rootWorld) RewrapSealingKey(_ context.Context, k kms.SealingKey) (kms.SealingKey, error) {
	for _, t := range w.tenants {
		if err := w.broken[t.ID]; err != nil && t.Sealing.ID == k.ID {
			return k, err
		}
	}
	k.RootGeneration, k.Wrapped = 2, []byte{2}
	return k, nil
}

func (w *rootWorld) RewrapVersion(_ context.Context, key *kms.Key, _ *kms.Version) ([]byte, error) {
	return []byte{2}, w.broken[key.ID]
}

// uses counts what is stored under generation 1.
func (w *rootWorld) uses(t *testing.T) kms.RootUse {
	t.Helper()
	uses, err := w.service().RootUses(context.Background(), w.domain, w)
	if err != nil {
		t.Fatal(err)
	}
	return uses[1]
}

// outcomes sums up the journal, which must have an outcome for each intent.
func (w *rootWorld) outcomes(t *testing.T) map[string]int {
	t.Helper()
	sum, open := map[string]int{}, map[uuid.UUID]bool{}
	for _, e := range w.entries {
		if e.Component != "roots" || e.PolicyVersion != stagePolicy {
			t.Errorf("an entry is of %q under policy %d", e.Component, e.PolicyVersion)
		}
		if e.Phase == kms.PhaseIntent {
			open[e.RequestID] = true
			continue
		}
		if !open[e.RequestID] {
			t.Errorf("%s has no intent", e.Op)
		}
		delete(open, e.RequestID)
		sum[string(e.Op)+" "+e.Outcome]++
		sum["versions"] += int(e.Count)
	}
	if len(open) > 0 {
		t.Errorf("%d intents have no outcome", len(open))
	}
	return sum
}

func wantSum(t *testing.T, got, want map[string]int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
}

func TestRewrappingMovesSealingKeysThenVersions(t *testing.T) {
	w := newRootWorld(2, 3)
	// What needs no roots, or those of others, is left alone.
	w.keys[w.tenants[0].ID][0].Versions[0].Blob = []byte("sealed")
	elsewhere := *w.tenants[1]
	elsewhere.ID, elsewhere.Sealing.Domain = uuid.NewV7(), uuid.NewV7()
	w.tenants = append(w.tenants, &elsewhere)
	var told []kms.RewrapProgress
	done, err := w.rewrap(context.Background(), func(p kms.RewrapProgress) { told = append(told, p) })
	if err != nil || done.Tenants != 2 || done.Versions != 11 || done.Failed != 0 || done.Total != (kms.RootUse{Tenants: 2, Versions: 11}) {
		t.Errorf("%+v, %v", done, err)
	}
	if len(told) == 0 || told[1].Tenants != 2 || told[1].Versions != 0 {
		t.Errorf("versions were moved before all sealing keys: %+v", told)
	}
	if left := w.uses(t); left != (kms.RootUse{}) || elsewhere.Sealing.RootGeneration != 1 {
		t.Errorf("left: %+v", left)
	}
	wantSum(t, w.outcomes(t), map[string]int{"rewrap-tenant ok": 2, "rewrap-keys ok": 2, "versions": 11})
	w.entries = nil
	if done, err := w.rewrap(context.Background(), nil); err != nil || done.Tenants+done.Versions != 0 || len(w.entries) != 0 {
		t.Errorf("repeated: %+v, %v, %d entries", done, err, len(w.entries))
	}
}

func TestRewrappingIsTriedAgainWhereOthersChangeTheRow(t *testing.T) {
	w := newRootWorld(1, 1)
	w.conflicts = 5
	if done, err := w.rewrap(context.Background(), nil); err != nil || done.Tenants != 1 || done.Versions != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	w = newRootWorld(1, 1)
	w.conflicts = 1 << 30
	if done, err := w.rewrap(context.Background(), nil); kms.KindOf(err) != kms.KindPreconditionFailed || done.Failed != 2 {
		t.Errorf("without end: %+v, %v", done, err)
	}
}

func TestRowThatCannotBeRewrappedKeepsNoOther(t *testing.T) {
	w := newRootWorld(2, 3)
	w.broken[w.tenants[0].ID] = errors.New("spoilt")
	w.broken[w.keys[w.tenants[1].ID][0].ID] = errors.New("spoilt")
	done, err := w.rewrap(context.Background(), nil)
	if err == nil || done.Tenants != 1 || done.Versions != 10 || done.Failed != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if left := w.uses(t); left != (kms.RootUse{Tenants: 1, Versions: 2}) {
		t.Errorf("left: %+v", left)
	}
	wantSum(t, w.outcomes(t), map[string]int{"rewrap-tenant ok": 1, "rewrap-tenant internal": 1, "rewrap-keys ok": 2, "versions": 10})
}

func TestRewrappingEndsWhenTheHSMFails(t *testing.T) {
	w := newRootWorld(1, 3)
	w.broken[w.keys[w.tenants[0].ID][1].ID] = kms.Errorf(kms.KindHSMUnavailable, "gone")
	done, err := w.rewrap(context.Background(), nil)
	// At most the keys of the page that was under way.
	if kms.KindOf(err) != kms.KindHSMUnavailable || done.Versions > 2 || done.Failed != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	wantSum(t, w.outcomes(t), map[string]int{"rewrap-tenant ok": 1, "rewrap-keys hsm_unavailable": 1, "versions": done.Versions})
}

func TestInterruptedRewrappingIsGoneOnWith(t *testing.T) {
	w := newRootWorld(1, 4)
	ctx, cancel := context.WithCancel(context.Background())
	done, err := w.rewrap(ctx, func(p kms.RewrapProgress) {
		if p.Versions == 4 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || done.Versions != 4 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err = w.rewrap(context.Background(), nil); err != nil || done.Versions != 4 || done.Tenants != 0 {
		t.Errorf("resumed: %+v, %v", done, err)
	}
	wantSum(t, w.outcomes(t), map[string]int{"rewrap-tenant ok": 1, "rewrap-keys ok": 2, "versions": 8})
}

func TestNothingIsRewrappedWithoutItsIntent(t *testing.T) {
	w := newRootWorld(1, 1)
	w.refuses = errors.New("disk full")
	if _, err := w.rewrap(context.Background(), nil); kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("%v", err)
	}
	if left := w.uses(t); left != (kms.RootUse{Tenants: 1, Versions: 2}) {
		t.Errorf("left: %+v", left)
	}
	err := w.service().RetireRoots(context.Background(), w.domain, 3, w, func() error {
		t.Error("roots were destroyed")
		return nil
	})
	if kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("%v", err)
	}
}

func TestDeletedTenantsNeedNoRoots(t *testing.T) {
	w := newRootWorld(2, 1)
	gone := w.tenants[1]
	gone.State, gone.Deletion, gone.Sealing.Wrapped = kms.TenantDeleted, &kms.Deletion{Requested: stageNow}, nil
	if done, err := w.rewrap(context.Background(), nil); err != nil || done.Tenants != 1 || done.Versions != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if left := w.uses(t); left != (kms.RootUse{}) || gone.Sealing.RootGeneration != 1 {
		t.Errorf("left: %+v", left)
	}
}

func TestRootsInUseAreNotRetired(t *testing.T) {
	w := newRootWorld(1, 1)
	destroyed := 0
	retire := func() error {
		return w.service().RetireRoots(context.Background(), w.domain, 1, w, func() error { destroyed++; return nil })
	}
	if err := retire(); kms.KindOf(err) != kms.KindConflict || destroyed != 0 {
		t.Errorf("%v", err)
	}
	w.keys[w.tenants[0].ID][0].Versions[1].Blob = []byte{2}
	if _, err := w.rewrap(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := retire(); err != nil || destroyed != 1 {
		t.Errorf("%v", err)
	}
	sum := w.outcomes(t)
	if sum["retire-roots conflict"] != 1 || sum["retire-roots ok"] != 1 {
		t.Errorf("the journal has %v", sum)
	}
}

func TestRewrapProgressTellsTheTimeLeft(t *testing.T) {
	p := kms.RewrapProgress{Versions: 100, Failed: 10, Total: kms.RootUse{Versions: 310}, Elapsed: 2 * time.Second}
	if p.Rate() != 50 || p.Left() != 4*time.Second {
		t.Errorf("%f a second, %v left", p.Rate(), p.Left())
	}
	if none := (kms.RewrapProgress{}); none.Rate() != 0 || none.Left() != 0 {
		t.Errorf("at the beginning: %f, %v", none.Rate(), none.Left())
	}
}

// A command that crashed leaves intents; the next start closes them.
func TestOpenIntentsAboutRootsAreClosed(t *testing.T) {
	w := newRootWorld(1, 1)
	tenant := w.tenants[0]
	intents := []*kms.Entry{
		{RequestID: uuid.NewV7(), Op: kms.OpRewrapTenant, Tenant: tenant.ID, Resource: tenant.ID.String(), Revision: tenant.Revision},
		{RequestID: uuid.NewV7(), Op: kms.OpRewrapTenant, Tenant: tenant.ID, Resource: tenant.ID.String(), Revision: tenant.Revision - 1},
		{RequestID: uuid.NewV7(), Op: kms.OpRewrapKeys, Tenant: tenant.ID, Resource: tenant.ID.String(), Revision: tenant.Revision},
		{RequestID: uuid.NewV7(), Op: kms.OpRetireRoots, Tenant: tenant.ID, Resource: w.domain.String()},
	}
	if n, err := w.service().Reconcile(context.Background(), intents); err != nil || n != len(intents) {
		t.Fatalf("%d, %v", n, err)
	}
	want := []string{kms.OutcomeFoundUndone, kms.OutcomeFoundChanged, kms.OutcomeFoundUnknown, kms.OutcomeFoundUnknown}
	for i, e := range w.entries {
		if e.Outcome != want[i] {
			t.Errorf("%s: %s, want %s", e.Op, e.Outcome, want[i])
		}
	}
}
