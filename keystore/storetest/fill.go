package storetest

import (
	"context"
	"fmt"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// KeysPerTenant is how many keys FillTenants gives each tenant.
	KeysPerTenant = 10

	fillBlob  = 150  // bytes of a sealed AES-256 version
	fillBatch = 1000 // tenants that are loaded together
)

// FilledKey is a key that FillTenants made.
type FilledKey struct {
	Tenant uuid.UUID
	Name   string
}

// gatherer takes what a store writes, so that rows come with the store's codes.
type gatherer struct {
	keystore.Driver
	tenants []keystore.InsertTenantParams
	keys    []keystore.InsertKeyParams
}

// InsertTenant implements keystore.TenantDriver.
func (g *gatherer) InsertTenant(ctx context.Context, p keystore.InsertTenantParams) error {
	if p.Tenant.Code.MAC == nil {
		return g.Driver.InsertTenant(ctx, p) // the system tenant, before there is a key
	}
	g.tenants = append(g.tenants, p)
	return nil
}

// InsertKey implements keystore.KeyDriver.
func (g *gatherer) InsertKey(_ context.Context, p keystore.InsertKeyParams) error {
	g.keys = append(g.keys, p)
	return nil
}

// FillTenants makes tenants with KeysPerTenant AES-256 keys each, as the store writes
// them, and has load store their rows by the thousand. Their material is
// zeroes: they can be found but not used. It closes the driver; rows is as for
// Bootstrap.
func FillTenants(ctx context.Context, driver keystore.Driver, rows kms.RowAuthenticator, tenants int,
	load func(context.Context, []keystore.InsertTenantParams, []keystore.InsertKeyParams) error) (keys []FilledKey, err error) {
	g := &gatherer{Driver: driver}
	store := keystore.New(g, keystore.Options{})
	defer func() {
		if closed := store.Close(); err == nil {
			err = closed
		}
	}()
	if err := Bootstrap(ctx, store, rows); err != nil {
		return nil, err
	}
	for i := range tenants {
		t := sampleTenant(fmt.Sprint("tenant-", i))
		if err := store.CreateTenant(ctx, t); err != nil {
			return nil, err
		}
		for j := range KeysPerTenant {
			k := sampleKey(t, fmt.Sprint("orders/key-", j))
			k.Versions[0].Blob = make([]byte, fillBlob)
			if err := store.CreateKey(ctx, k); err != nil {
				return nil, err
			}
			keys = append(keys, FilledKey{t.ID, k.Name})
		}
		if (i+1)%fillBatch == 0 || i+1 == tenants {
			if err := load(ctx, g.tenants, g.keys); err != nil {
				return nil, err
			}
			g.tenants, g.keys = g.tenants[:0], g.keys[:0]
		}
	}
	return keys, nil
}
