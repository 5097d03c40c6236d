package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Key is a key's metadata.
type Key struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"` // unique in the tenant, immutable
	Spec        Spec              `json:"spec"`
	Usage       Usage             `json:"usage"`
	Algorithms  []Algorithm       `json:"algorithms"` // of spec and usage, the default first
	Project     string            `json:"project"`
	Protection  Protection        `json:"protection"`
	State       KeyState          `json:"state"`
	Description string            `json:"description,omitzero"`
	Tags        map[string]string `json:"tags,omitempty"`
	CreatedAt   time.Time         `json:"created_at"`
	Origin      Origin            `json:"origin"` // of the first version's material; rotation generates
	// RotationDays is the time between scheduled rotations, 0 for none;
	// NextRotation is when the next one is due.
	RotationDays int       `json:"rotation_days,omitzero"`
	NextRotation time.Time `json:"next_rotation,omitzero"`
	// LastUsed and LastUsedOp tell of the last use of the material, noted
	// with some delay; zero: never.
	LastUsed   time.Time `json:"last_used,omitzero"`
	LastUsedOp string    `json:"last_used_op,omitzero"`
	// DeletionDate is when a key that is pending deletion will be destroyed;
	// zero for other keys.
	DeletionDate       time.Time    `json:"deletion_date,omitzero"`
	DeletionProtection bool         `json:"deletion_protection"`
	PrimaryVersion     uint32       `json:"primary_version"`    // which new operations use
	Versions           []KeyVersion `json:"versions,omitempty"` // ascending; not in lists
	Revision           uint64       `json:"revision"`           // grows by one with every change
}

// KeyVersion is one version of a key's material.
type KeyVersion struct {
	Version   uint32       `json:"version"` // from 1, never reused
	State     VersionState `json:"state"`
	CreatedAt time.Time    `json:"created_at"`
	// DestroyAt is when the material of a version that is pending destruction
	// will be erased; zero for other versions.
	DestroyAt time.Time `json:"destroy_at,omitzero"`
}

// KeyOutput is a key as one call returns it.
type KeyOutput struct {
	Key
	Charge
}

// CreateKeyInput is the input of CreateKey. Only Spec is needed.
type CreateKeyInput struct {
	// Name is 1 to 128 letters, digits and -_./, beginning and ending with a
	// letter or digit, and does not look like a UUID. "": "key-" and the id.
	Name  string `json:"name,omitzero"`
	Spec  Spec   `json:"spec"`
	Usage Usage  `json:"usage,omitzero"` // "": the spec's default
	// Project is "" for the credential's.
	Project string `json:"project,omitzero"`
	// Protection is "" for HSM where a token offers the spec, and else for
	// SEALED if the tenant allows that.
	Protection  Protection `json:"protection,omitzero"`
	Description string     `json:"description,omitzero"` // at most 1,024 bytes
	// Tags are at most 50, with names of 1 to 128 and values of at most 256 bytes.
	Tags               map[string]string `json:"tags,omitempty"`
	DeletionProtection bool              `json:"deletion_protection,omitzero"`
	// RotationDays is the time between scheduled rotations, 1 to 3,650; 0 is
	// for none.
	RotationDays int `json:"rotation_days,omitzero"`
}

// CreateKey makes a key with its first version. A name that is taken gives
// ErrConflict.
func (c *Client) CreateKey(ctx context.Context, in CreateKeyInput) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "keys"}, in: in, changes: true})
}

// GetKey returns a key by its id, name or alias, with its versions.
func (c *Client) GetKey(ctx context.Context, key string) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "keys", key}})
}

// ListKeysInput is the input of ListKeys.
type ListKeysInput struct {
	// Project is "" for all that the credential sees.
	Project string
	// PageSize is the number of keys that one request fetches, 1 to 1,000;
	// 0 is the service's default.
	PageSize int
}

type keyPage struct {
	Keys []*Key `json:"keys"`
	Next string `json:"next_page_token"`
}

// ListKeys returns the keys that the credential sees, by name. Pages are
// fetched as the loop gets to them; an error ends it.
func (c *Client) ListKeys(ctx context.Context, in ListKeysInput) iter.Seq2[*Key, error] {
	k := call{method: http.MethodGet, path: []string{"v1", "keys"}, query: url.Values{}}
	if in.Project != "" {
		k.query.Set("project", in.Project)
	}
	if in.PageSize != 0 {
		k.query.Set("page_size", strconv.Itoa(in.PageSize))
	}
	return list(ctx, c, k, func(p *keyPage) ([]*Key, string) { return p.Keys, p.Next })
}

// UpdateKeyInput is the input of UpdateKey; nil fields stay as they are.
type UpdateKeyInput struct {
	Description *string `json:"description,omitzero"`
	// Tags replaces all tags; an empty map that is not nil removes them.
	Tags               map[string]string `json:"tags,omitzero"`
	DeletionProtection *bool             `json:"deletion_protection,omitzero"`
}

// UpdateKey changes a key's descriptive metadata.
func (c *Client) UpdateKey(ctx context.Context, key string, in UpdateKeyInput) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{method: http.MethodPatch, path: []string{"v1", "keys", key}, in: in, changes: true})
}

// SetKeyRotation schedules a key's rotations: the first one a number of days
// from now, 1 to 3,650, and then as often; 0 ends them.
func (c *Client) SetKeyRotation(ctx context.Context, key string, days int) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{method: http.MethodPatch, path: []string{"v1", "keys", key}, changes: true,
		in: struct {
			RotationDays int `json:"rotation_days"`
		}{days}})
}

// RotateKey gives a key a new version, which becomes the primary one. What
// older versions signed or encrypted can still be verified and decrypted.
func (c *Client) RotateKey(ctx context.Context, key string) (*KeyOutput, error) {
	return c.changeKey(ctx, nil, key, "rotate")
}

// EnableKey switches a disabled key on; it is idempotent.
func (c *Client) EnableKey(ctx context.Context, key string) (*KeyOutput, error) {
	return c.changeKey(ctx, nil, key, "enable")
}

// DisableKey switches a key off until EnableKey; it is idempotent.
func (c *Client) DisableKey(ctx context.Context, key string) (*KeyOutput, error) {
	return c.changeKey(ctx, nil, key, "disable")
}

// window is the body of what schedules an end.
type window struct {
	Days int `json:"days,omitzero"`
}

// ScheduleKeyDeletion disables a key and has it destroyed after a number of
// days, 7 to 30; 0 is 30. Until then CancelKeyDeletion takes it back.
func (c *Client) ScheduleKeyDeletion(ctx context.Context, key string, days int) (*KeyOutput, error) {
	return c.changeKey(ctx, window{days}, key, "schedule-deletion")
}

// CancelKeyDeletion takes a scheduled deletion back. The key stays disabled.
func (c *Client) CancelKeyDeletion(ctx context.Context, key string) (*KeyOutput, error) {
	return c.changeKey(ctx, nil, key, "cancel-deletion")
}

// changeKey posts to what is below /v1/keys.
func (c *Client) changeKey(ctx context.Context, in any, path ...string) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{
		method: http.MethodPost, path: append([]string{"v1", "keys"}, path...), in: in, changes: true})
}
