package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// watched is a driver whose reads are counted and can be interfered with.
type watched struct {
	keystore.Driver
	reads atomic.Int64
	// before and after, when set, run around every read; an error of before
	// is returned instead of reading.
	before atomic.Pointer[func(what string) error]
	after  atomic.Pointer[func(what string)]
}

func watchedRead[P, R any](ctx context.Context, w *watched, what string, read func(context.Context, P) (R, error), p P) (R, error) {
	w.reads.Add(1)
	if f := w.before.Load(); f != nil {
		if err := (*f)(what); err != nil {
			var none R
			return none, err
		}
	}
	r, err := read(ctx, p)
	if f := w.after.Load(); f != nil {
		(*f)(what)
	}
	return r, err
}

func (w *watched) Tenant(ctx context.Context, p keystore.TenantParams) (*keystore.TenantRow, error) {
	return watchedRead(ctx, w, "Tenant", w.Driver.Tenant, p)
}

func (w *watched) TenantID(ctx context.Context, p keystore.TenantIDParams) (keystore.Bytes, error) {
	return watchedRead(ctx, w, "TenantID", w.Driver.TenantID, p)
}

func (w *watched) Key(ctx context.Context, p keystore.KeyParams) (*keystore.KeyRow, error) {
	return watchedRead(ctx, w, "Key", w.Driver.Key, p)
}

func (w *watched) KeyName(ctx context.Context, p keystore.KeyNameParams) (*keystore.KeyNameRow, error) {
	return watchedRead(ctx, w, "KeyName", w.Driver.KeyName, p)
}

func (w *watched) CredentialForAuthentication(ctx context.Context, p keystore.CredentialForAuthenticationParams) (*keystore.CredentialRow, error) {
	return watchedRead(ctx, w, "CredentialForAuthentication", w.Driver.CredentialForAuthentication, p)
}

// holdFirst makes the first read of a kind stop after it has its result,
// until release is called; held is closed when it stops.
func (w *watched) holdFirst(t *testing.T, what string) (held <-chan struct{}, release func()) {
	stopped, resume := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() {
		close(resume)
		w.after.Store(nil)
	})
	t.Cleanup(release) // also when the test fails before
	var met atomic.Bool
	hold := func(read string) {
		if read == what && met.CompareAndSwap(false, true) {
			close(stopped)
			<-resume
		}
	}
	w.after.Store(&hold)
	return stopped, release
}

func testCache(t *testing.T, open func(*testing.T) keystore.Driver) {
	w := &watched{Driver: open(t)}
	e := newEnv(t, w)
	tenant := e.tenant(t, "cache")

	t.Run("WarmLookUpsCallNothing", func(t *testing.T) { testWarm(t, e, w, tenant) })
	t.Run("WarmLookUpsAllocateNothing", func(t *testing.T) { testAllocations(t, e, tenant) })
	t.Run("OlderLoadNeverWins", func(t *testing.T) { testOlderLoad(t, e, w, tenant) })
	t.Run("OlderAbsenceNeverWins", func(t *testing.T) { testOlderAbsence(t, e, w, tenant) })
	t.Run("OlderAliasNeverWins", func(t *testing.T) { testOlderAlias(t, e, w, tenant) })
	t.Run("OlderCredentialNeverWins", func(t *testing.T) { testOlderCredential(t, e, w, tenant) })
	t.Run("KeysBelongToTheTenantAsItIs", func(t *testing.T) { testTenantOfKeys(t, e, tenant) })
	t.Run("InvalidateShowsChangesOfOthers", func(t *testing.T) { testInvalidate(t, e, w, tenant) })
	t.Run("AbsenceIsRememberedBriefly", func(t *testing.T) { testAbsence(t, e, w, tenant) })
	t.Run("FailureIsNotRemembered", func(t *testing.T) { testFailure(t, e, w, tenant) })
	t.Run("GuessingCostsNoMemory", func(t *testing.T) { testGuessing(t, open(t)) })
}

func testWarm(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	k, c := e.key(t, tenant, "warm"), e.credential(t, tenant.ID, "warm")
	all := func() {
		for _, ref := range []string{"warm", k.ID.String()} {
			e.lookup(t, tenant.ID, ref)
		}
		if _, err := e.Tenant(ctx, tenant.ID); err != nil {
			t.Error(err)
		}
		if _, err := e.TenantByRef(ctx, tenant.Name); err != nil {
			t.Error(err)
		}
		if _, err := e.CredentialForAuthentication(ctx, c.ID); err != nil {
			t.Error(err)
		}
	}
	all()
	before := w.reads.Load()
	for range 100 {
		all()
	}
	if n := w.reads.Load() - before; n != 0 {
		t.Errorf("%d database calls of warm look-ups, want 0", n)
	}
}

func testAllocations(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k, c := e.key(t, tenant, "lean-key-with-a-name-of-36-characters"[:36]), e.credential(t, tenant.ID, "lean")
	id := k.ID.String()
	for what, call := range map[string]func() error{
		"Lookup by id":                func() error { _, err := e.Lookup(ctx, tenant.ID, id); return err },
		"Lookup by name":              func() error { _, err := e.Lookup(ctx, tenant.ID, k.Name); return err },
		"Tenant":                      func() error { _, err := e.Tenant(ctx, tenant.ID); return err },
		"CredentialForAuthentication": func() error { _, err := e.CredentialForAuthentication(ctx, c.ID); return err },
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("a warm %s allocates %v times, want 0", what, n)
		}
	}
}

// testOlderLoad: a look-up reads revision 1 and dawdles; a change to revision
// 2 is acknowledged; then the look-up finishes. Neither it nor anybody else sees
// revision 1 any more.
func testOlderLoad(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.key(t, tenant, "older-load")
	held, release := w.holdFirst(t, "Key")
	slow := make(chan *kms.Key, 1)
	go func() {
		got, _ := e.Lookup(ctx, tenant.ID, k.ID.String())
		slow <- got
	}()
	<-held
	state := kms.KeyDisabled
	_, err := e.UpdateKey(ctx, tenant.ID, k.ID, 1, kms.KeyChange{State: &state})
	if err != nil {
		t.Error(err)
	} else if got := e.lookup(t, tenant.ID, "older-load"); got.Revision != 2 {
		t.Errorf("after the change: revision %d, want 2", got.Revision)
	}
	release()
	if got := <-slow; got == nil || got.Revision != 2 {
		t.Errorf("the slow look-up: %+v, want what was changed meanwhile", got)
	}
	before := w.reads.Load()
	if got := e.lookup(t, tenant.ID, k.ID.String()); got.Revision != 2 || w.reads.Load() != before {
		t.Errorf("after the slow look-up: revision %d by %d calls, want 2 by none", got.Revision, w.reads.Load()-before)
	}
}

// testOlderAbsence: the same with a name that is not there yet.
func testOlderAbsence(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	held, release := w.holdFirst(t, "KeyName")
	slow := make(chan error, 1)
	go func() {
		_, err := e.Lookup(t.Context(), tenant.ID, "older-absence")
		slow <- err
	}()
	<-held
	e.key(t, tenant, "older-absence")
	release()
	if err := <-slow; err != nil {
		t.Errorf("the slow look-up: %v, want the key that was made meanwhile", err)
	}
	e.lookup(t, tenant.ID, "older-absence")
}

// testOlderAlias: the same with an alias that is moved meanwhile.
func testOlderAlias(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	from, to := e.key(t, tenant, "alias-from"), e.key(t, tenant, "alias-to")
	if err := e.SetAlias(ctx, tenant.ID, from.ID, "older-alias"); err != nil {
		t.Fatal(err)
	}
	held, release := w.holdFirst(t, "KeyName")
	slow := make(chan *kms.Key, 1)
	go func() {
		got, _ := e.Lookup(ctx, tenant.ID, "older-alias")
		slow <- got
	}()
	<-held
	if err := e.SetAlias(ctx, tenant.ID, to.ID, "older-alias"); err != nil {
		t.Error(err)
	}
	release()
	if got := <-slow; got == nil || got.ID != to.ID {
		t.Errorf("the slow look-up: %+v, want the key that the alias was moved to", got)
	}
	if got := e.lookup(t, tenant.ID, "older-alias"); got.ID != to.ID {
		t.Errorf("the alias leads to %s after it was moved", got.Name)
	}
}

func testOlderCredential(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	c := e.credential(t, tenant.ID, "older")
	held, release := w.holdFirst(t, "CredentialForAuthentication")
	slow := make(chan *kms.Credential, 1)
	go func() {
		got, _ := e.CredentialForAuthentication(ctx, c.ID)
		slow <- got
	}()
	<-held
	now := start
	if _, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Revoked: &now}); err != nil {
		t.Fatal(err)
	}
	release()
	if got := <-slow; got == nil || got.Revoked.IsZero() {
		t.Errorf("the slow look-up: %+v, want that it is revoked", got)
	}
	if got, err := e.CredentialForAuthentication(ctx, c.ID); err != nil || got.Revoked.IsZero() {
		t.Errorf("a revoked credential authenticates: %+v, %v", got, err)
	}
}

func testTenantOfKeys(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.key(t, tenant, "bound")
	before := e.lookup(t, tenant.ID, "bound")
	state, tier := kms.TenantSuspended, kms.TierPlatinum
	changed, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{State: &state, Tier: &tier})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"bound", k.ID.String()} {
		if got := e.lookup(t, tenant.ID, ref).Tenant; got.State != state || got.Tier != tier || got.Revision != changed.Revision {
			t.Errorf("Lookup(%q) belongs to %+v", ref, got)
		}
	}
	if before.Tenant.State != kms.TenantActive {
		t.Error("a key that was handed out changed")
	}
	current, err := e.Tenant(ctx, tenant.ID)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := e.lookup(t, tenant.ID, "bound"), e.lookup(t, tenant.ID, "bound"); first != second || first.Tenant != current {
		t.Error("look-ups of an unchanged key do not share it and its tenant")
	}
}

// testInvalidate changes things behind the store's back, as another process
// would.
func testInvalidate(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	other := newEnv(t, w.Driver)
	k, c := e.key(t, tenant, "elsewhere"), e.credential(t, tenant.ID, "elsewhere")
	e.lookup(t, tenant.ID, "elsewhere")
	if _, err := e.CredentialForAuthentication(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	current, err := e.Tenant(ctx, tenant.ID)
	if err != nil {
		t.Fatal(err)
	}
	keyState, tenantState, now := kms.KeyDisabled, kms.TenantActive, start
	if _, err := other.UpdateKey(ctx, tenant.ID, k.ID, 1, kms.KeyChange{State: &keyState}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Revoked: &now}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.UpdateTenant(ctx, tenant.ID, current.Revision, kms.TenantChange{State: &tenantState}); err != nil {
		t.Fatal(err)
	}
	e.Invalidate(keystore.ObjectKey, tenant.ID, k.ID)
	e.Invalidate(keystore.ObjectCredential, tenant.ID, c.ID)
	e.Invalidate(keystore.ObjectTenant, tenant.ID, tenant.ID)
	if got := e.lookup(t, tenant.ID, "elsewhere"); got.State != keyState || got.Tenant.Revision != current.Revision+1 {
		t.Errorf("the key is %+v of %+v", got, got.Tenant)
	}
	if got, err := e.CredentialForAuthentication(ctx, c.ID); err != nil || got.Revoked.IsZero() {
		t.Errorf("the credential is %+v, %v", got, err)
	}
}

func testAbsence(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	ctx := t.Context()
	ask := func(ref string) int64 {
		before := w.reads.Load()
		if _, err := e.Lookup(ctx, tenant.ID, ref); err != kms.ErrNotFound {
			t.Errorf("Lookup(%q): %v", ref, err)
		}
		return w.reads.Load() - before
	}
	guessed := sampleKey(tenant, "guess")
	id := guessed.ID.String()
	for _, ref := range []string{"guess", id} {
		if n := ask(ref); n != 1 {
			t.Errorf("the first look-up of %q: %d database calls", ref, n)
		}
		for range 100 {
			if n := ask(ref); n != 0 {
				t.Fatalf("another look-up of %q: %d database calls", ref, n)
			}
		}
	}
	e.advance(keystore.AbsenceTTL)
	for _, ref := range []string{"guess", id} {
		if n := ask(ref); n != 1 {
			t.Errorf("a look-up of %q after AbsenceTTL: %d database calls", ref, n)
		}
	}
	for _, ref := range []string{"", "a b", "a//b", "../etc", string(make([]byte, 1<<16))} {
		if n := ask(ref); n != 0 {
			t.Errorf("a look-up of what is no name: %d database calls", n)
		}
	}
	if err := e.CreateKey(ctx, guessed); err != nil {
		t.Fatal(err)
	}
	e.lookup(t, tenant.ID, "guess")
	e.lookup(t, tenant.ID, id)
}

func testFailure(t *testing.T, e *env, w *watched, tenant *kms.Tenant) {
	k := e.key(t, tenant, "failing")
	down := errors.New("the database is down")
	fail := func(string) error { return down }
	w.before.Store(&fail)
	_, err := e.Lookup(t.Context(), tenant.ID, "failing")
	wantKind(t, "cold look-up", err, kms.KindStoreUnavailable)
	if !errors.Is(err, down) {
		t.Errorf("the cause is lost: %v", err)
	}
	_, err = e.UpdateKey(t.Context(), tenant.ID, k.ID, 1, kms.KeyChange{})
	wantKind(t, "change", err, kms.KindStoreUnavailable)
	w.before.Store(nil)
	e.lookup(t, tenant.ID, "failing")
	w.before.Store(&fail)
	defer w.before.Store(nil)
	// What is cached works without the database.
	e.lookup(t, tenant.ID, "failing")
}

// noKeys answers that no key exists, at no cost.
type noKeys struct{ keystore.Driver }

func (noKeys) Key(context.Context, keystore.KeyParams) (*keystore.KeyRow, error) {
	return nil, keystore.ErrMissing
}

func (noKeys) KeyName(context.Context, keystore.KeyNameParams) (*keystore.KeyNameRow, error) {
	return nil, keystore.ErrMissing
}

// guesses is how many names and ids are guessed, and guessedBytes how much
// memory they may keep: what is remembered of 2 × 16,384 absences.
const (
	guesses      = 200_000
	guessedBytes = 16 << 20
)

func testGuessing(t *testing.T, driver keystore.Driver) {
	e := newEnv(t, noKeys{driver})
	tenant := e.tenant(t, "guesser")
	ctx := t.Context()
	before := liveBytes()
	for i := range guesses {
		ref := uuid.NewV7().String()
		if i%2 == 0 {
			ref = fmt.Sprintf("guess-%0100d", i)
		}
		if _, err := e.Lookup(ctx, tenant.ID, ref); err != kms.ErrNotFound {
			t.Fatal(err)
		}
	}
	kept := int64(liveBytes()) - int64(before)
	t.Logf("%d guesses keep %d KiB", guesses, kept>>10)
	if kept > guessedBytes {
		t.Errorf("%d guesses keep %d bytes, want at most %d", guesses, kept, guessedBytes)
	}
	runtime.KeepAlive(e)
}

func liveBytes() uint64 {
	runtime.GC()
	runtime.GC() // a second one frees what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
