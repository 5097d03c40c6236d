package kms

import (
	"context"
	"crypto/rand"
	"time"
)

// pepperName is the name under which the credential pepper is stored and
// sealed.
const pepperName = "credential-pepper"

// BootstrapConfig is what Bootstrap needs.
type BootstrapConfig struct {
	Tenants Tenants
	Secrets SystemSecrets
	Device  Device
	Clock   func() time.Time
}

// Bootstrap makes what must exist before the first request, if it does not
// exist yet: the system tenant and the credential pepper, sealed by the
// system tenant's key. It returns the pepper. Running it again, or on two
// nodes at once, changes nothing.
func Bootstrap(ctx context.Context, c BootstrapConfig) (*Tenant, *Pepper, error) {
	system, err := c.Tenants.TenantByRef(ctx, SystemTenantName)
	if KindOf(err) == KindNotFound && err != nil {
		system, err = createSystemTenant(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	pepper, err := loadPepper(ctx, c, system)
	return system, pepper, err
}

func createSystemTenant(ctx context.Context, c BootstrapConfig) (*Tenant, error) {
	id := newID()
	sealing, err := c.Device.NewSealingKey(ctx, id)
	if err != nil {
		return nil, err
	}
	t := &Tenant{ID: id, Name: SystemTenantName, Tier: TierPlatinum, State: TenantActive,
		Sealing: sealing, Created: c.Clock(), Revision: 1}
	err = c.Tenants.CreateTenant(ctx, t)
	if err == nil || KindOf(err) == KindConflict {
		// Another node may have been first; its tenant is the one.
		return c.Tenants.TenantByRef(ctx, SystemTenantName)
	}
	return nil, err
}

func loadPepper(ctx context.Context, c BootstrapConfig, system *Tenant) (*Pepper, error) {
	stored, err := c.Secrets.SystemSecrets(ctx, pepperName)
	if err == nil && len(stored) == 0 {
		if err = createPepper(ctx, c, system); err == nil {
			stored, err = c.Secrets.SystemSecrets(ctx, pepperName)
		}
	}
	if err != nil {
		return nil, err
	}
	versions := make(map[uint32][]byte, len(stored))
	for _, s := range stored {
		secret, err := c.Device.Unseal(ctx, system.Sealing, pepperName, s.Version, s.Blob)
		if err != nil {
			return nil, err
		}
		defer clear(secret)
		versions[s.Version] = secret
	}
	return NewPepper(versions)
}

func createPepper(ctx context.Context, c BootstrapConfig, system *Tenant) error {
	secret := make([]byte, PepperSize)
	rand.Read(secret)
	defer clear(secret)
	blob, err := c.Device.Seal(ctx, system.Sealing, pepperName, 1, secret)
	if err != nil {
		return err
	}
	err = c.Secrets.PutSystemSecret(ctx, SystemSecret{Name: pepperName, Version: 1, Blob: blob, Created: c.Clock()})
	if KindOf(err) == KindConflict {
		return nil
	}
	return err
}

// FirstCredentialInput is the input of FirstCredential.
type FirstCredentialInput struct {
	Tenant *Tenant
	Name   string
	Scopes []string
}

// FirstCredential mints a credential outside of any request: the operator's,
// when a service is set up, and the demo tenant's. Whoever can call it holds
// the service's data folder and HSM PINs.
func FirstCredential(ctx context.Context, store Credentials, pepper *Pepper, clock func() time.Time, in FirstCredentialInput) (string, error) {
	if _, err := ParseScopes(in.Scopes); err != nil {
		return "", err
	}
	now := clock()
	c := &Credential{ID: newID(), Tenant: in.Tenant.ID, Project: DefaultProject, Name: in.Name,
		Scopes: in.Scopes, Created: now, Revision: 1}
	token, hash := pepper.newToken(c.ID, c.Tenant)
	c.Secrets = []CredentialSecret{{Hash: hash, PepperVersion: pepper.Current(), Created: now}}
	if err := store.CreateCredential(ctx, c); err != nil {
		return "", err
	}
	return token, nil
}
