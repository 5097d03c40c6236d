package p11

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
)

// nssModules are the places where distributions install NSS softokn.
var nssModules = []string{
	"/usr/lib/x86_64-linux-gnu/libsoftokn3.so",
	"/usr/lib/aarch64-linux-gnu/libsoftokn3.so",
	"/usr/lib64/libsoftokn3.so",
}

// nssSlot is that of the "NSS Certificate DB", the one with a login.
const nssSlot = 2

// nssToken makes an NSS token in a folder of its own.
func nssToken(t *testing.T) CeremonyToken {
	t.Helper()
	i := slices.IndexFunc(nssModules, func(path string) bool { _, err := os.Stat(path); return err == nil })
	if i < 0 {
		required.Part(t, "nss", errors.New("NSS softokn is not installed"))
	}
	token := CeremonyToken{
		Module:     nssModules[i],
		InitArgs:   "configdir='sql:" + t.TempDir() + "' certPrefix='' keyPrefix='' secmod='secmod.db' flags= ",
		TokenLabel: "NSS Certificate DB",
		UserPIN:    func() ([]byte, error) { return []byte("a test's PIN"), nil },
	}
	mod, err := openModule(token.Module, nil, token.InitArgs)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mod.ctx.OpenSession(nssSlot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err == nil {
		err = mod.ctx.Login(s, pkcs11.CKU_SO, "")
	}
	if err == nil {
		err = mod.ctx.InitPIN(s, "a test's PIN")
	}
	if err = errors.Join(err, mod.ctx.CloseAllSessions(nssSlot), mod.release()); err != nil {
		t.Fatal(err)
	}
	return token
}

// NSS beside SoftHSM in one domain: each uses what the other made, as far as
// NSS unwraps it: not EC keys, for which it demands an attribute of its own
// (CKA_NSS_DB). It has a mechanism of another number for RFC 5649, and takes
// unwrap templates without obeying them, which Enforces must tell.
func TestNSSConforms(t *testing.T) {
	tokens := provision(t, "backup-a", "backup-b", "member")
	cfg := (&testDomain{backups: tokens[:2], members: tokens[2:]}).config("mixed")
	nss := nssToken(t)
	cfg.Members = append(cfg.Members, nss)
	domain, err := Ceremony(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	open := func(cfg Config) func(t *testing.T) hsm.Token {
		return func(t *testing.T) hsm.Token {
			t.Helper()
			token, err := Open(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	specs := []kms.Spec{kms.SpecAES128, kms.SpecAES192, kms.SpecAES256, kms.SpecRSA2048,
		kms.SpecHMAC224, kms.SpecHMAC256, kms.SpecHMAC384, kms.SpecHMAC512}
	hsmtest.RunToken(t,
		open(Config{Module: nss.Module, InitArgs: nss.InitArgs, TokenLabel: nss.TokenLabel, PIN: nss.UserPIN, Domain: *domain}),
		hsmtest.Options{
			Specs:       specs,
			Imports:     specs,
			SealingKeys: true,
			Enforces:    false,
			Peer:        open(config(tokens[2], domain)),
		})
}
