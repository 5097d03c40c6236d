package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// secretModel is a secret and what a fetch may give.
type secretModel struct {
	path    string
	fetches []string // any of which is right
}

// liveSecret takes a secret through its life.
func (a actor) liveSecret(t *testing.T, name string) {
	path := "crash/" + name
	made := a.do(t, "/v1/secrets", map[string]any{"path": path, "provider": "openai", "value": name + "-1"})
	s := &secretModel{path: path, fetches: []string{"ok 1:100=" + name + "-1"}}
	a.set(func() { a.model.secrets = append(a.model.secrets, s) })
	one := "/v1/secrets/" + made["id"].(string)
	to := func(verb string, body any, fetch string) {
		a.set(func() { s.fetches = append(s.fetches, fetch) })
		a.do(t, one+verb, body)
		a.set(func() { s.fetches = []string{fetch} })
	}
	first, second := "ok 1:100="+name+"-1", "ok 2:100="+name+"-2"
	to("/versions", map[string]any{"value": name + "-2"}, first)
	to("/activate", map[string]any{"version": 2, "steps": []int{10, 100}, "step_interval": 3600}, "ok 1:90="+name+"-1 2:10="+name+"-2")
	to("/rollback", map[string]any{}, first)
	to("/activate", map[string]any{"version": 2}, second)
	to("/versions/1/disable", map[string]any{}, second)
	to("/versions/1/destroy", map[string]any{"days": 7}, second)
	to("/versions/1/restore", map[string]any{}, second)
	if len(name)%2 == 0 {
		to("/versions/2/disable", map[string]any{}, "disabled")
	}
}

func (m *crashModel) checkSecret(t *testing.T, p *devProcess, credential string, round int, s *secretModel) {
	t.Helper()
	status, answer := p.post(credential, "/v1/secret-values/fetch", map[string]any{"items": []any{map[string]any{"path": s.path}}})
	if status != http.StatusOK {
		t.Fatalf("round %d: secret %s: %d %v", round, s.path, status, answer)
	}
	m.note(answer)
	item := answer["items"].([]any)[0].(map[string]any)
	got := item["status"].(string)
	versions, _ := item["versions"].([]any)
	for _, v := range versions {
		v := v.(map[string]any)
		got += fmt.Sprintf(" %v:%v=%v", v["version"], v["weight"], v["value"])
	}
	if !slices.Contains(s.fetches, got) {
		t.Fatalf("round %d: secret %s gives %q; right were %q", round, s.path, got, s.fetches)
	}
	s.fetches = []string{got}
	if item["revision"] == nil || answer["revision"].(float64) < item["revision"].(float64) {
		t.Fatalf("round %d: secret %s has the revision %v, the tenant %v", round, s.path, item["revision"], answer["revision"])
	}
}
