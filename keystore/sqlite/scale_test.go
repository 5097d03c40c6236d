package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

// The size of the benchmark: ten keys for each tenant.
const (
	scaleTenants = 10_000
	scaleKeys    = 100_000
)

type scaleKey struct {
	tenant uuid.UUID
	id     string
	name   string
}

// BenchmarkScale measures what must not depend on how much is stored: the
// start, and a warm look-up, for one key and for all of them.
func BenchmarkScale(b *testing.B) {
	path := filepath.Join(b.TempDir(), "scale.db")
	db := openTest(b, path)
	keys := populate(b, db)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()

	b.Run("StartToFirstLookup", func(b *testing.B) {
		for b.Loop() {
			db, err := Open(ctx, path)
			if err != nil {
				b.Fatal(err)
			}
			store := keystore.New(db, keystore.Options{})
			if err := storetest.Bootstrap(ctx, store, nil); err != nil {
				b.Fatal(err)
			}
			if _, err := store.Lookup(ctx, keys[0].tenant, keys[0].name); err != nil {
				b.Fatal(err)
			}
			if err := store.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})

	db, err := Open(ctx, path)
	if err != nil {
		b.Fatal(err)
	}
	store := keystore.New(db, keystore.Options{})
	defer store.Close()
	if err := storetest.Bootstrap(ctx, store, nil); err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.Run("ColdLookup", func(b *testing.B) {
		// Reads every key once, so that the next ones are warm.
		for i := 0; b.Loop(); i++ {
			k := keys[i%len(keys)]
			if _, err := store.Lookup(ctx, k.tenant, k.name); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, k := range keys {
		if _, err := store.Lookup(ctx, k.tenant, k.name); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perKey := float64(after.HeapAlloc-before.HeapAlloc) / scaleKeys // with its name and a tenth of a tenant

	warm := func(name string, lookup func(k *scaleKey) error, among int) {
		b.Run(fmt.Sprintf("%s/%dKeys", name, among), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := lookup(&keys[rand.IntN(among)]); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(perKey, "heap-B/key")
		})
	}
	for _, among := range []int{1, 1000, scaleKeys} {
		warm("WarmByID", func(k *scaleKey) error { _, err := store.Lookup(ctx, k.tenant, k.id); return err }, among)
		warm("WarmByName", func(k *scaleKey) error { _, err := store.Lookup(ctx, k.tenant, k.name); return err }, among)
	}
}

// populate stores tenants and keys in one transaction and returns the keys in
// a random order.
func populate(b *testing.B, db *DB) []scaleKey {
	keys := make([]scaleKey, 0, scaleKeys)
	err := db.write(b.Context(), func(tx transaction) error {
		for i := range scaleTenants {
			more, err := populateTenant(b.Context(), tx, i)
			if err != nil {
				return err
			}
			keys = append(keys, more...)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	adoptAll(b, db)
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// adoptAll gives the rows their codes, as if they were from before there were
// any.
func adoptAll(b *testing.B, db *DB) {
	if _, err := db.writer.Exec(`UPDATE row_authentication SET adopt = 1`); err != nil {
		b.Fatal(err)
	}
	store := keystore.New(noClose{db}, keystore.Options{})
	begin := time.Now()
	if err := storetest.Bootstrap(b.Context(), store, nil); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d keys got their codes in %s", scaleKeys, time.Since(begin).Round(time.Millisecond))
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// noClose is a database that outlives its store.
type noClose struct{ *DB }

func (noClose) Close() error { return nil }

func populateTenant(ctx context.Context, tx transaction, number int) ([]scaleKey, error) {
	t := uuid.NewV7()
	_, err := tx.exec(ctx, insertTenant, t[:], fmt.Sprint("tenant-", number), "silver", "ACTIVE", false,
		t[:], t[:], 1, make([]byte, 40), 1, 1, nil, nil)
	if err != nil {
		return nil, err
	}
	if err := execInsertProject(ctx, tx, &keystore.ProjectRecord{Tenant: t, Name: "default"}); err != nil {
		return nil, err
	}
	var keys []scaleKey
	for i := range scaleKeys / scaleTenants {
		id, name := uuid.NewV7(), fmt.Sprint("orders/key-", i)
		k := keystore.KeyRecord{Tenant: t, ID: id}
		_, err := tx.exec(ctx, insertKey, t[:], id[:], "default", name, "AES_256", "ENCRYPT_DECRYPT", "HSM", "ENABLED",
			"", "{}", 1, nil, false, "GENERATED", 0, nil, nil, 1, 1, 1, nil, nil)
		if err != nil {
			return nil, err
		}
		if _, err := tx.exec(ctx, insertKeyName, t[:], name, "NAME", id[:], nil, nil); err != nil {
			return nil, err
		}
		v := keystore.VersionRecord{ID: id, Number: 1, State: "ENABLED", Blob: make([]byte, 150)}
		if err := execInsertVersion(ctx, tx, &k, &v); err != nil {
			return nil, err
		}
		keys = append(keys, scaleKey{t, id.String(), name})
	}
	return keys, nil
}
