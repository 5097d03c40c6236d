package wire_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// vendorSite is a domain of two tokens that hold SM keys, and their backups.
type vendorSite struct {
	dir     string
	entries []string // of the ceremony file: the members', then the backups'
	modules []*fault.Module
}

func newVendorSite(t *testing.T) *vendorSite {
	t.Helper()
	wiretest.Require(t)
	library, err := fault.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v := &vendorSite{dir: t.TempDir()}
	for _, id := range []string{"node-1", "node-2", "backup-1", "backup-2"} {
		dir := filepath.Join(v.dir, id)
		token, err := softhsm.Provision(dir, id)
		if err != nil {
			t.Fatal(err)
		}
		module, err := library.Front(dir, token.Module)
		if err != nil {
			t.Fatal(err)
		}
		module.OfferSM()
		v.modules = append(v.modules, module)
		v.entries = append(v.entries, fmt.Sprintf("{id: %s, module: %s, serial: %q, pin_file: %s/user.pin, so_pin_file: %s/so.pin, env: {SOFTHSM2_CONF: %s}}",
			id, module.Path(), token.Serial, dir, dir, token.Env["SOFTHSM2_CONF"]))
	}
	// The last of all, when the service is closed.
	t.Cleanup(func() {
		for _, m := range v.modules {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return v
}

// withProfile names the fault module's profile in a token's entry.
func withProfile(entry string) string {
	return strings.Replace(entry, "{id:", "{profile: fault-module, id:", 1)
}

// members are the entries of the serving tokens.
func (v *vendorSite) members(profile bool) []string {
	entries := slices.Clone(v.entries[:2])
	for i := range entries {
		if profile {
			entries[i] = withProfile(entries[i])
		}
	}
	return entries
}

// ceremony runs `sluice hsm init`, or join.
func (v *vendorSite) ceremony(t *testing.T, profile, join bool) {
	t.Helper()
	text := "name: vendor\nfile: " + v.dir + "/domain.json\nmembers:\n  - " + strings.Join(v.members(profile), "\n  - ") +
		"\nbackups:\n  - " + strings.Join(v.entries[2:], "\n  - ") + "\n"
	put(t, v.dir, "ceremony.yaml", []byte(text))
	path, confirm := filepath.Join(v.dir, "ceremony.yaml"), func(string, string) error { return nil }
	var err error
	if join {
		err = wire.JoinDomain(context.Background(), path, confirm, func(string) {})
	} else {
		_, err = wire.InitDomain(context.Background(), path, confirm, func(string) {})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// open starts the service; stop ends it.
func (v *vendorSite) open(t *testing.T, profile bool) (s *wiretest.Service, stop func()) {
	t.Helper()
	put(t, v.dir, "sluice.yaml", fmt.Appendf(nil, "data_dir: %s\nnode: api-1\ntwo_operators: false\nhsm:\n  domains:\n    - file: %s/domain.json\n      tokens:\n        - %s\n",
		v.dir, v.dir, strings.Join(v.members(profile), "\n        - ")))
	config, err := wire.LoadConfig(filepath.Join(v.dir, "sluice.yaml"), func() []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	app, err := wire.Open(context.Background(), config, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	server, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	file := filepath.Join(v.dir, "operator")
	if err := app.OperatorCredential(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	s = &wiretest.Service{App: app, URL: web.URL, Operator: strings.TrimSpace(string(read(t, v.dir, "operator")))}
	return s, func() {
		web.Close()
		if err := app.Close(); err != nil {
			t.Errorf("closing the service: %v", err)
		}
	}
}

// asTenant makes a tenant and lets s speak for it.
func asTenant(t *testing.T, s *wiretest.Service) {
	t.Helper()
	s.Demo = s.Operator
	must(t, s, "/v1/tenants", object{"name": "orders", "allow_sealed": true, "tier": "platinum"})
	s.Demo = must(t, s, "/v1/tenants/orders/credentials", object{"name": "app", "scopes": []string{"key:*", "key:manage", "key:destroy"}}).Credential
}

// onEach uses keys while one node after the other is away, so that each serves
// alone: what one has made the other uses. Among the keys must be some that are
// at home on either node, or nobody notices that it is away.
func (v *vendorSite) onEach(t *testing.T, s *wiretest.Service, use func(t *testing.T)) {
	t.Helper()
	for i, m := range v.modules[:2] {
		t.Run(fmt.Sprintf("without node-%d", i+1), func(t *testing.T) {
			epoch := s.App.Device.Status()[i].Epoch
			m.Die(pkcs11.CKR_DEVICE_REMOVED)
			use(t)
			m.Revive()
			within(t, recovery, "the return of the node", func() bool {
				status := s.App.Device.Status()[i]
				return status.State == "up" && status.Epoch > epoch
			})
		})
	}
}

// SM keys of a pool whose tokens have a profile are HSM keys: made on one
// token and used on another, right by OpenSSL's word, and there after a
// restart.
func TestSMKeysLiveInTokensWithAProfile(t *testing.T) {
	v := newVendorSite(t)
	v.ceremony(t, true, false)
	s, stop := v.open(t, true)
	asTenant(t, s)
	for key, spec := range map[string]string{"contracts": "SM2", "sealed-letters": "SM2", "records": "SM4", "tokens": "HMAC_SM3"} {
		body := object{"name": key, "spec": spec}
		if key == "sealed-letters" {
			body["usage"] = "ENCRYPT_DECRYPT"
		}
		if got := must(t, s, "/v1/keys", body).Protection; got != string(kms.ProtectionHSM) {
			t.Errorf("%s: protection %s", spec, got)
		}
	}
	for i := range keysEach {
		must(t, s, "/v1/keys", object{"name": fmt.Sprintf("contracts-%d", i), "spec": "SM2"})
	}
	dir := t.TempDir()
	message := []byte("judged from outside")
	put(t, dir, "msg", message)
	public(t, s, dir, "sealed-letters")
	judge(t, dir, "pkeyutl", "-encrypt", "-pubin", "-inkey", "pub.pem", "-in", "msg", "-out", "letter")
	record := must(t, s, "/v1/keys/records/encrypt", object{"plaintext": message}).Ciphertext
	mac := must(t, s, "/v1/keys/tokens/mac", object{"message": message}).MAC

	use := func(t *testing.T) {
		public(t, s, dir, "contracts")
		for _, id := range []string{kms.DefaultUserID, "alice@example.com"} {
			put(t, dir, "sig", must(t, s, "/v1/keys/contracts/sign", object{"message": message, "user_id": id}).Signature)
			judge(t, dir, "pkeyutl", "-verify", "-pubin", "-inkey", "pub.pem", "-rawin", "-in", "msg", "-sigfile", "sig",
				"-digest", "sm3", "-pkeyopt", "distid:"+id)
		}
		for i := range keysEach {
			must(t, s, fmt.Sprintf("/v1/keys/contracts-%d/sign", i), object{"message": message})
		}
		letter := object{"ciphertext": read(t, dir, "letter"), "order": "ASN1"}
		if got := must(t, s, "/v1/keys/sealed-letters/decrypt", letter).Plaintext; !bytes.Equal(got, message) {
			t.Errorf("OpenSSL's ciphertext decrypts to %q", got)
		}
		if got := must(t, s, "/v1/keys/records/decrypt", object{"ciphertext": record}).Plaintext; !bytes.Equal(got, message) {
			t.Errorf("the record decrypts to %q", got)
		}
		if got := must(t, s, "/v1/keys/tokens/mac", object{"message": message}).MAC; !bytes.Equal(got, mac) {
			t.Errorf("the MAC is %s, was %s", hex.EncodeToString(got), hex.EncodeToString(mac))
		}
	}
	use(t)
	before := [2]uint64{v.modules[0].Calls(fault.Sign), v.modules[1].Calls(fault.Sign)}
	v.onEach(t, s, use)
	for i, m := range v.modules[:2] {
		if m.Calls(fault.Sign) == before[i] {
			t.Errorf("node-%d signed nothing", i+1)
		}
	}
	demo := s.Demo
	stop()

	s, stop = v.open(t, true)
	defer stop()
	s.Demo = demo
	use(t)
}

// A domain made without a profile seals its SM keys; a join with one makes HSM
// keys of the next ones and leaves those that there are.
func TestAJoinWithAProfileMakesSMKeysHSMKeys(t *testing.T) {
	v := newVendorSite(t)
	v.ceremony(t, false, false)
	s, stop := v.open(t, true) // named, and nothing to test the tokens with
	asTenant(t, s)
	if got := must(t, s, "/v1/keys", object{"name": "old", "spec": "SM2"}).Protection; got != string(kms.ProtectionSealed) {
		t.Errorf("protection %s before the join", got)
	}
	demo := s.Demo
	stop()
	v.ceremony(t, true, true)

	s, stop = v.open(t, true)
	defer stop()
	s.Demo = demo
	if got := must(t, s, "/v1/keys", object{"name": "new", "spec": "SM2"}).Protection; got != string(kms.ProtectionHSM) {
		t.Errorf("protection %s after it", got)
	}
	for _, key := range []string{"old", "new"} {
		signature := must(t, s, "/v1/keys/"+key+"/sign", object{"message": []byte("m")}).Signature
		if !must(t, s, "/v1/keys/"+key+"/verify", object{"message": []byte("m"), "signature": signature}).Valid {
			t.Errorf("%s: the signature is not valid", key)
		}
	}
}
