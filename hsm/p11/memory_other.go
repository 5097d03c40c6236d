//go:build !linux

package p11

// keepOutOfCoreDumps: other systems have no such advice; the process sets
// RLIMIT_CORE to zero everywhere.
func keepOutOfCoreDumps([]byte) error { return nil }
