package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

// keyModel is what was acknowledged of a key. A request that was under way
// when the process was killed may have been carried out or not: then there is
// more than one state that is right.
type keyModel struct {
	name        string
	states      []string // any of which is right
	primaries   []int
	firsts      []string // states of version 1
	ciphertexts []string // each must decrypt when the key is enabled
	plaintext   string
}

// aliasModel is an alias: the names of keys that it may stand for, "" for none.
type aliasModel struct {
	name string
	keys []string
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
	aliases     []*aliasModel
	credentials []*credentialModel
	secrets     []*secretModel
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
	return a.request(t, http.MethodPost, path, body)
}

func (a actor) request(t *testing.T, method, path string, body any) map[string]any {
	status, answer := a.send(method, a.credential, path, body)
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

// set changes the model.
func (a actor) set(change func()) {
	a.model.mu.Lock()
	defer a.model.mu.Unlock()
	change()
}

// live takes a key, an alias, a credential and a secret through their lives, again and
// again. Workers begin with different ones, since the kill can come during the first.
func (a actor) live(t *testing.T, name string, worker int) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(killed); !ok {
				panic(p)
			}
		}
	}()
	for i := 0; ; i++ {
		object := fmt.Sprintf("%s-%d", name, i)
		lives := []func(){
			func() { a.liveKey(t, object, i%2 == 1); a.liveAlias(t, name, i) },
			func() { a.liveCredential(t, object) },
			func() { a.liveSecret(t, object) },
		}
		for n := range lives {
			lives[(worker+n)%len(lives)]()
		}
	}
}

// keyLife is a key in the hands of one worker.
type keyLife struct {
	actor
	*keyModel
	path string
}

func (a actor) liveKey(t *testing.T, name string, imported bool) {
	if imported {
		a.importKey(t, name)
	} else {
		a.do(t, "/v1/keys", map[string]any{"name": name, "spec": "AES_256"})
	}
	k := keyLife{a, &keyModel{name: name, plaintext: base64.StdEncoding.EncodeToString([]byte(name)),
		states: []string{"ENABLED"}, primaries: []int{1}, firsts: []string{"ENABLED"}}, "/v1/keys/" + name}
	a.set(func() { a.model.keys = append(a.model.keys, k.keyModel) })
	k.encrypt(t)
	k.to(t, "/rotate", map[string]any{}, "ENABLED", 2)
	k.encrypt(t)
	k.first(t, "disable", map[string]any{}, "DISABLED")
	k.to(t, "/disable", map[string]any{}, "DISABLED", 2)
	k.to(t, "/enable", map[string]any{}, "ENABLED", 2)
	k.first(t, "enable", map[string]any{}, "ENABLED")
	k.first(t, "schedule-destruction", map[string]any{"days": 7}, "PENDING_DESTRUCTION")
	k.first(t, "cancel-destruction", map[string]any{}, "DISABLED")
	k.first(t, "enable", map[string]any{}, "ENABLED")
	k.to(t, "/schedule-deletion", map[string]any{"days": 7}, "PENDING_DELETION", 2)
	k.to(t, "/cancel-deletion", map[string]any{}, "DISABLED", 2)
	k.to(t, "/enable", map[string]any{}, "ENABLED", 2)
}

func (k keyLife) encrypt(t *testing.T) {
	answer := k.do(t, k.path+"/encrypt", map[string]any{"plaintext": k.plaintext})
	k.set(func() { k.ciphertexts = append(k.ciphertexts, answer["ciphertext"].(string)) })
}

// to makes a request that leads the key from one state to another.
func (k keyLife) to(t *testing.T, verb string, body any, state string, primary int) {
	k.set(func() { k.states, k.primaries = append(k.states, state), append(k.primaries, primary) })
	k.do(t, k.path+verb, body)
	k.set(func() { k.states, k.primaries = []string{state}, []int{primary} })
}

// first makes a request that leads version 1 from one state to another.
func (k keyLife) first(t *testing.T, verb string, body any, state string) {
	k.set(func() { k.firsts = append(k.firsts, state) })
	k.do(t, k.path+"/versions/1/"+verb, body)
	k.set(func() { k.firsts = []string{state} })
}

// liveAlias makes an alias of the worker's i-th key, moves it to the key
// before, if there is one, and takes every other one away.
func (a actor) liveAlias(t *testing.T, worker string, i int) {
	alias := &aliasModel{name: fmt.Sprintf("alias-%s-%d", worker, i), keys: []string{""}}
	a.set(func() { a.model.aliases = append(a.model.aliases, alias) })
	path := "/v1/aliases/" + alias.name
	to := func(method, key string, body any) {
		a.set(func() { alias.keys = append(alias.keys, key) })
		a.request(t, method, path, body)
		a.set(func() { alias.keys = []string{key} })
	}
	for n := i; n >= max(0, i-1); n-- {
		key := fmt.Sprintf("%s-%d", worker, n)
		to(http.MethodPut, key, map[string]any{"key": key})
	}
	if i%2 == 0 {
		to(http.MethodDelete, "", nil)
	}
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

// manyCredentials leaves room below the 1,000 of a platinum tenant for those that
// a kill left without an answer.
const manyCredentials = 800

func (a actor) liveCredential(t *testing.T, name string) {
	made := a.do(t, "/v1/credentials", map[string]any{"name": name, "scopes": []string{"key:describe"}})
	c := &credentialModel{id: made["id"].(string), tokens: []string{made["credential"].(string)}, revoked: []bool{false}}
	many := false // as many as a tenant may have that are not revoked
	a.set(func() {
		a.model.credentials = append(a.model.credentials, c)
		many = len(a.model.credentials) > manyCredentials
	})
	// Without an answer nobody knows the new secret, and the old one still
	// works: it has an overlap.
	rotated := a.do(t, "/v1/credentials/"+c.id+"/rotate", map[string]any{"overlap_hours": 24})
	a.set(func() { c.tokens = append(c.tokens, rotated["credential"].(string)) })
	if len(name)%2 == 0 || many {
		a.set(func() { c.revoked = []bool{false, true} })
		a.do(t, "/v1/credentials/"+c.id+"/revoke", map[string]any{})
		a.set(func() { c.revoked = []bool{true} })
	}
}

// check compares what a restarted process shows with the model, and takes
// over which of the states that are right it is.
func (m *crashModel) check(t *testing.T, p *devProcess, credential string, round int) {
	t.Helper()
	const recent = 24 // objects of the last rounds
	for _, k := range m.keys[max(0, len(m.keys)-recent):] {
		m.checkKey(t, p, credential, round, k)
	}
	aliases := m.listed(t, p, credential, round, "aliases", "alias")
	for _, alias := range m.aliases[max(0, len(m.aliases)-recent):] {
		m.checkAlias(t, p, credential, round, alias, aliases[alias.name])
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
	for _, s := range m.secrets[max(0, len(m.secrets)-recent):] {
		m.checkSecret(t, p, credential, round, s)
	}
	m.checkOthers(t, p, credential, round)
}

// checkOthers expects of keys that were not acknowledged and are listed that
// they work all the same: nothing half-made is visible.
func (m *crashModel) checkOthers(t *testing.T, p *devProcess, credential string, round int) {
	t.Helper()
	known := map[string]bool{}
	for _, k := range m.keys {
		known[k.name] = true
	}
	for name := range m.listed(t, p, credential, round, "keys", "name") {
		if known[name] || !strings.HasPrefix(name, fmt.Sprintf("k-%d-", round-1)) {
			continue
		}
		status, answer := p.post(credential, "/v1/keys/"+name+"/encrypt", map[string]any{"plaintext": "AAAA"})
		if status != http.StatusOK {
			t.Fatalf("round %d: key %s, whose making was not acknowledged, is visible and does not work: %d %v", round, name, status, answer)
		}
		m.note(answer)
	}
}

// listed returns the objects of a list by the field that names them.
func (m *crashModel) listed(t *testing.T, p *devProcess, credential string, round int, list, name string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for token := ""; ; {
		status, page := p.get(credential, "/v1/"+list+"?page_size=1000&page_token="+token)
		if status != http.StatusOK {
			t.Fatalf("round %d: listing %s: %d %v", round, list, status, page)
		}
		m.note(page)
		for _, item := range page[list].([]any) {
			o := item.(map[string]any)
			found[o[name].(string)] = o
		}
		next, more := page["next_page_token"].(string)
		if !more {
			return found
		}
		token = next
	}
}

// checkAlias looks an alias up and compares it with what the list says of it.
func (m *crashModel) checkAlias(t *testing.T, p *devProcess, credential string, round int, alias *aliasModel, listed map[string]any) {
	t.Helper()
	status, answer := p.get(credential, "/v1/keys/"+alias.name)
	key := ""
	if status == http.StatusOK {
		m.note(answer)
		key = answer["name"].(string)
	}
	if status != http.StatusOK && status != http.StatusNotFound || !slices.Contains(alias.keys, key) {
		t.Fatalf("round %d: alias %s stands for %q, right were %q: %d %v", round, alias.name, key, alias.keys, status, answer)
	}
	if (listed != nil) != (status == http.StatusOK) || listed != nil && listed["key_id"] != answer["id"] {
		t.Fatalf("round %d: alias %s stands for %q and is listed as %v", round, alias.name, key, listed)
	}
	alias.keys = []string{key}
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
	first := answer["versions"].([]any)[0].(map[string]any)["state"].(string)
	if !slices.Contains(k.firsts, first) {
		t.Fatalf("round %d: version 1 of key %s is %s; right were %v: %v", round, k.name, first, k.firsts, answer)
	}
	k.states, k.primaries, k.firsts = []string{state}, []int{primary}, []string{first}
	if state != "ENABLED" {
		return
	}
	for i, ciphertext := range k.ciphertexts {
		usable := i > 0 || first == "ENABLED"
		status, answer := p.post(credential, "/v1/keys/"+k.name+"/decrypt", map[string]any{"ciphertext": ciphertext})
		if usable && (status != http.StatusOK || answer["plaintext"] != k.plaintext) || !usable && status != http.StatusConflict {
			t.Fatalf("round %d: key %s, ciphertext %d, version 1 %s: %d %v", round, k.name, i, first, status, answer)
		}
		if usable {
			m.note(answer)
		}
	}
}
