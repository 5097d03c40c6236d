package api_test

import (
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// TestWholeService runs what needs no injected fault on the real parts:
// SoftHSM tokens, SQLite, scheduler, quota and journal.
func TestWholeService(t *testing.T) {
	wiretest.Require(t)
	service := wiretest.StartQuiet(t, t.TempDir())
	w := &world{t: t, operator: service.Operator, incidents: service.App.Store}
	w.attach(service.URL, service.Client(), service.Handler)
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"foreign and missing objects look the same", w.foreignAndMissing},
		{"bad input costs no HSM call", w.badInput},
		{"every operation takes empty and large inputs", w.everyInput},
		{"every failure of a decryption is the same", w.decryptionFailures},
		{"rotated key encrypts anew and decrypts the old", w.rotation},
		{"key lives its life", w.life},
		{"version lives its life", w.versionLife},
		{"alias stands for its key and moves", w.aliasLife},
		{"rotation is in days and a change of its own", w.scheduledRotation},
		{"reencrypt moves a plaintext between keys", w.reencryption},
		{"unwrap gives back what was wrapped", w.wrapping},
		{"shared secret is the same on both sides", w.agreement},
		{"derived bytes depend on key version, context and nothing else", w.derivation},
		{"decapsulation recovers the secret", w.encapsulation},
		{"keys named in a body are one as foreign and missing", w.namedInBodies},
		{"certification request is one of the key", w.certificationRequests},
		{"dry run prices what is charged then", w.dryRuns},
		{"replay shows the object as it is now", w.replays},
		{"secret lives its life", w.secretLife},
		{"only who may list tells denied from missing", w.grantsHold},
		{"changes reach watches", w.watches},
		{"public key has one value in four forms", w.publicKeys},
	} {
		t.Run(c.name, c.test)
	}
}

// TestTwoOperatorsOnAWholeService runs what takes two operators on the real
// store, whose transactions are what lets an approval be used once.
func TestTwoOperatorsOnAWholeService(t *testing.T) {
	service := wiretest.StartTwoOperators(t, t.TempDir())
	w := &world{t: t, operator: service.Operator, incidents: service.App.Store}
	w.attach(service.URL, service.Client(), service.Handler)
	second := w.secondOperator()
	t.Run("tenant is deleted by two operators", func(t *testing.T) { w.deletion(t, second) })
	t.Run("an approval is used once", func(t *testing.T) { w.approvedOnce(t, second) })
}
