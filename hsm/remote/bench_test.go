package remote

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// BenchmarkProcess compares warm operations of a SoftHSM token in this process
// with the same in a process of its own. The two take turns in batches, so
// that other load on the machine meets both; "ratio" is the time in the other
// process over that in this one. With several sessions the times are those of
// the machine for one operation, not of the caller.
func BenchmarkProcess(b *testing.B) {
	d := shared(b)
	// One token, open in two processes: each sees its own session objects.
	s := d.settings(0)
	inside, err := openP11(&s, d.members[0].UserPIN)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { inside.Close() })
	apart := open(b, d.config(b, 0))
	for _, o := range []struct {
		name  string
		spec  kms.Spec
		usage kms.Usage
		call  hsm.Call
	}{
		{"AES-GCM-64B", kms.SpecAES256, kms.UsageEncryptDecrypt,
			hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Nonce: make([]byte, 12)}},
		{"ECDSA-P256", kms.SpecP256, kms.UsageSignVerify, hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgECDSASHA256}},
		{"RSA-2048", kms.SpecRSA2048, kms.UsageSignVerify, hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgRSAPKCS1SHA256}},
	} {
		g, err := inside.Generate(o.spec, o.usage)
		if err != nil {
			b.Fatal(err)
		}
		for _, sessions := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", o.name, sessions), func(b *testing.B) {
				call := o.call
				call.Spec, call.Input = o.spec, make([]byte, 64)
				var crews [2]*benchCrew
				for i, token := range []hsm.Token{inside, apart} {
					crews[i] = newBenchCrew(b, token, g.Material, o.usage, call, sessions)
				}
				var times [2]float64
				for b.Loop() {
					for i, crew := range crews {
						before := b.Elapsed()
						crew.batch(b)
						times[i] += float64(b.Elapsed() - before)
					}
				}
				operations := float64(b.N * sessions * benchBatch)
				b.ReportMetric(times[0]/operations, "ns/inside")
				b.ReportMetric(times[1]/operations, "ns/apart")
				b.ReportMetric(times[1]/times[0], "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// benchBatch is how many operations a session makes before it is the other
// side's turn.
const benchBatch = 32

// benchCrew is a number of sessions of one token.
type benchCrew struct {
	sessions []hsm.Session
	call     hsm.Call
}

func newBenchCrew(b *testing.B, token hsm.Token, material []byte, usage kms.Usage, call hsm.Call, n int) *benchCrew {
	b.Helper()
	handle, err := token.Load(material, call.Spec, usage)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := token.Unload(handle); err != nil {
			b.Error(err)
		}
	})
	c := &benchCrew{call: call}
	c.call.Handle = handle
	for range n {
		s, err := token.NewSession()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		c.sessions = append(c.sessions, s)
	}
	return c
}

// batch lets all sessions work at the same time.
func (c *benchCrew) batch(b *testing.B) {
	work := func(s hsm.Session) {
		for range benchBatch {
			call := c.call
			if err := s.Do(&call); err != nil {
				b.Error(err)
				return
			}
		}
	}
	if len(c.sessions) == 1 {
		work(c.sessions[0])
		return
	}
	var all sync.WaitGroup
	for _, s := range c.sessions {
		all.Go(func() { work(s) })
	}
	all.Wait()
}
