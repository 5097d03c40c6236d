package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// crashTarget is a program that is killed and started again on the same data.
type crashTarget struct {
	start      func(t *testing.T) *devProcess
	credential string // of a tenant's administrator; known after the first start
	journal    string
	tokens     string // folder of the serving tokens
}

func sqliteTarget(t *testing.T) *crashTarget {
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	data := filepath.Join(dir, "data")
	c := &crashTarget{journal: filepath.Join(data, "journal"), tokens: filepath.Join(data, "tokens")}
	c.start = func(t *testing.T) *devProcess {
		p := startDev(t, program, data)
		c.credential = p.credential(t, "demo.credential")
		return p
	}
	return c
}

// postgresSite makes a database and a domain of one token in dir, and returns
// how to write the configuration of an API node there.
func postgresSite(t *testing.T, dir string) (configure func(node string) (path, data string)) {
	t.Helper()
	urls := pgtest.Require(t).EmptyDatabase(t)
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(id string) string {
		t.Helper()
		token, err := softhsm.Provision(filepath.Join(dir, "tokens", id), id)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{id: %s, module: %s, serial: %q, pin_file: %[4]s/user.pin, so_pin_file: %[4]s/so.pin, env: {SOFTHSM2_CONF: %[5]s}}",
			id, token.Module, token.Serial, filepath.Dir(token.Module), token.Env["SOFTHSM2_CONF"])
	}
	member := entry("node-1")
	put("service.url", urls.Service)
	put("owner.url", urls.Owner)
	put("ceremony.yaml", fmt.Sprintf("name: crash\nfile: %s/domain.json\nmembers:\n  - %s\nbackups:\n  - %s\n  - %s\n",
		dir, member, entry("backup-1"), entry("backup-2")))
	if _, err := wire.InitDomain(context.Background(), filepath.Join(dir, "ceremony.yaml"), func(string, string) error { return nil }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return func(node string) (path, data string) {
		t.Helper()
		data = filepath.Join(dir, "data-"+node)
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		put(node+".yaml", fmt.Sprintf(`
node: %s
data_dir: %s
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
database: {driver: postgres, url_file: %[3]s/service.url, owner_url_file: %[3]s/owner.url}
hsm:
  domains:
    - file: %[3]s/domain.json
      tokens:
        - %[4]s
`, node, data, dir, member))
		return filepath.Join(dir, node+".yaml"), data
	}
}

func postgresTarget(t *testing.T) *crashTarget {
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	config, data := postgresSite(t, dir)("crash")
	c := &crashTarget{journal: filepath.Join(data, "journal"), tokens: filepath.Join(dir, "tokens", "node-1")}
	c.start = func(t *testing.T) *devProcess {
		t.Helper()
		p := startServer(t, program, dir, "--config", config, "--operator-credential", filepath.Join(dir, "operator"))
		if c.credential == "" {
			c.credential = p.newTenant(t, p.credential(t, "operator"), "secret:*", "secret:destroy")
		}
		return p
	}
	return c
}

// newTenant makes the tenant acme and returns a credential for its keys and
// what more says.
func (p *devProcess) newTenant(t *testing.T, operator string, more ...string) string {
	t.Helper()
	if status, a := p.post(operator, "/v1/tenants", map[string]any{"name": "acme", "tier": "platinum"}); status != http.StatusCreated {
		t.Fatalf("making a tenant: %d %v", status, a)
	}
	status, a := p.post(operator, "/v1/tenants/acme/credentials", map[string]any{"name": "admin",
		"scopes": append([]string{"key:*", "key:manage", "key:destroy", "key:import", "tenant:admin", "usage:read", "audit:read"}, more...)})
	if status != http.StatusCreated {
		t.Fatalf("making a credential: %d %v", status, a)
	}
	return a["credential"].(string)
}

// objects counts what lies in tokens.
func objects(t *testing.T, folder string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".object") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Whenever the process is killed during the lives of keys, their versions and
// aliases, credentials and secrets: what was acknowledged holds, what was not is whole
// or not there, the tokens hold nothing but their roots, the journal and the
// audit trail have every answer once, and usage is the sum of the journal.
func TestLivesOfKeysAndCredentialsSurviveKill9(t *testing.T) {
	wiretest.Require(t)
	for name, target := range map[string]func(*testing.T) *crashTarget{"SQLite": sqliteTarget, "PostgreSQL": postgresTarget} {
		t.Run(name, func(t *testing.T) {
			c := target(t)
			m := &crashModel{answered: map[string]bool{}}
			least, round, roots := rounds(10, 500), 0, 0
			// On a slow machine a round does little, so there are more of them.
			for ; round < least || round < 4*least && !m.hasLived(least); round++ {
				p := c.start(t)
				if round == 0 {
					roots = objects(t, c.tokens)
				}
				checkLedger(t, p, c.credential, c.journal)
				checkUsage(t, p, c.credential, c.journal)
				m.check(t, p, c.credential, round)
				var workers sync.WaitGroup
				for worker := range 4 {
					workers.Go(func() {
						actor{p, m, c.credential}.live(t, fmt.Sprintf("k-%d-%d", round, worker), worker)
					})
				}
				// The moment of the kill differs from round to round.
				<-time.After(time.Duration(50+(round*97)%450) * time.Millisecond)
				p.kill()
				workers.Wait()
				if t.Failed() {
					return
				}
			}
			last := c.start(t)
			checkLedger(t, last, c.credential, c.journal)
			m.check(t, last, c.credential, round)
			checkUsage(t, last, c.credential, c.journal)
			checkTrail(t, last, c.credential, c.journal, m.answered)
			if err := last.stop(t); err != nil {
				t.Errorf("stopping: %v", err)
			}
			if n := objects(t, c.tokens); n != roots || n == 0 {
				t.Errorf("%d objects in the tokens, %d roots", n, roots)
			}
			if !m.hasLived(least) {
				t.Fatalf("only %d keys, %d aliases, %d credentials and %d secrets: the loop tests nothing", len(m.keys), len(m.aliases), len(m.credentials), len(m.secrets))
			}
			t.Logf("%d keys, %d aliases, %d credentials, %d secrets, %d answers", len(m.keys), len(m.aliases), len(m.credentials), len(m.secrets), len(m.answered))
			checkJournal(t, c.journal, m.answered)
			// Ten kills can all miss every change; two hundred cannot.
			if found := checkIntents(t, c.journal); found == 0 && least > 10 {
				t.Error("no change was under way when a process was killed: the loop tests nothing")
			}
		})
	}
}

// hasLived tells whether enough was made for the rounds to have met everything.
func (m *crashModel) hasLived(rounds int) bool {
	return len(m.keys) >= rounds && len(m.aliases) >= rounds && len(m.credentials) >= 5 && len(m.secrets) >= 5
}

// checkJournal verifies a journal and that it has every answered request once.
func checkJournal(t *testing.T, folder string, answered map[string]bool) {
	t.Helper()
	if _, err := audit.Verify(folder, audit.VerifyOptions{}); err != nil {
		t.Errorf("the journal does not verify: %v", err)
	}
	seen := map[string]int{}
	err := audit.Read(folder, 1, func(e *kms.Entry, _ audit.Position) error {
		if e.Phase == kms.PhaseOutcome && e.RequestID != (uuid.UUID{}) {
			seen[e.RequestID.String()]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(answered)) {
		if seen[id] != 1 {
			t.Errorf("request %s was answered and is in the journal %d times", id, seen[id])
		}
	}
}
