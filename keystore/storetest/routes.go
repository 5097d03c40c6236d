package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleRoute(tenant uuid.UUID, name string) *kms.ProviderRoute {
	return &kms.ProviderRoute{ID: uuid.NewV7(), Tenant: tenant, Name: name, Models: []string{"gpt-5", "vendor/model:1"}, AuthHeader: kms.AuthBearer,
		Residency: "eu", LastResort: true, Created: start, Revision: 1, Targets: []kms.RouteTarget{
			{Name: "first", Provider: "openai", BaseURL: "https://one.example/v1", Region: "eu-west-1", RetentionDays: 30,
				Capabilities: []string{"tools", "vision"}, Secret: "llm/one", Weight: 90},
			{Name: "second", Provider: "azure-openai", BaseURL: "https://two.example/v1", Region: "eu", Capabilities: []string{"tools"}, Secret: "llm/two", Weight: 10},
			{Name: "own", Provider: "local", BaseURL: "https://three.example", Region: "eu"},
		}}
}

// route stores a route and the first of its health.
func (e *env) route(t testing.TB, tenant uuid.UUID, name string) *kms.ProviderRoute {
	t.Helper()
	r := sampleRoute(tenant, name)
	before, err := e.RouteRevision(t.Context(), tenant, name)
	if err != nil {
		t.Fatal(err)
	}
	r.Revision = before + 1
	if err := e.PutRoute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := e.SetHealthOfRoute(t.Context(), r, []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	return r
}

func testRoutes(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "routes")
	t.Run("ComeBackAsTheyWereStored", func(t *testing.T) {
		r := e.route(t, tenant.ID, "kept")
		next := *r
		next.Revision, next.Models = 2, []string{"other"}
		if err := e.PutRoute(ctx, &next); err != nil {
			t.Fatal(err)
		}
		for _, of := range []*env{e, newEnv(t, e.driver)} {
			if got, err := of.Route(ctx, tenant.ID, "kept"); err != nil || !reflect.DeepEqual(got, &next) {
				t.Errorf("%+v, %v, want %+v", got, err, next)
			}
		}
		wantKind(t, "a name that is none", func() error { _, err := e.Route(ctx, tenant.ID, "NO"); return err }(), kms.KindNotFound)
	})
	t.Run("OnlyThePresentRevisionIsFollowed", func(t *testing.T) {
		r := e.route(t, tenant.ID, "stale")
		again := *r
		wantKind(t, "a second first one", e.PutRoute(ctx, &again), kms.KindPreconditionFailed)
		again.Revision = 3
		wantKind(t, "a revision too far", e.PutRoute(ctx, &again), kms.KindPreconditionFailed)
		wantKind(t, "a second first health", e.SetHealthOfRoute(ctx, r, []byte("{}"), 0), kms.KindPreconditionFailed)
		wantKind(t, "a health too far", e.SetHealthOfRoute(ctx, r, []byte("{}"), 2), kms.KindPreconditionFailed)
		wantKind(t, "no health", e.SetHealthOfRoute(ctx, r, nil, 1), kms.KindInvalidArgument)
	})
	t.Run("OfConcurrentReportsEachIsApplied", func(t *testing.T) {
		r := e.route(t, tenant.ID, "many")
		const writers = 8
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for {
					health, revision, err := e.HealthOfRoute(ctx, r)
					if err != nil {
						t.Error(err)
						return
					}
					err = e.SetHealthOfRoute(ctx, r, append(health, '.'), revision)
					if err == nil {
						return
					}
					if kms.KindOf(err) != kms.KindPreconditionFailed {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if health, revision, err := e.HealthOfRoute(ctx, r); err != nil || string(health) != "{}"+strings.Repeat(".", writers) || revision != 1+writers {
			t.Errorf("%s, %d, %v", health, revision, err)
		}
	})
	t.Run("ADeletedOneTakesItsHealthAlong", func(t *testing.T) {
		r := e.route(t, tenant.ID, "gone")
		if err := e.DeleteRoute(ctx, tenant.ID, "gone"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "a second time", e.DeleteRoute(ctx, tenant.ID, "gone"), kms.KindNotFound)
		wantKind(t, "its health", e.SetHealthOfRoute(ctx, r, []byte("{}"), 0), kms.KindNotFound)
		again := e.route(t, tenant.ID, "gone")
		if health, revision, err := e.HealthOfRoute(ctx, again); err != nil || string(health) != "{}" || revision != 1 {
			t.Errorf("%s, %d, %v", health, revision, err)
		}
	})
	t.Run("HealthOfAnotherRouteIsNone", func(t *testing.T) {
		r := e.route(t, tenant.ID, "twin")
		other := *r
		other.ID = uuid.NewV7()
		if health, revision, err := e.HealthOfRoute(ctx, &other); err != nil || health != nil || revision != 1 {
			t.Errorf("%s, %d, %v", health, revision, err)
		}
		if err := e.SetHealthOfRoute(ctx, &other, []byte("new"), 1); err != nil {
			t.Error(err)
		}
	})
	t.Run("TamperedHealthIsForgotten", func(t *testing.T) {
		for column, value := range map[string]any{"document": []byte("[]"), "revision": int64(9), "mac": make([]byte, 32), "mac_version": int64(1)} {
			r := e.route(t, tenant.ID, "tampered-"+strings.ReplaceAll(column, "_", "-"))
			e.driver.(Damager).Damage(t, Damage{Table: "route_health", Column: column, Value: value, Key: "name", KeyValue: r.Name})
			health, revision, err := e.HealthOfRoute(ctx, r)
			if err != nil || health != nil {
				t.Errorf("%s: %s, %v", column, health, err)
			}
			if err := e.SetHealthOfRoute(ctx, r, []byte("new"), revision); err != nil {
				t.Errorf("%s: the next report: %v", column, err)
			}
		}
	})
	t.Run("AreBoundedInNumberAndListedInOrder", func(t *testing.T) {
		other := e.tenant(t, "bounded")
		var names []string
		for i := range kms.MaxRoutes {
			names = append(names, fmt.Sprintf("route-%03d", i))
			e.route(t, other.ID, names[i])
		}
		wantKind(t, "one more", e.PutRoute(ctx, sampleRoute(other.ID, "more")), kms.KindConflict)
		for _, size := range []int{7, 1000} {
			checkPages(t, size, names, func(p kms.Page) ([]string, string, error) {
				list, next, err := e.ListRoutes(ctx, other.ID, p)
				return namesOf(list, func(r *kms.ProviderRoute) string { return r.Name }), next, err
			})
		}
	})
	t.Run("UnusableOnesAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.ProviderRoute){
			"id":       func(r *kms.ProviderRoute) { r.ID = uuid.Nil() },
			"created":  func(r *kms.ProviderRoute) { r.Created = time.Time{} },
			"revision": func(r *kms.ProviderRoute) { r.Revision = 0 },
			"weights":  func(r *kms.ProviderRoute) { r.Targets[0].Weight = 91 },
			"target":   func(r *kms.ProviderRoute) { r.Targets[1].Name = "first" },
		} {
			r := sampleRoute(tenant.ID, "unusable")
			spoil(r)
			wantKind(t, name, e.PutRoute(ctx, r), kms.KindInvalidArgument)
		}
	})
}
