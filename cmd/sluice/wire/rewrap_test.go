package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// rootSite is a service whose roots are replaced: its tokens, and how to run it.
type rootSite struct {
	dir        string
	ceremony   string // file
	domain     string // file
	config     *wire.Config
	credential string // of a tenant that agreed to SEALED keys
	operator   string
	tokens     map[string]*softhsm.Token // by their folders
}

// newRootSite is a service on SQLite with two nodes. They are in processes of
// their own, as this one opens the tokens, too, to replace the roots.
func newRootSite(t *testing.T) *rootSite {
	t.Helper()
	wiretest.Require(t)
	s := &rootSite{dir: t.TempDir(), tokens: map[string]*softhsm.Token{}}
	first, err := wiretest.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.config, s.credential, s.operator = first.Config, first.Demo, first.Operator
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range s.config.HSM.Domains[0].Tokens {
		s.config.HSM.Domains[0].Tokens[i].Process = true
	}
	s.domain = s.config.HSM.Domains[0].File
	text := "name: dev\nfile: " + s.domain + "\nmembers:\n"
	for _, path := range []string{"tokens/node-1", "tokens/node-2", "backup-tokens/backup-1", "backup-tokens/backup-2"} {
		if path == "backup-tokens/backup-1" {
			text += "backups:\n"
		}
		dir, id := filepath.Join(s.dir, path), filepath.Base(path)
		token, err := softhsm.Provision(dir, "sluice-dev-"+id)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[id] = token
		text += fmt.Sprintf("  - {id: %s, module: %s, serial: %q, pin_file: %s/user.pin, so_pin_file: %s/so.pin, env: {SOFTHSM2_CONF: %s}}\n",
			id, token.Module, token.Serial, dir, dir, token.Env["SOFTHSM2_CONF"])
	}
	put(t, s.dir, "ceremony.yaml", []byte(text))
	s.ceremony = filepath.Join(s.dir, "ceremony.yaml")
	return s
}

// serve runs a service until stop is called.
func serveRoots(t *testing.T, config *wire.Config, credential, operator string) (s *wiretest.Service, stop func()) {
	t.Helper()
	app, err := wire.Open(context.Background(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	stop = sync.OnceFunc(func() {
		server.Close()
		if err := app.Close(); err != nil {
			t.Errorf("closing the service: %v", err)
		}
	})
	t.Cleanup(stop)
	return &wiretest.Service{App: app, Config: config, URL: server.URL, Demo: credential, Operator: operator}, stop
}

func (s *rootSite) serve(t *testing.T) (*wiretest.Service, func()) {
	t.Helper()
	return serveRoots(t, s.config, s.credential, s.operator)
}

func agree(string, string) error { return nil }

// generationsHeld returns the generations of the roots on a token, and fails
// when it holds other objects.
func generationsHeld(t *testing.T, domainFile string, token *softhsm.Token) []uint32 {
	t.Helper()
	domain, err := wire.ReadDomain(domainFile)
	if err != nil {
		t.Fatal(err)
	}
	// A member's roots cannot be given away, which is an error here.
	r, _ := p11.VerifyBackup(p11.CeremonyToken{Module: token.Module, Env: token.Env, TokenSerial: token.Serial, UserPIN: token.UserPIN}, domain)
	return r.Generations
}

// The specs of the keys that are taken over: each way in which material is
// encoded, one key that is SEALED.
var rootSpecs = []string{"AES_256", "ECC_NIST_P256", "ECC_NIST_P521", "RSA_2048", "HMAC_224", "HMAC_256", "SM4"}

// keepsake is what a key did before its roots were replaced.
type keepsake struct {
	name       string
	ciphertext []byte // of an encryption key
	mac        []byte
	signature  []byte
}

var keepsakeMessage = []byte("made under the first roots")

func makeKeepsake(t *testing.T, s *wiretest.Service, name, spec string) keepsake {
	t.Helper()
	body := object{"name": name, "spec": spec}
	if spec == "RSA_2048" {
		body["usage"] = "SIGN_VERIFY"
	}
	must(t, s, "/v1/keys", body)
	k := keepsake{name: name}
	switch {
	case strings.HasPrefix(spec, "HMAC"):
		k.mac = must(t, s, "/v1/keys/"+name+"/mac", object{"message": keepsakeMessage}).MAC
	case spec == "AES_256" || spec == "SM4":
		k.ciphertext = must(t, s, "/v1/keys/"+name+"/encrypt", object{"plaintext": keepsakeMessage}).Ciphertext
	default:
		k.signature = must(t, s, "/v1/keys/"+name+"/sign", object{"message": keepsakeMessage}).Signature
	}
	return k
}

// use uses the key as it was used before and says what is wrong.
func (k *keepsake) use(t *testing.T, s *wiretest.Service) error {
	t.Helper()
	path, body := "/v1/keys/"+k.name+"/decrypt", object{"ciphertext": k.ciphertext}
	switch {
	case k.mac != nil:
		path, body = "/v1/keys/"+k.name+"/mac", object{"message": keepsakeMessage}
	case k.signature != nil:
		path, body = "/v1/keys/"+k.name+"/sign", object{"message": keepsakeMessage}
	}
	status, a := call(t, s, s.Demo, http.MethodPost, path, body)
	switch {
	case status != http.StatusOK:
		return fmt.Errorf("%s: %d %s", path, status, a.Detail)
	case k.ciphertext != nil && !bytes.Equal(a.Plaintext, keepsakeMessage):
		return fmt.Errorf("%s gave %q", path, a.Plaintext)
	case k.mac != nil && !bytes.Equal(a.MAC, k.mac):
		return fmt.Errorf("%s gave another MAC", path)
	case k.signature != nil:
		for _, signature := range [][]byte{k.signature, a.Signature} {
			if _, a := call(t, s, s.Demo, http.MethodPost, "/v1/keys/"+k.name+"/verify",
				object{"message": keepsakeMessage, "signature": signature}); !a.Valid {
				return fmt.Errorf("%s: a signature is not valid", path)
			}
		}
	}
	return nil
}

func useAll(t *testing.T, s *wiretest.Service, what string, all []keepsake) {
	t.Helper()
	for i := range all {
		if err := all[i].use(t, s); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// useMeanwhile uses keys on services without pause until stop, which fails the
// test when a request failed.
func useMeanwhile(t *testing.T, all []keepsake, services ...*wiretest.Service) (stop func()) {
	t.Helper()
	var done atomic.Bool
	var failed, used atomic.Int64
	var wait sync.WaitGroup
	for _, s := range services {
		wait.Go(func() {
			for i := 0; !done.Load(); i++ {
				used.Add(1)
				if err := all[i%len(all)].use(t, s); err != nil && failed.Add(1) == 1 {
					t.Errorf("meanwhile: %v", err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		done.Store(true)
		wait.Wait()
		t.Logf("%d uses meanwhile, %d failed", used.Load(), failed.Load())
		if used.Load() == 0 {
			t.Error("no key was used meanwhile")
		}
	}
}

// generationOf returns the generation of the roots that the key's newest version
// and its tenant are stored under.
func generationOf(t *testing.T, s *wiretest.Service, tenant, key string) (version, sealing uint32) {
	t.Helper()
	owner, err := s.App.Store.TenantByRef(context.Background(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.App.Store.Lookup(context.Background(), owner.ID, key)
	if err != nil {
		t.Fatal(err)
	}
	return s.App.Device.BlobRoot(k.Version(k.Primary).Blob), owner.Sealing.RootGeneration
}

// The whole way on one machine: replaced, restarted, rewrapped, retired. A
// backup of the database from before is of no use afterwards.
func TestRootsAreReplacedFromEndToEnd(t *testing.T) {
	site := newRootSite(t)
	ctx := context.Background()
	s, stop := site.serve(t)
	var all []keepsake
	for _, spec := range rootSpecs {
		all = append(all, makeKeepsake(t, s, strings.ToLower(spec), spec))
	}
	// One key with a version that is not the newest.
	must(t, s, "/v1/keys/aes_256/rotate", nil)
	archive := filepath.Join(t.TempDir(), "before.tar")
	if _, err := wire.Backup(ctx, site.config, archive); err != nil {
		t.Fatal(err)
	}
	gone := deleteTenant(t, s, "gone")

	// The service runs while its tokens get further roots.
	domain, file, err := wire.ReplaceRoots(ctx, site.ceremony, agree, func(string) {})
	if err != nil || domain.Generation != 2 || domain.Oldest() != 1 || file != site.domain {
		t.Fatalf("%+v, %s, %v", domain, file, err)
	}
	useAll(t, s, "before the restart", all)
	if _, _, err := wire.ReplaceRoots(ctx, site.ceremony, agree, func(string) {}); err == nil {
		t.Error("roots were replaced twice at once")
	}
	if _, err := wire.Rewrap(ctx, site.rewrap(nil)); err == nil {
		t.Error("rewrapped beside a running service that does not hear of it")
	}
	stop()

	// From here on one node is in this process.
	site.config.HSM.Domains[0].Tokens[0].Process = false
	s, stop = site.serve(t)
	useAll(t, s, "after the restart", all)
	if version, sealing := generationOf(t, s, "demo", "aes_256"); version != 1 || sealing != 1 {
		t.Errorf("the old key is under generation %d, its tenant under %d", version, sealing)
	}
	all = append(all, makeKeepsake(t, s, "new", "AES_256"))
	if version, _ := generationOf(t, s, "demo", "new"); version != 2 {
		t.Errorf("the new key is under generation %d", version)
	}
	for _, n := range s.App.Device.Status() {
		if n.ID != "cpu" && (n.Generation != 2 || n.OldestGeneration != 1) {
			t.Errorf("node %s is of generation %d, from %d on", n.ID, n.Generation, n.OldestGeneration)
		}
	}
	stop()

	retire := func(generation uint32) error {
		return wire.RetireRoots(ctx, site.config, site.ceremony, generation, slog.New(slog.DiscardHandler), func(string) {})
	}
	// Six HSM keys, one of them with two versions, and the one that signs the
	// journal's heads; SM4 is SEALED.
	if err := retire(1); kms.KindOf(err) != kms.KindConflict || !strings.Contains(err.Error(), "2 tenants and 8 versions") {
		t.Errorf("retired while in use: %v", err)
	}
	interruptedRewrap(t, site)
	done, err := wire.Rewrap(ctx, site.rewrap(nil))
	if err != nil || done.Failed != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if again, err := wire.Rewrap(ctx, site.rewrap(nil)); err != nil || again.Tenants+again.Versions != 0 {
		t.Errorf("there was something left: %+v, %v", again, err)
	}

	s, stop = site.serve(t)
	useAll(t, s, "after rewrapping", all)
	if version, sealing := generationOf(t, s, "demo", "aes_256"); version != 2 || sealing != 2 {
		t.Errorf("after rewrapping the key is under generation %d, its tenant under %d", version, sealing)
	}
	stop()

	for _, generation := range []uint32{0, 2, 3} {
		if err := retire(generation); err == nil {
			t.Errorf("retired generation %d", generation)
		}
	}
	for range 2 { // it can be repeated
		if err := retire(1); err != nil {
			t.Fatal(err)
		}
		for id, token := range site.tokens {
			if held := generationsHeld(t, site.domain, token); !slices.Equal(held, []uint32{2}) {
				t.Errorf("%s holds roots of the generations %v", id, held)
			}
		}
	}
	s, stop = site.serve(t)
	useAll(t, s, "after the retirement", all)
	awaitShredded(t, s, gone)
	stop()

	oldDatabaseIsUseless(t, site, archive)
	rewrapIsInTheJournal(t, site.config.Journal.Dir, journalOfRoots{tenants: 2, versions: 8, rewraps: 3, refused: 1, retired: 2})
}

func (s *rootSite) rewrap(progress func(kms.RewrapProgress)) wire.RewrapConfig {
	return wire.RewrapConfig{Config: s.config, Ceremony: s.ceremony, Batch: 2, Log: slog.New(slog.DiscardHandler), Progress: progress}
}

// interruptedRewrap ends a rewrapping after its third version.
func interruptedRewrap(t *testing.T, site *rootSite) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done, err := wire.Rewrap(ctx, site.rewrap(func(p kms.RewrapProgress) {
		if p.Versions >= 3 {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) || done.Versions < 3 || done.Versions >= done.Total.Versions || done.Tenants != done.Total.Tenants {
		t.Errorf("an interrupted rewrapping: %+v, %v", done, err)
	}
}

// deleteTenant makes a tenant with a key and deletes it as of yesterday, so that
// its copies should be void already.
func deleteTenant(t *testing.T, s *wiretest.Service, name string) (id string) {
	t.Helper()
	ctx := context.Background()
	status, a := call(t, s, s.Operator, http.MethodPost, "/v1/tenants", object{"name": name, "tier": "gold"})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, a.Detail)
	}
	status, c := call(t, s, s.Operator, http.MethodPost, "/v1/tenants/"+name+"/credentials", object{"name": "app", "scopes": []string{"key:*"}})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, c.Detail)
	}
	if status, a := call(t, s, c.Credential, http.MethodPost, "/v1/keys", object{"name": "lost", "spec": "AES_256"}); status != http.StatusCreated {
		t.Fatalf("%d %s", status, a.Detail)
	}
	if status, a := call(t, s, s.Operator, http.MethodPost, "/v1/tenants/"+name+"/suspend", nil); status != http.StatusOK {
		t.Fatalf("%d %s", status, a.Detail)
	}
	tenant, err := s.App.Store.TenantByRef(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if tenant, err = s.App.Store.DeleteTenant(ctx, tenant.ID, tenant.Revision, yesterday, yesterday.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err = s.App.Store.AdvanceDeletion(ctx, tenant.ID, tenant.Revision, kms.TenantDeleted, yesterday); err != nil {
		t.Fatal(err)
	}
	return tenant.ID.String()
}

// awaitShredded waits for the keeper's first look, at the start of the service.
func awaitShredded(t *testing.T, s *wiretest.Service, tenant string) {
	t.Helper()
	within(t, 20*time.Second, "the completed shredding", func() bool {
		found, err := s.App.Store.TenantByRef(context.Background(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return found.State == kms.TenantShredded
	})
}

// oldDatabaseIsUseless restores a backup from before the roots were replaced:
// no service starts on it, with the old description or the new.
func oldDatabaseIsUseless(t *testing.T, site *rootSite, archive string) {
	t.Helper()
	old := filepath.Join(t.TempDir(), "old")
	if _, err := wire.Restore(archive, old, wire.Later{}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(old, "domain-0.json"), site.domain} {
		config := *site.config
		config.DataDir = old
		config.Journal.Dir = filepath.Join(old, "journal")
		config.Database.Path = filepath.Join(old, "sluice.db")
		config.HSM.Domains = []wire.DomainConfig{{File: file, Tokens: site.config.HSM.Domains[0].Tokens}}
		app, err := wire.Open(context.Background(), &config, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("with %s the old database is of use", filepath.Base(file))
			app.Close()
		}
	}
}

// journalOfRoots is what a journal must have of work on roots.
type journalOfRoots struct {
	tenants, versions int // rewrapped
	rewraps           int // times that keys of the one tenant with some were
	refused, retired  int // retirements
}

// rewrapIsInTheJournal wants intents and outcomes of every change of roots.
func rewrapIsInTheJournal(t *testing.T, dir string, want journalOfRoots) {
	t.Helper()
	var got journalOfRoots
	open := 0
	err := audit.Read(dir, 0, func(e *kms.Entry, _ audit.Position) error {
		switch {
		case e.Component != "roots":
			return nil
		case e.Phase == kms.PhaseIntent:
			open++
			return nil
		}
		open--
		switch {
		case e.Op == kms.OpRetireRoots && e.Outcome == "conflict":
			got.refused++
		case e.Outcome != "ok":
			t.Errorf("%s ended as %s", e.Op, e.Outcome)
		case e.Op == kms.OpRetireRoots:
			got.retired++
		case e.Op == kms.OpRewrapTenant:
			got.tenants++
		case e.Op == kms.OpRewrapKeys:
			got.rewraps++
			got.versions += int(max(e.Count, 1))
		}
		return nil
	})
	if err != nil || open != 0 || got != want {
		t.Errorf("the journal has %+v, want %+v; %d intents without outcomes (%v)", got, want, open, err)
	}
}
