package wire_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/softhsm"
)

// The drill: a backup of a running service is restored on a "new machine",
// whose new tokens join the domain from a backup token; old credentials, keys
// and ciphertexts work there.
func TestBackupBringsAServiceBackOnNewTokens(t *testing.T) {
	wiretest.Require(t)
	old := t.TempDir()
	s, err := wiretest.Open(old)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("kept")
	for _, spec := range []string{"AES_256", "SM4"} {
		must(t, s, "/v1/keys", object{"name": spec, "spec": spec})
	}
	must(t, s, "/v1/keys", object{"name": "signer", "spec": "ECC_NIST_P256"})
	ciphertexts := map[string][]byte{}
	for _, spec := range []string{"AES_256", "SM4"} {
		ciphertexts[spec] = must(t, s, "/v1/keys/"+spec+"/encrypt", object{"plaintext": message}).Ciphertext
	}
	signature := must(t, s, "/v1/keys/signer/sign", object{"message": message}).Signature

	machine := t.TempDir()
	archive := filepath.Join(machine, "backup.tar")
	manifest, err := wire.Backup(context.Background(), s.Config, archive)
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Records == 0 || len(manifest.Files) < 3 {
		t.Errorf("manifest %+v", manifest)
	}
	if _, err := wire.Backup(context.Background(), s.Config, archive); err == nil {
		t.Error("a backup was overwritten")
	}
	token := s.Demo
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(machine, "data")
	if _, err := wire.Restore(archive, data, wire.Later{}); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Restore(archive, data, wire.Later{}); err == nil {
		t.Error("a folder in use was overwritten")
	}
	config := joinNewTokens(t, machine, data, old)
	app, err := wire.Open(context.Background(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	api, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	defer server.Close()
	restored := &wiretest.Service{URL: server.URL, Demo: token}
	for spec, ciphertext := range ciphertexts {
		if got := must(t, restored, "/v1/keys/"+spec+"/decrypt", object{"ciphertext": ciphertext}).Plaintext; !bytes.Equal(got, message) {
			t.Errorf("%s: decrypted %q", spec, got)
		}
	}
	if !must(t, restored, "/v1/keys/signer/verify", object{"message": message, "signature": signature}).Valid {
		t.Error("the old signature is not valid")
	}
	must(t, restored, "/v1/keys/signer/sign", object{"message": message})
}

// joinNewTokens makes two tokens and gives them the domain's roots from the
// old machine's backup tokens, as `sluice hsm join` does.
func joinNewTokens(t *testing.T, machine, data, old string) *wire.Config {
	t.Helper()
	domain := filepath.Join(data, "domain-0.json")
	ceremony := fmt.Sprintf("name: dev\nfile: %s\nmembers:\n", domain)
	config := "node: dev\ndata_dir: " + data + "\nhsm:\n  domains:\n    - file: " + domain + "\n      tokens:\n"
	entry := func(dir string, token *softhsm.Token, id string) string {
		return fmt.Sprintf("{id: %s, module: %s, serial: %q, pin_file: %s, so_pin_file: %s, env: {SOFTHSM2_CONF: %s}}\n", id,
			token.Module, token.Serial, filepath.Join(dir, "user.pin"), filepath.Join(dir, "so.pin"), token.Env["SOFTHSM2_CONF"])
	}
	for i := 1; i <= 2; i++ {
		id := fmt.Sprintf("new-%d", i)
		dir := filepath.Join(machine, id)
		token, err := softhsm.Provision(dir, id)
		if err != nil {
			t.Fatal(err)
		}
		ceremony += "  - " + entry(dir, token, id)
		config += "        - " + entry(dir, token, id)
	}
	ceremony += "backups:\n"
	for i := 1; i <= 2; i++ {
		dir := filepath.Join(old, "backup-tokens", fmt.Sprintf("backup-%d", i))
		token, err := softhsm.Provision(dir, fmt.Sprintf("sluice-dev-backup-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		ceremony += "  - " + entry(dir, token, fmt.Sprintf("backup-%d", i))
	}
	ceremonyFile, configFile := filepath.Join(machine, "join.yaml"), filepath.Join(machine, "sluice.yaml")
	put(t, machine, "join.yaml", []byte(ceremony))
	put(t, machine, "sluice.yaml", []byte(config))
	asked := 0
	confirm := func(string, string) error { asked++; return nil }
	if err := wire.JoinDomain(context.Background(), ceremonyFile, confirm, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if asked == 0 {
		t.Error("roots were moved without a confirmation")
	}
	c, err := wire.LoadConfig(configFile, func() []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever is wrong with a backup, nothing is restored from it.
func TestDamagedBackupRestoresNothing(t *testing.T) {
	s := service(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "backup.tar")
	if _, err := wire.Backup(context.Background(), s.Config, archive); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"cut":       func(b []byte) []byte { return b[:len(b)/2] },
		"flipped":   func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
		"not a tar": func([]byte) []byte { return []byte("hello") },
		"another manifest": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1)
		},
	}
	for name, damage := range damages {
		path := filepath.Join(dir, "damaged.tar")
		if err := os.WriteFile(path, damage(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out")
		if _, err := wire.Restore(path, out, wire.Later{}); err == nil {
			t.Errorf("%s: restored", name)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: something was left behind", name)
		}
	}
}
