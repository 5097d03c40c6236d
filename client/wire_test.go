package client_test

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// out and first make an entry of calls of a method's results: the output, and
// the first item of a list.
func out[T any](v *T, err error) (any, error) { return v, err }

func first[T any](seq iter.Seq2[*T, error]) (item any, err error) {
	for v, e := range seq {
		if item == nil {
			item, err = v, e
		}
	}
	return item, err
}

var (
	zero = 0
	yes  = true
	text = "for orders"
)

// calls has every method of Client that calls the service: the request that
// it sends, to the byte.
var calls = []struct {
	name   string
	do     func(context.Context, *client.Client) (any, error)
	method string
	target string
	body   string
}{
	{"CreateKey", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateKey(ctx, client.CreateKeyInput{Name: "a/b", Spec: client.SpecSM2, Usage: client.UsageSignVerify, Project: "p",
			Protection: client.ProtectionHSM, Description: "d", Tags: map[string]string{"k": "v"}, DeletionProtection: true, RotationDays: 90}))
	}, "POST", "/v1/keys", `{"name":"a/b","spec":"SM2","usage":"SIGN_VERIFY","project":"p","protection":"HSM","description":"d","tags":{"k":"v"},"deletion_protection":true,"rotation_days":90}`},
	{"CreateKey, spec only", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateKey(ctx, client.CreateKeyInput{Spec: client.SpecSM4}))
	}, "POST", "/v1/keys", `{"spec":"SM4"}`},
	{"ImportParameters", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ImportParameters(ctx, client.ImportSM2))
	}, "POST", "/v1/import-parameters", `{"wrapping":"SM2PKE"}`},
	{"ImportKey", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ImportKey(ctx, client.ImportKeyInput{CreateKeyInput: client.CreateKeyInput{Name: "a/b", Spec: client.SpecSM4},
			Wrapping: client.ImportSM2, Token: []byte("hi"), WrappedKey: []byte("a")}))
	}, "POST", "/v1/import", `{"name":"a/b","spec":"SM4","wrapping":"SM2PKE","token":"aGk=","wrapped_key":"YQ=="}`},
	{"GetKey", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetKey(ctx, "a/b/c.d")) },
		"GET", "/v1/keys/a%2Fb%2Fc.d", ""},
	{"ListKeys", func(ctx context.Context, c *client.Client) (any, error) {
		return first(c.ListKeys(ctx, client.ListKeysInput{Project: "x/y", PageSize: 7}))
	}, "GET", "/v1/keys?page_size=7&project=x%2Fy", ""},
	{"UpdateKey", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.UpdateKey(ctx, "k", client.UpdateKeyInput{Description: &text, Tags: map[string]string{}, DeletionProtection: &yes}))
	}, "PATCH", "/v1/keys/k", `{"description":"for orders","tags":{},"deletion_protection":true}`},
	{"RotateKey", func(ctx context.Context, c *client.Client) (any, error) { return out(c.RotateKey(ctx, "k")) },
		"POST", "/v1/keys/k/rotate", ""},
	{"EnableKey", func(ctx context.Context, c *client.Client) (any, error) { return out(c.EnableKey(ctx, "k")) },
		"POST", "/v1/keys/k/enable", ""},
	{"DisableKey", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DisableKey(ctx, "k")) },
		"POST", "/v1/keys/k/disable", ""},
	{"ScheduleKeyDeletion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ScheduleKeyDeletion(ctx, "k", 7))
	},
		"POST", "/v1/keys/k/schedule-deletion", `{"days":7}`},
	{"ScheduleKeyDeletion, default", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ScheduleKeyDeletion(ctx, "k", 0))
	},
		"POST", "/v1/keys/k/schedule-deletion", `{}`},
	{"CancelKeyDeletion", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CancelKeyDeletion(ctx, "k")) },
		"POST", "/v1/keys/k/cancel-deletion", ""},

	{"SetKeyRotation", func(ctx context.Context, c *client.Client) (any, error) { return out(c.SetKeyRotation(ctx, "k", 90)) },
		"PATCH", "/v1/keys/k", `{"rotation_days":90}`},
	{"SetKeyRotation, none", func(ctx context.Context, c *client.Client) (any, error) { return out(c.SetKeyRotation(ctx, "k", 0)) },
		"PATCH", "/v1/keys/k", `{"rotation_days":0}`},
	{"EnableKeyVersion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.EnableKeyVersion(ctx, "a/b", 3))
	},
		"POST", "/v1/keys/a%2Fb/versions/3/enable", ""},
	{"DisableKeyVersion", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DisableKeyVersion(ctx, "k", 1)) },
		"POST", "/v1/keys/k/versions/1/disable", ""},
	{"ScheduleVersionDestruction", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ScheduleVersionDestruction(ctx, "k", 1, 7))
	}, "POST", "/v1/keys/k/versions/1/schedule-destruction", `{"days":7}`},
	{"CancelVersionDestruction", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CancelVersionDestruction(ctx, "k", 1))
	}, "POST", "/v1/keys/k/versions/1/cancel-destruction", ""},
	{"SetAlias", func(ctx context.Context, c *client.Client) (any, error) { return out(c.SetAlias(ctx, "a/b", "k/1")) },
		"PUT", "/v1/aliases/a%2Fb", `{"key":"k/1"}`},
	{"DeleteAlias", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DeleteAlias(ctx, "a/b")) },
		"DELETE", "/v1/aliases/a%2Fb", ""},
	{"ListAliases", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListAliases(ctx)) },
		"GET", "/v1/aliases", ""},

	{"Encrypt", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Encrypt(ctx, "k", client.EncryptInput{Plaintext: []byte("hi"), AAD: []byte{0xfb, 0xff},
			Algorithm: client.AlgSM2PKE, Version: 3, Order: client.SM2OrderASN1}))
	}, "POST", "/v1/keys/k/encrypt", `{"plaintext":"aGk=","aad":"+/8=","algorithm":"SM2PKE","version":3,"order":"ASN1"}`},
	{"Encrypt with sums", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Encrypt(ctx, "k", client.EncryptInput{Plaintext: make([]byte, 32), PlaintextCRC32C: client.CRC32C(make([]byte, 32)), AADCRC32C: client.CRC32C(nil)}))
		// The sum of 32 zeros is that of RFC 3720, B.4: aa 36 91 8a, the lowest byte first.
	}, "POST", "/v1/keys/k/encrypt", `{"plaintext":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","plaintext_crc32c":2324772522,"aad_crc32c":0}`},
	{"Encrypt, nothing", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Encrypt(ctx, "k", client.EncryptInput{}))
	}, "POST", "/v1/keys/k/encrypt", `{"plaintext":""}`},
	{"Encrypt, empty AAD", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Encrypt(ctx, "k", client.EncryptInput{AAD: []byte{}}))
	}, "POST", "/v1/keys/k/encrypt", `{"plaintext":"","aad":""}`},
	{"Decrypt", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Decrypt(ctx, "k", client.DecryptInput{Ciphertext: []byte("hi"), AAD: []byte("a"),
			Algorithm: client.AlgRSAOAEPSHA256, Version: 2, Order: client.SM2OrderC1C2C3}))
	}, "POST", "/v1/keys/k/decrypt", `{"ciphertext":"aGk=","aad":"YQ==","algorithm":"RSAES_OAEP_SHA_256","version":2,"order":"C1C2C3"}`},
	{"Decrypt CBC", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Decrypt(ctx, "k", client.DecryptInput{Ciphertext: []byte("hi"), IV: []byte("iv")}))
	}, "POST", "/v1/keys/k/decrypt", `{"ciphertext":"aGk=","iv":"aXY="}`},
	{"Reencrypt", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Reencrypt(ctx, "k", client.ReencryptInput{Ciphertext: []byte("hi"), SourceKey: "a/b", AAD: []byte("a"), DestinationAAD: []byte{},
			SourceAlgorithm: client.AlgSM2PKE, SourceVersion: 2, SourceOrder: client.SM2OrderASN1, SourceIV: []byte("iv")}))
	}, "POST", "/v1/keys/k/reencrypt", `{"ciphertext":"aGk=","source_key":"a/b","aad":"YQ==","destination_aad":"","source_algorithm":"SM2PKE","source_version":2,"source_order":"ASN1","source_iv":"aXY="}`},
	{"Wrap", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Wrap(ctx, "k", client.WrapInput{Plaintext: []byte("hi")}))
	}, "POST", "/v1/keys/k/wrap", `{"plaintext":"aGk="}`},
	{"Unwrap", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Unwrap(ctx, "k", client.UnwrapInput{Wrapped: []byte("hi"), Version: 2}))
	}, "POST", "/v1/keys/k/unwrap", `{"wrapped":"aGk=","version":2}`},
	{"SharedSecret", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SharedSecret(ctx, "k", client.SharedSecretInput{PublicKey: []byte("hi"), Version: 2}))
	}, "POST", "/v1/keys/k/shared-secret", `{"public_key":"aGk=","version":2}`},
	{"Derive", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Derive(ctx, "k", client.DeriveInput{Context: []byte("hi"), Bytes: 32, Algorithm: "X", Version: 2}))
	}, "POST", "/v1/keys/k/derive", `{"context":"aGk=","bytes":32,"algorithm":"X","version":2}`},
	{"Derive without a context", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Derive(ctx, "k", client.DeriveInput{Bytes: 32}))
	}, "POST", "/v1/keys/k/derive", `{"bytes":32}`},
	{"Encapsulate", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Encapsulate(ctx, "k", client.EncapsulateInput{Version: 2}))
	}, "POST", "/v1/keys/k/encapsulate", `{"version":2}`},
	{"Decapsulate", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Decapsulate(ctx, "k", client.DecapsulateInput{Ciphertext: []byte("hi"), Version: 2}))
	}, "POST", "/v1/keys/k/decapsulate", `{"ciphertext":"aGk=","version":2}`},
	{"CSR", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CSR(ctx, "k", client.CSRInput{
			Subject: client.CSRSubject{CommonName: "c", SerialNumber: "s", Country: []string{"CN"}, Province: []string{"p"}, Locality: []string{"l"},
				Organization: []string{"o"}, OrganizationalUnit: []string{"u"}, StreetAddress: []string{"a"}, PostalCode: []string{"z"}},
			DNSNames: []string{"d"}, Emails: []string{"e"}, Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, URIs: []string{"x:y"},
			Algorithm: client.AlgSM2DSA, Version: 2}))
	}, "POST", "/v1/keys/k/csr", `{"subject":{"common_name":"c","serial_number":"s","country":["CN"],"province":["p"],"locality":["l"],"organization":["o"],"organizational_unit":["u"],"street_address":["a"],"postal_code":["z"]},` +
		`"dns_names":["d"],"emails":["e"],"addresses":["2001:db8::1"],"uris":["x:y"],"algorithm":"SM2DSA","version":2}`},
	{"CSR, nothing", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CSR(ctx, "k", client.CSRInput{}))
	}, "POST", "/v1/keys/k/csr", `{}`},
	{"DataKey", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DataKey(ctx, "k", client.DataKeyInput{Bytes: 48, AAD: []byte("a")}))
	}, "POST", "/v1/keys/k/datakey", `{"bytes":48,"aad":"YQ=="}`},
	{"DataKeyWrapped", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DataKeyWrapped(ctx, "k", client.DataKeyInput{Spec: client.SpecAES256}))
	}, "POST", "/v1/keys/k/datakey/wrapped", `{"spec":"AES_256"}`},

	{"Sign a message", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Sign(ctx, "k", client.SignInput{Message: []byte("hi"), Algorithm: client.AlgSM2DSA, UserID: "me", Version: 2, Format: client.FormatRaw}))
	}, "POST", "/v1/keys/k/sign", `{"message":"aGk=","algorithm":"SM2DSA","user_id":"me","version":2,"format":"raw"}`},
	{"Sign an empty message", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Sign(ctx, "k", client.SignInput{Message: []byte{}}))
	}, "POST", "/v1/keys/k/sign", `{"message":""}`},
	{"Sign a digest", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Sign(ctx, "k", client.SignInput{Digest: []byte("hi")}))
	}, "POST", "/v1/keys/k/sign", `{"digest":"aGk="}`},
	{"Verify", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Verify(ctx, "k", client.VerifyInput{SignInput: client.SignInput{Message: []byte("hi")}, Signature: []byte("s")}))
	}, "POST", "/v1/keys/k/verify", `{"message":"aGk=","signature":"cw=="}`},
	{"MAC", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.MAC(ctx, "k", client.MACInput{Algorithm: client.AlgHMACSM3, Version: 1}))
	}, "POST", "/v1/keys/k/mac", `{"message":"","algorithm":"HMAC_SM3","version":1}`},
	{"VerifyMAC", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.VerifyMAC(ctx, "k", client.VerifyMACInput{MACInput: client.MACInput{Message: []byte("hi")}, MAC: []byte("m")}))
	}, "POST", "/v1/keys/k/verify-mac", `{"message":"aGk=","mac":"bQ=="}`},
	{"PublicKey", func(ctx context.Context, c *client.Client) (any, error) { return out(c.PublicKey(ctx, "k", 0)) },
		"GET", "/v1/keys/k/public", ""},
	{"PublicKey of a version", func(ctx context.Context, c *client.Client) (any, error) { return out(c.PublicKey(ctx, "k", 4)) },
		"GET", "/v1/keys/k/public?version=4", ""},
	{"Batch", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Batch(ctx, []client.BatchItem{{Op: "mac", Key: "a/b", Input: client.MACInput{Message: []byte("hi")}}}))
	}, "POST", "/v1/batch", `{"items":[{"op":"mac","key":"a/b","message":"aGk="}]}`},
	{"Random", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Random(ctx, 32)) },
		"POST", "/v1/random", `{"bytes":32}`},
	{"Digest", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Digest(ctx, client.HashSM3, nil))
	},
		"POST", "/v1/digest", `{"algorithm":"SM3","data":""}`},

	{"CreateTenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateTenant(ctx, client.CreateTenantInput{Name: "acme", Tier: client.TierGold, AllowSealed: true}))
	}, "POST", "/v1/tenants", `{"name":"acme","tier":"gold","allow_sealed":true}`},
	{"CreateTenant beyond the capacity", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateTenant(ctx, client.CreateTenantInput{Name: "acme", Force: true}))
	}, "POST", "/v1/tenants", `{"name":"acme","force":true}`},
	{"GetTenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetTenant(ctx, "acme")) },
		"GET", "/v1/tenants/acme", ""},
	{"ListTenants", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListTenants(ctx)) },
		"GET", "/v1/tenants", ""},
	{"UpdateTenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.UpdateTenant(ctx, "acme", client.UpdateTenantInput{Tier: client.TierSilver, AllowSealed: new(bool)}))
	}, "PATCH", "/v1/tenants/acme", `{"tier":"silver","allow_sealed":false}`},
	{"UpdateTenant beyond the capacity", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.UpdateTenant(ctx, "acme", client.UpdateTenantInput{Tier: client.TierGold, Force: true}))
	}, "PATCH", "/v1/tenants/acme", `{"tier":"gold","force":true}`},
	{"SuspendTenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.SuspendTenant(ctx, "acme")) },
		"POST", "/v1/tenants/acme/suspend", ""},
	{"ResumeTenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.ResumeTenant(ctx, "acme")) },
		"POST", "/v1/tenants/acme/resume", ""},
	{"DeleteTenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DeleteTenant(ctx, "acme")) },
		"DELETE", "/v1/tenants/acme", ""},
	{"GetApproval", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetApproval(ctx, "id")) },
		"GET", "/v1/approvals/id", ""},
	{"ListApprovals", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListApprovals(ctx)) },
		"GET", "/v1/approvals", ""},
	{"Approve", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Approve(ctx, "id")) },
		"POST", "/v1/approvals/id/approve", ""},
	{"SetNodeMode", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SetNodeMode(ctx, "hsm-1", client.SetNodeModeInput{Mode: client.NodeDrained, Force: true}))
	}, "POST", "/v1/hsm/nodes/hsm-1/mode", `{"mode":"drained","force":true}`},
	{"SelfTestNode", func(ctx context.Context, c *client.Client) (any, error) { return out(c.SelfTestNode(ctx, "hsm-1")) },
		"POST", "/v1/hsm/nodes/hsm-1/self-test", ""},
	{"PoolMap", func(ctx context.Context, c *client.Client) (any, error) { return out(c.PoolMap(ctx, "")) },
		"GET", "/v1/hsm/map", ""},
	{"GetPolicy", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetPolicy(ctx)) },
		"GET", "/v1/policy", ""},
	{"GetPolicyVersion", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetPolicyVersion(ctx, 3)) },
		"GET", "/v1/policy/versions/3", ""},
	{"ListPolicyVersions", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListPolicyVersions(ctx)) },
		"GET", "/v1/policy/versions", ""},
	{"CheckPolicy", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CheckPolicy(ctx, []byte(`{"gate":{"safe_percent":85}}`)))
	}, "POST", "/v1/policy/check", `{"document":{"gate":{"safe_percent":85}}}`},
	{"DiffPolicy", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DiffPolicy(ctx, client.DiffPolicyInput{Document: []byte(`{"gate":{}}`)}))
	}, "POST", "/v1/policy/diff", `{"document":{"gate":{}}}`},
	{"DiffPolicy with a version", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DiffPolicy(ctx, client.DiffPolicyInput{Version: new(uint32)}))
	}, "POST", "/v1/policy/diff", `{"version":0}`},
	{"PutPolicy", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.PutPolicy(ctx, client.PutPolicyInput{Document: []byte(`{"gate":{}}`), Previous: 3, Comment: "more for gold"}))
	}, "PUT", "/v1/policy", `{"document":{"gate":{}},"previous":3,"comment":"more for gold"}`},
	{"PutPolicy beyond the capacity", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.PutPolicy(ctx, client.PutPolicyInput{Document: []byte(`{"gate":{}}`), Force: true}))
	}, "PUT", "/v1/policy", `{"document":{"gate":{}},"previous":0,"force":true}`},
	{"RollbackPolicy beyond the capacity", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RollbackPolicy(ctx, client.RollbackPolicyInput{Version: 2, Force: true}))
	}, "POST", "/v1/policy/rollback", `{"version":2,"force":true}`},
	{"RollbackPolicy", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RollbackPolicy(ctx, client.RollbackPolicyInput{}))
	}, "POST", "/v1/policy/rollback", `{"version":0}`},
	{"Capacity", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Capacity(ctx)) }, "GET", "/v1/capacity", ""},
	{"Quota", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Quota(ctx, "")) }, "GET", "/v1/quota", ""},
	{"Quota of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Quota(ctx, "a/b")) },
		"GET", "/v1/tenants/a%2Fb/quota", ""},
	{"Why", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Why(ctx, "01920000-0000-7000-8000-000000000001"))
	},
		"GET", "/v1/requests/01920000-0000-7000-8000-000000000001/why", ""},
	{"Audit", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Audit(ctx, "", client.AuditQuery{}))
	},
		"GET", "/v1/audit", ""},
	{"Audit of a tenant, with everything", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Audit(ctx, "acme", client.AuditQuery{From: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 3, 0, 0, 0, 5, time.UTC),
			Operation: "sign", Key: "k", Credential: "c", Outcome: "ok", Request: "r", Project: "p", Component: "gw", APINode: "n",
			ByArrival: true, After: "n/7", PageSize: 5, PageToken: "t"}))
	}, "GET", "/v1/tenants/acme/audit?after=n%2F7&api_node=n&component=gw&credential=c&from=2026-01-02T00%3A00%3A00Z&key=k&operation=sign&order=arrival" +
		"&outcome=ok&page_size=5&page_token=t&project=p&request=r&to=2026-01-03T00%3A00%3A00.000000005Z", ""},
	{"Usage", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Usage(ctx, "", client.UsageQuery{}))
	},
		"GET", "/v1/usage", ""},
	{"Usage of a tenant, with everything", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Usage(ctx, "acme", client.UsageQuery{From: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC),
			Granularity: "hour", By: []string{"project", "key"}, Where: map[string]string{"reason": ""}}))
	}, "GET", "/v1/tenants/acme/usage?by=project%2Ckey&from=2026-01-02T00%3A00%3A00Z&granularity=hour&reason=&to=2026-01-03T00%3A00%3A00Z", ""},
	{"Bill", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Bill(ctx, "", "")) }, "GET", "/v1/usage/bill", ""},
	{"Bill of a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.Bill(ctx, "acme", "2026-01-31"))
	},
		"GET", "/v1/tenants/acme/usage/bill?day=2026-01-31", ""},
	{"ServiceLevel", func(ctx context.Context, c *client.Client) (any, error) { return out(c.ServiceLevel(ctx, "")) }, "GET", "/v1/service-level", ""},
	{"ServiceLevel of a month", func(ctx context.Context, c *client.Client) (any, error) { return out(c.ServiceLevel(ctx, "2026-01")) },
		"GET", "/v1/service-level?month=2026-01", ""},
	{"Scheduler", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Scheduler(ctx)) }, "GET", "/v1/scheduler", ""},
	{"CreateProject", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CreateProject(ctx, "", "a/b")) },
		"POST", "/v1/projects", `{"name":"a/b"}`},
	{"CreateProject in a tenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CreateProject(ctx, "a/b", "p")) },
		"POST", "/v1/tenants/a%2Fb/projects", `{"name":"p"}`},
	{"ListProjects", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListProjects(ctx, "")) },
		"GET", "/v1/projects", ""},
	{"ListProjects of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListProjects(ctx, "acme")) },
		"GET", "/v1/tenants/acme/projects", ""},
	{"CreateCredential", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateCredential(ctx, "", client.CreateCredentialInput{Name: "n", Project: "p", Component: "gw", Scopes: []string{"key:*"},
			ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}))
	}, "POST", "/v1/credentials", `{"name":"n","project":"p","component":"gw","scopes":["key:*"],"expires_at":"2030-01-02T03:04:05Z","networks":["10.0.0.0/8"]}`},
	{"CreateCredential in a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateCredential(ctx, "acme", client.CreateCredentialInput{Name: "n", Scopes: []string{"key:*"}}))
	}, "POST", "/v1/tenants/acme/credentials", `{"name":"n","scopes":["key:*"]}`},
	{"GetCredential", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetCredential(ctx, "", "id")) },
		"GET", "/v1/credentials/id", ""},
	{"GetCredential of a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.GetCredential(ctx, "acme", "id"))
	},
		"GET", "/v1/tenants/acme/credentials/id", ""},
	{"ListCredentials", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListCredentials(ctx, "")) },
		"GET", "/v1/credentials", ""},
	{"ListCredentials of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListCredentials(ctx, "acme")) },
		"GET", "/v1/tenants/acme/credentials", ""},
	{"RotateCredential", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RotateCredential(ctx, "", "id", client.RotateCredentialInput{}))
	}, "POST", "/v1/credentials/id/rotate", `{}`},
	{"RotateCredential of a tenant, at once", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RotateCredential(ctx, "acme", "id", client.RotateCredentialInput{OverlapHours: &zero}))
	}, "POST", "/v1/tenants/acme/credentials/id/rotate", `{"overlap_hours":0}`},
	{"CreateSecret", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateSecret(ctx, client.CreateSecretInput{Path: "llm/openai", Provider: "openai", Value: client.NewValue("sk-1"),
			Metadata: map[string]string{"region": "eu"}, FreshSeconds: 60, LeaseSeconds: 600, NotAfter: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}))
	}, "POST", "/v1/secrets", `{"path":"llm/openai","provider":"openai","value":"sk-1","metadata":{"region":"eu"},"fresh_seconds":60,"lease_seconds":600,"not_after":"2030-01-02T03:04:05Z"}`},
	{"GetSecret", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetSecret(ctx, "id")) }, "GET", "/v1/secrets/id", ""},
	{"ListSecrets", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListSecrets(ctx, "llm/")) }, "GET", "/v1/secrets?prefix=llm%2F", ""},
	{"UpdateSecret", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.UpdateSecret(ctx, "id", client.UpdateSecretInput{Metadata: map[string]string{}, FreshSeconds: 60, LeaseSeconds: 600, ExpectedRevision: 3}))
	}, "PATCH", "/v1/secrets/id", `{"metadata":{},"fresh_seconds":60,"lease_seconds":600,"expected_revision":3}`},
	{"DeleteSecret", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DeleteSecret(ctx, "id")) }, "DELETE", "/v1/secrets/id", ""},
	{"AddSecretVersion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.AddSecretVersion(ctx, "id", client.AddSecretVersionInput{Value: client.NewValue("sk-2"), ExpectedRevision: 3}))
	}, "POST", "/v1/secrets/id/versions", `{"value":"sk-2","expected_revision":3}`},
	{"ActivateSecret", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ActivateSecret(ctx, "id", client.ActivateSecretInput{Version: 2, Steps: []uint32{10, 30, 100}, StepInterval: 60, Observe: 3600, ExpectedRevision: 3}))
	}, "POST", "/v1/secrets/id/activate", `{"version":2,"steps":[10,30,100],"step_interval":60,"observe":3600,"expected_revision":3}`},
	{"RollbackSecret", func(ctx context.Context, c *client.Client) (any, error) { return out(c.RollbackSecret(ctx, "id", 3)) },
		"POST", "/v1/secrets/id/rollback", `{"expected_revision":3}`},
	{"DisableSecretVersion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DisableSecretVersion(ctx, "id", 2, 0))
	}, "POST", "/v1/secrets/id/versions/2/disable", `{}`},
	{"DestroySecretVersion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.DestroySecretVersion(ctx, "id", 2, 7, 3))
	}, "POST", "/v1/secrets/id/versions/2/destroy", `{"days":7,"expected_revision":3}`},
	{"RestoreSecretVersion", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RestoreSecretVersion(ctx, "id", 2, 3))
	}, "POST", "/v1/secrets/id/versions/2/restore", `{"expected_revision":3}`},
	{"GetSecretGrants", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetSecretGrants(ctx, "id")) },
		"GET", "/v1/secrets/id/grants", ""},
	{"SetSecretGrants", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SetSecretGrants(ctx, "id", []string{"c1"}))
	}, "PUT", "/v1/secrets/id/grants", `{"credentials":["c1"]}`},
	{"SetSecretGrants to nobody", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SetSecretGrants(ctx, "id", nil))
	},
		"PUT", "/v1/secrets/id/grants", `{"credentials":[]}`},
	{"FetchSecrets", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.FetchSecrets(ctx, client.FetchSecretsInput{Items: []client.FetchSecretItem{{Path: "llm/openai", HaveRevision: 12}, {Path: "b"}}, MinRevision: 15}))
	}, "POST", "/v1/secret-values/fetch", `{"items":[{"path":"llm/openai","have_revision":12},{"path":"b"}],"min_revision":15}`},
	{"ReportSecrets", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ReportSecrets(ctx, []client.SecretOutcome{{SecretID: "id", Version: 7, OK: 120, Credential: 1, RateLimit: 3}}))
	}, "POST", "/v1/secret-values/report", `{"items":[{"secret_id":"id","version":7,"ok":120,"credential":1,"quota":0,"rate_limit":3,"transient":0}]}`},
	{"PutRoute", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.PutRoute(ctx, "chat", client.PutRouteInput{Models: []string{"gpt-5"}, Weights: map[string]uint32{"a": 100}, AuthHeader: "x-api-key", Residency: "eu", ExpectedRevision: 3,
			Primary:         client.RouteTarget{Name: "a", Provider: "openai", BaseURL: "https://a.example/v1", Region: "eu", RetentionDays: 30, Capabilities: []string{"tools"}, Secret: "llm/a"},
			Fallbacks:       []client.RouteTarget{{Name: "b", Provider: "openai", BaseURL: "https://b.example/v1", Region: "eu"}},
			LocalLastResort: &client.RouteTarget{Name: "c", Provider: "local", BaseURL: "https://c.example", Region: "eu"}}))
	}, "PUT", "/v1/routes/chat", `{"models":["gpt-5"],"primary":{"name":"a","provider":"openai","base_url":"https://a.example/v1","region":"eu","retention_days":30,"capabilities":["tools"],"secret":"llm/a"},` +
		`"fallbacks":[{"name":"b","provider":"openai","base_url":"https://b.example/v1","region":"eu"}],"weights":{"a":100},"auth_header":"x-api-key","residency":"eu",` +
		`"local_last_resort":{"name":"c","provider":"local","base_url":"https://c.example","region":"eu"},"expected_revision":3}`},
	{"GetRoute", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetRoute(ctx, "chat", "")) }, "GET", "/v1/routes/chat", ""},
	{"GetRoute for a model", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.GetRoute(ctx, "chat", "vendor/model"))
	}, "GET", "/v1/routes/chat?model=vendor%2Fmodel", ""},
	{"ListRoutes", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListRoutes(ctx)) }, "GET", "/v1/routes", ""},
	{"DeleteRoute", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DeleteRoute(ctx, "chat")) }, "DELETE", "/v1/routes/chat", ""},
	{"ReportRoute", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ReportRoute(ctx, "chat", client.RouteReport{Generation: 7, Model: "gpt-5", Items: []client.RouteOutcome{
			{Target: "a", Model: "gpt-5", Version: 2, OK: 1, Credential: 2, Quota: 3, RateLimit: 4, Transient: 5, Connections: 5, Retries: 6, RetryAfterMS: 7, P99MS: 8, Lease: 9}}}))
	}, "POST", "/v1/routes/chat/report", `{"generation":7,"model":"gpt-5","items":[{"target":"a","model":"gpt-5","version":2,"ok":1,"credential":2,"quota":3,"rate_limit":4,"transient":5,"connections":5,"retries":6,"retry_after_ms":7,"p99_ms":8,"lease":9}]}`},
	{"CreateWebhook", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateWebhook(ctx, client.CreateWebhookInput{URL: "https://hooks.example.com/", Types: []string{"node.down"}}))
	}, "POST", "/v1/webhooks", `{"url":"https://hooks.example.com/","types":["node.down"]}`},
	{"CreateWebhook for all", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.CreateWebhook(ctx, client.CreateWebhookInput{URL: "https://hooks.example.com/"}))
	}, "POST", "/v1/webhooks", `{"url":"https://hooks.example.com/"}`},
	{"GetWebhook", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetWebhook(ctx, "id")) },
		"GET", "/v1/webhooks/id", ""},
	{"ListWebhooks", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListWebhooks(ctx)) },
		"GET", "/v1/webhooks", ""},
	{"DeleteWebhook", func(ctx context.Context, c *client.Client) (any, error) { return out(c.DeleteWebhook(ctx, "id")) },
		"DELETE", "/v1/webhooks/id", ""},
	{"TestWebhook", func(ctx context.Context, c *client.Client) (any, error) { return out(c.TestWebhook(ctx, "id")) },
		"POST", "/v1/webhooks/id/test", ""},
	{"CostIncidents", func(ctx context.Context, c *client.Client) (any, error) { return first(c.CostIncidents(ctx, "")) },
		"GET", "/v1/quota/incidents", ""},
	{"CostIncidents of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return first(c.CostIncidents(ctx, "acme")) },
		"GET", "/v1/tenants/acme/quota/incidents", ""},
	{"CostReport", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CostReport(ctx, "", "id")) },
		"GET", "/v1/quota/incidents/id", ""},
	{"CostReport of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CostReport(ctx, "acme", "id")) },
		"GET", "/v1/tenants/acme/quota/incidents/id", ""},
	{"LiftCost", func(ctx context.Context, c *client.Client) (any, error) { return out(c.LiftCost(ctx, "")) },
		"POST", "/v1/quota/cost-breaker/reset", ""},
	{"LiftCost of a tenant", func(ctx context.Context, c *client.Client) (any, error) { return out(c.LiftCost(ctx, "acme")) },
		"POST", "/v1/tenants/acme/quota/cost-breaker/reset", ""},
	{"SubmitJob", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SubmitJob(ctx, client.JobItems(slices.Values([]client.BatchItem{{Op: "random", Input: map[string]int{"bytes": 8}}, {Op: "sign", Key: "k"}})),
			&client.SubmitJobOptions{Retain: 72 * time.Hour}))
	}, "POST", "/v1/jobs?retain_hours=72", `{"op":"random","bytes":8}` + "\n" + `{"op":"sign","key":"k"}` + "\n"},
	{"SubmitJob of lines", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.SubmitJob(ctx, strings.NewReader("lines"), nil))
	}, "POST", "/v1/jobs", "lines"},
	{"GetJob", func(ctx context.Context, c *client.Client) (any, error) { return out(c.GetJob(ctx, "id")) }, "GET", "/v1/jobs/id", ""},
	{"ListJobs", func(ctx context.Context, c *client.Client) (any, error) { return first(c.ListJobs(ctx)) }, "GET", "/v1/jobs", ""},
	{"CancelJob", func(ctx context.Context, c *client.Client) (any, error) { return out(c.CancelJob(ctx, "id")) }, "DELETE", "/v1/jobs/id", ""},
	{"QuotaStandings", func(ctx context.Context, c *client.Client) (any, error) { return out(c.QuotaStandings(ctx, 0)) },
		"GET", "/v1/quota/tenants", ""},
	{"QuotaStandings, few", func(ctx context.Context, c *client.Client) (any, error) { return out(c.QuotaStandings(ctx, 7)) },
		"GET", "/v1/quota/tenants?page_size=7", ""},
	{"RevokeCredential", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RevokeCredential(ctx, "", "id"))
	},
		"POST", "/v1/credentials/id/revoke", ""},
	{"RevokeCredential of a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.RevokeCredential(ctx, "acme", "id"))
	}, "POST", "/v1/tenants/acme/credentials/id/revoke", ""},
	{"ClearCredential", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ClearCredential(ctx, "", "id"))
	},
		"POST", "/v1/credentials/id/clear", ""},
	{"ClearCredential of a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.ClearCredential(ctx, "acme", "id"))
	}, "POST", "/v1/tenants/acme/credentials/id/clear", ""},
	{"EnrolOneTimeCode", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.EnrolOneTimeCode(ctx, "", "id"))
	},
		"POST", "/v1/credentials/id/one-time-code", ""},
	{"EnrolOneTimeCode of a tenant", func(ctx context.Context, c *client.Client) (any, error) {
		return out(c.EnrolOneTimeCode(ctx, "acme", "id"))
	}, "POST", "/v1/tenants/acme/credentials/id/one-time-code", ""},
	{"Nodes", func(ctx context.Context, c *client.Client) (any, error) { return out(c.Nodes(ctx)) },
		"GET", "/v1/hsm/nodes", ""},
}

func TestEveryMethodSendsItsRequest(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			requests := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				if r.Method != tc.method || r.RequestURI != tc.target {
					t.Errorf("sent %s %s, want %s %s", r.Method, r.RequestURI, tc.method, tc.target)
				}
				body := readAll(t, r.Body)
				if body != tc.body {
					t.Errorf("sent the body %s, want %s", body, tc.body)
				}
				wantType := "application/json"
				if tc.body == "" {
					wantType = ""
				} else if strings.HasPrefix(tc.target, "/v1/jobs") {
					wantType = "application/x-ndjson"
				}
				for name, want := range map[string]string{
					"Authorization":      "Bearer " + testToken,
					"Accept":             "application/json",
					"Content-Type":       wantType,
					"User-Agent":         client.DefaultUserAgent,
					"Sluice-Urgency":     "",
					"Sluice-Deadline-Ms": "",
				} {
					if got := r.Header.Get(name); got != want {
						t.Errorf("header %s: %q, want %q", name, got, want)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"results":[{}]}`) // a batch has as many as items
			})
			if _, err := tc.do(t.Context(), c); err != nil {
				t.Error(err)
			}
			if requests != 1 {
				t.Errorf("sent %d requests, want 1", requests)
			}
		})
	}
}

func TestAnswersAreDecodedWhole(t *testing.T) {
	const charge = `"cost":12.5,"request_id":"r-1"`
	const meta = charge + `,"protection":"HSM"`
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wantCharge := client.Charge{Cost: 12.5, RequestID: "r-1"}
	wantMeta := client.Meta{Charge: wantCharge, Protection: client.ProtectionHSM}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, map[string]string{
			"/v1/keys/k": `{"id":"i","name":"k","spec":"SM2","usage":"SIGN_VERIFY","algorithms":["SM2DSA"],"project":"p","protection":"HSM",
				"state":"ENABLED","tags":{"a":"b"},"created_at":"2026-01-02T03:04:05Z","deletion_protection":true,"primary_version":2,
				"versions":[{"version":2,"state":"ENABLED","created_at":"2026-01-02T03:04:05Z"}],"revision":3,"a_later_field":[1],` + charge + `}`,
			"/v1/keys/k/sign":    `{"signature":"+/8=","algorithm":"SM2DSA","version":2,` + meta + `}`,
			"/v1/keys/k/verify":  `{"valid":true,"algorithm":"SM2DSA","version":2,` + meta + `}`,
			"/v1/keys/k/decrypt": `{"plaintext":"","algorithm":"AES_GCM","version":1,` + meta + `}`,
			"/v1/keys/k/public":  `{"pem":"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n","jwk":{"kty":"EC"},"spec":"ECC_NIST_P256","usage":"SIGN_VERIFY","version":1,` + meta + `}`,
			"/v1/credentials":    `{"id":"i","name":"n","project":"p","scopes":["key:*"],"networks":["10.0.0.0/8"],"secrets":[{"created_at":"2026-01-02T03:04:05Z"}],"created_at":"2026-01-02T03:04:05Z","revision":1,"credential":"` + testToken + `",` + charge + `}`,
		}[r.URL.Path])
	})
	ctx := t.Context()

	key, err := c.GetKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if key.Name != "k" || key.Spec != client.SpecSM2 || !key.CreatedAt.Equal(created) || !key.DeletionDate.IsZero() ||
		!key.DeletionProtection || len(key.Versions) != 1 || key.Versions[0].Version != 2 || key.Tags["a"] != "b" || key.Charge != wantCharge {
		t.Errorf("key: %+v", key)
	}
	signed, err := c.Sign(ctx, "k", client.SignInput{Message: []byte{}})
	if err != nil || string(signed.Signature) != "\xfb\xff" || signed.Algorithm != client.AlgSM2DSA || signed.Version != 2 || signed.Meta != wantMeta {
		t.Errorf("signature: %+v, %v", signed, err)
	}
	verified, err := c.Verify(ctx, "k", client.VerifyInput{})
	if err != nil || !verified.Valid || verified.Meta != wantMeta {
		t.Errorf("verification: %+v, %v", verified, err)
	}
	opened, err := c.Decrypt(ctx, "k", client.DecryptInput{})
	if err != nil || opened.Plaintext == nil || len(opened.Plaintext) != 0 {
		t.Errorf("an empty plaintext: %+v, %v", opened, err)
	}
	public, err := c.PublicKey(ctx, "k", 0)
	if err != nil || string(public.JWK) != `{"kty":"EC"}` || public.JWK.Kind() != jsontext.KindBeginObject {
		t.Fatalf("public key: %+v, %v", public, err)
	}
	if der, err := public.DER(); err != nil || string(der) != "\x30\x00" {
		t.Errorf("DER: %x, %v", der, err)
	}
	minted, err := c.CreateCredential(ctx, "", client.CreateCredentialInput{})
	if err != nil || minted.Token.Reveal() != testToken || minted.Networks[0].Bits() != 8 || minted.Charge != wantCharge {
		t.Errorf("credential: %+v, %v", minted, err)
	}
}

func TestOptionsReachTheWire(t *testing.T) {
	header := make(chan http.Header, 1)
	h := func(_ http.ResponseWriter, r *http.Request) { header <- r.Header }
	bulk := serve(t, h).WithUrgency(client.UrgencyBulk)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, _ = bulk.Random(ctx, 1)
	got := <-header
	if got.Get("Sluice-Urgency") != "bulk" {
		t.Errorf("urgency: %q", got.Get("Sluice-Urgency"))
	}
	var ms int
	if _, err := fmt.Sscan(got.Get("Sluice-Deadline-Ms"), &ms); err != nil || ms < 1 || ms > 10_000 {
		t.Errorf("deadline: %q, want at most the 10,000 ms of the context", got.Get("Sluice-Deadline-Ms"))
	}
	// The service takes a minute at most and refuses more.
	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, _ = bulk.Random(ctx, 1)
	if got := (<-header).Get("Sluice-Deadline-Ms"); got != "60000" {
		t.Errorf("deadline of an hour: %q, want 60000", got)
	}
}
