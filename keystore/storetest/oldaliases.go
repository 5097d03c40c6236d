package storetest

import (
	"slices"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// oldAlias is an alias whose old rows are put back.
type oldAlias struct {
	*env
	tenant      *kms.Tenant
	name        string
	first, then *kms.Key
}

func newOldAlias(t *testing.T, driver keystore.Driver, name string) *oldAlias {
	t.Helper()
	a := &oldAlias{env: newEnv(t, driver), name: name}
	a.tenant = a.env.tenant(t, name+"-tenant")
	a.first, a.then = a.key(t, a.tenant, name+"-first"), a.key(t, a.tenant, name+"-then")
	a.set(t, a.first)
	return a
}

func (a *oldAlias) set(t *testing.T, k *kms.Key) {
	t.Helper()
	if err := a.SetAlias(t.Context(), a.tenant.ID, k.ID, a.name); err != nil {
		t.Fatal(err)
	}
}

func (a *oldAlias) delete(t *testing.T) {
	t.Helper()
	if err := a.DeleteAlias(t.Context(), a.tenant.ID, a.name); err != nil {
		t.Fatal(err)
	}
}

func (a *oldAlias) row(table string) victim { return victim{table: table, key: "name", value: a.name} }

func (a *oldAlias) snapshot(t *testing.T, table string) snapshot {
	t.Helper()
	return takeSnapshot(t, a.driver.(Damager), a.row(table))
}

// restore puts rows back behind the service's back.
func (a *oldAlias) restore(t *testing.T, table string, s snapshot) {
	t.Helper()
	s.restore(t, a.driver.(Damager), a.row(table))
	a.InvalidateName(a.tenant.ID, a.name)
}

// revive puts the name back after it was removed: in the row of another alias.
func (a *oldAlias) revive(t *testing.T, s snapshot) {
	t.Helper()
	spare := a.name + "-spare"
	if err := a.SetAlias(t.Context(), a.tenant.ID, a.first.ID, spare); err != nil {
		t.Fatal(err)
	}
	db := a.driver.(Damager)
	s.restore(t, db, victim{table: "key_names", key: "name", value: spare})
	db.Damage(t, Damage{Table: "key_names", Column: "name", Value: a.name, Key: "name", KeyValue: spare})
	db.Delete(t, "alias_revisions", "name", spare)
	a.InvalidateName(a.tenant.ID, a.name)
}

// wantOld expects that the alias is refused, left out of lists, and found with a
// revision that the row has; 0: it is missing.
func (a *oldAlias) wantOld(t *testing.T, known, found uint64) {
	t.Helper()
	ctx := t.Context()
	if _, err := a.Lookup(ctx, a.tenant.ID, a.name); found > 0 {
		wantDamage(t, "the alias", err, keystore.ObjectKeyName)
	} else if err != kms.ErrNotFound {
		t.Errorf("the alias: %v", err)
	}
	for _, k := range []*kms.Key{a.first, a.then} {
		if names, err := a.KeyAliases(ctx, a.tenant.ID, k.ID); err != nil || slices.Contains(names, a.name) {
			t.Errorf("KeyAliases = %q, %v", names, err)
		}
	}
	list, _, err := a.ListAliases(ctx, a.tenant.ID, kms.Page{Size: 100})
	if err != nil || slices.ContainsFunc(list, func(l kms.Alias) bool { return l.Name == a.name }) {
		t.Errorf("ListAliases = %v, %v", list, err)
	}
	want := kms.OldRow{StoredRevision: kms.StoredRevision{Object: kms.RowOfAlias, Tenant: a.tenant.ID, Name: a.name, Revision: known}, Found: found}
	if old, err := a.OldRows(ctx); err != nil || len(old) != 1 || old[0] != want {
		t.Errorf("OldRows = %+v, %v, want %+v", old, err, want)
	}
}

// wantGood sets the alias anew and expects that nothing is wrong with it.
func (a *oldAlias) wantGood(t *testing.T, revision uint64) {
	t.Helper()
	ctx := t.Context()
	a.set(t, a.then)
	for _, e := range []*env{a.env, newEnv(t, a.driver)} {
		if k, err := e.Lookup(ctx, a.tenant.ID, a.name); err != nil || k.ID != a.then.ID {
			t.Errorf("set anew, it leads to %v, %v", k, err)
		}
	}
	if now, err := a.AliasRevision(ctx, a.tenant.ID, a.name); err != nil || now != revision {
		t.Errorf("set anew, its revision is %d, %v, want %d", now, err, revision)
	}
	if old, err := a.OldRows(ctx); err != nil || len(old) != 0 {
		t.Errorf("set anew: %+v, %v", old, err)
	}
}

// testOldAliases proves that an alias never leads where it led before.
func testOldAliases(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	const first = kms.FirstAliasRevision
	t.Run("AnOldAliasPutBackIsRefusedAndFound", func(t *testing.T) {
		a := newOldAlias(t, driver, "moved")
		name, revision := a.snapshot(t, "key_names"), a.snapshot(t, "alias_revisions")
		a.set(t, a.then)
		now := a.snapshot(t, "key_names")
		a.restore(t, "key_names", name)
		a.wantOld(t, first+1, first)
		_, err := newEnv(t, driver).Lookup(t.Context(), a.tenant.ID, a.name)
		wantDamage(t, "of which nothing is known", err, keystore.ObjectKeyName)
		a.restore(t, "alias_revisions", revision)
		a.wantOld(t, first+1, first)
		a.restore(t, "key_names", now)
		a.wantOld(t, first+1, first)
		a.wantGood(t, first+2)
	})
	t.Run("AnAliasThatWasTakenAwayAndPutBackIsRefusedAndFound", func(t *testing.T) {
		a := newOldAlias(t, driver, "removed")
		name, revision := a.snapshot(t, "key_names"), a.snapshot(t, "alias_revisions")
		a.delete(t)
		if old, err := a.OldRows(t.Context()); err != nil || len(old) != 0 {
			t.Errorf("taken away: %+v, %v", old, err)
		}
		a.revive(t, name)
		a.wantOld(t, first+1, first)
		_, err := newEnv(t, driver).Lookup(t.Context(), a.tenant.ID, a.name)
		wantDamage(t, "of which nothing is known", err, keystore.ObjectKeyName)
		a.restore(t, "alias_revisions", revision)
		a.wantOld(t, first+1, first)
		a.wantGood(t, first+2)
	})
	t.Run("ARevisionThatIsGoneIsFound", func(t *testing.T) {
		a := newOldAlias(t, driver, "unrevised")
		a.set(t, a.then)
		driver.(Damager).Delete(t, "alias_revisions", "name", a.name)
		a.InvalidateName(a.tenant.ID, a.name)
		a.wantOld(t, first+1, first)
		a.wantGood(t, first+2)
	})
	t.Run("AnAliasThatIsGoneIsFound", func(t *testing.T) {
		a := newOldAlias(t, driver, "lost")
		a.set(t, a.then)
		driver.(Damager).Delete(t, "key_names", "name", a.name)
		a.InvalidateName(a.tenant.ID, a.name)
		a.wantOld(t, first+1, 0)
		a.wantGood(t, first+2)
	})
	t.Run("WhatAnotherNodeKnowsIsRefused", func(t *testing.T) {
		a := newOldAlias(t, driver, "told")
		other := newEnv(t, driver)
		if other.lookup(t, a.tenant.ID, a.name).ID != a.first.ID {
			t.Fatal("it leads elsewhere")
		}
		other.KnowRevisions(kms.StoredRevision{Object: kms.RowOfAlias, Tenant: a.tenant.ID, Name: a.name, Revision: first + 1})
		_, err := other.Lookup(t.Context(), a.tenant.ID, a.name)
		wantDamage(t, "an alias that was cached", err, keystore.ObjectKeyName)
	})
	t.Run("AnAliasFromBeforeThereWereRevisionsIsRead", func(t *testing.T) {
		a := newOldAlias(t, driver, "earlier")
		name := a.snapshot(t, "key_names")
		forget := func() {
			driver.(Damager).Delete(t, "alias_revisions", "name", a.name)
			a.InvalidateName(a.tenant.ID, a.name)
		}
		forget()
		if k := a.lookup(t, a.tenant.ID, a.name); k.ID != a.first.ID {
			t.Errorf("it leads to %s", k.Name)
		}
		if n, err := a.AliasRevision(t.Context(), a.tenant.ID, a.name); err != nil || n != first {
			t.Errorf("its revision is %d, %v", n, err)
		}
		a.set(t, a.then)
		a.restore(t, "key_names", name)
		a.wantOld(t, first+1, first)
		forget()
		a.wantOld(t, first+1, first)
		a.wantGood(t, first+2)
	})
	t.Run("ADestroyedKeyTakesItsAliasesAlong", func(t *testing.T) {
		a := newOldAlias(t, driver, "destroyed")
		a.set(t, a.then)
		a.set(t, a.first)
		if err := a.DestroyKey(t.Context(), a.tenant.ID, a.first.ID, 1); err != nil {
			t.Fatal(err)
		}
		if old, err := a.OldRows(t.Context()); err != nil || len(old) != 0 {
			t.Errorf("%+v, %v", old, err)
		}
		a.wantGood(t, first+3)
	})
	t.Run("OfConcurrentChangesEachHasItsRevision", func(t *testing.T) {
		a := newOldAlias(t, driver, "busy")
		const changes = 8
		var all sync.WaitGroup
		for i := range changes {
			all.Go(func() {
				if err := a.SetAlias(t.Context(), a.tenant.ID, []*kms.Key{a.first, a.then}[i%2].ID, a.name); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		a.wantGood(t, first+changes+1)
	})
	t.Run("AnAliasThatNeverWasHasNoRevision", func(t *testing.T) {
		a := newOldAlias(t, driver, "never")
		for _, ref := range []string{"never-set", a.first.Name, "not a name"} {
			if n, err := a.AliasRevision(t.Context(), a.tenant.ID, ref); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", ref, n, err)
			}
		}
	})
}
