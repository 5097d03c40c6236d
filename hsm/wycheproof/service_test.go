package wycheproof

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// world is a service on one key and the engine, with nothing in its way: the
// ECDSA vectors go through it, since it is the service that reads signatures
// of both formats. What it does not use is nil.
type world struct {
	t   *testing.T
	key *kms.Key
	svc *kms.Service
	by  *kms.Principal
}

func newWorld(t *testing.T, spec kms.Spec) *world {
	t.Helper()
	scopes, err := kms.ParseScopes([]string{"key:*"})
	if err != nil {
		t.Fatal(err)
	}
	pepper, err := kms.NewPepper(map[uint32][]byte{1: make([]byte, kms.MACKeySize)})
	if err != nil {
		t.Fatal(err)
	}
	tenant := &kms.Tenant{ID: uuid.NewV7(), Name: "acme", State: kms.TenantActive}
	w := &world{t: t,
		key: &kms.Key{ID: uuid.NewV7(), Tenant: tenant, Project: "default", Name: "k", Spec: spec, Usage: kms.UsageSignVerify,
			Protection: kms.ProtectionHSM, State: kms.KeyEnabled, Primary: 1, Revision: 1,
			Versions: []*kms.Version{{ID: uuid.NewV7(), Number: 1, State: kms.VersionEnabled}}},
		by: &kms.Principal{Tenant: tenant, Project: "default", Credential: uuid.NewV7(), Scopes: scopes},
	}
	w.svc = kms.NewService(kms.Config{
		Keys: worldKeys{w: w}, Quota: w, Scheduler: worldScheduler{}, Device: worldDevice{w: w}, Journal: w, Observer: w, PolicyEngine: worldPolicy{},
		Pepper: pepper, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: time.Now,
	})
	return w
}

// verify asks the service.
func (w *world) verify(publicKey, message, signature []byte, format kms.SignatureFormat) (bool, error) {
	w.key.Versions[0].PublicKey = publicKey
	ticket := &kms.Ticket{RequestID: uuid.NewV7(), Urgency: kms.UrgencyNormal, Received: time.Now(), By: w.by}
	out, err := w.svc.Verify(context.Background(), ticket, "k", kms.VerifyInput{
		SignInput: kms.SignInput{Message: message, Format: format}, Signature: signature})
	if err != nil {
		return false, err
	}
	return out.Valid, nil
}

type worldKeys struct {
	kms.Keys
	w *world
}

func (k worldKeys) Lookup(context.Context, uuid.UUID, string) (*kms.Key, error) { return k.w.key, nil }

func (w *world) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	return kms.Reservation{RequestID: r.RequestID, Tenant: r.Principal.Tenant.ID}, nil
}
func (w *world) Settle(kms.Reservation, kms.Settlement) {}
func (w *world) Leave(kms.Reservation)                  {}
func (w *world) Book(_ *kms.Tenant, _ []*kms.Entry, record func() []error) []error {
	return record()
}
func (w *world) Penalise(*kms.Tenant, uuid.UUID)          {}
func (w *world) Record(context.Context, *kms.Entry) error { return nil }
func (w *world) RecordAll(_ context.Context, entries []*kms.Entry) []error {
	return make([]error, len(entries))
}
func (w *world) Request(*kms.Ticket, error)           {}
func (w *world) JobSubmitted(*kms.Ticket, kms.JobMix) {}

type worldPolicy struct{ kms.PolicyEngine }

func (worldPolicy) PolicyVersion() uint64 { return 0 }

type worldScheduler struct{}

func (worldScheduler) Do(_ context.Context, f kms.Flow, work func(kms.NodeID)) (kms.Turn, error) {
	work(f.Nodes[0])
	return kms.Turn{}, nil
}

type worldDevice struct {
	kms.Device
	w *world
}

func (worldDevice) Nodes(*kms.Work) ([]kms.NodeID, error) { return []kms.NodeID{hsm.EngineID}, nil }

func (d worldDevice) Do(_ context.Context, _ kms.NodeID, work *kms.Work) error {
	call := hsm.Call{Verb: work.Verb, Algorithm: work.Algorithm, Spec: work.Key.Spec, PublicKey: work.Version.PublicKey,
		Input: work.Input, Prehashed: work.Prehashed, Signature: work.Signature}
	err := engine(d.w.t).session.Do(&call)
	work.Valid = call.Valid
	return err
}

func TestECDSA(t *testing.T) {
	for _, f := range []struct {
		file   string
		spec   kms.Spec
		format kms.SignatureFormat
		run    int
	}{
		{"ecdsa_secp256r1_sha256", kms.SpecP256, kms.FormatDER, 484},
		{"ecdsa_secp384r1_sha384", kms.SpecP384, kms.FormatDER, 504},
		{"ecdsa_secp521r1_sha512", kms.SpecP521, kms.FormatDER, 542},
		{"ecdsa_secp256k1_sha256", kms.SpecSecp256k1, kms.FormatDER, 476},
		{"ecdsa_secp256r1_sha256_p1363", kms.SpecP256, kms.FormatRaw, 262},
		{"ecdsa_secp384r1_sha384_p1363", kms.SpecP384, kms.FormatRaw, 280},
		{"ecdsa_secp521r1_sha512_p1363", kms.SpecP521, kms.FormatRaw, 318},
		{"ecdsa_secp256k1_sha256_p1363", kms.SpecSecp256k1, kms.FormatRaw, 252},
	} {
		t.Run(f.file, func(t *testing.T) {
			w := newWorld(t, f.spec)
			vectors := read[signatureGroup](t, f.file)
			c := count(t, f.file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					c.run++
					message := append([]byte{}, v.Msg...) // nil would be no message
					valid, err := w.verify(g.PublicKey, message, append([]byte{}, v.Sig...), f.format)
					if err != nil || v.valid() && !valid || v.invalid() && valid {
						c.wrong(&v.vector, "valid: %t, %v", valid, err)
					}
				}
			}
			c.want(vectors.Count, f.run)
		})
	}
}
