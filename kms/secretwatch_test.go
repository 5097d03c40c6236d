package kms

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"
)

// changeBook is a store of changes of one tenant and its credential.
type changeBook struct {
	ProviderSecrets
	Credentials
	Tenants

	mu         sync.Mutex // guards the rest
	changes    []SecretChange
	lost       int // of the first that are not kept
	follow     func(uuid.UUID)
	credential Credential
	tenant     Tenant
	fault      error
}

func (b *changeBook) FollowSecrets(f func(uuid.UUID)) { b.follow = f }

func (b *changeBook) SecretsRevision(context.Context, uuid.UUID) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return uint64(len(b.changes)), nil
}

func (b *changeBook) AwaitSecretsRevision(ctx context.Context, tenant uuid.UUID, _ uint64) (uint64, error) {
	<-ctx.Done()
	return b.SecretsRevision(ctx, tenant)
}

func (b *changeBook) ChangesOfSecrets(_ context.Context, _ uuid.UUID, after uint64, limit int) ([]SecretChange, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		return nil, false, b.fault
	}
	from := max(int(after), b.lost)
	list := b.changes[from:min(from+limit, len(b.changes))]
	return slices.Clone(list), from > int(after), nil
}

func (b *changeBook) CredentialForAuthentication(context.Context, uuid.UUID) (*Credential, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.credential
	return &c, nil
}

func (b *changeBook) Tenant(context.Context, uuid.UUID) (*Tenant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tenant
	return &t, nil
}

// change makes n changes of a path.
func (b *changeBook) change(path string, n int) {
	b.mu.Lock()
	for range n {
		b.changes = append(b.changes, SecretChange{Revision: uint64(len(b.changes) + 1), Path: path, Kind: SecretChanged})
	}
	b.mu.Unlock()
	b.follow(b.tenant.ID)
}

func newTestHub(t testing.TB) (*changeBook, *watchHub, *Principal) {
	b := &changeBook{credential: Credential{ID: uuid.NewV7(), Revision: 1}, tenant: Tenant{ID: uuid.NewV7(), State: TenantActive}}
	scopes, err := ParseScopes([]string{"secret:read:llm/*"})
	if err != nil {
		t.Fatal(err)
	}
	h := newWatchHub(&Service{secrets: b, credentials: b, tenants: b, clock: time.Now, log: slog.New(slog.DiscardHandler)})
	return b, h, &Principal{Tenant: &b.tenant, Credential: b.credential.ID, Scopes: scopes}
}

func openWatch(t testing.TB, h *watchHub, by *Principal, from uint64, resume bool) *SecretWatch {
	t.Helper()
	w, err := h.open(context.Background(), by, 1, from, resume)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func wantNext(t testing.TB, w *SecretWatch, want SecretEvent) {
	t.Helper()
	if e, ok := w.Next(context.Background()); !ok || e != want {
		t.Errorf("event %+v, %v; want %+v", e, ok, want)
	}
}

func TestASilentWatchHasAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, by := newTestHub(t)
		defer h.close()
		w := openWatch(t, h, by, 0, false)
		b.change("hidden/a", 3)
		began := time.Now()
		wantNext(t, w, SecretEvent{Kind: SecretHeartbeat, Revision: 3})
		if silent := time.Since(began); silent != DefaultHeartbeat {
			t.Errorf("after %v", silent)
		}
		b.change("llm/a", 1)
		wantNext(t, w, SecretEvent{Kind: "changed", Revision: 4, Path: "llm/a"})
	})
}

func TestAWatchThatMissedSomethingIsToldToReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, by := newTestHub(t)
		defer h.close()
		slow, quick := openWatch(t, h, by, 0, false), openWatch(t, h, by, 0, false)
		for range watchRing + 10 {
			b.change("llm/a", 1)
			synctest.Wait()
			wantNext(t, quick, SecretEvent{Kind: "changed", Revision: uint64(len(b.changes)), Path: "llm/a"})
		}
		wantNext(t, slow, SecretEvent{Kind: SecretResync, Revision: watchRing + 10})
		b.change("llm/b", 1)
		wantNext(t, slow, SecretEvent{Kind: "changed", Revision: watchRing + 11, Path: "llm/b"})

		// What is not kept any more is missed too, by whoever is behind it.
		b.mu.Lock()
		b.lost = len(b.changes) - 3
		b.mu.Unlock()
		h2 := newWatchHub(h.service)
		defer h2.close()
		wantNext(t, openWatch(t, h2, by, 5, true), SecretEvent{Kind: SecretResync, Revision: watchRing + 11})
		wantNext(t, openWatch(t, h2, by, watchRing+9, true), SecretEvent{Kind: "changed", Revision: watchRing + 10, Path: "llm/a"})
		wantNext(t, openWatch(t, h2, by, 1<<40, true), SecretEvent{Kind: SecretResync, Revision: watchRing + 11})
	})
}

func TestAWatchFromTheVeryBeginningMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, by := newTestHub(t)
		defer h.close()
		b.change("llm/a", 2)
		w := openWatch(t, h, by, 0, true)
		wantNext(t, w, SecretEvent{Kind: "changed", Revision: 1, Path: "llm/a"})
		wantNext(t, w, SecretEvent{Kind: "changed", Revision: 2, Path: "llm/a"})
	})
}

func TestAStoreThatIsAwayLosesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, by := newTestHub(t)
		defer h.close()
		w := openWatch(t, h, by, 0, false)
		synctest.Wait()
		b.fault = Errorf(KindStoreUnavailable, "away")
		b.change("llm/a", 1)
		synctest.Wait()
		b.mu.Lock()
		b.fault = nil
		b.mu.Unlock()
		wantNext(t, w, SecretEvent{Kind: "changed", Revision: 1, Path: "llm/a"})
	})
}

func TestAWatchEndsWithItsCredential(t *testing.T) {
	for name, end := range map[string]func(*changeBook){
		"revoked":          func(b *changeBook) { b.credential.Revoked = time.Now() },
		"expired":          func(b *changeBook) { b.credential.Expires = time.Now() },
		"changed":          func(b *changeBook) { b.credential.Revision++ },
		"tenant suspended": func(b *changeBook) { b.tenant.State = TenantSuspended },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, h, by := newTestHub(t)
				defer h.close()
				w := openWatch(t, h, by, 0, false)
				time.Sleep(time.Minute) // of the bubble: nothing ends by itself
				b.mu.Lock()
				end(b)
				b.mu.Unlock()
				began := time.Now()
				if e, ok := w.Next(t.Context()); ok || time.Since(began) > time.Second {
					t.Errorf("%+v after %v", e, time.Since(began))
				}
				if h.mu.Lock(); len(h.feeds) != 0 {
					t.Errorf("%d feeds", len(h.feeds))
				}
				h.mu.Unlock()
			})
		})
	}
}

func TestTheEndOfTheServiceEndsAllWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, by := newTestHub(t)
		w := openWatch(t, h, by, 0, false)
		go h.close()
		if e, ok := w.Next(t.Context()); ok {
			t.Errorf("%+v", e)
		}
		synctest.Wait()
		if _, err := h.open(t.Context(), by, 1, 0, false); KindOf(err) != KindReducedCapacity {
			t.Errorf("a watch afterwards: %v", err)
		}
	})
}

// TestAHundredWatchesOfTenThousandSecretsCostLittle has 100 watches that read
// nothing while each of 10,000 secrets changes.
func TestAHundredWatchesOfTenThousandSecretsCostLittle(t *testing.T) {
	const watches, secrets, bound = 100, 10_000, 1 << 20
	b, h, by := newTestHub(t)
	defer h.close()
	paths := make([]string, secrets)
	for i := range paths {
		paths[i] = fmt.Sprintf("llm/provider-%d/production/api-key", i)
	}
	b.changes = make([]SecretChange, 0, secrets)
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	all := make([]*SecretWatch, watches)
	for i := range all {
		all[i] = openWatch(t, h, by, 0, false)
	}
	for _, p := range paths {
		b.change(p, 1)
	}
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		f := all[0].feed
		f.mu.Lock()
		known := f.known
		f.mu.Unlock()
		if known == secrets {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the changes are not read")
		}
	}
	after := used()
	cost := int64(after) - int64(before)
	t.Logf("%d watches of %d secrets cost %d KiB", watches, secrets, cost>>10)
	if cost > bound {
		t.Errorf("they cost %d bytes, more than %d", cost, bound)
	}
	for _, w := range all {
		wantNext(t, w, SecretEvent{Kind: SecretResync, Revision: secrets})
	}
	runtime.KeepAlive(paths)
}
