package kms_test

import (
	"context"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func TestProjectLiesInOneThatExists(t *testing.T) {
	for _, c := range []struct {
		name string
		kind kms.Kind
		ok   bool
	}{
		{"payroll", 0, true},
		{"payments/transfers", 0, true},
		{"payments/cards/eu", 0, true},
		{"nowhere/cards", kms.KindInvalidArgument, false},
		{"payments/nowhere/cards", kms.KindInvalidArgument, false},
		{"a/b/c/d/e/f/g/h", 0, true},
		{"a/b/c/d/e/f/g/h/i", kms.KindInvalidArgument, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			_, err := s.svc.CreateProject(context.Background(), s.ticket(t, "tenant:admin"), "", c.name)
			if (err == nil) != c.ok || err != nil && kms.KindOf(err) != c.kind || did(s, "project") != c.ok {
				t.Errorf("%v, made: %v", err, did(s, "project"))
			}
		})
	}
}

// TestCredentialSeesItsProjectAndNotThoseInside: names with a slash order
// projects; they grant nothing.
func TestCredentialSeesItsProjectAndNotThoseInside(t *testing.T) {
	for _, c := range []struct {
		scopes []string
		own    string
		of     string
		want   bool
	}{
		{[]string{"key:*"}, "payments", "payments", true},
		{[]string{"key:*"}, "payments", "payments/cards", false},
		{[]string{"key:*"}, "payments/cards", "payments", false},
		{[]string{"key:*", "project:*"}, "payments", "payments/cards", true},
	} {
		s := newStage(t)
		ticket := s.ticket(t, c.scopes...)
		ticket.By.Project, s.key.Project = c.own, c.of
		_, err := s.svc.DescribeKey(context.Background(), ticket, "orders")
		if (err == nil) != c.want || err != nil && kms.KindOf(err) != kms.KindNotFound {
			t.Errorf("of %s with %v, a key in %s: %v", c.own, c.scopes, c.of, err)
		}
	}
}

// TestCallerMintsOnlyWhatItHolds tries scopes, roles and projects beyond those
// of who mints.
func TestCallerMintsOnlyWhatItHolds(t *testing.T) {
	for _, c := range []struct {
		name  string
		have  []string
		input kms.CreateCredentialInput
		kind  kms.Kind
		ok    bool
	}{
		{"a scope it has", []string{"tenant:create-credential", "key:sign"}, kms.CreateCredentialInput{Scopes: []string{"key:sign"}}, 0, true},
		{"a scope it has not", []string{"tenant:create-credential", "key:sign"}, kms.CreateCredentialInput{Scopes: []string{"key:encrypt"}}, kms.KindPermissionDenied, false},
		{"a role it has not", []string{"tenant:create-credential", "key:sign"}, kms.CreateCredentialInput{Scopes: []string{"role:key-user"}}, kms.KindPermissionDenied, false},
		{"a role within its own", []string{"tenant:create-credential", "key:*"}, kms.CreateCredentialInput{Scopes: []string{"role:key-user"}}, 0, true},
		{"administration", []string{"tenant:create-credential"}, kms.CreateCredentialInput{Scopes: []string{"role:tenant-admin"}}, kms.KindPermissionDenied, false},
		{"operators' scopes by a tenant's administrator", []string{"role:tenant-admin"}, kms.CreateCredentialInput{Scopes: []string{"role:operator-auditor"}}, kms.KindInvalidArgument, false},
		{"another project", []string{"tenant:create-credential", "key:sign"}, kms.CreateCredentialInput{Scopes: []string{"key:sign"}, Project: "payments"}, kms.KindNotFound, false},
		{"another project by who sees all", []string{"role:tenant-admin"}, kms.CreateCredentialInput{Scopes: []string{"key:sign"}, Project: "payments"}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			c.input.Name = "minted"
			_, _, err := s.svc.CreateCredential(context.Background(), s.ticket(t, c.have...), "", c.input)
			if (err == nil) != c.ok || err != nil && kms.KindOf(err) != c.kind || did(s, "mint") != c.ok {
				t.Errorf("%v, minted: %v", err, did(s, "mint"))
			}
		})
	}
}

// TestNobodyTakesOverAMightierCredential: a new secret makes a credential that
// of who sees it.
func TestNobodyTakesOverAMightierCredential(t *testing.T) {
	for _, operator := range []bool{false, true} {
		s := newStage(t)
		caller := s.ticket(t, "tenant:rotate-credential", "key:sign")
		if operator {
			caller.By.Tenant = &kms.Tenant{ID: s.key.Tenant.ID, Name: kms.SystemTenantName, State: kms.TenantActive}
		}
		mightier := &kms.Credential{ID: uuid.NewV7(), Tenant: caller.By.Tenant.ID, Project: "default", Name: "admin", Scopes: []string{"tenant:admin"}, Revision: 1}
		s.credentials = []*kms.Credential{mightier}
		_, _, err := s.svc.RotateCredential(context.Background(), caller, "", mightier.ID.String(), 0)
		if kms.KindOf(err) != kms.KindPermissionDenied || err == nil {
			t.Errorf("by an operator: %v, %v", operator, err)
		}
	}
}
