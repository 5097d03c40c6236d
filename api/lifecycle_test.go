package api_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

func TestVersionLivesItsLife(t *testing.T) {
	w := newWorld(t)
	w.versionLife(t)
}

func (w *world) versionLife(t *testing.T) {
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	old := w.post(key+"/encrypt", map[string]any{"plaintext": "b2xk"}).text("ciphertext")
	w.must(200, "POST", key+"/rotate", w.acme.token, "")
	decrypt := func() *answer {
		return w.send("POST", key+"/decrypt", w.acme.token, object(map[string]any{"ciphertext": old}))
	}
	first := func(a *answer) map[string]any { return a.fields["versions"].([]any)[0].(map[string]any) }

	if a := w.must(200, "POST", key+"/versions/1/disable", w.acme.token, ""); first(a)["state"] != "DISABLED" || a.text("state") != "ENABLED" {
		t.Errorf("disabled: %s", a.body)
	}
	if a := decrypt(); a.status != 409 || a.code() != "key_disabled" {
		t.Errorf("with a disabled version: %d %s", a.status, a.body)
	}
	w.must(200, "POST", key+"/versions/1/enable", w.acme.token, "{}")
	if a := decrypt(); a.status != 200 {
		t.Errorf("enabled again: %d %s", a.status, a.body)
	}
	pending := w.must(200, "POST", key+"/versions/1/schedule-destruction", w.acme.token, `{"days":7}`)
	at, err := time.Parse(time.RFC3339, first(pending)["destroy_at"].(string))
	if err != nil || first(pending)["state"] != "PENDING_DESTRUCTION" {
		t.Fatalf("%v in %s", err, pending.body)
	}
	if left := time.Until(at); left > 7*24*time.Hour || left < 7*24*time.Hour-time.Minute {
		t.Errorf("the version is destroyed in %v", left)
	}
	if a := decrypt(); a.status != 409 {
		t.Errorf("with a version pending destruction: %d", a.status)
	}
	if a := w.send("POST", key+"/versions/1/enable", w.acme.token, ""); a.status != 409 || a.code() != "pending_deletion" {
		t.Errorf("enabling it: %d %s", a.status, a.body)
	}
	cancelled := w.must(200, "POST", key+"/versions/1/cancel-destruction", w.acme.token, "")
	if first(cancelled)["state"] != "DISABLED" || first(cancelled)["destroy_at"] != nil {
		t.Errorf("cancelled: %s", cancelled.body)
	}
	for body, status := range map[string]int{`{"days":6}`: 422, `{"days":31}`: 422, `{"days":-1}`: 422, `{"days":"7"}`: 400} {
		if a := w.sendBad("POST", key+"/versions/1/schedule-destruction", w.acme.token, body); a.status != status {
			t.Errorf("%s: %d, want %d", body, a.status, status)
		}
	}
	if a := w.send("POST", key+"/versions/2/schedule-destruction", w.acme.token, ""); a.status != 409 || a.code() != "conflict" {
		t.Errorf("destroying the primary version: %d %s", a.status, a.body)
	}
	if a := w.must(200, "POST", key+"/versions/1/schedule-destruction", w.acme.token, ""); first(a)["state"] != "PENDING_DESTRUCTION" {
		t.Errorf("without days: %s", a.body)
	}
}

// TestVersionHasOneSpelling names versions that do not exist, and version 1
// in ways that are not its number.
func TestVersionHasOneSpelling(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	w.outcomes()
	for _, version := range []string{"0", "2", "01", "1.0", "1e0", "x", "-1", "4294967297", strings.Repeat("1", 100)} {
		for _, verb := range []string{"enable", "disable", "schedule-destruction", "cancel-destruction"} {
			a := w.send("POST", key+"/versions/"+version+"/"+verb, w.acme.token, "")
			if a.status != 422 || a.code() != "invalid_argument" || !strings.Contains(a.text("detail"), "no such version") {
				t.Errorf("%s %s: %d %s", verb, version, a.status, a.body)
			}
		}
	}
	for _, e := range w.outcomes() {
		if e.Outcome == "ok" {
			t.Errorf("%s was done", e.Op)
		}
	}
}

func TestAliasStandsForItsKeyAndMoves(t *testing.T) {
	w := newWorld(t)
	w.aliasLife(t)
}

func (w *world) aliasLife(t *testing.T) {
	first, second := w.key(w.acme, kms.SpecAES256, "", "alias/first"), w.key(w.acme, kms.SpecAES256, "", "alias/second")
	const alias = "/v1/aliases/alias%2Fcurrent"
	set := w.must(200, "PUT", alias, w.acme.token, `{"key":"alias/first"}`)
	if set.text("alias") != "alias/current" || set.text("key_id") != first {
		t.Errorf("set: %s", set.body)
	}
	sealed := w.post("/v1/keys/alias%2Fcurrent/encrypt", map[string]any{"plaintext": "b2xk"}).text("ciphertext")
	if a := w.must(200, "GET", "/v1/keys/alias%2Fcurrent", w.acme.token, ""); a.text("id") != first || a.text("name") != "alias/first" {
		t.Errorf("by alias: %s", a.body)
	}
	// It moves, and what was encrypted under it stays with its key.
	if a := w.must(200, "PUT", alias, w.acme.token, `{"key":"`+second+`"}`); a.text("key_id") != second {
		t.Errorf("moved: %s", a.body)
	}
	if a := w.send("POST", "/v1/keys/alias%2Fcurrent/decrypt", w.acme.token, object(map[string]any{"ciphertext": sealed})); a.status != 400 {
		t.Errorf("the other key decrypts: %d", a.status)
	}
	w.post("/v1/keys/alias%2Ffirst/decrypt", map[string]any{"ciphertext": sealed})

	list := w.must(200, "GET", "/v1/aliases?page_size=1000", w.acme.token, "")
	found := 0
	for _, item := range list.fields["aliases"].([]any) {
		if a := item.(map[string]any); a["alias"] == "alias/current" && a["key_id"] == second {
			found++
		}
	}
	if found != 1 {
		t.Errorf("listed: %s", list.body)
	}
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"alias that is a key's name", "PUT", "/v1/aliases/alias%2Ffirst", `{"key":"alias/second"}`, 409},
		{"malformed alias", "PUT", "/v1/aliases/-x-", `{"key":"alias/second"}`, 422},
		{"alias like a UUID", "PUT", "/v1/aliases/11111111-1111-1111-1111-111111111111", `{"key":"alias/second"}`, 422},
		{"deleting a key's name", "DELETE", "/v1/aliases/alias%2Ffirst", "", 404},
		{"deleting by id", "DELETE", "/v1/aliases/" + first, "", 422},
	} {
		if a := w.send(c.method, c.path, w.acme.token, c.body); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		}
	}
	if a := w.send("POST", "/v1/keys", w.acme.token, `{"spec":"AES_256","name":"alias/current"}`); a.status != 409 {
		t.Errorf("a key with the alias's name: %d", a.status)
	}
	if a := w.must(200, "DELETE", alias, w.acme.token, ""); a.text("alias") != "alias/current" {
		t.Errorf("deleted: %s", a.body)
	}
}

// TestMovingAnAliasTakesBothKeys covers a credential that may manage one key
// and not the other.
func TestMovingAnAliasTakesBothKeys(t *testing.T) {
	w := newWorld(t)
	mine, other := w.key(w.acme, kms.SpecAES256, "", "mine/a"), w.key(w.acme, kms.SpecAES256, "", "other/a")
	limited := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"limited","scopes":["key:manage:mine/*"]}`).text("credential")
	w.must(200, "PUT", "/v1/aliases/taken", w.acme.token, `{"key":"`+other+`"}`)
	w.must(200, "PUT", "/v1/aliases/free", limited, `{"key":"`+mine+`"}`)
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"another key", "PUT", "/v1/aliases/free", `{"key":"` + other + `"}`, 403},
		{"from another key", "PUT", "/v1/aliases/taken", `{"key":"` + mine + `"}`, 409},
		{"another key's alias away", "DELETE", "/v1/aliases/taken", "", 403},
	} {
		if a := w.send(c.method, c.path, limited, c.body); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		}
	}
	if a := w.must(200, "GET", "/v1/keys/taken", w.acme.token, ""); a.text("id") != other {
		t.Errorf("the alias has moved: %s", a.body)
	}
}

func TestRotationIsInDaysAndAChangeOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.scheduledRotation(t)
}

func (w *world) scheduledRotation(t *testing.T) {
	made := w.must(201, "POST", "/v1/keys", w.acme.token, `{"spec":"AES_256","rotation_days":90}`)
	key := "/v1/keys/" + made.text("id")
	due := func(a *answer, days int) {
		t.Helper()
		next, err := time.Parse(time.RFC3339, a.text("next_rotation"))
		want := time.Duration(days) * 24 * time.Hour
		if left := time.Until(next); err != nil || left > want || left < want-time.Minute || a.fields["rotation_days"] != float64(days) {
			t.Errorf("rotation every %d days: %s", days, a.body)
		}
	}
	due(made, 90)
	if made.text("origin") != "GENERATED" {
		t.Errorf("origin: %s", made.body)
	}
	due(w.must(200, "PATCH", key, w.acme.token, `{"rotation_days":3650}`), 3650)
	due(w.must(200, "PATCH", key, w.acme.token, `{"description":"still"}`), 3650)
	if a := w.must(200, "PATCH", key, w.acme.token, `{"rotation_days":0}`); a.fields["rotation_days"] != nil || a.fields["next_rotation"] != nil {
		t.Errorf("ended: %s", a.body)
	}
	before := w.must(200, "GET", key, w.acme.token, "").fields["revision"]
	for _, body := range []string{`{"rotation_days":3651}`, `{"rotation_days":-1}`, `{"rotation_days":9223372036854775807}`,
		`{"rotation_days":90,"description":"both"}`, `{"rotation_days":90,"tags":{}}`, `{"rotation_days":90,"deletion_protection":true}`} {
		if a := w.sendBad("PATCH", key, w.acme.token, body); a.status != 422 || !strings.Contains(a.text("detail"), "rotation_days:") {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if after := w.must(200, "GET", key, w.acme.token, "").fields["revision"]; after != before {
		t.Errorf("a refused change moved the revision from %v to %v", before, after)
	}
	for _, days := range []int{-1, 3651} {
		if a := w.sendBad("POST", "/v1/keys", w.acme.token, `{"spec":"AES_256","rotation_days":`+strconv.Itoa(days)+`}`); a.status != 422 {
			t.Errorf("a key with rotation_days %d: %d", days, a.status)
		}
	}
}

func TestDescriptionTellsTheLastUse(t *testing.T) {
	w := newWorld(t)
	id := w.key(w.acme, kms.SpecAES256, "", "")
	if a := w.must(200, "GET", "/v1/keys/"+id, w.acme.token, ""); a.fields["last_used"] != nil || a.fields["last_used_op"] != nil {
		t.Errorf("never used: %s", a.body)
	}
	when := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, k := range w.keys {
		if err := w.TouchKeys(t.Context(), []kms.KeyUse{{Tenant: k.Tenant.ID, Key: k.ID, Time: when, Op: kms.OpDecrypt}}); err != nil {
			t.Fatal(err)
		}
	}
	if a := w.must(200, "GET", "/v1/keys/"+id, w.acme.token, ""); a.text("last_used") != "2026-03-04T05:06:07Z" || a.text("last_used_op") != "decrypt" {
		t.Errorf("used: %s", a.body)
	}
}
