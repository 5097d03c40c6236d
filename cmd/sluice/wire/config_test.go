package wire

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const goodConfig = `
node: api-1
data_dir: /var/lib/sluice
trusted_proxies: [10.0.0.0/8]
hsm:
  domains:
    - file: /etc/sluice/domain.json
      tokens:
        - {id: hsm-1, module: /opt/lib.so, serial: "01", pin_file: /etc/pin, slots: 16}
        - {id: hsm-2, module: /opt/lib.so, label: two, pin_file: /etc/pin}
`

func load(t *testing.T, text string, environ ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path, func() []string { return environ })
}

func TestConfigurationHasItsDefaults(t *testing.T) {
	c, err := load(t, goodConfig)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != DefaultListen || c.OpsListen != DefaultOpsListen || c.Database.Driver != "sqlite" ||
		c.Database.Path != "/var/lib/sluice/sluice.db" || c.Journal.Dir != "/var/lib/sluice/journal" {
		t.Errorf("configuration %+v", c)
	}
	if !c.TwoOperators || c.Deletion != (DeletionConfig{DefaultRootRotation, DefaultBackupRetention}) {
		t.Errorf("two operators: %v, deletion %+v", c.TwoOperators, c.Deletion)
	}
	if c.Audit != (AuditConfig{DefaultKeepEntries, DefaultKeepMinutes, DefaultKeepHours, DefaultKeepDays}) {
		t.Errorf("audit %+v", c.Audit)
	}
	tokens := c.HSM.Domains[0].Tokens
	if tokens[0].Slots != 16 || tokens[1].Slots != DefaultSlots {
		t.Errorf("slots %d and %d", tokens[0].Slots, tokens[1].Slots)
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	c, err := load(t, goodConfig, "SLUICE_DATABASE__PATH=/elsewhere/db", "SLUICE_NODE=api-2", "SLUICE_CREDENTIAL=slk_x",
		"SLUICE_REQUIRE=softhsm", "HOME=/root")
	if err != nil {
		t.Fatal(err)
	}
	if c.Database.Path != "/elsewhere/db" || c.Node != "api-2" {
		t.Errorf("path %s, node %s", c.Database.Path, c.Node)
	}
}

func TestOneOperatorIsEnoughWhenTheConfigurationSaysSo(t *testing.T) {
	c, err := load(t, goodConfig+"two_operators: false\ndeletion: {root_rotation: 2160h, backup_retention: 24h}\n")
	if err != nil || c.TwoOperators || c.Deletion != (DeletionConfig{2160 * time.Hour, 24 * time.Hour}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// Each mistake alone is refused, and the refusal names its place.
func TestMistakeInTheConfigurationIsRefusedByName(t *testing.T) {
	cases := []struct{ name, from, to, says string }{
		{"unknown setting", "node: api-1", "nod: api-1", "nod"},
		{"unknown nested setting", "slots: 16", "slot: 16", "slot"},
		{"copies that die at once", "node: api-1", "node: api-1\ndeletion: {backup_retention: 1s}", "deletion.backup_retention"},
		{"copies that live for ever", "node: api-1", "node: api-1\ndeletion: {root_rotation: 900000h}", "deletion.root_rotation"},
		{"unknown setting of deletion", "node: api-1", "node: api-1\ndeletion: {retention: 1h}", "retention"},
		{"a trail that is gone at once", "node: api-1", "node: api-1\naudit: {keep_entries: 1m}", "audit.keep_entries"},
		{"bills that are gone at once", "node: api-1", "node: api-1\naudit: {keep_days: 1s}", "audit.keep_days"},
		{"no data folder", "data_dir: /var/lib/sluice", "", "data_dir"},
		{"no domains", goodConfig[strings.Index(goodConfig, "hsm:"):], "", "hsm.domains"},
		{"relative module", "module: /opt/lib.so, serial", "module: lib.so, serial", "module"},
		{"two tokens of one id", "id: hsm-2", "id: hsm-1", "id"},
		{"the engine's id", "id: hsm-2", "id: cpu", "id"},
		{"neither label nor serial", `serial: "01", `, "", "label or serial"},
		{"no PIN", "label: two, pin_file: /etc/pin", "label: two", "pin_file"},
		{"two PINs", "label: two, pin_file: /etc/pin", "label: two, pin_file: /etc/pin, pin_env: HSM_PIN", "pin_env"},
		{"a PIN that would be a setting", "label: two, pin_file: /etc/pin", "label: two, pin_env: SLUICE_PIN", "pin_env"},
		{"a role that is none", "label: two, pin_file: /etc/pin", "label: two, pin_file: /etc/pin, role: idle", "role"},
		{"too few loads", "label: two, pin_file: /etc/pin", "label: two, pin_file: /etc/pin, max_loads: 10", "max_loads"},
		{"no slots", "slots: 16", "slots: -1", "slots"},
		{"an unknown profile", "slots: 16", "slots: 16, profile: nobody", "tokens[0].profile"},
		{"not a network", "10.0.0.0/8", "ten", "trusted_proxies"},
		{"plaintext beyond loopback", "node: api-1", "node: api-1\nlisten: 0.0.0.0:8440", "listen"},
		{"operations beyond loopback", "node: api-1", "node: api-1\nops_listen: 0.0.0.0:8441", "ops_listen"},
		{"half of TLS", "node: api-1", "node: api-1\ntls: {cert_file: /c}", "tls"},
		{"another database", "node: api-1", "node: api-1\ndatabase: {driver: oracle}", "database.driver"},
		{"another chain", "node: api-1", "node: api-1\njournal: {chain: md5}", "journal.chain"},
		{"relative anchor", "node: api-1", "node: api-1\njournal: {anchor_file: heads}", "journal.anchor_file"},
		{"a change that is grouped", "node: api-1", "node: api-1\njournal: {grouped: [verify, rotate]}", "journal.grouped"},
		{"grouped twice", "node: api-1", "node: api-1\njournal: {grouped: [verify, verify]}", "journal.grouped"},
		{"mail in clear", "node: api-1", "node: api-1\nmail: {server: \"mail.example.com:25\", security: none, from: a@example.com, recipient_domains: [example.com]}", "mail.security"},
		{"mail to everybody", "node: api-1", "node: api-1\nmail: {server: \"mail.example.com:587\", from: a@example.com}", "mail.recipient_domains"},
		{"mail to a pattern", "node: api-1", "node: api-1\nmail: {server: \"mail.example.com:587\", from: a@example.com, recipient_domains: [\"*\"]}", "mail.recipient_domains"},
		{"mail without a server", "node: api-1", "node: api-1\nmail: {from: a@example.com}", "mail.server"},
		{"mail from nobody", "node: api-1", "node: api-1\nmail: {server: \"mail.example.com:587\", recipient_domains: [example.com]}", "mail.from"},
		{"few connections", "node: api-1", "node: api-1\nmax_connections: 1", "max_connections"},
		{"tiny body", "node: api-1", "node: api-1\nmax_body_bytes: 1", "max_body_bytes"},
		{"not YAML", "node: api-1", "node: [", "configuration"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(goodConfig, c.from, c.to, 1)
			if text == goodConfig {
				t.Fatal("the mistake was not made")
			}
			if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want one that names %s", err, c.says)
			}
		})
	}
	if _, err := load(t, goodConfig, "SLUICE_NO__SUCH=1"); err == nil {
		t.Error("an unknown setting in the environment is accepted")
	}
}
