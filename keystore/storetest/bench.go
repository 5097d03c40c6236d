package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// touched numbers the keys of the benchmark of last uses, which runs more than
// once on a database.
var touched atomic.Int64

// Benchmark measures look-ups, warm and cold, and creates. open is as for Run.
func Benchmark(b *testing.B, open func(b *testing.B) keystore.Driver) {
	e := newEnv(b, open(b))
	ctx := b.Context()
	tenant := e.tenant(b, "bench")
	k, c := e.key(b, tenant, "bench/key"), e.credential(b, tenant.ID, "bench")
	id := k.ID.String()

	warm := func(name string, call func() error) {
		b.Run(name, func(b *testing.B) {
			if err := call(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
	warm("WarmLookupByID", func() error { _, err := e.Lookup(ctx, tenant.ID, id); return err })
	warm("WarmLookupByName", func() error { _, err := e.Lookup(ctx, tenant.ID, "bench/key"); return err })
	warm("WarmTenant", func() error { _, err := e.Tenant(ctx, tenant.ID); return err })
	warm("WarmCredentialForAuthentication", func() error { _, err := e.CredentialForAuthentication(ctx, c.ID); return err })
	warm("AbsentName", func() error {
		if _, err := e.Lookup(ctx, tenant.ID, "no-such-key"); err != kms.ErrNotFound {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})

	b.Run("OldRows", func(b *testing.B) {
		const changed = 1000
		for i := range changed {
			k := e.key(b, tenant, fmt.Sprintf("bench/changed-%d", i))
			state := kms.KeyDisabled
			if _, err := e.UpdateKey(ctx, tenant.ID, k.ID, 1, kms.KeyChange{State: &state}); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			if old, err := e.OldRows(ctx); err != nil || len(old) != 0 {
				b.Fatal(old, err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/changed, "µs/object")
	})
	b.Run("ColdLookupByID", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Invalidate(keystore.ObjectKey, tenant.ID, k.ID)
			if _, err := e.Lookup(ctx, tenant.ID, id); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ColdCredential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Invalidate(keystore.ObjectCredential, tenant.ID, c.ID)
			if _, err := e.CredentialForAuthentication(ctx, c.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("LeaseNonces", func(b *testing.B) {
		for b.Loop() {
			if _, err := e.LeaseNonces(ctx, tenant.ID, k.ID, 1, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("TouchHundredKeys", func(b *testing.B) {
		uses := make([]kms.KeyUse, 100)
		for i := range uses {
			uses[i] = kms.KeyUse{Tenant: tenant.ID, Key: e.key(b, tenant, fmt.Sprint("touched-", touched.Add(1))).ID, Op: kms.OpSign}
		}
		for at := start; b.Loop(); at = at.Add(time.Second) {
			for i := range uses {
				uses[i].Time = at
			}
			if err := e.TouchKeys(ctx, uses); err != nil {
				b.Fatal(err)
			}
		}
	})
	var sequence atomic.Int64
	b.Run("CreateKey", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := e.CreateKey(ctx, sampleKey(tenant, fmt.Sprint("created-", sequence.Add(1)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("UpdateKey", func(b *testing.B) {
		revision := uint64(1)
		for b.Loop() {
			if _, err := e.UpdateKey(ctx, tenant.ID, k.ID, revision, kms.KeyChange{}); err != nil {
				b.Fatal(err)
			}
			revision++
		}
	})
}
