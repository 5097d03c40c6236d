package wire_test

import (
	"context"
	"encoding/json/v2"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// endings are objects that end after a backup: how, and what a use of them is
// answered with before and after.
type ending struct {
	name   string
	end    func(t *testing.T)
	use    func(t *testing.T, s *wiretest.Service) int
	before int
	after  []int
}

// endings makes objects whose end the journal will have.
func (v *village) endings(t *testing.T) []ending {
	t.Helper()
	ctx, store := t.Context(), v.App.Store
	post := func(credential, path string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); v.make(t, credential, path, object{}) }
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	encrypt := object{"plaintext": []byte("x")}
	use := func(name string) func(*testing.T, *wiretest.Service) int {
		return asks(v.crowd, "POST", "/v1/keys/"+name+"/encrypt", encrypt)
	}
	key := func(name string) uuid.UUID {
		return uuid.MustParse(v.make(t, v.crowd, "/v1/keys", object{"name": name, "spec": "AES_256"}).ID)
	}
	// decrypts uses version 1 of a key.
	decrypts := func(name string) func(*testing.T, *wiretest.Service) int {
		ciphertext := v.make(t, v.crowd, "/v1/keys/"+name+"/encrypt", encrypt).Ciphertext
		return asks(v.crowd, "POST", "/v1/keys/"+name+"/decrypt", object{"ciphertext": ciphertext})
	}
	key("off")
	key("pending")
	gone, first, only := key("gone"), key("first"), key("only")
	key("unversioned")
	ofFirst, ofOnly, ofUnversioned := decrypts("first"), decrypts("only"), decrypts("unversioned")
	v.make(t, v.crowd, "/v1/keys/first/rotate", object{})
	v.make(t, v.crowd, "/v1/keys/unversioned/rotate", object{})
	destroyer := v.make(t, v.Operator, "/v1/tenants/crowd/credentials", object{"name": "destroyer", "scopes": []string{"key:destroy"}}).Credential
	revoked := v.make(t, v.crowd, "/v1/credentials", object{"name": "revoked", "scopes": []string{"key:*"}})
	_, member := v.tenant(t, "ended")
	hook := v.webhook(t, v.crowdID)

	// What is due is destroyed by the keeper, whose first look comes at once.
	keep := func(destroyed func() bool) {
		keeper := v.App.Service.StartKeeper()
		defer keeper.Close()
		for end := time.Now().Add(30 * time.Second); !destroyed(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("what is due is not destroyed")
			}
		}
	}
	destroyFirst := func(id uuid.UUID, revision uint64) {
		past := kms.VersionChange{State: kms.VersionPendingDestruction, DestroyAt: time.Now().Add(-time.Minute)}
		_, err := store.UpdateVersion(ctx, v.crowdID, id, revision, 1, past)
		must(err)
		keep(func() bool {
			k, err := store.Lookup(ctx, v.crowdID, id.String())
			must(err)
			return k.Version(1).State == kms.VersionDestroyed
		})
	}
	const conflict, notFound, ok = http.StatusConflict, http.StatusNotFound, http.StatusOK
	all := []ending{
		{"disabled key", post(v.crowd, "/v1/keys/off/disable"), use("off"), ok, []int{conflict}},
		{"key that awaits deletion", post(destroyer, "/v1/keys/pending/schedule-deletion"), use("pending"), ok, []int{conflict}},
		{"destroyed key", func(t *testing.T) {
			state, date := kms.KeyPendingDeletion, time.Now().Add(-time.Minute)
			_, err := store.UpdateKey(ctx, v.crowdID, gone, 1, kms.KeyChange{State: &state, DeletionDate: &date})
			must(err)
			keep(func() bool {
				_, err := store.Lookup(ctx, v.crowdID, gone.String())
				return err == kms.ErrNotFound
			})
		}, use(gone.String()), ok, []int{notFound}},
		{"disabled version", post(v.crowd, "/v1/keys/unversioned/versions/1/disable"), ofUnversioned, ok, []int{conflict}},
		{"destroyed version", func(*testing.T) { destroyFirst(first, 2) }, ofFirst, ok, []int{conflict, notFound, http.StatusBadRequest, http.StatusGone}},
		{"version that was the primary one", func(t *testing.T) {
			post(v.crowd, "/v1/keys/only/rotate")(t)
			destroyFirst(only, 2)
		}, ofOnly, ok, []int{conflict, notFound, http.StatusBadRequest, http.StatusGone}},
		{"revoked credential", post(v.crowd, "/v1/credentials/"+revoked.ID+"/revoke"), asks(revoked.Credential, "GET", "/v1/keys", nil), ok, []int{http.StatusUnauthorized}},
		{"deleted tenant", func(t *testing.T) {
			v.make(t, v.Operator, "/v1/tenants/ended/suspend", object{})
			if status := asks(v.Operator, "DELETE", "/v1/tenants/ended", nil)(t, v.Service); status/100 != 2 {
				t.Fatalf("deleting a tenant: %d", status)
			}
		}, asks(member, "GET", "/v1/keys", nil), ok, []int{http.StatusUnauthorized, http.StatusForbidden}},
		{"removed webhook", func(t *testing.T) {
			if status := asks(v.crowd, "DELETE", "/v1/webhooks/"+hook.String(), nil)(t, v.Service); status/100 != 2 {
				t.Fatalf("removing a webhook: %d", status)
			}
		}, asks(v.crowd, "GET", "/v1/webhooks/"+hook.String(), nil), ok, []int{notFound}},
	}
	return slices.Concat(all, v.secretEndings(t), v.accessEndings(t))
}

// exportTrail writes the service's trail into a file, as `sluice audit export`
// does.
func exportTrail(t *testing.T, s *wiretest.Service) string {
	t.Helper()
	settleTrail(t, s.App)
	api, err := client.New(client.Options{Address: s.URL, Credential: client.NewToken(s.Operator)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trail.jsonl")
	var lines []byte
	q := client.AuditQuery{ByArrival: true, PageSize: 1000}
	for {
		page, err := api.Audit(t.Context(), "", q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Entries {
			line, err := json.Marshal(&page.Entries[i])
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		if q.PageToken = page.Next; page.Next == "" {
			put(t, filepath.Dir(path), filepath.Base(path), lines)
			return path
		}
	}
}

// wantEnded expects each object to be as it was left, or as it was before.
func wantEnded(t *testing.T, s *wiretest.Service, endings []ending, ended bool) {
	t.Helper()
	for _, e := range endings {
		status := e.use(t, s)
		want := e.after
		if !ended {
			want = []int{e.before}
		}
		found := false
		for _, w := range want {
			found = found || status == w
		}
		if !found {
			t.Errorf("the %s is answered with %d, want %d", e.name, status, want)
		}
	}
}

// A backup is restored after keys were disabled and destroyed, credentials
// revoked and a tenant deleted. With the journal as it is now all that is so
// again before the service serves, and after every further start; without it,
// which has to be asked for, it is as in the backup.
func TestRestoreMakesLaterEndsAgain(t *testing.T) {
	wiretest.Require(t)
	old, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v := newVillage(t, old, &rawDatabase{})
	endings := v.endings(t)
	v.make(t, v.crowd, "/v1/keys", object{"name": "described", "spec": "AES_256"})
	wantEnded(t, old, endings, false)
	archive := filepath.Join(t.TempDir(), "backup.tar")
	if _, err := wire.Backup(t.Context(), old.Config, archive); err != nil {
		t.Fatal(err)
	}
	for _, e := range endings {
		e.end(t)
	}
	if status := asks(v.crowd, "PATCH", "/v1/keys/described", object{"description": "changed"})(t, old); status != http.StatusOK {
		t.Fatal(status)
	}
	v.make(t, v.crowd, "/v1/keys", object{"name": "later", "spec": "AES_256"})
	v.make(t, v.crowd, "/v1/keys/later/disable", object{}) // of which the backup knows nothing
	wantEnded(t, old, endings, true)
	trail := exportTrail(t, old)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	head := old.App.Journal.Head()

	log := &journalOfLines{}
	serve := func(t *testing.T, data string, check func(*wiretest.Service)) {
		t.Helper()
		c := *old.Config
		c.DataDir, c.Database.Path, c.Journal.Dir = data, filepath.Join(data, "sluice.db"), filepath.Join(data, "journal")
		app, err := wire.Open(context.Background(), &c, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		api, err := app.API("test")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(api.Handler())
		check(&wiretest.Service{URL: server.URL, App: app, Operator: old.Operator})
		server.Close()
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}
	data := filepath.Join(t.TempDir(), "data")
	if _, err := wire.Restore(archive, data, wire.Later{Journals: []string{old.Config.Journal.Dir}}); err != nil {
		t.Fatal(err)
	}
	if held, err := audit.Holds(filepath.Join(data, "journal"), head); err != nil || !held {
		t.Errorf("the restored journal does not go on to the last record: %v, %v", held, err)
	}
	for start := range 3 {
		serve(t, data, func(s *wiretest.Service) {
			wantEnded(t, s, endings, true)
			if start > 0 { // until the journal was read for old rows
				if old, err := s.App.Service.NewRowWatch().Look(t.Context()); err != nil || len(old) != 0 {
					t.Errorf("what was not made again is taken for old: %v, %v", old, err)
				}
			}
			if status := asks(v.crowd, "POST", "/v1/keys/described/encrypt", object{"plaintext": []byte("x")})(t, s); status != http.StatusOK {
				t.Errorf("a key that was described after the backup: %d", status)
			}
		})
		if _, err := os.Stat(filepath.Join(data, "redo.json")); err == nil {
			t.Error("it is to be done once more")
		}
	}
	if !strings.Contains(log.String(), "made=24 already=6 failed=0") || strings.Count(log.String(), "the database was restored") != 1 {
		t.Errorf("the log: %s", log)
	}
	if !strings.Contains(log.String(), "op=update changes=1") {
		t.Error("the log does not tell what was not made again")
	}

	exported := filepath.Join(t.TempDir(), "data")
	if _, err := wire.Restore(archive, exported, wire.Later{Trails: []string{trail}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		serve(t, exported, func(s *wiretest.Service) { wantEnded(t, s, endings, true) })
	}
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	put(t, filepath.Dir(bad), "bad.jsonl", []byte("{}\n"))
	if _, err := wire.Restore(archive, filepath.Join(t.TempDir(), "data"), wire.Later{Trails: []string{bad}}); err == nil {
		t.Error("what is no trail is taken for one")
	}

	without := filepath.Join(t.TempDir(), "data")
	if _, err := wire.Restore(archive, without, wire.Later{}); err != nil {
		t.Fatal(err)
	}
	serve(t, without, func(s *wiretest.Service) { wantEnded(t, s, endings, false) })
}

// PostgreSQL is put back by its own tools; then its API node makes later ends
// again from its own journal, and rows that are older for good are used.
func TestARestoredPostgresMakesLaterEndsAgain(t *testing.T) {
	c := newCluster(t)
	c.more = "two_operators: false\n"
	site := &site{log: &journalOfLines{}, operator: c.operator}
	site.open = func(t *testing.T) (*wire.App, error) {
		return c.open(t, 1, slog.New(slog.NewTextHandler(site.log, nil)))
	}
	running, stop := site.serve(t)
	raw := &rawDatabase{DB: openRaw(t, "pgx", c.urls.Admin+"&search_path=sluice")}
	v := newVillage(t, running, raw)
	endings := v.endings(t)
	v.make(t, v.crowd, "/v1/keys", object{"name": "described", "spec": "AES_256"})
	saved := time.Now()
	raw.save(t)
	<-time.After(time.Millisecond)
	for _, e := range endings {
		e.end(t)
	}
	if status := asks(v.crowd, "PATCH", "/v1/keys/described", object{"description": "changed"})(t, running); status != http.StatusOK {
		t.Fatal(status)
	}
	stop()
	raw.exec(t, "SET session_replication_role = replica")
	raw.putBack(t)
	if err := wire.DatabaseRestored(&wire.Config{DataDir: filepath.Join(c.dir, "data-1")}, saved, wire.Later{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v.Service, stop = site.serve(t)
		wantEnded(t, v.Service, endings, true)
		if status := asks(v.crowd, "POST", "/v1/keys/described/encrypt", object{"plaintext": []byte("x")})(t, v.Service); status != http.StatusOK {
			t.Errorf("a key that was described after the backup: %d", status)
		}
		stop()
	}
}
