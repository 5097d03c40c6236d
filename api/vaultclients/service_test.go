package vaultclients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// service is a running service with a tenant of the name acme.
type service struct {
	*wiretest.Service
	t     *testing.T
	admin string // acme's, who may do everything in it
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{Service: wiretest.Start(t, t.TempDir()), t: t}
	s.admin = s.tenant("acme")
	return s
}

// tenant makes a tenant and returns its administrator's credential.
func (s *service) tenant(name string) string {
	s.t.Helper()
	s.native("POST", "/v1/tenants", s.Operator, map[string]any{"name": name, "tier": "platinum"})
	made := s.native("POST", "/v1/tenants/"+name+"/credentials", s.Operator,
		map[string]any{"name": "admin", "scopes": []string{"secret:*", "secret:destroy", "tenant:admin"}})
	return made["credential"].(string)
}

// native calls the native interface, which must succeed.
func (s *service) native(method, path, token string, body any) map[string]any {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequest(method, s.URL+path, bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s %v", method, path, response.StatusCode, answer, err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(answer, &fields); err != nil {
		s.t.Fatal(err)
	}
	return fields
}

// secret makes a secret of acme and returns its native path.
func (s *service) secret(path, value string) string {
	s.t.Helper()
	made := s.native("POST", "/v1/secrets", s.admin, map[string]any{"path": path, "provider": "openai", "value": value, "metadata": map[string]string{"region": "eu"}})
	return "/v1/secrets/" + made["id"].(string)
}

// rotate makes a value the one in use, the version of the number.
func (s *service) rotate(secret, value string, number int) {
	s.t.Helper()
	s.native("POST", secret+"/versions", s.admin, map[string]any{"value": value})
	s.native("POST", secret+"/activate", s.admin, map[string]any{"version": number})
}

// gateway is a credential of acme: its id, its text, and the two parts of that by
// which a client logs in.
type gateway struct{ id, whole, role, secret string }

func (s *service) gateway(scopes ...string) gateway {
	s.t.Helper()
	made := s.native("POST", "/v1/credentials", s.admin, map[string]any{"name": "gateway", "scopes": scopes})
	whole := made["credential"].(string)
	parts := strings.Split(whole, "_")
	return gateway{made["id"].(string), whole, parts[1], parts[2]}
}

func (s *service) revoke(g gateway) {
	s.t.Helper()
	s.native("POST", "/v1/credentials/"+g.id+"/revoke", s.admin, map[string]any{})
}

// drain takes all HSMs out of service.
func (s *service) drain() {
	s.t.Helper()
	for _, node := range []string{"node-1", "node-2"} {
		s.native("POST", "/v1/hsm/nodes/"+node+"/mode", s.Operator, map[string]any{"mode": "drained", "force": true})
	}
}
