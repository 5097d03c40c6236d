package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

// BenchmarkScale reads 750,000 keys into the cache: as many as it holds of them.
func BenchmarkScale(b *testing.B) {
	storetest.Scale(b, func(b *testing.B) storetest.ScaleDatabase {
		path := filepath.Join(b.TempDir(), "scale.db")
		loader := openTest(b, path)
		return storetest.ScaleDatabase{
			Open: func(ctx context.Context) (keystore.Driver, error) { return Open(ctx, path) },
			Load: func(ctx context.Context, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
				return loader.write(ctx, func(tx transaction) error { return load(ctx, tx, tenants, keys) })
			},
		}
	}, 750_000)
}

func load(ctx context.Context, tx transaction, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
	for i := range tenants {
		if err := execInsertTenant(ctx, tx, &tenants[i]); err != nil {
			return err
		}
	}
	for i := range keys {
		if err := execInsertKey(ctx, tx, &keys[i]); err != nil {
			return err
		}
	}
	return nil
}
