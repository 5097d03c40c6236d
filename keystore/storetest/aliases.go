package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testAliases(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "aliases"), e.tenant(t, "other-aliases")
	a, b := e.key(t, tenant, "key-a"), e.key(t, tenant, "key-b")
	set := func(t *testing.T, k *kms.Key, alias string) {
		t.Helper()
		if err := e.SetAlias(ctx, tenant.ID, k.ID, alias); err != nil {
			t.Fatalf("SetAlias(%s, %s): %v", k.Name, alias, err)
		}
	}
	wantAliases := func(t *testing.T, k *kms.Key, want ...string) {
		t.Helper()
		if got, err := e.KeyAliases(ctx, tenant.ID, k.ID); err != nil || !slices.Equal(got, want) {
			t.Errorf("KeyAliases(%s) = %q, %v; want %q", k.Name, got, err, want)
		}
	}
	t.Run("AliasFindsItsKeyAndMoves", func(t *testing.T) {
		if _, err := e.Lookup(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("before: %v", err)
		}
		for _, k := range []*kms.Key{a, b, b, a} {
			set(t, k, "current")
			if got := e.lookup(t, tenant.ID, "current"); got.ID != k.ID || got != e.lookup(t, tenant.ID, k.Name) {
				t.Errorf("the alias leads to %s, want %s", got.Name, k.Name)
			}
		}
		wantAliases(t, a, "current")
		wantAliases(t, b)
		if err := e.DeleteAlias(ctx, tenant.ID, "current"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Lookup(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("afterwards: %v", err)
		}
		if err := e.DeleteAlias(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("deleting it again: %v", err)
		}
		e.lookup(t, tenant.ID, "key-a")
	})
	t.Run("NamesAndAliasesNeverTakeEachOthersPlace", func(t *testing.T) {
		set(t, a, "taken")
		wantKind(t, "a key named like an alias", e.CreateKey(ctx, sampleKey(tenant, "taken")), kms.KindConflict)
		wantKind(t, "an alias named like a key", e.SetAlias(ctx, tenant.ID, a.ID, "key-b"), kms.KindConflict)
		wantKind(t, "an alias named like its key", e.SetAlias(ctx, tenant.ID, a.ID, "key-a"), kms.KindConflict)
		if err := e.DeleteAlias(ctx, tenant.ID, "key-b"); err != kms.ErrNotFound {
			t.Errorf("deleting a name as an alias: %v", err)
		}
		if e.lookup(t, tenant.ID, "taken").ID != a.ID || e.lookup(t, tenant.ID, "key-b").ID != b.ID {
			t.Error("a name leads elsewhere")
		}
	})
	t.Run("OneOfAKeyAndAnAliasGetsTheName", func(t *testing.T) { testNameRace(t, e, tenant, a) })
	t.Run("TenantsHaveTheirOwn", func(t *testing.T) {
		theirs := e.key(t, other, "theirs")
		set(t, a, "shared-alias")
		if err := e.SetAlias(ctx, other.ID, theirs.ID, "shared-alias"); err != nil {
			t.Fatal(err)
		}
		if e.lookup(t, tenant.ID, "shared-alias").ID != a.ID || e.lookup(t, other.ID, "shared-alias").ID != theirs.ID {
			t.Error("aliases of two tenants meet")
		}
		set(t, a, "shared-alias")
		if n, err := e.AliasRevision(ctx, other.ID, "shared-alias"); err != nil || n != kms.FirstAliasRevision {
			t.Errorf("the other's revision is %d, %v", n, err)
		}
	})
	t.Run("ListsAreInByteOrder", func(t *testing.T) {
		lists := e.tenant(t, "alias-lists")
		k := e.key(t, lists, "named")
		for _, name := range trickyNames {
			if err := e.SetAlias(ctx, lists.ID, k.ID, name); err != nil {
				t.Fatal(err)
			}
		}
		want := slices.Sorted(slices.Values(trickyNames))
		if got, err := e.KeyAliases(ctx, lists.ID, k.ID); err != nil || !slices.Equal(got, want) {
			t.Errorf("KeyAliases = %q, %v; want %q", got, err, want)
		}
		checkPages(t, 4, want, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListAliases(ctx, lists.ID, p)
			return namesOf(list, func(a kms.Alias) string { return a.Name }), next, err
		})
	})
	t.Run("UnusableAliasesAreRefused", func(t *testing.T) {
		for _, bad := range []string{"", "a b", uuid.NewV7().String(), strings.Repeat("x", kms.MaxNameLength+1)} {
			wantKind(t, "SetAlias", e.SetAlias(ctx, tenant.ID, a.ID, bad), kms.KindInvalidArgument)
			if err := e.DeleteAlias(ctx, tenant.ID, bad); err != kms.ErrNotFound {
				t.Errorf("DeleteAlias: %v", err)
			}
		}
		many := e.key(t, tenant, "many-aliases")
		for i := range keystore.MaxAliases {
			set(t, many, fmt.Sprintf("alias-%03d", i))
		}
		wantKind(t, "one too many", e.SetAlias(ctx, tenant.ID, many.ID, "alias-last"), kms.KindConflict)
	})
}

// testNameRace lets keys and aliases be created under one name at once.
func testNameRace(t *testing.T, e *env, tenant *kms.Tenant, k *kms.Key) {
	for round := range 10 {
		name := fmt.Sprint("raced-name-", round)
		results := make(chan error, 4)
		for i := range cap(results) {
			go func() {
				if i%2 == 0 {
					results <- e.CreateKey(t.Context(), sampleKey(tenant, name))
				} else {
					results <- e.SetAlias(t.Context(), tenant.ID, k.ID, name)
				}
			}()
		}
		created := 0
		for range cap(results) {
			switch err := <-results; {
			case err == nil:
				created++
			case kms.KindOf(err) != kms.KindConflict:
				t.Errorf("got %v", err)
			}
		}
		// An alias is set twice if the keys come too late.
		got := e.lookup(t, tenant.ID, name)
		if isKey := got.Name == name; isKey && created != 1 || !isKey && created != 2 {
			t.Errorf("%d calls succeeded; the name is that of %s", created, got.Name)
		}
	}
}
