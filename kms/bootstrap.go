package kms

import (
	"context"
	"crypto/rand"
	"time"
	"uuid"
)

// The names under which the service's own secrets are stored and sealed.
const (
	pepperName = "credential-pepper"
	rowKeyName = "row-key"
)

// BootstrapConfig is what Bootstrap needs.
type BootstrapConfig struct {
	Tenants Tenants
	Secrets SystemSecrets
	Device  Device
	Clock   func() time.Time
}

// Secrets are the service's own secrets, opened.
type Secrets struct {
	Pepper *Pepper
	RowKey *RowKey
}

// Bootstrap makes what must exist before the first request, if it does not
// exist yet: the system tenant, and the credential pepper and the row key,
// sealed by the system tenant's key. Running it again, or on two nodes at
// once, changes nothing.
//
// The system tenant's row is read before there is a key to authenticate it
// with. A false one cannot open the secrets, so nothing is believed because of
// it; the store checks it once it has the row key.
func Bootstrap(ctx context.Context, c BootstrapConfig) (*Tenant, *Secrets, error) {
	// Asked for first: where there are secrets, their tenant was there before.
	begun, err := c.checkSecrets(ctx)
	if err != nil {
		return nil, nil, err
	}
	system, err := c.Tenants.TenantByRef(ctx, SystemTenantName)
	if err != nil && KindOf(err) == KindNotFound {
		if begun {
			return nil, nil, Errorf(KindInternal, "the stored system tenant, whose key seals the service's secrets, is missing")
		}
		system, err = createSystemTenant(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	secrets := &Secrets{}
	err = c.openSecret(ctx, system, pepperName, func(versions map[uint32][]byte) (err error) {
		secrets.Pepper, err = NewPepper(versions)
		return err
	})
	if err == nil {
		err = c.openSecret(ctx, system, rowKeyName, func(versions map[uint32][]byte) (err error) {
			secrets.RowKey, err = NewRowKey(versions)
			return err
		})
	}
	if err != nil {
		return nil, nil, err
	}
	return system, secrets, nil
}

func createSystemTenant(ctx context.Context, c BootstrapConfig) (*Tenant, error) {
	id := newID()
	sealing, err := c.Device.NewSealingKey(ctx, id, uuid.UUID{})
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

// checkSecrets tells whether there are secrets, and refuses a service that has
// lost its pepper: a new one would make every credential void. The pepper is
// made before the row key, so where there is a row key, which is asked for
// first, there was a pepper. A row key that is lost is noticed by the codes of
// the rows.
func (c BootstrapConfig) checkSecrets(ctx context.Context) (begun bool, err error) {
	keys, err := c.Secrets.SystemSecrets(ctx, rowKeyName)
	if err != nil {
		return false, err
	}
	peppers, err := c.Secrets.SystemSecrets(ctx, pepperName)
	if err == nil && len(keys) > 0 && len(peppers) == 0 {
		err = Errorf(KindInternal, "the stored pepper of the credentials is missing")
	}
	return len(keys)+len(peppers) > 0, err
}

// openSecret opens every version of a secret, which it makes if there is none,
// hands them to use and wipes them.
func (c BootstrapConfig) openSecret(ctx context.Context, system *Tenant, name string, use func(map[uint32][]byte) error) error {
	stored, err := c.Secrets.SystemSecrets(ctx, name)
	if err == nil && len(stored) == 0 {
		if err = c.createSecret(ctx, system, name); err == nil {
			stored, err = c.Secrets.SystemSecrets(ctx, name)
		}
	}
	if err != nil {
		return err
	}
	versions := make(map[uint32][]byte, len(stored))
	for _, s := range stored {
		secret, err := c.Device.Unseal(ctx, system.Sealing, name, s.Version, s.Blob)
		if err != nil {
			return err
		}
		defer clear(secret)
		versions[s.Version] = secret
	}
	return use(versions)
}

func (c BootstrapConfig) createSecret(ctx context.Context, system *Tenant, name string) error {
	secret := make([]byte, MACKeySize)
	rand.Read(secret)
	defer clear(secret)
	blob, err := c.Device.Seal(ctx, system.Sealing, name, 1, secret)
	if err != nil {
		return err
	}
	err = c.Secrets.PutSystemSecret(ctx, SystemSecret{Name: name, Version: 1, Blob: blob, Created: c.Clock()})
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
