// Package required says what becomes of a test whose outside part (SoftHSM,
// NSS, OpenSSL, PostgreSQL, Redis, hvac) is missing on a machine.
package required

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that names, separated by commas, the
// parts that must be there.
const Variable = "SLUICE_REQUIRE"

// Part ends a test whose part is missing, of which err tells: it skips, and
// fails where Variable names the part. With a nil error it does nothing.
func Part(t testing.TB, part string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv(Variable), ","), part):
		t.Fatalf("%s is required: %v", part, err)
	default:
		t.Skipf("no %s: %v", part, err)
	}
}
