package vaultclients

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	vault "github.com/hashicorp/vault/api"
	"github.com/hashicorp/vault/api/auth/approle"
)

// client is Vault's Go client, as it comes but for the wait between retries.
func (s *service) client(token string) *vault.Client {
	s.t.Helper()
	config := vault.DefaultConfig()
	config.Address, config.MaxRetries = s.URL, 0
	c, err := vault.NewClient(config)
	if err != nil {
		s.t.Fatal(err)
	}
	c.ClearNamespace()
	c.SetToken(token)
	return c
}

// login is a client that logged in by AppRole.
func (s *service) login(g gateway) *vault.Client {
	s.t.Helper()
	c := s.client("")
	method, err := approle.NewAppRoleAuth(g.role, &approle.SecretID{FromString: g.secret})
	if err != nil {
		s.t.Fatal(err)
	}
	secret, err := c.Auth().Login(context.Background(), method)
	if err != nil {
		s.t.Fatal(err)
	}
	if !secret.Auth.Renewable || secret.Auth.LeaseDuration < 3590 || secret.Auth.LeaseDuration > 3600 {
		s.t.Errorf("login: %+v", secret.Auth)
	}
	return c
}

// status is the status of an error's answer; 0 for none.
func status(err error) int {
	var r *vault.ResponseError
	if errors.As(err, &r) {
		return r.StatusCode
	}
	return 0
}

func TestVaultsGoClientReadsAsFromVault(t *testing.T) {
	s := start(t)
	openai := s.secret("llm/openai", "sk-first")
	s.secret("llm/team/anthropic", "sk-team")
	s.secret("top", "sk-top")
	gateway := s.gateway("secret:read:llm/*", "secret:list")
	ctx := t.Context()
	for name, c := range map[string]*vault.Client{"login": s.login(gateway), "credential": s.client(gateway.whole)} {
		t.Run(name, func(t *testing.T) {
			read, err := c.KVv2("secret").Get(ctx, "llm/openai")
			if err != nil || read.Data["key"] != "sk-first" || read.Data["value"] != "sk-first" || read.Data["api_key"] != "sk-first" || read.Data["apiKey"] != "sk-first" {
				t.Fatalf("read %+v, %v", read, err)
			}
			if m := read.VersionMetadata; m.Version != 1 || !m.DeletionTime.IsZero() || m.Destroyed || time.Since(m.CreatedTime) > time.Hour || read.CustomMetadata["region"] != "eu" {
				t.Errorf("metadata %+v, %v", m, read.CustomMetadata)
			}
			flat, err := c.KVv1("kv").Get(ctx, "llm/openai")
			if err != nil || flat.Data["key"] != "sk-first" {
				t.Errorf("version 1: %+v, %v", flat, err)
			}
			described, err := c.KVv2("secret").GetMetadata(ctx, "llm/openai")
			if err != nil || described.CurrentVersion != 1 || len(described.Versions) != 1 {
				t.Errorf("described %+v, %v", described, err)
			}
			for directory, want := range map[string]string{"": "llm/ top", "llm": "openai team/", "llm/": "openai team/", "llm/team/": "anthropic"} {
				list, err := c.Logical().List("secret/metadata/" + directory)
				if err != nil || list == nil {
					t.Fatalf("listing %q: %v", directory, err)
				}
				if got := strings.Trim(fmt.Sprint(list.Data["keys"]), "[]"); got != want {
					t.Errorf("%q holds %q, want %q", directory, got, want)
				}
			}
			self, err := c.Auth().Token().LookupSelf()
			if err != nil {
				t.Fatal(err)
			}
			if accessor, err := self.TokenAccessor(); err != nil || accessor != gateway.id {
				t.Errorf("accessor %q, %v", accessor, err)
			}
			// What the command line asks before `vault kv get`.
			mount, err := c.Logical().ReadRaw("sys/internal/ui/mounts/secret/llm/openai")
			if err != nil || mount.StatusCode != http.StatusOK {
				t.Errorf("preflight: %v", err)
			}
			if health, err := c.Sys().Health(); err != nil || health.Sealed || !health.Initialized {
				t.Errorf("health %+v, %v", health, err)
			}
			if seal, err := c.Sys().SealStatus(); err != nil || seal.Sealed {
				t.Errorf("seal status %+v, %v", seal, err)
			}
		})
	}
	t.Run("rotation", func(t *testing.T) {
		c := s.login(gateway)
		s.rotate(openai, "sk-second", 2)
		if read, err := c.KVv2("secret").Get(ctx, "llm/openai"); err != nil || read.Data["key"] != "sk-second" || read.VersionMetadata.Version != 2 {
			t.Errorf("after the rotation: %+v, %v", read, err)
		}
		if read, err := c.KVv2("secret").GetVersion(ctx, "llm/openai", 1); err != nil || read.Data != nil || read.VersionMetadata.DeletionTime.IsZero() {
			t.Errorf("the old version: %+v, %v", read, err)
		}
	})
	t.Run("disable", func(t *testing.T) {
		c := s.login(gateway)
		s.native("POST", openai+"/versions/2/disable", s.admin, map[string]any{})
		read, err := c.KVv2("secret").Get(ctx, "llm/openai")
		if err != nil || read.Data != nil || read.VersionMetadata.DeletionTime.IsZero() || read.VersionMetadata.Version != 2 {
			t.Errorf("a disabled secret: %+v, %v", read, err)
		}
	})
	t.Run("writes", func(t *testing.T) {
		if _, err := s.login(gateway).KVv2("secret").Put(ctx, "llm/new", map[string]any{"key": "x"}); status(err) != http.StatusMethodNotAllowed {
			t.Errorf("a write: %v", err)
		}
	})
}

func TestVaultsGoClientIsDeniedWhatIsNotItsOwn(t *testing.T) {
	s := start(t)
	s.secret("llm/openai", "sk")
	s.secret("other/openai", "sk")
	reader := s.gateway("secret:read:llm/*")
	s.tenant("rival")
	c := s.login(reader)
	ctx := t.Context()
	texts := map[string]bool{}
	for _, path := range []string{"other/openai", "other/nobody", "llm/nobody"} {
		_, err := c.KVv2("secret").Get(ctx, path)
		var r *vault.ResponseError
		if !errors.As(err, &r) || r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v", path, err)
			continue
		}
		texts[strings.Join(r.Errors, "")] = true
	}
	if got := slices.Collect(maps.Keys(texts)); len(got) != 1 {
		t.Errorf("denied and missing differ: %q", got)
	}
	if _, err := c.Logical().List("secret/metadata/llm"); status(err) != http.StatusForbidden {
		t.Errorf("listing without the right: %v", err)
	}
	for namespace, want := range map[string]int{"acme": 0, "acme/": 0, "rival": 403, "nobody": 403} {
		if _, err := c.WithNamespace(namespace).KVv2("secret").Get(ctx, "llm/openai"); status(err) != want || want == 0 && err != nil {
			t.Errorf("namespace %s: %v", namespace, err)
		}
	}
	if _, err := c.KVv2("elsewhere").Get(ctx, "llm/openai"); err == nil || status(err) == 200 {
		t.Errorf("another mount: %v", err)
	}
}

func TestVaultsGoClientKeepsAndEndsItsToken(t *testing.T) {
	s := start(t)
	s.secret("llm/openai", "sk")
	gateway := s.gateway("secret:read:llm/*")
	ctx := t.Context()
	c, other := s.login(gateway), s.login(gateway)
	renewed, err := c.Auth().Token().RenewSelf(7200)
	if err != nil || renewed.Auth.ClientToken != c.Token() || renewed.Auth.LeaseDuration > 3600 || len(renewed.Warnings) != 1 {
		t.Errorf("renewed %+v, %v", renewed, err)
	}
	if err := c.Auth().Token().RevokeSelf(""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.KVv2("secret").Get(ctx, "llm/openai"); status(err) != http.StatusForbidden {
		t.Errorf("with a token that was revoked: %v", err)
	}
	if _, err := other.KVv2("secret").Get(ctx, "llm/openai"); err != nil {
		t.Errorf("with another token: %v", err)
	}
	s.revoke(gateway)
	for name, c := range map[string]*vault.Client{"token": other, "credential": s.client(gateway.whole)} {
		if _, err := c.KVv2("secret").Get(ctx, "llm/openai"); status(err) != http.StatusForbidden {
			t.Errorf("%s after the credential was revoked: %v", name, err)
		}
	}
}

func TestVaultsGoClientTellsAnOutageFromAMissingSecret(t *testing.T) {
	s := start(t)
	s.secret("llm/openai", "sk")
	c := s.login(s.gateway("secret:*"))
	s.drain()
	_, err := c.KVv2("secret").Get(t.Context(), "llm/openai")
	if status(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "Vault is sealed") {
		t.Errorf("without an HSM: %v", err)
	}
	if health, err := c.Sys().Health(); err != nil || !health.Sealed {
		t.Errorf("health %+v, %v", health, err)
	}
}
