package wire_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// savedTables hold rows with a revision, and what belongs to them, in an order
// in which they can be put back.
var savedTables = []string{"tenants", "projects", "keys", "key_versions", "key_names", "alias_revisions", "credentials", "credential_secrets",
	"approvals", "node_settings", "webhooks", "policies", "routes", "route_health", "route_ends"}

// save copies all rows as they are now.
func (r *rawDatabase) save(t *testing.T) {
	t.Helper()
	for _, table := range savedTables {
		r.exec(t, "CREATE TABLE saved_"+table+" AS SELECT * FROM "+table)
	}
}

// putBack replaces all rows by those that were saved, as who restores a snapshot
// of the database does.
func (r *rawDatabase) putBack(t *testing.T) {
	t.Helper()
	for _, table := range slices.Backward(savedTables) {
		r.exec(t, "DELETE FROM "+table)
	}
	for _, table := range savedTables {
		r.exec(t, "INSERT INTO "+table+" SELECT * FROM saved_"+table)
	}
}

// rolled is an object whose old row is put back.
type rolled struct {
	name string // as the row watch names it
	// change makes the row older than it is, before it is put back.
	change func(t *testing.T)
	// use reads it: nil when only the watch does.
	use func(t *testing.T, s *wiretest.Service) int
	// journaled says that the journal knows it after a restart.
	journaled bool
}

// rolled makes one object of every kind that has a revision.
func (v *village) rolled(t *testing.T) []rolled {
	t.Helper()
	do := func(credential, method, path string, body object) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if status, a := call(t, v.Service, credential, method, path, body); status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, path, status, a.Detail)
			}
		}
	}
	ctx, store := t.Context(), v.App.Store
	encrypt := object{"plaintext": []byte("x")}
	key := func(name string) string {
		return v.make(t, v.crowd, "/v1/keys", object{"name": name, "spec": "AES_256"}).ID
	}
	disabled, version, destroyed := key("disabled"), key("version"), key("destroyed")
	v.make(t, v.crowd, "/v1/keys/version/rotate", object{})
	revoked := v.make(t, v.crowd, "/v1/credentials", object{"name": "revoked", "scopes": []string{"key:*"}})
	tenant, member := v.tenant(t, "suspended")
	hookTenant, hookAdmin := v.tenant(t, "hooked")
	hook := v.webhook(t, uuid.MustParse(hookTenant))
	for _, alias := range []string{"moved", "removed"} {
		do(v.crowd, "PUT", "/v1/aliases/"+alias, object{"key": "works"})(t)
	}
	v.route(t, v.crowd, "replaced")
	v.route(t, v.crowd, "deleted")
	approval := &kms.Approval{ID: uuid.NewV7(), Op: kms.OpDeleteTenant, Resource: "tenant x", RequestedBy: uuid.NewV7(),
		Created: time.Now(), Expires: time.Now().Add(time.Hour)}
	if err := store.CreateApproval(ctx, approval); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SetNodeMode(ctx, "elsewhere", 0, kms.NodeActive); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	return []rolled{
		{"key " + disabled, do(v.crowd, "POST", "/v1/keys/disabled/disable", object{}), asks(v.crowd, "POST", "/v1/keys/disabled/encrypt", encrypt), true},
		{"key " + version, do(v.crowd, "POST", "/v1/keys/version/versions/1/disable", object{}), asks(v.crowd, "POST", "/v1/keys/version/encrypt", encrypt), true},
		{"key " + destroyed, func(t *testing.T) { must(store.DestroyKey(ctx, v.crowdID, uuid.MustParse(destroyed), 1)) },
			asks(v.crowd, "POST", "/v1/keys/"+destroyed+"/encrypt", encrypt), false},
		{"alias moved", do(v.crowd, "PUT", "/v1/aliases/moved", object{"key": "version"}), asks(v.crowd, "POST", "/v1/keys/moved/encrypt", encrypt), true},
		{"alias removed", func(t *testing.T) {
			if status := asks(v.crowd, "DELETE", "/v1/aliases/removed", nil)(t, v.Service); status/100 != 2 {
				t.Fatalf("taking an alias away: %d", status)
			}
		}, asks(v.crowd, "POST", "/v1/keys/removed/encrypt", encrypt), true},
		{"route replaced", func(t *testing.T) { v.route(t, v.crowd, "replaced") }, asks(v.crowd, "GET", "/v1/routes/replaced", nil), true},
		{"route deleted", func(t *testing.T) {
			if status := asks(v.crowd, "DELETE", "/v1/routes/deleted", nil)(t, v.Service); status/100 != 2 {
				t.Fatalf("deleting a route: %d", status)
			}
		}, asks(v.crowd, "GET", "/v1/routes/deleted", nil), true},
		{"credential " + revoked.ID, do(v.crowd, "POST", "/v1/credentials/"+revoked.ID+"/revoke", object{}), asks(revoked.Credential, "GET", "/v1/keys", nil), true},
		{"tenant " + tenant, do(v.Operator, "POST", "/v1/tenants/suspended/suspend", object{}), asks(member, "GET", "/v1/keys", nil), true},
		{"webhook " + hook.String(), func(t *testing.T) {
			if status := asks(hookAdmin, "DELETE", "/v1/webhooks/"+hook.String(), nil)(t, v.Service); status/100 != 2 {
				t.Fatalf("deleting a webhook: %d", status)
			}
		}, asks(hookAdmin, "GET", "/v1/webhooks/"+hook.String(), nil), true},
		{"approval " + approval.ID.String(), func(t *testing.T) { _, err := store.Approve(ctx, approval.ID, uuid.NewV7()); must(err) },
			asks(v.Operator, "GET", "/v1/approvals/"+approval.ID.String(), nil), false},
		{"node elsewhere", func(t *testing.T) { _, err := store.SetNodeMode(ctx, "elsewhere", 1, kms.NodeDrained); must(err) }, nil, false},
	}
}

// wantFound expects that a look finds these objects, and no other.
func wantFound(t *testing.T, old []kms.OldRow, want []rolled) {
	t.Helper()
	var found []string
	for i := range old {
		found = append(found, old[i].String())
	}
	for _, r := range want {
		if !slices.Contains(found, r.name) {
			t.Errorf("the old row of the %s is not found", r.name)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %q", found)
	}
}

// wantOldRefused expects that no object is used as it was.
func wantOldRefused(t *testing.T, s *wiretest.Service, objects []rolled) {
	t.Helper()
	for _, r := range objects {
		if r.use != nil && r.use(t, s) != http.StatusInternalServerError {
			t.Errorf("the %s that was put back is answered with %d", r.name, r.use(t, s))
		}
	}
}

// All rows of the database are put back as they were before keys were disabled
// and destroyed, a credential revoked, a tenant suspended, a webhook removed and
// so on: each is authentic. They are refused as soon as they are read, found by
// the next look, and again after a restart, by the journal.
func TestOldRowsPutBackAreRefusedAndFound(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"SQLite": sqliteSite, "PostgreSQL": postgresSite} {
		t.Run(name, func(t *testing.T) {
			site := open(t)
			_, stop := site.serve(t) // it makes the schema
			stop()
			raw := site.raw(t)
			running, stop := site.serve(t)
			v := newVillage(t, running, raw)
			objects := v.rolled(t)
			for _, r := range objects {
				if r.use != nil && r.use(t, v.Service)/100 != 2 {
					t.Fatalf("the %s before: %d", r.name, r.use(t, v.Service))
				}
			}
			raw.save(t)
			for _, r := range objects {
				r.change(t)
			}
			watch := v.App.Service.NewRowWatch()
			if old, err := watch.Look(t.Context()); err != nil || len(old) != 0 {
				t.Fatalf("before: %v, %v", old, err)
			}
			raw.putBack(t)
			old, err := watch.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantFound(t, old, objects)
			wantOldRefused(t, v.Service, objects)
			v.works(t)
			if !strings.Contains(site.log.String(), "alarm=old_rows") || !strings.Contains(site.log.String(), "alarm=old_row ") {
				t.Error("the log has no alarm")
			}
			stop()

			v.Service, stop = site.serve(t)
			defer stop()
			objects = slices.DeleteFunc(objects, func(r rolled) bool { return !r.journaled })
			watch = v.App.Service.NewRowWatch()
			for end := time.Now().Add(30 * time.Second); len(old) != len(objects) && time.Now().Before(end); <-time.After(10 * time.Millisecond) {
				if old, err = watch.Look(t.Context()); err != nil { // the journal is being read
					t.Fatal(err)
				}
			}
			wantFound(t, old, objects)
			wantOldRefused(t, v.Service, objects)
			v.works(t)
			wantAliasSetAnew(t, v)
			wantRouteMadeAnew(t, v)
		})
	}
}

// wantAliasSetAnew expects that an alias which is refused can be set again, by who
// may update all keys.
func wantAliasSetAnew(t *testing.T, v *village) {
	t.Helper()
	few := v.make(t, v.crowd, "/v1/credentials", object{"name": "few", "scopes": []string{"key:manage:works", "project:*"}})
	set := func(credential string, want int) {
		t.Helper()
		if status, a := call(t, v.Service, credential, "PUT", "/v1/aliases/moved", object{"key": "works"}); status != want {
			t.Errorf("setting it anew: %d %s, want %d", status, a.Detail, want)
		}
	}
	set(few.Credential, http.StatusInternalServerError)
	set(v.crowd, http.StatusOK)
	if status := asks(v.crowd, "POST", "/v1/keys/moved/encrypt", object{"plaintext": []byte("x")})(t, v.Service); status != http.StatusOK {
		t.Errorf("set anew: %d", status)
	}
}

// wantRouteMadeAnew expects that a route which is refused can be deleted and made
// anew.
func wantRouteMadeAnew(t *testing.T, v *village) {
	t.Helper()
	if status := asks(v.crowd, "DELETE", "/v1/routes/replaced", nil)(t, v.Service); status/100 != 2 {
		t.Errorf("deleting it: %d", status)
	}
	v.route(t, v.crowd, "replaced")
	if status := asks(v.crowd, "GET", "/v1/routes/replaced", nil)(t, v.Service); status != http.StatusOK {
		t.Errorf("made anew: %d", status)
	}
}

// A row that is gone, the tombstone of a destroyed key among them, is found.
func TestRemovedRowsAreFound(t *testing.T) {
	site := sqliteSite(t)
	_, stop := site.serve(t)
	stop()
	raw := site.raw(t)
	running, stop := site.serve(t)
	defer stop()
	v := newVillage(t, running, raw)
	id := v.make(t, v.crowd, "/v1/keys", object{"name": "gone", "spec": "AES_256"}).ID
	if err := v.App.Store.DestroyKey(t.Context(), v.crowdID, uuid.MustParse(id), 1); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"key_versions WHERE key_id", "keys WHERE id"} {
		raw.exec(t, fmt.Sprintf("DELETE FROM %s = %s", column, raw.id(id)))
	}
	old, err := v.App.Service.NewRowWatch().Look(t.Context())
	if err != nil || len(old) != 1 || old[0].String() != "key "+id || old[0].Found != 0 {
		t.Errorf("found %+v, %v", old, err)
	}
}

// What one API node finds, another that has never read the object refuses too.
func TestOldRowsThatAnotherNodeFindsAreRefused(t *testing.T) {
	c := newCluster(t)
	one, two := c.start(t, 1), c.start(t, 2)
	one.App, two.App = one.app, two.app
	one.Operator = c.operator(t, one.app)
	raw := &rawDatabase{DB: openRaw(t, "pgx", c.urls.Admin+"&search_path=sluice")}
	v := newVillage(t, one.Service, raw)
	v.make(t, v.crowd, "/v1/keys", object{"name": "k", "spec": "AES_256"})
	raw.save(t)
	v.make(t, v.crowd, "/v1/keys/k/disable", object{})
	raw.exec(t, "SET session_replication_role = replica") // no trigger tells of it
	raw.putBack(t)

	encrypt := asks(v.crowd, "POST", "/v1/keys/k/encrypt", object{"plaintext": []byte("x")})
	watch := two.app.Service.NewRowWatch()
	if err := watch.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := encrypt(t, two.Service); status != http.StatusOK {
		t.Errorf("before anything is found: %d", status)
	}
	if old, err := one.app.Service.NewRowWatch().Look(t.Context()); err != nil || len(old) != 1 {
		t.Fatalf("found %v, %v", old, err)
	}
	for end := time.Now().Add(30 * time.Second); encrypt(t, two.Service) != http.StatusInternalServerError; <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other node goes on using it")
		}
		if err := watch.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
