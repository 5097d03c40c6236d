package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

// BenchmarkScale reads 100,000 keys into the cache: more only take longer.
func BenchmarkScale(b *testing.B) {
	pgtest.Require(b)
	storetest.Scale(b, func(b *testing.B) storetest.ScaleDatabase {
		urls := newDatabase(b)
		return storetest.ScaleDatabase{
			Open: func(ctx context.Context) (keystore.Driver, error) { return openAt(ctx, urls.Service) },
			Load: func(ctx context.Context, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
				return load(ctx, urls.Admin, tenants, keys)
			},
		}
	}, 100_000)
}

// load copies rows past policies and triggers: no other process is there to be
// told of them.
func load(ctx context.Context, admin string, tenants []keystore.InsertTenantParams, keys []keystore.InsertKeyParams) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = sluice; SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, table := range []struct {
			name    string
			columns []string
			rows    int
			row     func(i int) []any
		}{
			{"tenants", []string{"id", "name", "tier", "state", "allow_sealed", "sealing_id", "sealing_domain", "sealing_generation",
				"sealing_wrapped", "created", "revision", "mac", "mac_version"}, len(tenants), func(i int) []any {
				t := &tenants[i].Tenant
				return []any{id(t.ID), t.Name, t.Tier, t.State, t.AllowSealed, id(t.SealingID), id(t.SealingDomain), t.SealingGeneration,
					t.SealingWrapped, moment(t.Created), t.Revision, t.Code.MAC, codeVersion(t.Code)}
			}},
			{"projects", []string{"tenant", "name", "created", "mac", "mac_version"}, len(tenants), func(i int) []any {
				p := &tenants[i].Project
				return []any{id(p.Tenant), p.Name, moment(p.Created), p.Code.MAC, codeVersion(p.Code)}
			}},
			{"keys", []string{"tenant", "id", "project", "name", "spec", "usage", "protection", "state", "description", "tags", "created",
				"deletion_protection", "origin", "rotation_period", "primary_version", "highest_version", "revision", "mac",
				"mac_version"}, len(keys), func(i int) []any {
				k := &keys[i].Key
				return []any{id(k.Tenant), id(k.ID), k.Project, k.Name, k.Spec, k.Usage, k.Protection, k.State, k.Description, k.Tags,
					moment(k.Created), k.DeletionProtection, k.Origin, k.RotationPeriod, k.PrimaryVersion, k.HighestVersion, k.Revision,
					k.Code.MAC, codeVersion(k.Code)}
			}},
			{"key_versions", []string{"tenant", "key_id", "id", "number", "state", "created", "blob", "nonces", "mac", "mac_version",
				"nonces_mac", "nonces_mac_version"}, len(keys), func(i int) []any {
				k, v := &keys[i].Key, &keys[i].Version
				return []any{id(k.Tenant), id(k.ID), id(v.ID), v.Number, v.State, moment(v.Created), v.Blob, 0, v.Code.MAC,
					codeVersion(v.Code), v.NoncesCode.MAC, codeVersion(v.NoncesCode)}
			}},
			{"key_names", []string{"tenant", "name", "kind", "key_id", "mac", "mac_version"}, len(keys), func(i int) []any {
				n := &keys[i].Name
				return []any{id(n.Tenant), n.Name, n.Kind, id(n.Key), n.Code.MAC, codeVersion(n.Code)}
			}},
		} {
			source := pgx.CopyFromSlice(table.rows, func(i int) ([]any, error) { return table.row(i), nil })
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{table.name}, table.columns, source); err != nil {
				return err
			}
		}
		return nil
	})
}
