package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
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
	"github.com/sluice-kms/sluice/client"
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

func postgresTarget(t *testing.T) *crashTarget {
	urls := pgtest.Require(t).EmptyDatabase(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
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
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	put("sluice.yaml", fmt.Sprintf(`
node: crash
data_dir: %s
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
database: {driver: postgres, url_file: %[2]s/service.url, owner_url_file: %[2]s/owner.url}
hsm:
  domains:
    - file: %[2]s/domain.json
      tokens:
        - %[3]s
`, data, dir, member))
	c := &crashTarget{journal: filepath.Join(data, "journal"), tokens: filepath.Join(dir, "tokens", "node-1")}
	c.start = func(t *testing.T) *devProcess {
		t.Helper()
		p := startServer(t, program, dir, "--config", filepath.Join(dir, "sluice.yaml"), "--operator-credential", filepath.Join(dir, "operator"))
		if c.credential == "" {
			operator := p.credential(t, "operator")
			if status, a := p.post(operator, "/v1/tenants", map[string]any{"name": "acme"}); status != http.StatusCreated {
				t.Fatalf("making a tenant: %d %v", status, a)
			}
			status, a := p.post(operator, "/v1/tenants/acme/credentials", map[string]any{"name": "admin",
				"scopes": []string{"key:*", "key:manage", "key:destroy", "key:import", "tenant:admin"}})
			if status != http.StatusCreated {
				t.Fatalf("making a credential: %d %v", status, a)
			}
			c.credential = a["credential"].(string)
		}
		return p
	}
	return c
}

// keyModel is what was acknowledged of a key. A request that was under way
// when the process was killed may have been carried out or not: then there is
// more than one state that is right.
type keyModel struct {
	name        string
	states      []string // any of which is right
	primaries   []int
	ciphertexts []string // each must decrypt when the key is enabled
	plaintext   string
}

// credentialModel is a credential: tokens that must work, unless it was
// revoked, and whether it was.
type credentialModel struct {
	id      string
	tokens  []string
	revoked []bool // any of which is right
}

// crashModel is what all requests so far have been answered with.
type crashModel struct {
	mu          sync.Mutex
	keys        []*keyModel
	credentials []*credentialModel
	answered    map[string]bool // request ids
}

func (m *crashModel) note(answer map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[answer["request_id"].(string)] = true
}

// killed ends a worker whose request had no answer.
type killed struct{}

// actor makes requests for one worker until the process is killed.
type actor struct {
	*devProcess
	model      *crashModel
	credential string
}

// do makes a request that must succeed; when there is no answer the worker
// ends.
func (a actor) do(t *testing.T, path string, body any) map[string]any {
	status, answer := a.post(a.credential, path, body)
	if status == 0 {
		panic(killed{})
	}
	if status > 299 {
		t.Errorf("%s: %d %v", path, status, answer)
		panic(killed{})
	}
	a.model.note(answer)
	return answer
}

// live takes a key and a credential through their lives, again and again.
func (a actor) live(t *testing.T, name string) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(killed); !ok {
				panic(p)
			}
		}
	}()
	for i := 0; ; i++ {
		a.liveKey(t, fmt.Sprintf("%s-%d", name, i), i%2 == 1)
		a.liveCredential(t, fmt.Sprintf("%s-%d", name, i))
	}
}

func (a actor) liveKey(t *testing.T, name string, imported bool) {
	k := &keyModel{name: name, plaintext: base64.StdEncoding.EncodeToString([]byte(name)), states: []string{"ENABLED"}, primaries: []int{1}}
	if imported {
		a.importKey(t, name)
	} else {
		a.do(t, "/v1/keys", map[string]any{"name": name, "spec": "AES_256"})
	}
	a.model.mu.Lock()
	a.model.keys = append(a.model.keys, k)
	a.model.mu.Unlock()
	path := "/v1/keys/" + name
	encrypt := func() {
		answer := a.do(t, path+"/encrypt", map[string]any{"plaintext": k.plaintext})
		a.model.mu.Lock()
		k.ciphertexts = append(k.ciphertexts, answer["ciphertext"].(string))
		a.model.mu.Unlock()
	}
	// to makes a request that leads from one state to another.
	to := func(verb string, body any, state string, primary int) {
		a.model.mu.Lock()
		k.states, k.primaries = append(k.states, state), append(k.primaries, primary)
		a.model.mu.Unlock()
		a.do(t, path+verb, body)
		a.model.mu.Lock()
		k.states, k.primaries = []string{state}, []int{primary}
		a.model.mu.Unlock()
	}
	encrypt()
	to("/rotate", map[string]any{}, "ENABLED", 2)
	encrypt()
	to("/disable", map[string]any{}, "DISABLED", 2)
	to("/enable", map[string]any{}, "ENABLED", 2)
	a.do(t, path+"/versions/1/schedule-destruction", map[string]any{"days": 7})
	a.do(t, path+"/versions/1/cancel-destruction", map[string]any{})
	a.do(t, path+"/versions/1/enable", map[string]any{})
	to("/schedule-deletion", map[string]any{"days": 7}, "PENDING_DELETION", 2)
	to("/cancel-deletion", map[string]any{}, "DISABLED", 2)
	to("/enable", map[string]any{}, "ENABLED", 2)
}

func (a actor) importKey(t *testing.T, name string) {
	p := a.do(t, "/v1/import-parameters", map[string]any{"wrapping": "RSA_AES_KEY_WRAP_SHA_256"})
	material := make([]byte, 32)
	rand.Read(material)
	wrapped, err := client.WrapKey(&client.ImportParameters{Wrapping: client.ImportRSAAES, PublicKey: p["public_key"].(string)}, material)
	if err != nil {
		t.Error(err)
		panic(killed{})
	}
	a.do(t, "/v1/import", map[string]any{"name": name, "spec": "AES_256", "wrapping": p["wrapping"], "token": p["token"], "wrapped_key": wrapped})
}

func (a actor) liveCredential(t *testing.T, name string) {
	made := a.do(t, "/v1/credentials", map[string]any{"name": name, "scopes": []string{"key:describe"}})
	c := &credentialModel{id: made["id"].(string), tokens: []string{made["credential"].(string)}, revoked: []bool{false}}
	set := func(change func()) {
		a.model.mu.Lock()
		defer a.model.mu.Unlock()
		change()
	}
	set(func() { a.model.credentials = append(a.model.credentials, c) })
	// Without an answer nobody knows the new secret, and the old one still
	// works: it has an overlap.
	rotated := a.do(t, "/v1/credentials/"+c.id+"/rotate", map[string]any{"overlap_hours": 24})
	set(func() { c.tokens = append(c.tokens, rotated["credential"].(string)) })
	if len(name)%2 == 0 {
		set(func() { c.revoked = []bool{false, true} })
		a.do(t, "/v1/credentials/"+c.id+"/revoke", map[string]any{})
		set(func() { c.revoked = []bool{true} })
	}
}

// check compares what a restarted process shows with the model, and takes
// over which of the states that are right it is.
func (m *crashModel) check(t *testing.T, p *devProcess, credential string, round int) {
	t.Helper()
	known := map[string]bool{}
	for _, k := range m.keys {
		known[k.name] = true
	}
	const recent = 24 // keys and credentials of the last rounds
	for _, k := range m.keys[max(0, len(m.keys)-recent):] {
		m.checkKey(t, p, credential, round, k)
	}
	for _, c := range m.credentials[max(0, len(m.credentials)-recent):] {
		for i, token := range c.tokens {
			status, answer := p.get(token, "/v1/keys/no-such-key")
			works := status == http.StatusNotFound
			if !works && status != http.StatusUnauthorized || !slices.Contains(c.revoked, !works) {
				t.Fatalf("round %d: secret %d of credential %s: %d %v, revoked %v", round, i, c.id, status, answer, c.revoked)
			}
		}
	}
	// Nothing half-made is visible: what is listed and was not acknowledged
	// works all the same.
	for token := ""; ; {
		status, page := p.get(credential, "/v1/keys?page_size=1000&page_token="+token)
		if status != http.StatusOK {
			t.Fatalf("round %d: listing: %d %v", round, status, page)
		}
		m.note(page)
		for _, listed := range page["keys"].([]any) {
			name := listed.(map[string]any)["name"].(string)
			if known[name] || !strings.HasPrefix(name, fmt.Sprintf("k-%d-", round-1)) {
				continue
			}
			status, answer := p.post(credential, "/v1/keys/"+name+"/encrypt", map[string]any{"plaintext": "AAAA"})
			if status != http.StatusOK {
				t.Fatalf("round %d: key %s, whose making was not acknowledged, is visible and does not work: %d %v", round, name, status, answer)
			}
			m.note(answer)
		}
		next, more := page["next_page_token"].(string)
		if !more {
			break
		}
		token = next
	}
}

func (m *crashModel) checkKey(t *testing.T, p *devProcess, credential string, round int, k *keyModel) {
	t.Helper()
	status, answer := p.get(credential, "/v1/keys/"+k.name)
	if status != http.StatusOK {
		t.Fatalf("round %d: key %s: %d %v", round, k.name, status, answer)
	}
	m.note(answer)
	state, primary := answer["state"].(string), int(answer["primary_version"].(float64))
	if !slices.Contains(k.states, state) || !slices.Contains(k.primaries, primary) || len(answer["versions"].([]any)) != primary {
		t.Fatalf("round %d: key %s is %s in version %d; right were %v and %v: %v", round, k.name, state, primary, k.states, k.primaries, answer)
	}
	k.states, k.primaries = []string{state}, []int{primary}
	if state != "ENABLED" {
		return
	}
	for i, ciphertext := range k.ciphertexts {
		version := answer["versions"].([]any)[min(i, primary-1)].(map[string]any)
		if version["state"] != "ENABLED" {
			continue // it was about to be destroyed, or disabled after that
		}
		status, answer := p.post(credential, "/v1/keys/"+k.name+"/decrypt", map[string]any{"ciphertext": ciphertext})
		if status != http.StatusOK || answer["plaintext"] != k.plaintext {
			t.Fatalf("round %d: key %s, ciphertext %d: %d %v", round, k.name, i, status, answer)
		}
		m.note(answer)
	}
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

// Whenever the process is killed during the lives of keys and credentials:
// what was acknowledged holds, what was not is whole or not there, the tokens
// hold nothing but their roots, and the journal has every answer once.
func TestLivesOfKeysAndCredentialsSurviveKill9(t *testing.T) {
	wiretest.Require(t)
	for name, target := range map[string]func(*testing.T) *crashTarget{"SQLite": sqliteTarget, "PostgreSQL": postgresTarget} {
		t.Run(name, func(t *testing.T) {
			c := target(t)
			m := &crashModel{answered: map[string]bool{}}
			roots := 0
			for round := range rounds(10, 200) {
				p := c.start(t)
				if round == 0 {
					roots = objects(t, c.tokens)
				}
				m.check(t, p, c.credential, round)
				var workers sync.WaitGroup
				for worker := range 4 {
					workers.Go(func() {
						actor{p, m, c.credential}.live(t, fmt.Sprintf("k-%d-%d", round, worker))
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
			m.check(t, last, c.credential, rounds(10, 200))
			if err := last.stop(t); err != nil {
				t.Errorf("stopping: %v", err)
			}
			if n := objects(t, c.tokens); n != roots || n == 0 {
				t.Errorf("%d objects in the tokens, %d roots", n, roots)
			}
			if len(m.keys) < rounds(10, 200) || len(m.credentials) < 5 {
				t.Fatalf("only %d keys and %d credentials were acknowledged: the loop tests nothing", len(m.keys), len(m.credentials))
			}
			t.Logf("%d keys, %d credentials, %d answers", len(m.keys), len(m.credentials), len(m.answered))
			checkJournal(t, c.journal, m.answered)
			// Ten kills can all miss every change; two hundred cannot.
			if found := checkIntents(t, c.journal); found == 0 && rounds(10, 200) > 10 {
				t.Error("no change was under way when a process was killed: the loop tests nothing")
			}
		})
	}
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
