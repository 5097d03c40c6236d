package api_test

import (
	"context"
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// A service that has lost a row of its own starts neither with a new one nor
// leaves one behind: that would make credentials void, and a repair harder.
func TestStartReplacesNothingOfTheServiceThatIsLost(t *testing.T) {
	begun := func() (*memory, func() error) {
		m := newMemory(t)
		start := func() error {
			_, _, err := kms.Bootstrap(context.Background(), kms.BootstrapConfig{Tenants: m, Secrets: m, Device: device{m}, Clock: time.Now})
			return err
		}
		if err := start(); err != nil {
			t.Fatal(err)
		}
		if err := start(); err != nil || len(m.tenants) != 1 || len(m.secrets) != 2 {
			t.Fatalf("the second start: %v; %d tenants, %d secrets", err, len(m.tenants), len(m.secrets))
		}
		return m, start
	}
	m, start := begun()
	m.tenants = map[uuid.UUID]*kms.Tenant{}
	if err := start(); kms.KindOf(err) != kms.KindInternal || len(m.tenants) != 0 {
		t.Errorf("without its tenant: %v, and %d tenants are made", err, len(m.tenants))
	}
	m, start = begun()
	m.secrets = slices.DeleteFunc(m.secrets, func(s kms.SystemSecret) bool { return s.Name == "credential-pepper" })
	if err := start(); kms.KindOf(err) != kms.KindInternal || len(m.secrets) != 1 {
		t.Errorf("without its pepper: %v, and there are %d secrets", err, len(m.secrets))
	}
}
