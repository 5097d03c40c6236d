package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// sampleGuard is a guard in which every field holds something.
func sampleGuard() *kms.Guard {
	return &kms.Guard{Flagged: start.Add(time.Minute), Action: kms.AbuseSecondFactor, Ends: start.Add(time.Hour), Cleared: start, Proven: start.Add(time.Second),
		Readings: []kms.AbuseReading{{Signal: kms.AbuseNetworks, Value: 3000, Usual: 1000, Gross: true}, {Signal: kms.AbuseClient, Value: 500}},
		Code:     &kms.OneTimeKey{Sealed: []byte("sealed"), Version: 2, Created: start, Step: 7}}
}

func testBaselines(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "baselines"), e.tenant(t, "baselines-too")
	first, second, others := e.credential(t, tenant.ID, "first"), e.credential(t, tenant.ID, "second"), e.credential(t, other.ID, "others")
	put := func(list ...kms.StoredBaseline) {
		t.Helper()
		if err := e.PutBaselines(ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, of *kms.Credential, document string) {
		t.Helper()
		got, err := e.Baseline(ctx, of.Tenant, of.ID)
		if err != nil || !bytes.Equal(got, []byte(document)) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, document)
		}
	}
	of := func(c *kms.Credential, document string) kms.StoredBaseline {
		return kms.StoredBaseline{Tenant: c.Tenant, Credential: c.ID, Document: []byte(document)}
	}
	t.Run("TheLastOneComesBack", func(t *testing.T) {
		want("before", first, "")
		put(of(others, "c"), of(first, "a"), of(second, "b"))
		put(of(first, "a again"))
		want("first", first, "a again")
		want("second", second, "b")
		want("of another tenant", others, "c")
		wantKind(t, "an empty one", e.PutBaselines(ctx, []kms.StoredBaseline{of(first, "")}), kms.KindInvalidArgument)
	})
	t.Run("BaselinesOfAnotherTenantsCredentialsAreLeftOut", func(t *testing.T) {
		put(kms.StoredBaseline{Tenant: tenant.ID, Credential: others.ID, Document: []byte("stolen")}, of(second, "b again"))
		want("of another tenant", others, "c")
		want("beside it", second, "b again")
		if got, err := e.Baseline(ctx, tenant.ID, others.ID); err != nil || got != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("TamperedBaselinesAreForgotten", func(t *testing.T) {
		for column, value := range map[string]any{"document": []byte("others"), "stored": start.Add(time.Hour).UnixMicro(), "mac": make([]byte, 32), "mac_version": int64(9)} {
			put(of(first, "fine"))
			e.driver.(Damager).Damage(t, Damage{Table: "credential_baselines", Column: column, Value: value, Key: "credential", KeyValue: first.ID[:]})
			want("with another "+column, first, "")
		}
		put(of(first, "anew"))
		want("replaced", first, "anew")
	})
	t.Run("GuardsComeBackAndReachAuthentication", func(t *testing.T) {
		c := e.credential(t, tenant.ID, "guarded")
		if before, err := e.CredentialForAuthentication(ctx, c.ID); err != nil || before.Guard != nil {
			t.Fatal(fmt.Sprint(before, err))
		}
		changed, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Guard: sampleGuard()})
		if err != nil || !reflect.DeepEqual(changed.Guard, sampleGuard()) {
			t.Fatalf("%+v, %v", changed, err)
		}
		got, err := e.CredentialForAuthentication(ctx, c.ID)
		if err != nil || !reflect.DeepEqual(got, changed) {
			t.Errorf("%+v, %v", got, err)
		}
		unknown := sampleGuard()
		unknown.Action = "other"
		_, err = e.UpdateCredential(ctx, tenant.ID, c.ID, 2, kms.CredentialChange{Guard: unknown})
		wantKind(t, "an unknown action", err, kms.KindInvalidArgument)
	})
}
