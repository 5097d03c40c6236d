package kms_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

func scopes(t *testing.T, list ...string) kms.Scopes {
	t.Helper()
	s, err := kms.ParseScopes(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScopeAllowsWhatItSaysAndNoMore(t *testing.T) {
	acme := &kms.Tenant{Name: "acme"}
	system := &kms.Tenant{Name: kms.SystemTenantName}
	orders := &kms.Key{Name: "orders-eu"}
	cases := []struct {
		name    string
		tenant  *kms.Tenant
		scopes  []string
		allowed []kms.Op
	}{
		{"one operation", acme, []string{"key:sign"}, []kms.Op{kms.OpSign}},
		{"one operation on matching names", acme, []string{"key:sign:orders-*"}, []kms.Op{kms.OpSign}},
		{"one operation on other names", acme, []string{"key:sign:invoices-*"}, nil},
		{"all key operations but destruction and management", acme, []string{"key:*"}, []kms.Op{
			kms.OpEncrypt, kms.OpDecrypt, kms.OpSign, kms.OpVerify, kms.OpMAC, kms.OpVerifyMAC, kms.OpDataKey, kms.OpPublic,
			kms.OpReencrypt, kms.OpWrap, kms.OpUnwrap, kms.OpSharedSecret, kms.OpDerive, kms.OpEncapsulate, kms.OpDecapsulate, kms.OpCSR,
			kms.OpCreateKey, kms.OpDescribeKey, kms.OpListKeys, kms.OpRotateKey, kms.OpListAliases, kms.OpRandom, kms.OpDigest}},
		{"management but no use", acme, []string{"key:manage"}, []kms.Op{
			kms.OpPublic, kms.OpCreateKey, kms.OpDescribeKey, kms.OpListKeys, kms.OpUpdateKey, kms.OpRotateKey,
			kms.OpEnableKey, kms.OpDisableKey, kms.OpEnableVersion, kms.OpDisableVersion,
			kms.OpSetAlias, kms.OpDeleteAlias, kms.OpListAliases}},
		{"import is its own", acme, []string{"key:import"}, []kms.Op{kms.OpImportKey, kms.OpImportParams}},
		{"destruction is its own", acme, []string{"key:destroy"}, []kms.Op{kms.OpDeleteKey, kms.OpCancelDel, kms.OpDestroyVersion, kms.OpCancelDestroy}},
		{"tenant administration", acme, []string{"tenant:admin"}, []kms.Op{
			kms.OpCreateProject, kms.OpReadProject, kms.OpCreateCredential, kms.OpReadCredential,
			kms.OpRotateCredential, kms.OpRevokeCredential, kms.OpClearCredential, kms.OpEnrolCode,
			kms.OpCreateWebhook, kms.OpReadWebhook, kms.OpDeleteWebhook, kms.OpTestWebhook, kms.OpReadSecretGrants, kms.OpSetSecretGrants, kms.OpLiftCost}},
		{"operator scope outside the system tenant", acme, []string{"operator:admin"}, nil},
		{"operator administration", system, []string{"operator:admin"}, []kms.Op{
			kms.OpCreateTenant, kms.OpReadTenant, kms.OpUpdateTenant, kms.OpSuspendTenant, kms.OpResumeTenant, kms.OpDeleteTenant, kms.OpReadNodes,
			kms.OpSetNodeMode, kms.OpTestNode, kms.OpReadCapacity, kms.OpReadPolicy, kms.OpCheckPolicy, kms.OpPutPolicy, kms.OpApprove, kms.OpReadApprovals,
			kms.OpReadQuotas}},
		{"operator auditor reads only", system, []string{"operator:auditor"}, []kms.Op{kms.OpReadTenant, kms.OpReadNodes,
			kms.OpReadCapacity, kms.OpReadPolicy, kms.OpCheckPolicy, kms.OpReadApprovals,
			kms.OpReadQuotas}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := &kms.Principal{Tenant: c.tenant, Scopes: scopes(t, c.scopes...)}
			for _, info := range kms.Ops() {
				want := slices.Contains(c.allowed, info.Op)
				if got := p.Allowed(info.Op, orders); got != want {
					t.Errorf("%s: allowed = %v, want %v", info.Op, got, want)
				}
			}
		})
	}
}

func TestUnknownOperationIsNeverAllowed(t *testing.T) {
	p := &kms.Principal{Tenant: &kms.Tenant{Name: kms.SystemTenantName}, Scopes: scopes(t, "operator:admin", "tenant:admin", "key:*", "key:manage")}
	for _, op := range []kms.Op{"", "*", "admin", "ENCRYPT", "encrypt "} {
		if p.Allowed(op, nil) {
			t.Errorf("operation %q is allowed", op)
		}
	}
}

func TestMalformedScopesAreRefused(t *testing.T) {
	for _, s := range []string{
		"", "key", "key:", ":sign", "key:sign:", "key:fly", "keys:sign", "key:create-tenant", "operator:*", "tenant:*",
		"tenant:admin:x", "project:x", "usage:write", "key:sign:a b", "key:sign:a:b", "KEY:sign", "debug:x",
		"key:sign:" + strings.Repeat("a", 300),
	} {
		if _, err := kms.ParseScopes([]string{s}); kms.KindOf(err) != kms.KindInvalidArgument {
			t.Errorf("%q: error = %v, want invalid argument", s, err)
		}
	}
	if _, err := kms.ParseScopes(nil); err == nil {
		t.Error("no scopes at all are accepted")
	}
	if _, err := kms.ParseScopes(slices.Repeat([]string{"key:sign"}, kms.MaxScopes+1)); err == nil {
		t.Error("more scopes than the bound are accepted")
	}
}

func TestScopesSurviveTheirText(t *testing.T) {
	list := []string{"key:sign:orders-*", "key:*", "tenant:admin", "debug", "usage:read"}
	if got := scopes(t, list...).Strings(); !slices.Equal(got, list) {
		t.Errorf("got %v, want %v", got, list)
	}
}

func TestNobodyMintsMoreThanHeMay(t *testing.T) {
	cases := []struct {
		have, want string
		covered    bool
	}{
		{"key:sign", "key:sign", true},
		{"key:sign", "key:sign:orders-*", true},
		{"key:sign:orders-*", "key:sign", false},
		{"key:sign:orders-*", "key:sign:*", false},
		{"key:sign:a*", "key:sign:ab*", false}, // judged by text, never wider
		{"key:*", "key:encrypt", true},
		{"key:*", "key:destroy", false},
		{"key:*", "key:manage", false},
		{"key:manage", "key:*", false},
		{"tenant:admin", "key:*", true},
		{"tenant:admin", "tenant:create-credential", true},
		{"tenant:admin", "operator:admin", false},
		{"tenant:create-credential", "tenant:admin", false},
		{"operator:admin", "operator:auditor", true},
		{"operator:auditor", "operator:admin", false},
		{"usage:read", "audit:read", false},
	}
	for _, c := range cases {
		if got := scopes(t, c.have).Covers(scopes(t, c.want)); got != c.covered {
			t.Errorf("%s covers %s = %v, want %v", c.have, c.want, got, c.covered)
		}
	}
}

func TestGlob(t *testing.T) {
	cases := []struct {
		glob, name string
		match      bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"", "", true}, {"", "a", false},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b*c", "a/x/b/y/c", true}, {"a*b*c", "acb", false}, {"a.c", "abc", false},
		{"**", "x", true}, {"a?", "ab", false}, {"[ab]", "a", false},
	}
	for _, c := range cases {
		if got := kms.MatchGlob(c.glob, c.name); got != c.match {
			t.Errorf("MatchGlob(%q, %q) = %v", c.glob, c.name, got)
		}
	}
}

func TestGlobIsNotExponential(t *testing.T) {
	glob := strings.Repeat("a*", 60) + "b"
	name := strings.Repeat("a", kms.MaxNameLength)
	matched := false
	if n := testing.AllocsPerRun(100, func() { matched = matched || kms.MatchGlob(glob, name) }); n != 0 || matched {
		t.Errorf("%v allocations, matched %v", n, matched)
	}
}

func TestNamesThatCouldMeanSomethingElseAreRefused(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "a/..", "../a", "a//b", "/a", "a/", "-a", "a-", "a b", "a\nb", "a%2fb", "a:b", "a*", "é", "a\x00b",
		"0190b2f0-7a2b-7c3d-8e4f-5a6b7c8d9e0f", "0190B2F0-7A2B-7C3D-8E4F-5A6B7C8D9E0F", "a/./b", strings.Repeat("a", 129),
	} {
		if kms.ValidName(name) {
			t.Errorf("%q is a valid name", name)
		}
	}
	for _, name := range []string{"a", "orders-eu", "team/app/key.v1", "A_b-9", "a..b", strings.Repeat("a", 128)} {
		if !kms.ValidName(name) {
			t.Errorf("%q is not a valid name", name)
		}
	}
}

func TestRoleAllowsWhatItIsForAndNoMore(t *testing.T) {
	acme, system := &kms.Tenant{Name: "acme"}, &kms.Tenant{Name: kms.SystemTenantName}
	orders := &kms.Key{Name: "orders-eu"}
	uses := []kms.Op{
		kms.OpEncrypt, kms.OpDecrypt, kms.OpSign, kms.OpVerify, kms.OpMAC, kms.OpVerifyMAC, kms.OpDataKey, kms.OpPublic,
		kms.OpReencrypt, kms.OpWrap, kms.OpUnwrap, kms.OpSharedSecret, kms.OpDerive, kms.OpEncapsulate, kms.OpDecapsulate, kms.OpCSR,
		kms.OpDescribeKey, kms.OpListKeys, kms.OpListAliases, kms.OpRandom, kms.OpDigest}
	elsewhere := []kms.Op{kms.OpListKeys, kms.OpListAliases, kms.OpRandom, kms.OpDigest} // act on no key
	administration := []kms.Op{kms.OpCreateProject, kms.OpReadProject, kms.OpCreateCredential, kms.OpReadCredential,
		kms.OpRotateCredential, kms.OpRevokeCredential, kms.OpClearCredential, kms.OpEnrolCode,
		kms.OpCreateWebhook, kms.OpReadWebhook, kms.OpDeleteWebhook, kms.OpTestWebhook, kms.OpReadSecretGrants, kms.OpSetSecretGrants, kms.OpLiftCost}
	for _, c := range []struct {
		role    string
		tenant  *kms.Tenant
		allowed []kms.Op
	}{
		{"role:key-user", acme, uses},
		{"role:key-user:orders-*", acme, uses},
		{"role:key-user:invoices-*", acme, elsewhere},
		{"role:tenant-admin", acme, append(slices.Clone(administration), kms.OpReadQuota, kms.OpReadRequest, kms.OpReadUsage)},
		{"role:tenant-auditor", acme, []kms.Op{kms.OpReadQuota, kms.OpReadRequest, kms.OpReadUsage, kms.OpReadAudit}},
		{"role:operator-auditor", system, []kms.Op{kms.OpReadTenant, kms.OpReadNodes, kms.OpReadCapacity, kms.OpReadPolicy, kms.OpCheckPolicy,
			kms.OpReadApprovals, kms.OpReadQuota, kms.OpReadQuotas, kms.OpReadRequest, kms.OpReadUsage, kms.OpReadAudit}},
		{"role:operator-auditor", acme, []kms.Op{kms.OpReadQuota, kms.OpReadRequest, kms.OpReadUsage, kms.OpReadAudit}},
		{"role:operator-admin", system, append([]kms.Op{kms.OpCreateTenant, kms.OpReadTenant, kms.OpUpdateTenant, kms.OpSuspendTenant, kms.OpResumeTenant, kms.OpDeleteTenant,
			kms.OpReadNodes, kms.OpSetNodeMode, kms.OpTestNode, kms.OpReadCapacity, kms.OpReadPolicy, kms.OpCheckPolicy, kms.OpPutPolicy,
			kms.OpApprove, kms.OpReadApprovals, kms.OpReadQuota, kms.OpReadQuotas, kms.OpReadRequest,
			kms.OpReadUsage, kms.OpReadAudit}, administration...)},
	} {
		t.Run(c.tenant.Name+" "+c.role, func(t *testing.T) {
			p := &kms.Principal{Tenant: c.tenant, Scopes: scopes(t, c.role)}
			for _, info := range kms.Ops() {
				if got, want := p.Allowed(info.Op, orders), slices.Contains(c.allowed, info.Op); got != want {
					t.Errorf("%s: allowed = %v, want %v", info.Op, got, want)
				}
			}
			if got := p.Scopes.Strings(); !slices.Equal(got, []string{c.role}) {
				t.Errorf("it is shown as %v", got)
			}
		})
	}
}

func TestUnknownRolesAreRefused(t *testing.T) {
	for _, s := range []string{"role:", "role:root", "role:key-user:", "role:key-user:a:b", "role:tenant-admin:x", "role:KEY-USER", "role"} {
		if _, err := kms.ParseScopes([]string{s}); kms.KindOf(err) != kms.KindInvalidArgument {
			t.Errorf("%q: error = %v, want invalid argument", s, err)
		}
	}
}

// TestRolesHandOutNoMoreThanTheyHold pairs who mints with what is minted.
func TestRolesHandOutNoMoreThanTheyHold(t *testing.T) {
	for _, c := range []struct {
		have, want string
		covered    bool
	}{
		{"role:tenant-admin", "role:key-user", true},
		{"role:tenant-admin", "role:tenant-admin", true},
		{"role:tenant-admin", "role:operator-auditor", false},
		{"role:tenant-admin", "role:operator-admin", false},
		{"role:operator-admin", "role:operator-auditor", true},
		{"role:operator-auditor", "role:operator-admin", false},
		{"role:key-user", "role:key-user:orders-*", true},
		{"role:key-user:orders-*", "role:key-user", false},
		{"role:key-user:orders-*", "role:key-user:orders-*", true},
		{"role:key-user", "key:sign", true},
		{"role:key-user", "key:rotate", false},
		{"role:key-user", "key:*", false},
		{"role:key-user", "key:manage", false},
		{"role:key-user", "key:destroy", false},
		{"role:key-user", "key:decrypt-legacy", false},
		{"key:*", "role:key-user", true},
		{"key:manage", "role:key-user", false},
		{"key:manage", "key:enable", true},
		{"key:sign", "role:key-user", false},
	} {
		if got := scopes(t, c.have).Covers(scopes(t, c.want)); got != c.covered {
			t.Errorf("%s covers %s: %v, want %v", c.have, c.want, got, c.covered)
		}
	}
}
