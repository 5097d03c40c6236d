package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Value is the value of a provider secret. Like a Token it prints as
// "[redacted]" in every form: with every verb of fmt, in JSON and text
// encodings, in slog, and as an unexported field of whatever struct is printed.
// Only Reveal and Append show it.
//
// The zero Value is no value. Copies of a Value share its memory, which Wipe
// clears for all of them. Values are not comparable with ==. They are safe for
// concurrent use.
type Value struct {
	_ [0]func()
	// text is a pointer for the reason that a Token's is, and to a pointer
	// because with a wrong verb fmt follows one to a struct.
	text **valueText
}

// valueText is a value's memory.
type valueText struct {
	mu    sync.RWMutex
	bytes []byte // nil: wiped
}

// NewValue makes a Value of its text.
func NewValue(text string) Value {
	if text == "" {
		return Value{}
	}
	held := &valueText{bytes: []byte(text)}
	return Value{text: &held}
}

// Reveal returns a copy of the text, which Wipe does not reach; "" for the zero
// Value and a wiped one.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return string(held.bytes)
}

// Append appends the text to b, so that a caller can wipe what it got.
func (v Value) Append(b []byte) []byte {
	if v.text == nil {
		return b
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return append(b, held.bytes...)
}

// Wipe overwrites the text in memory. The decoder that the text came through
// may have left copies to the garbage collector.
func (v Value) Wipe() {
	if v.text == nil {
		return
	}
	held := *v.text
	held.mu.Lock()
	defer held.mu.Unlock()
	clear(held.bytes)
	held.bytes = nil
}

// IsZero tells whether v is no value, or a wiped one.
func (v Value) IsZero() bool {
	if v.text == nil {
		return true
	}
	held := *v.text
	held.mu.RLock()
	defer held.mu.RUnlock()
	return len(held.bytes) == 0
}

// String returns "[redacted]".
func (Value) String() string { return redacted }

// Format writes "[redacted]" whatever the verb.
func (Value) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText returns "[redacted]"; JSON encodings use it too.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// UnmarshalText takes a value from an answer of the service.
func (v *Value) UnmarshalText(text []byte) error {
	*v = NewValue(string(text))
	return nil
}

// Secret is what is not secret of a provider secret.
type Secret struct {
	ID           string            `json:"id"`
	Path         string            `json:"path"` // unique in the tenant, immutable
	Provider     string            `json:"provider"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	State        string            `json:"state"` // ACTIVE, or PENDING_DELETION
	CreatedAt    time.Time         `json:"created_at"`
	DeletionDate time.Time         `json:"deletion_date,omitzero"` // of one that is pending deletion
	// FreshSeconds is for how long what was fetched may be used without asking
	// again, LeaseSeconds for how long when nobody can be asked.
	FreshSeconds int             `json:"fresh_seconds"`
	LeaseSeconds int             `json:"lease_seconds"`
	Versions     []SecretVersion `json:"versions,omitempty"` // ascending; not in lists
	Rollout      *Rollout        `json:"rollout,omitempty"`  // the last one
	Revision     uint64          `json:"revision"`           // the tenant's as of the last change
}

// SecretVersion is a version of a secret.
type SecretVersion struct {
	Version   uint32    `json:"version"`         // never used again
	State     string    `json:"state"`           // STAGED, ACTIVE, RETIRED, DISABLED, DESTROYED
	Weight    uint32    `json:"weight,omitzero"` // of an ACTIVE one: its share of the calls
	CreatedAt time.Time `json:"created_at"`
	NotAfter  time.Time `json:"not_after,omitzero"`  // zero: it does not expire
	RetiredAt time.Time `json:"retired_at,omitzero"` // when it was last taken out of use
	DestroyAt time.Time `json:"destroy_at,omitzero"` // when it will be destroyed, or was
}

// Rollout is how a version takes over from another.
type Rollout struct {
	State        string    `json:"state"` // RUNNING, DONE, ROLLED_BACK, CANCELLED
	From         uint32    `json:"from"`
	To           uint32    `json:"to"`
	Steps        []uint32  `json:"steps"`         // weights of the new version
	Step         int       `json:"step"`          // the current one, from 1
	StepInterval int       `json:"step_interval"` // seconds
	Observe      int       `json:"observe"`       // seconds for which the old version is kept
	Since        time.Time `json:"since"`         // of the step, or of the end
}

// SecretOutput is a secret as one call returns it.
type SecretOutput struct {
	Secret
	Charge
}

// AddedSecretVersion is a secret with the version that has the value.
type AddedSecretVersion struct {
	Secret
	Version uint32 `json:"version"`
	Charge
}

// CreateSecretInput is the input of CreateSecret. Path, Provider and Value are
// needed.
type CreateSecretInput struct {
	// Path is 1 to 240 visible ASCII characters other than *:\"%?#<>|, in
	// segments separated by "/".
	Path     string
	Provider string // lower-case letters, digits and -_.
	Value    Value  // at most 64 KiB of UTF-8
	Metadata map[string]string
	// FreshSeconds and LeaseSeconds are 0 for the service's defaults.
	FreshSeconds, LeaseSeconds int
	NotAfter                   time.Time // zero: the value does not expire
}

// secretBody is a body with a value, which is revealed nowhere else.
type secretBody struct {
	Path             string            `json:"path,omitzero"`
	Provider         string            `json:"provider,omitzero"`
	Value            string            `json:"value"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	FreshSeconds     int               `json:"fresh_seconds,omitzero"`
	LeaseSeconds     int               `json:"lease_seconds,omitzero"`
	NotAfter         time.Time         `json:"not_after,omitzero"`
	ExpectedRevision uint64            `json:"expected_revision,omitzero"`
}

// CreateSecret stores a provider's key, whose version 1 is in use. A path that
// is taken gives ErrConflict.
func (c *Client) CreateSecret(ctx context.Context, in CreateSecretInput) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secrets"}, changes: true,
		in: secretBody{Path: in.Path, Provider: in.Provider, Value: in.Value.Reveal(), Metadata: in.Metadata,
			FreshSeconds: in.FreshSeconds, LeaseSeconds: in.LeaseSeconds, NotAfter: in.NotAfter}})
}

// GetSecret returns what is not secret of a secret, by its id.
func (c *Client) GetSecret(ctx context.Context, id string) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "secrets", id}})
}

type secretPage struct {
	Secrets []*Secret `json:"secrets"`
	Next    string    `json:"next_page_token"`
}

// ListSecrets returns the secrets whose path begins with prefix, by path. See
// ListTenants.
func (c *Client) ListSecrets(ctx context.Context, prefix string) iter.Seq2[*Secret, error] {
	k := call{method: http.MethodGet, path: []string{"v1", "secrets"}}
	if prefix != "" {
		k.query = url.Values{"prefix": {prefix}}
	}
	return list(ctx, c, k, func(p *secretPage) ([]*Secret, string) { return p.Secrets, p.Next })
}

// UpdateSecretInput is the input of UpdateSecret; what is nil or 0 stays.
type UpdateSecretInput struct {
	Metadata     map[string]string `json:"metadata,omitzero"` // replaces all
	FreshSeconds int               `json:"fresh_seconds,omitzero"`
	LeaseSeconds int               `json:"lease_seconds,omitzero"`
	// ExpectedRevision is the revision that the secret must still have, or
	// ErrRevision; 0: any. The same of the other changes.
	ExpectedRevision uint64 `json:"expected_revision,omitzero"`
}

// UpdateSecret changes what is said of a secret.
func (c *Client) UpdateSecret(ctx context.Context, id string, in UpdateSecretInput) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodPatch, path: []string{"v1", "secrets", id}, in: in, changes: true})
}

// DeleteSecret takes a secret out of use at once and destroys it in 30 days.
// Restoring a version before takes it back.
func (c *Client) DeleteSecret(ctx context.Context, id string) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodDelete, path: []string{"v1", "secrets", id}, changes: true})
}

// AddSecretVersionInput is the input of AddSecretVersion.
type AddSecretVersionInput struct {
	Value            Value
	NotAfter         time.Time // zero: the value does not expire
	ExpectedRevision uint64
}

// AddSecretVersion stages a value. When a version has it already, whatever its
// state, that one is the answer.
func (c *Client) AddSecretVersion(ctx context.Context, id string, in AddSecretVersionInput) (*AddedSecretVersion, error) {
	return invoke[AddedSecretVersion](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secrets", id, "versions"}, changes: true,
		in: secretBody{Value: in.Value.Reveal(), NotAfter: in.NotAfter, ExpectedRevision: in.ExpectedRevision}})
}

// ActivateSecretInput is the input of ActivateSecret. Only Version is needed.
type ActivateSecretInput struct {
	Version uint32 `json:"version"`
	// Steps are weights that the version takes on one after the other, ascending
	// to 100; nil: 100 at once, and unwatched.
	Steps            []uint32 `json:"steps,omitempty"`
	StepInterval     int      `json:"step_interval,omitzero"` // seconds; 0: 60
	Observe          int      `json:"observe,omitzero"`       // seconds; 0: 7 days
	ExpectedRevision uint64   `json:"expected_revision,omitzero"`
}

// ActivateSecret brings a version into use, at once or in steps.
func (c *Client) ActivateSecret(ctx context.Context, id string, in ActivateSecretInput) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secrets", id, "activate"}, in: in, changes: true})
}

// expecting is the body of changes that need nothing else.
type expecting struct {
	Days             int    `json:"days,omitzero"`
	ExpectedRevision uint64 `json:"expected_revision,omitzero"`
}

// RollbackSecret goes back to the version before; expected is the revision that
// the secret must still have, 0 for any.
func (c *Client) RollbackSecret(ctx context.Context, id string, expected uint64) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secrets", id, "rollback"},
		in: expecting{ExpectedRevision: expected}, changes: true})
}

// DisableSecretVersion takes a version out of use at once, the last one too.
func (c *Client) DisableSecretVersion(ctx context.Context, id string, version uint32, expected uint64) (*SecretOutput, error) {
	return c.changeSecretVersion(ctx, id, version, "disable", expecting{ExpectedRevision: expected})
}

// DestroySecretVersion schedules the destruction of a version that is not in
// use: in 7 to 30 days, 0 for 30.
func (c *Client) DestroySecretVersion(ctx context.Context, id string, version uint32, days int, expected uint64) (*SecretOutput, error) {
	return c.changeSecretVersion(ctx, id, version, "destroy", expecting{days, expected})
}

// RestoreSecretVersion makes a disabled or retired version STAGED again.
func (c *Client) RestoreSecretVersion(ctx context.Context, id string, version uint32, expected uint64) (*SecretOutput, error) {
	return c.changeSecretVersion(ctx, id, version, "restore", expecting{ExpectedRevision: expected})
}

func (c *Client) changeSecretVersion(ctx context.Context, id string, version uint32, verb string, in expecting) (*SecretOutput, error) {
	return invoke[SecretOutput](ctx, c, call{method: http.MethodPost, in: in, changes: true,
		path: []string{"v1", "secrets", id, "versions", strconv.FormatUint(uint64(version), 10), verb}})
}

// SecretGrant says that a credential may read a secret, and by which scope.
type SecretGrant struct {
	Credential string `json:"credential"`
	Name       string `json:"name"`
	Scope      string `json:"scope"`
	Exact      bool   `json:"exact"` // it is the scope of this path alone
}

// SecretGrants lists who may read a secret.
type SecretGrants struct {
	Grants []SecretGrant `json:"grants"`
	Charge
}

// GetSecretGrants returns the credentials that may read a secret. It takes an
// administrator of the tenant.
func (c *Client) GetSecretGrants(ctx context.Context, id string) (*SecretGrants, error) {
	return invoke[SecretGrants](ctx, c, call{method: http.MethodGet, path: []string{"v1", "secrets", id, "grants"}})
}

// SetSecretGrants makes the given credentials those that have the scope of the
// secret's path; wider scopes stay. It takes an administrator of the tenant.
func (c *Client) SetSecretGrants(ctx context.Context, id string, credentials []string) (*SecretGrants, error) {
	if credentials == nil {
		credentials = []string{}
	}
	return invoke[SecretGrants](ctx, c, call{method: http.MethodPut, path: []string{"v1", "secrets", id, "grants"}, changes: true,
		in: struct {
			Credentials []string `json:"credentials"`
		}{credentials}})
}

// FetchSecretItem asks for one secret.
type FetchSecretItem struct {
	Path         string `json:"path"`
	HaveRevision uint64 `json:"have_revision,omitzero"` // no value is sent if it is the present one
}

// FetchSecretsInput is the input of FetchSecrets.
type FetchSecretsInput struct {
	Items []FetchSecretItem `json:"items"` // 1 to 100
	// MinRevision is what the answer must not be older than, or ErrStaleReplica;
	// 0: any will do.
	MinRevision uint64 `json:"min_revision,omitzero"`
}

// FetchedSecrets has the values of secrets.
type FetchedSecrets struct {
	Revision uint64          `json:"revision"` // the tenant's, as of which they are
	Items    []FetchedSecret `json:"items"`    // in the order of the input
	Charge
}

// FetchedSecret is what became of one item.
type FetchedSecret struct {
	Path string `json:"path"`
	// Status is ok, unchanged, not_found (also for what may not be read), denied
	// (the same, told to who may list), disabled or unavailable.
	Status       string            `json:"status"`
	SecretID     string            `json:"secret_id,omitzero"`
	Provider     string            `json:"provider,omitzero"`
	Revision     uint64            `json:"revision,omitzero"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	FreshUntil   time.Time         `json:"fresh_until,omitzero"`
	LeaseEnd     time.Time         `json:"lease_end,omitzero"`
	Versions     []WeightedValue   `json:"versions,omitempty"` // that share the calls
	RetryAfterMS int64             `json:"retry_after_ms,omitzero"`
}

// WeightedValue is the value of a version with its share of the calls.
type WeightedValue struct {
	Version uint32 `json:"version"`
	Weight  uint32 `json:"weight"`
	Value   Value  `json:"value"`
}

// FetchSecrets fetches values, once. Programs that use them again and again use
// the cache of this package.
func (c *Client) FetchSecrets(ctx context.Context, in FetchSecretsInput) (*FetchedSecrets, error) {
	return invoke[FetchedSecrets](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secret-values", "fetch"}, in: in})
}

// SecretOutcome counts what calls with a version came to since the last report.
type SecretOutcome struct {
	SecretID   string `json:"secret_id"`
	Version    uint32 `json:"version"`
	OK         uint32 `json:"ok"`
	Credential uint32 `json:"credential"` // refusals of the key: 401, 403
	Quota      uint32 `json:"quota"`      // the account is out of credit
	RateLimit  uint32 `json:"rate_limit"` // 429
	Transient  uint32 `json:"transient"`  // failures of the provider
}

// ReportSecrets reports what calls came to: 1 to 100 items.
func (c *Client) ReportSecrets(ctx context.Context, items []SecretOutcome) (*Charge, error) {
	return invoke[Charge](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secret-values", "report"}, prepares: true,
		in: struct {
			Items []SecretOutcome `json:"items"`
		}{items}})
}
