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
	Guard     *CredentialGuard   `json:"guard,omitzero"`      // nil: nothing was ever known against it
}

// CredentialGuard is what is known against a credential, and how it can prove
// itself.
type CredentialGuard struct {
	Open      bool           `json:"open"`                // a flag is open
	FlaggedAt time.Time      `json:"flagged_at,omitzero"` // when it was last used in an unusual way
	Action    string         `json:"action,omitzero"`     // alert, throttle, second_factor or suspend
	Signals   []AbuseReading `json:"signals,omitempty"`
	EndsAt    time.Time      `json:"ends_at,omitzero"` // zero: not before it is cleared
	ClearedAt time.Time      `json:"cleared_at,omitzero"`
	// ProvenUntil is until when the last second factor is good, OneTimeCodeSince
	// when the key of one-time codes was enrolled, zero: none is.
	ProvenUntil      time.Time `json:"proven_until,omitzero"`
	OneTimeCodeSince time.Time `json:"one_time_code_since,omitzero"`
}

// AbuseReading is what was unusual.
type AbuseReading struct {
	Signal string `json:"signal"`
	Gross  bool   `json:"gross,omitzero"` // enough by itself
	Value  int64  `json:"value"`
	Usual  int64  `json:"usual"` // the highest before
	Text   string `json:"text"`
}

// EnrolledCode is a credential with a new key of one-time codes, which is shown
// this once.
type EnrolledCode struct {
	Credential
	Key string `json:"one_time_key"` // base32
	URI string `json:"one_time_uri"` // otpauth, for a QR code
	Charge
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

// ClearCredential ends a flag of a credential: what was unusual is usual from
// now on. No credential clears itself.
func (c *Client) ClearCredential(ctx context.Context, tenant, id string) (*CredentialOutput, error) {
	return invoke[CredentialOutput](ctx, c, call{
		method: http.MethodPost, path: inTenant(tenant, "credentials", id, "clear"), changes: true})
}

// EnrolOneTimeCode gives a credential a key of one-time codes (RFC 6238) in place
// of the one that it may have.
func (c *Client) EnrolOneTimeCode(ctx context.Context, tenant, id string) (*EnrolledCode, error) {
	return invoke[EnrolledCode](ctx, c, call{
		method: http.MethodPost, path: inTenant(tenant, "credentials", id, "one-time-code"), changes: true})
}

// WithSecondCredential returns a Client whose calls carry a second credential of
// the same tenant, which proves the first one while it is flagged; it shares the
// connections.
func (c *Client) WithSecondCredential(t Token) *Client {
	with := *c
	with.second = t
	return &with
}

// WithOneTimeCode is WithSecondCredential with a one-time code of the
// credential. A code is good once, and for a minute.
func (c *Client) WithOneTimeCode(code string) *Client {
	with := *c
	with.oneTime = code
	return &with
}
