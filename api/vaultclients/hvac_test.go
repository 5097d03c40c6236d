package vaultclients

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/sluice-kms/sluice/required"
)

// python is Debian's, which has Debian's packages.
const python = "/usr/bin/python3"

// hvacScript does what users of hvac do, and ends with an exception when
// something is not as it is with Vault.
const hvacScript = `
import sys, hvac
from hvac.exceptions import Forbidden, InvalidPath, VaultDown

url, role, secret, whole = sys.argv[1:5]

def raises(kind, call, *args, **named):
    try:
        call(*args, **named)
    except kind:
        return
    raise AssertionError("no " + kind.__name__)

for how in "login", "credential":
    c = hvac.Client(url=url, namespace="acme" if how == "login" else None)
    assert not c.is_authenticated()
    if how == "login":
        answer = c.auth.approle.login(role_id=role, secret_id=secret)
        assert answer["auth"]["token_type"] == "service", answer
        assert 3590 <= answer["auth"]["lease_duration"] <= 3600, answer
    else:
        c.token = whole
    assert c.is_authenticated()
    kv = c.secrets.kv.v2
    read = kv.read_secret_version(path="llm/openai")
    assert read["data"]["data"]["key"] == "sk-second", read
    assert read["data"]["metadata"]["version"] == 2, read
    assert read["data"]["metadata"]["custom_metadata"] == {"region": "eu"}, read
    assert kv.list_secrets(path="llm")["data"]["keys"] == ["openai", "team/"]
    assert kv.list_secrets(path="")["data"]["keys"] == ["llm/", "off"]
    assert kv.read_secret_metadata(path="llm/openai")["data"]["current_version"] == 2
    assert c.secrets.kv.v1.read_secret(path="llm/openai", mount_point="kv")["data"]["key"] == "sk-second"
    raises(InvalidPath, kv.read_secret_version, path="llm/nobody")
    raises(InvalidPath, kv.read_secret_version, path="off")
    assert c.sys.read_health_status(method="GET")["sealed"] is False
    assert c.sys.read_health_status(method="HEAD").status_code == 200
    assert c.sys.is_sealed() is False

c = hvac.Client(url=url, namespace="rival")
raises(Forbidden, c.auth.approle.login, role_id=role, secret_id=secret)
c = hvac.Client(url=url)
raises(Forbidden, c.auth.approle.login, role_id=role, secret_id="a" * 52)
c.auth.approle.login(role_id=role, secret_id=secret)
assert c.auth.token.renew_self(increment="2h")["auth"]["lease_duration"] <= 3600
c.auth.token.revoke_self()
assert not c.is_authenticated()
raises(Forbidden, c.secrets.kv.v2.read_secret_version, path="llm/openai")
print("all is as with Vault")
`

// hvac says why the client is not there.
func hvac() error {
	if out, err := exec.Command(python, "-c", "import hvac").CombinedOutput(); err != nil {
		return errors.Join(errors.New(string(out)), err)
	}
	return nil
}

func TestHvacReadsAsFromVault(t *testing.T) {
	required.Part(t, "hvac", hvac())
	s := start(t)
	openai := s.secret("llm/openai", "sk-first")
	s.secret("llm/team/anthropic", "sk-team")
	off := s.secret("off", "sk-off")
	s.rotate(openai, "sk-second", 2)
	s.native("POST", off+"/versions/1/disable", s.admin, map[string]any{})
	g := s.gateway("secret:*")
	out, err := exec.CommandContext(t.Context(), python, "-c", hvacScript, s.URL, g.role, g.secret, g.whole).CombinedOutput()
	if err != nil || string(out) != "all is as with Vault\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
