package wire_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// secretStates are what a version's state is told as, for endings.
var secretStates = map[string]int{
	"ACTIVE": http.StatusOK, "STAGED": http.StatusAccepted, "RETIRED": http.StatusConflict, "DISABLED": http.StatusLocked, "DESTROYED": http.StatusGone,
}

// stateOf tells the state of a version of a secret.
func stateOf(credential, id string, number float64) func(*testing.T, *wiretest.Service) int {
	return func(t *testing.T, s *wiretest.Service) int {
		t.Helper()
		status, _, answer := raw(t, s, credential, http.MethodGet, "/v1/secrets/"+id, "")
		if status != http.StatusOK {
			return status
		}
		for _, listed := range answer["versions"].([]any) {
			if v := listed.(map[string]any); v["version"] == number {
				return secretStates[v["state"].(string)]
			}
		}
		return 0
	}
}

// secretEndings are those of provider secrets.
func (v *village) secretEndings(t *testing.T) []ending {
	t.Helper()
	destroyer := v.make(t, v.Operator, "/v1/tenants/crowd/credentials", object{"name": "destroyer", "scopes": []string{"secret:destroy"}}).Credential
	do := func(method, path, body string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			credential := v.crowd
			if method == http.MethodDelete || strings.HasSuffix(path, "/destroy") {
				credential = destroyer
			}
			if status, _, a := raw(t, v.Service, credential, method, path, body); status/100 != 2 {
				t.Fatalf("%s %s: %d %v", method, path, status, a)
			}
		}
	}
	post := func(path string) func(*testing.T) { return do(http.MethodPost, "/v1/secrets/"+path, "{}") }
	// secret makes one whose second version took the first one's place if asked for.
	secret := func(path string, second, used bool) string {
		id := v.secret(t, v.crowd, path)
		if second {
			do(http.MethodPost, "/v1/secrets/"+id+"/versions", `{"value":"sk-2"}`)(t)
		}
		if used {
			do(http.MethodPost, "/v1/secrets/"+id+"/activate", `{"version":2}`)(t)
		}
		return id
	}
	both := func(steps ...func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			for _, step := range steps {
				step(t)
			}
		}
	}
	off, deleted, back := secret("llm/off", false, false), secret("llm/deleted", false, false), secret("llm/back", false, false)
	replaced, rolled, again := secret("llm/replaced", true, false), secret("llm/rolled", true, true), secret("llm/again", false, false)
	destroyed, dated := secret("llm/destroyed", true, true), secret("llm/dated", true, true)

	const inUse, staged, retired, disabled, gone = http.StatusOK, http.StatusAccepted, http.StatusConflict, http.StatusLocked, http.StatusGone
	return []ending{
		{"disabled secret", post(off + "/versions/1/disable"), fetches(v.crowd, "llm/off"), inUse, []int{http.StatusInternalServerError}},
		{"deleted secret", do(http.MethodDelete, "/v1/secrets/"+deleted, ""), fetches(v.crowd, "llm/deleted"), inUse, []int{http.StatusInternalServerError}},
		{"secret whose deletion was taken back", both(do(http.MethodDelete, "/v1/secrets/"+back, ""), post(back+"/versions/1/restore")),
			stateOf(v.crowd, back, 1), inUse, []int{staged}},
		{"secret that was put into use again", both(post(again+"/versions/1/disable"), post(again+"/versions/1/restore"),
			do(http.MethodPost, "/v1/secrets/"+again+"/activate", `{"version":1}`)), fetches(v.crowd, "llm/again"), inUse, []int{inUse}},
		{"version that was replaced", do(http.MethodPost, "/v1/secrets/"+replaced+"/activate", `{"version":2}`), stateOf(v.crowd, replaced, 1), inUse, []int{retired}},
		{"version that was rolled back", post(rolled + "/rollback"), stateOf(v.crowd, rolled, 2), inUse, []int{retired}},
		{"version of a secret that awaits destruction", post(dated + "/versions/1/destroy"), stateOf(v.crowd, dated, 1), retired, []int{disabled}},
		{"destroyed version of a secret", func(t *testing.T) {
			t.Helper()
			store, id := v.App.Store, uuid.MustParse(destroyed)
			was, err := store.Secret(t.Context(), v.crowdID, id)
			if err != nil {
				t.Fatal(err)
			}
			next := was.Clone()
			next.Version(1).DestroyAt = time.Now().Add(-time.Minute)
			if err := store.UpdateSecret(t.Context(), was, next, kms.SecretChanged); err != nil {
				t.Fatal(err)
			}
			keeper := v.App.Service.StartSecretKeeper()
			defer keeper.Close()
			within(t, 30*time.Second, "its destruction", func() bool { return stateOf(v.crowd, destroyed, 1)(t, v.Service) == gone })
		}, stateOf(v.crowd, destroyed, 1), retired, []int{gone}},
	}
}

// accessEndings are those of what tenants and credentials may do.
func (v *village) accessEndings(t *testing.T) []ending {
	t.Helper()
	mint := func(scopes ...string) answer {
		return v.make(t, v.crowd, "/v1/credentials", object{"name": "access", "scopes": scopes})
	}
	_, member := v.tenant(t, "suspended")
	rotated, flagged, cleared, reader := mint("key:*"), mint("key:*"), mint("key:*"), mint("key:*")
	granted := v.secret(t, v.crowd, "llm/granted")
	grants := func(ids ...string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			body := `{"credentials":["` + strings.Join(ids, `","`) + `"]}`
			if len(ids) == 0 {
				body = `{"credentials":[]}`
			}
			if status, _, a := raw(t, v.Service, v.crowd, http.MethodPut, "/v1/secrets/"+granted+"/grants", body); status != http.StatusOK {
				t.Fatalf("%d %v", status, a)
			}
		}
	}
	grants(reader.ID)(t)
	flag := func(t *testing.T, id string) {
		t.Helper()
		if err := v.App.Service.FlagCredential(t.Context(), v.crowdID, uuid.MustParse(id), readings, true); err != nil {
			t.Fatal(err)
		}
	}
	// isFlagged is 423 while a flag of a credential is open.
	isFlagged := func(id string) func(*testing.T, *wiretest.Service) int {
		return func(t *testing.T, s *wiretest.Service) int {
			t.Helper()
			status, _, a := raw(t, s, v.crowd, http.MethodGet, "/v1/credentials/"+id, "")
			if guard, _ := a["guard"].(map[string]any); guard["open"] == true {
				return http.StatusLocked
			}
			return status
		}
	}
	const ok = http.StatusOK
	return []ending{
		{"suspended tenant", func(t *testing.T) { v.make(t, v.Operator, "/v1/tenants/suspended/suspend", object{}) },
			asks(member, "GET", "/v1/keys", nil), ok, []int{http.StatusForbidden}},
		{"value that was rotated away", func(t *testing.T) {
			v.make(t, v.crowd, "/v1/credentials/"+rotated.ID+"/rotate", object{"overlap_hours": 0})
		}, asks(rotated.Credential, "GET", "/v1/keys", nil), ok, []int{http.StatusUnauthorized}},
		{"flagged credential", func(t *testing.T) { flag(t, flagged.ID) }, isFlagged(flagged.ID), ok, []int{http.StatusLocked}},
		{"credential that was flagged and cleared", func(t *testing.T) {
			flag(t, cleared.ID)
			v.make(t, v.crowd, "/v1/credentials/"+cleared.ID+"/clear", object{})
		}, isFlagged(cleared.ID), ok, []int{ok}},
		{"grant that was taken", grants(), fetches(reader.Credential, "llm/granted"), ok, []int{http.StatusForbidden, http.StatusInternalServerError}},
	}
}
