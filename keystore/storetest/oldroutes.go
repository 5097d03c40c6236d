package storetest

import (
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// oldRoute is a route whose old rows are put back.
type oldRoute struct {
	*env
	tenant *kms.Tenant
	route  *kms.ProviderRoute
}

func newOldRoute(t *testing.T, driver keystore.Driver, name string) *oldRoute {
	t.Helper()
	r := &oldRoute{env: newEnv(t, driver)}
	r.tenant = r.env.tenant(t, name+"-tenant")
	r.route = r.env.route(t, r.tenant.ID, name)
	return r
}

func (r *oldRoute) row() victim { return victim{table: "routes", key: "name", value: r.route.Name} }

func (r *oldRoute) change(t *testing.T) {
	t.Helper()
	next := *r.route
	next.Revision++
	next.Models = []string{"other"}
	if err := r.PutRoute(t.Context(), &next); err != nil {
		t.Fatal(err)
	}
	r.route = &next
}

func (r *oldRoute) delete(t *testing.T) {
	t.Helper()
	if err := r.DeleteRoute(t.Context(), r.tenant.ID, r.route.Name); err != nil {
		t.Fatal(err)
	}
}

// revive puts a row back that was removed: in that of another route.
func (r *oldRoute) revive(t *testing.T, s snapshot) {
	t.Helper()
	spare := sampleRoute(r.tenant.ID, r.route.Name+"-spare")
	if err := r.PutRoute(t.Context(), spare); err != nil {
		t.Fatal(err)
	}
	db := r.driver.(Damager)
	s.restore(t, db, victim{table: "routes", key: "name", value: spare.Name})
	db.Damage(t, Damage{Table: "routes", Column: "name", Value: r.route.Name, Key: "name", KeyValue: spare.Name})
}

// wantOld expects that the route is refused, left out of the list, and found with
// a revision that the row has; 0: it is missing.
func (r *oldRoute) wantOld(t *testing.T, known, found uint64) {
	t.Helper()
	ctx := t.Context()
	want := kms.OldRow{StoredRevision: kms.StoredRevision{Object: kms.RowOfRoute, Tenant: r.tenant.ID, Name: r.route.Name,
		Revision: kms.RouteRevisions + known}}
	_, err := r.Route(ctx, r.tenant.ID, r.route.Name)
	if found == 0 {
		wantKind(t, "the route", err, kms.KindNotFound)
	} else {
		wantDamage(t, "the route", err, keystore.ObjectRoute)
		want.Found = kms.RouteRevisions + found
	}
	if list, _, err := r.ListRoutes(ctx, r.tenant.ID, kms.Page{Size: 100}); err != nil || len(list) != 0 {
		t.Errorf("ListRoutes = %v, %v", list, err)
	}
	if old, err := r.OldRows(ctx); err != nil || len(old) != 1 || old[0] != want {
		t.Errorf("OldRows = %+v, %v, want %+v", old, err, want)
	}
}

// wantAnew makes the route anew and expects that nothing is wrong with it.
func (r *oldRoute) wantAnew(t *testing.T, revision uint64) {
	t.Helper()
	ctx := t.Context()
	anew := r.env.route(t, r.tenant.ID, r.route.Name)
	for _, e := range []*env{r.env, newEnv(t, r.driver)} {
		if got, err := e.Route(ctx, r.tenant.ID, anew.Name); err != nil || got.ID != anew.ID || got.Revision != revision {
			t.Errorf("made anew: %+v, %v, want the revision %d", got, err, revision)
		}
	}
	if old, err := r.OldRows(ctx); err != nil || len(old) != 0 {
		t.Errorf("made anew: %+v, %v", old, err)
	}
}

// testOldRoutes proves that a route never leads where it led before.
func testOldRoutes(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	t.Run("AnOldRoutePutBackIsRefusedAndFound", func(t *testing.T) {
		r := newOldRoute(t, driver, "changed")
		before := takeSnapshot(t, driver.(Damager), r.row())
		r.change(t)
		before.restore(t, driver.(Damager), r.row())
		r.wantOld(t, 2, 1)
		r.delete(t)
		r.wantAnew(t, 4)
	})
	t.Run("ARouteThatWasDeletedAndPutBackIsRefusedAndFound", func(t *testing.T) {
		r := newOldRoute(t, driver, "deleted")
		r.change(t)
		before := takeSnapshot(t, driver.(Damager), r.row())
		r.delete(t)
		if old, err := r.OldRows(t.Context()); err != nil || len(old) != 0 {
			t.Errorf("deleted: %+v, %v", old, err)
		}
		r.revive(t, before)
		r.wantOld(t, 3, 2)
		r.delete(t)
		r.wantAnew(t, 5)
	})
	t.Run("ARouteFromBeforeItWasMadeAnewIsRefusedAndFound", func(t *testing.T) {
		r := newOldRoute(t, driver, "anew")
		before := takeSnapshot(t, driver.(Damager), r.row())
		r.delete(t)
		r.wantAnew(t, 3)
		before.restore(t, driver.(Damager), r.row())
		r.wantOld(t, 3, 1)
	})
	t.Run("ARouteThatIsGoneIsFound", func(t *testing.T) {
		r := newOldRoute(t, driver, "lost")
		r.change(t)
		driver.(Damager).Delete(t, "route_health", "name", r.route.Name)
		driver.(Damager).Delete(t, "routes", "name", r.route.Name)
		r.wantOld(t, 2, 0)
		r.wantAnew(t, 3)
	})
	t.Run("ARevisionThatIsGoneIsFound", func(t *testing.T) {
		r := newOldRoute(t, driver, "endless")
		r.delete(t)
		driver.(Damager).Delete(t, "route_ends", "name", r.route.Name)
		r.wantOld(t, 2, 0)
		r.wantAnew(t, 3)
	})
	t.Run("WhatAnotherNodeKnowsIsRefused", func(t *testing.T) {
		r := newOldRoute(t, driver, "told")
		r.KnowRevisions(kms.StoredRevision{Object: kms.RowOfRoute, Tenant: r.tenant.ID, Name: r.route.Name, Revision: kms.RouteRevisions + 2})
		r.wantOld(t, 2, 1)
	})
	t.Run("ARouteIsNotMadeBehindItsEnd", func(t *testing.T) {
		r := newOldRoute(t, driver, "behind")
		r.delete(t)
		other := newEnv(t, driver) // which knows of no end
		for _, revision := range []uint64{1, 2, 4} {
			again := sampleRoute(r.tenant.ID, r.route.Name)
			again.Revision = revision
			wantKind(t, "another revision", other.PutRoute(t.Context(), again), kms.KindPreconditionFailed)
		}
		r.wantAnew(t, 3)
	})
}
