package client

import (
	"context"
	"iter"
	"net/http"
	"net/netip"
	"time"
)

// Credential is what a caller authenticates with, without its secrets.
type Credential struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Project   string   `json:"project"`            // what it works in
	Component string   `json:"component,omitzero"` // which consumer inside the tenant uses it
	Scopes    []string `json:"scopes"`             // family:operation or family:operation:glob
	// Networks from where it may be used; none: from anywhere.
	Networks  []netip.Prefix     `json:"networks,omitempty"`
	Secrets   []CredentialSecret `json:"secrets"` // its live ones, the newest first
	CreatedAt time.Time          `json:"created_at"`
	ExpiresAt time.Time          `json:"expires_at,omitzero"` // zero: never
	RevokedAt time.Time          `json:"revoked_at,omitzero"` // zero: not revoked
	Revision  uint64             `json:"revision"`            // grows by one with every change
}

// CredentialSecret is one secret of a credential: that it exists, not what it
// is.
type CredentialSecret struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: with the credential
}

// CredentialOutput is a credential as one call returns it.
type CredentialOutput struct {
	Credential
	Charge
}

// MintedCredential is a credential with a new secret, which is shown this
// once.
type MintedCredential struct {
	Credential
	Token Token `json:"credential"`
	Charge
}

// CreateCredentialInput is the input of CreateCredential.
type CreateCredentialInput struct {
	Name      string `json:"name"`               // as for a key
	Project   string `json:"project,omitzero"`   // "": default
	Component string `json:"component,omitzero"` // which consumer inside the tenant will use it
	// Scopes are what it may do, such as "key:sign:orders-*"; never more than
	// the credential that mints it.
	Scopes    []string       `json:"scopes"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"` // zero: never
	Networks  []netip.Prefix `json:"networks,omitempty"`  // without host bits; none: from anywhere
}

// CreateCredential mints a credential in a tenant; "" is the own one, any
// other takes an operator. When the answer is lost on the way, the repetition
// gives ErrConflict and names the credential's id; its secret is lost:
// RevokeCredential ends it, or RotateCredential gives it a new one.
func (c *Client) CreateCredential(ctx context.Context, tenant string, in CreateCredentialInput) (*MintedCredential, error) {
	return invoke[MintedCredential](ctx, c, call{method: http.MethodPost, path: inTenant(tenant, "credentials"), in: in, changes: true})
}

// GetCredential returns a credential of a tenant by its id.
func (c *Client) GetCredential(ctx context.Context, tenant, id string) (*CredentialOutput, error) {
	return invoke[CredentialOutput](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "credentials", id)})
}

type credentialPage struct {
	Credentials []*Credential `json:"credentials"`
	Next        string        `json:"next_page_token"`
}

// ListCredentials returns a tenant's credentials by name. See ListTenants.
func (c *Client) ListCredentials(ctx context.Context, tenant string) iter.Seq2[*Credential, error] {
	return list(ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "credentials")},
		func(p *credentialPage) ([]*Credential, string) { return p.Credentials, p.Next })
}

// RotateCredentialInput is the input of RotateCredential.
type RotateCredentialInput struct {
	// OverlapHours is for how long the old secret stays valid, 0 to 720; nil
	// is 24, and with 0 it dies at once.
	OverlapHours *int `json:"overlap_hours,omitzero"`
}

// RotateCredential gives a credential a new secret.
func (c *Client) RotateCredential(ctx context.Context, tenant, id string, in RotateCredentialInput) (*MintedCredential, error) {
	return invoke[MintedCredential](ctx, c, call{
		method: http.MethodPost, path: inTenant(tenant, "credentials", id, "rotate"), in: in, changes: true})
}

// RevokeCredential ends a credential at once and for good.
func (c *Client) RevokeCredential(ctx context.Context, tenant, id string) (*CredentialOutput, error) {
	return invoke[CredentialOutput](ctx, c, call{
		method: http.MethodPost, path: inTenant(tenant, "credentials", id, "revoke"), changes: true})
}
