package client

import (
	"context"
	"strconv"
)

// EnableKeyVersion switches one version of a key on; it is idempotent.
func (c *Client) EnableKeyVersion(ctx context.Context, key string, version uint32) (*KeyOutput, error) {
	return c.changeVersion(ctx, nil, key, version, "enable")
}

// DisableKeyVersion switches one version of a key off: what it signed or
// encrypted can be neither verified nor decrypted until EnableKeyVersion. It
// is idempotent.
func (c *Client) DisableKeyVersion(ctx context.Context, key string, version uint32) (*KeyOutput, error) {
	return c.changeVersion(ctx, nil, key, version, "disable")
}

// ScheduleVersionDestruction disables a version and has its material erased
// after a number of days, 7 to 30; 0 is 30. The primary version cannot go:
// RotateKey first. Until then CancelVersionDestruction takes it back.
func (c *Client) ScheduleVersionDestruction(ctx context.Context, key string, version uint32, days int) (*KeyOutput, error) {
	return c.changeVersion(ctx, window{days}, key, version, "schedule-destruction")
}

// CancelVersionDestruction takes a scheduled destruction back. The version
// stays disabled.
func (c *Client) CancelVersionDestruction(ctx context.Context, key string, version uint32) (*KeyOutput, error) {
	return c.changeVersion(ctx, nil, key, version, "cancel-destruction")
}

func (c *Client) changeVersion(ctx context.Context, in any, key string, version uint32, verb string) (*KeyOutput, error) {
	return c.changeKey(ctx, in, key, "versions", strconv.FormatUint(uint64(version), 10), verb)
}
