package wire

import (
	"net/netip"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/abuse"
	"github.com/sluice-kms/sluice/kms"
)

// TestAStolenCredentialThatSubmitsAJobIsSeen has a credential that encrypts, from
// one place, submit a job from another one: to be seen are the items, not the one
// call.
func TestAStolenCredentialThatSubmitsAJobIsSeen(t *testing.T) {
	by := &kms.Principal{Tenant: &kms.Tenant{ID: uuid.NewV7()}, Credential: uuid.NewV7()}
	for name, c := range map[string]struct {
		mix  map[kms.Op]int64
		want bool
	}{
		"nothing":                 {nil, false},
		"decrypts everything":     {map[kms.Op]int64{kms.OpDecrypt: 1_000_000}, true},
		"decrypts a part":         {map[kms.Op]int64{kms.OpDecrypt: 900, kms.OpVerify: 100}, true},
		"and as many as in batch": {map[kms.Op]int64{kms.OpDecrypt: kms.MaxBatch}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := abuse.NewDetector(abuse.MaxCredentials)
			w := newWatched(d, abuse.Hasher{Seed: 1})
			at := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
			call := func(op kms.Op, from, agent string) *kms.Ticket {
				return &kms.Ticket{By: by, Op: op, Received: at, Address: netip.MustParseAddr(from), UserAgent: agent, Bytes: 64}
			}
			w.note(call(kms.OpEncrypt, "192.0.2.1", "shop/1.0"), nil)
			if err := d.Merge(by.Credential, nil); err != nil { // nothing is stored of it
				t.Fatal(err)
			}
			for end := at.Add(5 * 24 * time.Hour); at.Before(end); at = at.Add(30 * time.Second) {
				for range 5 {
					w.note(call(kms.OpEncrypt, "192.0.2.1", "shop/1.0"), nil)
				}
				if flags := d.Look(at); len(flags) > 0 {
					t.Fatalf("what is usual is flagged at %v: %+v", at, flags)
				}
			}
			thief := call(kms.OpCreateJob, "198.51.100.9", "curl/8.0")
			w.note(thief, nil)
			if c.mix != nil {
				w.job(thief, kms.JobMix{Items: c.mix, Bytes: 1 << 20})
			}
			seen := false
			for range 4 {
				at = at.Add(30 * time.Second)
				seen = len(d.Look(at)) > 0 || seen
			}
			if seen != c.want {
				t.Errorf("it is seen: %v, want %v", seen, c.want)
			}
		})
	}
}
