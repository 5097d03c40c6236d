package cli_test

import (
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/quota"
)

// Credentials of the service of canned answers.
const (
	demoToken     = "slk_demodemodemodemodemodemodemodemodemodemo_demosecret"
	operatorToken = "slk_operatoroperatoroperatoroperatoroperator_operatorsecret"
	mintedToken   = "slk_mintedmintedmintedmintedmintedmintedmint_mintedsecret"
)

// service answers with what stands in answers and remembers the last request.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	last string
	sent int // batches
}

func startService(t *testing.T) *service {
	s := &service{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) lastRequest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

const charge = `"cost":1,"request_id":"01920000-0000-7000-8000-000000000001"`

const meta = charge + `,"protection":"HSM"`

func key(name, state, rest string) string {
	return fmt.Sprintf(`{"id":"01920000-0000-7000-8000-00000000000a","name":%q,"spec":"ECC_NIST_P256","usage":"SIGN_VERIFY","algorithms":["ECDSA_SHA_256"],
"project":"default","protection":"HSM","state":%q,"description":"for orders","tags":{"team":"shop","stage":"live"},
"created_at":"2026-01-02T03:04:05Z","origin":"GENERATED","rotation_days":90,"next_rotation":"2026-05-03T03:04:05Z","last_used":"2026-02-03T04:05:06Z","last_used_op":"sign",
"deletion_protection":false,"primary_version":2,"revision":3%s}`, name, state, rest)
}

const versions = `,"versions":[{"version":1,"state":"DISABLED","created_at":"2026-01-02T03:04:05Z"},{"version":2,"state":"ENABLED","created_at":"2026-02-02T03:04:05Z"}],` + charge

const (
	secretPath   = "/v1/secrets/01920000-0000-7000-8000-000000000021"
	secretFields = `{"id":"01920000-0000-7000-8000-000000000021","path":"llm/openai","provider":"openai","metadata":{"region":"eu"},"state":"ACTIVE",
"created_at":"2026-01-02T03:04:05Z","fresh_seconds":300,"lease_seconds":3600,"rollout":{"state":"RUNNING","from":1,"to":2,"steps":[10,30,100],"step":1,
"step_interval":60,"observe":604800,"since":"2026-01-02T03:04:05Z"}`
	secretWhole = secretFields + `,"revision":12,"versions":[{"version":1,"state":"ACTIVE","weight":90,"created_at":"2026-01-02T03:04:05Z"},
{"version":2,"state":"ACTIVE","weight":10,"created_at":"2026-02-02T03:04:05Z","not_after":"2027-01-02T03:04:05Z"}],`
)

const credentialFields = `"id":"01920000-0000-7000-8000-00000000000c","name":"ci","project":"default","component":"gateway","scopes":["key:sign:orders-*","key:verify"],
"networks":["10.0.0.0/8"],"secrets":[{"created_at":"2026-01-02T03:04:05Z"},{"created_at":"2026-01-01T03:04:05Z","expires_at":"2026-01-03T03:04:05Z"}],
"created_at":"2026-01-01T03:04:05Z","expires_at":"2030-01-01T00:00:00Z","revision":2,` + charge

const route = `{"name":"chat","models":["gpt-5"],"primary":{"name":"one","provider":"openai","base_url":"https://one.example/v1","region":"eu-west-1","retention_days":30,"secret":"llm/one"},
"fallbacks":[{"name":"two","provider":"azure-openai","base_url":"https://two.example","region":"eu","secret":"llm/two"}],
"local_last_resort":{"name":"own","provider":"local","base_url":"https://own.example","region":"eu"},
"weights":{"one":100},"auth_header":"authorization: bearer","residency":"eu","created_at":"2026-01-02T03:04:05Z","revision":2`

const routeOrder = `{"generation":7,"targets":[{"target":"two","weight":70,"reasons":["healthy","stands_in"],"state":"healthy","since":"2026-01-02T03:04:05Z","endpoint":"healthy","breaker":"closed"},
{"target":"one","weight":30,"reasons":["switching","half_open"],"state":"unhealthy","cause":"endpoint","since":"2026-01-02T03:04:05Z","endpoint":"unhealthy","breaker":"half-open","until":"2026-01-02T03:06:05Z","lease":3,"lease_until":"2026-01-02T03:07:05Z"}]`

const incident = `"id":"01920000-0000-7000-8000-000000000020","api_node":"api-1","began_at":"2026-01-02T03:00:00Z","ended_at":"2026-01-02T03:05:00Z","stopped_at":"2026-01-02T03:03:00Z","peak_risk_permille":3100,"used":5000,"over":4000,"refused":1,"component":"loop","causes":["RETRY_LOOP"]`

const costBreaker = `"cost_breaker":{"enabled":true,"risk_permille":3100,"line_permille":2000,"recover_permille":1000,"used_per_minute":60000,"allowed_per_minute":7741.9,"exhausted_at":"2026-01-02T05:00:00Z","stages":[{"component":"loop","whole_tenant":false,"stage":"marked","risk_permille":3000,"used_per_minute":58000,"stops_at":"2026-01-02T03:05:05Z","credits_at_stop":180000}]},`
const jobFields = `"project":"default","credential":"01920000-0000-7000-8000-00000000000c","items":3,"failed":1,"bytes":120,"credits":2.5,"items_per_second":1500,"created_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-09T03:04:05Z"`

const (
	jobPath    = "/v1/jobs/01920000-0000-7000-8000-000000000030"
	jobRunning = `{"id":"01920000-0000-7000-8000-000000000030","state":"WAITING","waits_for":"TENANT_RATE","waits_until":"2026-01-02T03:05:05Z","done":2,` + jobFields
	jobDone    = `{"id":"01920000-0000-7000-8000-000000000031","state":"DONE","done":3,"ended_at":"2026-01-02T03:06:05Z",` + jobFields
	jobLines   = `{"index":0,"status":200,"result":{"n":1},"cost":1,"request_id":"r-0"}
{"index":1,"status":404,"problem":{"status":404,"code":"not_found"},"cost":0,"request_id":"r-1"}
{"index":2,"status":200,"result":{"n":3},"cost":1,"request_id":"r-2"}
`
)

const webhook = `{"id":"01920000-0000-7000-8000-000000000010","url":"https://hooks.example.com/sluice","types":["quota.day_soft_limit"],"state":"ACTIVE","created_at":"2026-01-02T03:04:05Z","failing_since":"2026-01-03T03:04:05Z","revision":1`

const approvalID = "01920000-0000-7000-8000-00000000000f"

const approval = `{"id":"` + approvalID + `","operation":"delete-tenant","resource":"tenant acme","requested_by":"01920000-0000-7000-8000-00000000000b",
"used":false,"created_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-03T03:04:05Z"`

const tenant = `{"id":"01920000-0000-7000-8000-00000000000d","name":"acme","tier":"gold","state":"ACTIVE","allow_sealed":false,"created_at":"2026-01-02T03:04:05Z","revision":1`

const policyFields = `"sha256":"00ff","comment":"more for gold","created_at":"2026-01-02T03:04:05Z","created_by":"01920000-0000-7000-8000-00000000000c"`

// policyDocument is the policy that Sluice comes with.
var policyDocument = func() string {
	document, err := quota.DefaultPolicy().Document()
	if err != nil {
		panic(err)
	}
	return string(document)
}()

// answers are by method and path.
var answers = map[string]string{
	"POST /v1/keys":                                           key("orders/eu", "ENABLED", versions),
	"POST /v1/import":                                         key("orders/eu", "ENABLED", versions),
	"POST /v1/import-parameters":                              `{"wrapping":"SM2PKE","public_key":"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n","token":"dG9rZW4=","expires_at":"2026-01-03T03:04:05Z",` + charge + `}`,
	"GET /v1/keys/orders%2Feu":                                key("orders/eu", "ENABLED", versions),
	"PATCH /v1/keys/orders%2Feu":                              key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/rotate":                        key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/enable":                        key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/disable":                       key("orders/eu", "DISABLED", versions),
	"POST /v1/keys/orders%2Feu/cancel-deletion":               key("orders/eu", "DISABLED", versions),
	"POST /v1/keys/orders%2Feu/schedule-deletion":             key("orders/eu", "PENDING_DELETION", `,"deletion_date":"2026-03-04T05:06:07Z"`+versions),
	"GET /v1/keys?page_token=2":                               `{"keys":[` + key("webhooks", "DISABLED", "") + `],` + charge + `}`,
	"GET /v1/keys":                                            `{"keys":[` + key("a-longer-name/eu", "ENABLED", "") + `,` + key("orders/eu", "ENABLED", "") + `],"next_page_token":"2",` + charge + `}`,
	"GET /v1/keys?page_size=200&page_token=2":                 `{"keys":[` + key("webhooks", "DISABLED", "") + `],` + charge + `}`,
	"GET /v1/keys?page_size=200":                              `{"keys":[` + key("a-longer-name/eu", "ENABLED", "") + `,` + key("orders/eu", "ENABLED", "") + `],"next_page_token":"2",` + charge + `}`,
	"GET /v1/keys?project=none":                               `{"keys":[],` + charge + `}`,
	"POST /v1/keys/orders%2Feu/sign":                          `{"signature":"c2lnbmF0dXJl","signature_crc32c":3736289424,"algorithm":"ECDSA_SHA_256","version":2,` + meta + `}`,
	"POST /v1/keys/orders%2Feu/verify":                        `{"valid":true,"algorithm":"ECDSA_SHA_256","version":2,` + meta + `}`,
	"POST /v1/keys/bench-sign-ecc-nist-p256-0/sign":           `{"signature":"c2lnbmF0dXJl","algorithm":"ECDSA_SHA_256","version":1,` + meta + `}`,
	"POST /v1/keys/other/verify":                              `{"valid":false,"algorithm":"ECDSA_SHA_256",` + meta + `}`,
	"POST /v1/keys/webhooks/mac":                              `{"mac":"AQIDBA==","algorithm":"HMAC_SHA_256","version":1,` + meta + `}`,
	"POST /v1/keys/webhooks/verify-mac":                       `{"valid":true,"algorithm":"HMAC_SHA_256","version":1,` + meta + `}`,
	"POST /v1/keys/other/verify-mac":                          `{"valid":false,"algorithm":"HMAC_SHA_256","version":1,` + meta + `}`,
	"POST /v1/keys/backups/encrypt":                           `{"ciphertext":"U0xDMQE=","algorithm":"AES_GCM","version":1,` + meta + `}`,
	"POST /v1/keys/backups/decrypt":                           `{"plaintext":"cGxhaW4AdGV4dA==","algorithm":"AES_GCM","version":1,` + meta + `}`,
	"POST /v1/keys/backups/datakey":                           `{"plaintext":"a2V5a2V5a2V5a2V5","ciphertext":"U0xDMQE=","algorithm":"AES_GCM","version":1,` + meta + `}`,
	"POST /v1/keys/backups/datakey/wrapped":                   `{"ciphertext":"U0xDMQE=","algorithm":"AES_GCM","version":1,` + meta + `}`,
	"GET /v1/keys/orders%2Feu/public":                         `{"pem":"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n","jwk":{"kty":"EC"},"spec":"ECC_NIST_P256","usage":"SIGN_VERIFY","version":2,` + meta + `}`,
	"GET /v1/keys/sm2/public?version=1":                       `{"pem":"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n","spec":"SM2","usage":"SIGN_VERIFY","version":1,` + meta + `}`,
	"PUT /v1/aliases/orders%2Fcurrent":                        `{"alias":"orders/current","key_id":"01920000-0000-7000-8000-00000000000a",` + charge + `}`,
	"DELETE /v1/aliases/orders%2Fcurrent":                     `{"alias":"orders/current",` + charge + `}`,
	"GET /v1/aliases":                                         `{"aliases":[{"alias":"orders/current","key_id":"01920000-0000-7000-8000-00000000000a"}],` + charge + `}`,
	"POST /v1/keys/orders%2Feu/versions/1/enable":             key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/versions/1/disable":            key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/versions/1/cancel-destruction": key("orders/eu", "ENABLED", versions),
	"POST /v1/keys/orders%2Feu/versions/1/schedule-destruction": key("orders/eu", "ENABLED",
		strings.Replace(versions, `"DISABLED"`, `"PENDING_DESTRUCTION","destroy_at":"2026-03-04T05:06:07Z"`, 1)),
	"POST /v1/keys/backups/reencrypt":    `{"ciphertext":"U0xDMQI=","source_version":1,"algorithm":"AES_GCM","version":2,` + meta + `}`,
	"POST /v1/keys/transport/wrap":       `{"wrapped":"AQIDBAUGBwg=","algorithm":"AES_KWP","version":1,` + meta + `}`,
	"POST /v1/keys/transport/unwrap":     `{"plaintext":"cGxhaW4AdGV4dA==","algorithm":"AES_KWP","version":1,` + meta + `}`,
	"POST /v1/keys/tunnel/shared-secret": `{"secret":"a2V5a2V5","algorithm":"ECDH","version":1,` + meta + `}`,
	"POST /v1/keys/tokens/derive":        `{"derived":"a2V5a2V5","algorithm":"HKDF_EXPAND_SHA_256","version":1,` + meta + `}`,
	"POST /v1/keys/mailbox/encapsulate":  `{"secret":"a2V5a2V5a2V5a2V5","ciphertext":"U0xDMQE=","algorithm":"ML_KEM","version":1,` + meta + `}`,
	"POST /v1/keys/mailbox/decapsulate":  `{"secret":"a2V5a2V5","algorithm":"ML_KEM","version":1,` + meta + `}`,
	"POST /v1/keys/orders%2Feu/csr":      `{"csr":"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n","algorithm":"ECDSA_SHA_256","version":2,` + meta + `}`,
	"POST /v1/random":                    `{"random":"AP8Q",` + charge + `}`,
	"POST /v1/batch":                     ``, // dry runs; see service.batch
	"POST /v1/digest":                    `{"digest":"AP8Q","algorithm":"SM3",` + charge + `}`,
	"POST /v1/projects":                  `{"name":"payments","created_at":"2026-01-02T03:04:05Z",` + charge + `}`,
	"POST /v1/tenants/acme/projects":     `{"name":"payments","created_at":"2026-01-02T03:04:05Z",` + charge + `}`,
	"GET /v1/projects":                   `{"projects":[{"name":"default","created_at":"2026-01-02T03:04:05Z"},{"name":"payments","created_at":"2026-01-02T03:04:05Z"}],` + charge + `}`,
	"GET /v1/tenants/acme/projects":      `{"projects":[{"name":"default","created_at":"2026-01-02T03:04:05Z"}],` + charge + `}`,
	"POST /v1/tenants":                   tenant + `,` + charge + `}`,
	"GET /v1/tenants":                    `{"tenants":[` + tenant + `}],` + charge + `}`,
	"GET /v1/tenants/acme":               tenant + `,` + charge + `}`,
	"PATCH /v1/tenants/acme":             tenant + `,` + charge + `}`,
	"POST /v1/tenants/acme/suspend":      strings.Replace(tenant, "ACTIVE", "SUSPENDED", 1) + `,` + charge + `}`,
	"POST /v1/tenants/acme/resume":       tenant + `,` + charge + `}`,
	"DELETE /v1/tenants/acme": strings.Replace(tenant, "ACTIVE", "DELETING", 1) +
		`,"deletion":{"requested_at":"2026-02-02T03:04:05Z","void_at":"2027-03-09T03:04:05Z"},` + charge + `}`,
	"GET /v1/approvals":                             `{"approvals":[` + approval + `}],` + charge + `}`,
	"GET /v1/approvals/" + approvalID:               approval + `,` + charge + `}`,
	"POST /v1/approvals/" + approvalID + "/approve": approval + `,"approved_by":"01920000-0000-7000-8000-00000000000c",` + charge + `}`,
	"GET /v1/policy": `{"version":3,` + policyFields + `,"stored":4,"problem":"it cannot be\u001b[31m applied: gate.safe_percent: is not below hard_percent","document":` +
		policyDocument + `,` + charge + `}`,
	"GET /v1/policy/versions/0":            `{"version":0,"sha256":"00","document":{"gate":{"safe_percent":85}},` + charge + `}`,
	"GET /v1/policy/versions":              `{"versions":[{"version":2,` + policyFields + `}],"next_page_token":"2",` + charge + `}`,
	"GET /v1/policy/versions?page_token=2": `{"versions":[{"version":1,` + policyFields + `}],` + charge + `}`,
	"POST /v1/policy/check":                `{"valid":false,"errors":[{"path":"gate.safe_percent","message":"is not below hard_percent"}],` + charge + `}`,
	"POST /v1/policy/diff": `{"version":3,"changes":[{"path":"tenants.a.limits.keys","from":"7"},{"path":"tiers.gold.burst_credits","from":"15000","to":"20000"}],` +
		charge + `}`,
	"PUT /v1/policy":                                      `{"version":5,` + policyFields + `,` + charge + `}`,
	"POST /v1/policy/rollback":                            `{"version":5,` + policyFields + `,` + charge + `}`,
	"POST /v1/credentials":                                `{` + credentialFields + `,"credential":"` + mintedToken + `"}`,
	"POST /v1/tenants/acme/credentials":                   `{` + credentialFields + `,"credential":"` + mintedToken + `"}`,
	"GET /v1/credentials":                                 `{"credentials":[{` + credentialFields + `}],` + charge + `}`,
	"GET /v1/tenants/acme/credentials":                    `{"credentials":[{` + credentialFields + `}],` + charge + `}`,
	"GET /v1/credentials/01920000-c":                      `{` + credentialFields + `}`,
	"POST /v1/credentials/01920000-c/rotate":              `{` + credentialFields + `,"credential":"` + mintedToken + `"}`,
	"POST /v1/credentials/01920000-c/revoke":              `{` + credentialFields + `,"revoked_at":"2026-02-02T03:04:05Z"}`,
	"POST /v1/tenants/acme/credentials/01920000-c/revoke": `{` + credentialFields + `,"revoked_at":"2026-02-02T03:04:05Z"}`,
	"POST /v1/credentials/01920000-c/clear":               `{` + credentialFields + `,"guard":{"open":false,"flagged_at":"2026-02-02T03:04:05Z","action":"suspend","cleared_at":"2026-02-02T04:04:05Z"}}`,
	"POST /v1/tenants/acme/credentials/01920000-c/clear":  `{` + credentialFields + `}`,
	"GET /v1/credentials/01920000-f":                      `{` + credentialFields + `,"guard":{"open":true,"flagged_at":"2026-02-02T03:04:05Z","action":"second_factor","signals":[{"signal":"new_networks","value":1,"usual":0,"text":"in a minute, 1 networks called"}],"proven_until":"2026-02-02T11:04:05Z","one_time_code_since":"2026-01-02T03:04:05Z"}}`,
	"POST /v1/credentials/01920000-c/one-time-code":       `{` + credentialFields + `,"one_time_key":"GEZDGNBV","one_time_uri":"otpauth://totp/Sluice:ci?issuer=Sluice&secret=GEZDGNBV"}`,
	"GET /v1/hsm/nodes": `{"nodes":[{"id":"hsm-1","domain":"dev","domain_id":"01920000-0000-7000-8000-00000000000e","generation":1,"driver":"pkcs11","model":"SoftHSM v2","label":"sluice-1",
"mode":"active","state":"up","breaker":"closed","enforced":true,"slots":4,"slots_now":4,"busy":1,"utilisation":0.25,"busy_seconds":1.5,"epoch":1,"families":["AES","EC"],"handles":12,"max_handles":16384,"hits":990,"misses":10,"loads":10,"epoch_loads":10,
"load_costs":[{"family":"AES","milliseconds":0.1}],"operations":1000,"errors":0},
{"id":"hsm-2","domain":"dev","domain_id":"01920000-0000-7000-8000-00000000000e","generation":1,"driver":"pkcs11","label":"sluice-2","mode":"drained","state":"closed","breaker":"open","enforced":false,
"slots":4,"slots_now":3,"busy":0,"utilisation":0,"busy_seconds":0,"epoch":2,"handles":0,"max_handles":16384,"hits":0,"misses":0,"loads":0,"epoch_loads":0,"operations":7,"errors":3,
"faults":[{"class":"token down","count":3}],"last_error":"the token\u001b[31m is gone"},
{"id":"cpu","driver":"soft","mode":"active","state":"up","breaker":"closed","enforced":false,"slots":2,"slots_now":2,"busy":0,"utilisation":0,"busy_seconds":0,"epoch":1,"families":["SM2"],"handles":0,"max_handles":16384,"hits":0,"misses":0,"loads":0,"epoch_loads":0,"operations":5,"errors":0}],` + charge + `}`,
	"POST /v1/hsm/nodes/hsm-1/mode": `{"id":"hsm-1","domain":"dev","domain_id":"01920000-0000-7000-8000-00000000000e","generation":1,"driver":"pkcs11","model":"SoftHSM v2","label":"sluice-1",
"mode":"standby","state":"up","breaker":"closed","enforced":true,"slots":4,"slots_now":4,"busy":1,"utilisation":0.25,"busy_seconds":1.5,"epoch":1,"families":["AES","EC"],"handles":12,"max_handles":16384,"hits":990,"misses":10,"loads":10,"epoch_loads":10,
"load_costs":[{"family":"AES","milliseconds":0.1}],"operations":1000,"errors":0,` + charge + `}`,
	"POST /v1/hsm/nodes/hsm-2/mode": `{"id":"hsm-2","mode":"drained","state":"draining","breaker":"closed","enforced":true,"slots":4,"slots_now":4,"busy":1,"utilisation":0,"busy_seconds":0,
"epoch":1,"handles":0,"max_handles":16384,"hits":0,"misses":0,"loads":0,"epoch_loads":0,"operations":7,"errors":0,` + charge + `}`,
	"POST /v1/hsm/nodes/hsm-1/self-test": `{"id":"hsm-1","domain":"dev","domain_id":"01920000-0000-7000-8000-00000000000e","generation":1,"driver":"pkcs11","model":"SoftHSM v2","label":"sluice-1",
"mode":"active","state":"up","breaker":"closed","enforced":true,"slots":4,"slots_now":4,"busy":1,"utilisation":0.25,"busy_seconds":1.5,"epoch":1,"families":["AES","EC"],"handles":12,"max_handles":16384,"hits":990,"misses":10,"loads":10,"epoch_loads":10,
"load_costs":[{"family":"AES","milliseconds":0.1}],"operations":1000,"errors":0,` + charge + `}`,
	"GET /v1/capacity": `{"source":"measured","slots":8,"slot_ns_per_credit":83333,"operation":"sign","spec":"ECC_NIST_P256","operations":120000,"measured_at":"2026-01-02T03:04:05Z",
"credits_per_second":96000,"safety_percent":80,"sellable":76800,"committed":45200,"available":31600,"oversold":false,
"tiers":[{"tier":"platinum","credits_per_second":20000,"tenants":2,"fits":1},{"tier":"gold","credits_per_second":5000,"tenants":1,"fits":6},
{"tier":"silver","credits_per_second":1000,"tenants":0,"fits":31},{"tier":"free","credits_per_second":200,"tenants":1,"fits":158}],` + charge + `}`,
	"GET /v1/quota":                                               `{"tier":"gold","policy_version":3,"per_second":5000,"burst":15000,"available":12.5,"overdraft":5000,"debt":100,"ramp_permille":500,"load_share_permille":700,"day":{"used":120000000,"limit":150000000,"remaining":30000000,"soft_limit_reached":true,"resets_at":"2026-01-03T00:00:00Z"},"month":{"used":1,"limit":3750000000,"remaining":3749999999,"soft_limit_reached":false,"resets_at":"2026-02-01T00:00:00Z"},"pool":{"left":1000,"size":75000000,"day_lowered":true},"packs":[{"id":"july","left":7,"expires_at":"2026-07-31T00:00:00Z"}],"bandwidth":{"used":4096,"limit":274877906944},"concurrency":{"used":2,"limit":128},"storage":[{"kind":"keys","used":12,"limit":10000},{"kind":"secrets","used":-1,"limit":2000}],` + costBreaker + `"admitted":10,"refused":1,"retry_contract":{"calls":200,"early":50,"share_permille":250,"spike":7,"note":"wait for it"},` + charge + `}`,
	"GET /v1/tenants/acme/quota":                                  `{"tier":"gold","policy_version":3,"per_second":5000,"burst":15000,"available":12.5,"overdraft":5000,"debt":100,"ramp_permille":500,"load_share_permille":700,"day":{"used":120000000,"limit":150000000,"remaining":30000000,"soft_limit_reached":true,"resets_at":"2026-01-03T00:00:00Z"},"month":{"used":1,"limit":3750000000,"remaining":3749999999,"soft_limit_reached":false,"resets_at":"2026-02-01T00:00:00Z"},"pool":{"left":1000,"size":75000000,"day_lowered":true},"packs":[{"id":"july","left":7,"expires_at":"2026-07-31T00:00:00Z"}],"bandwidth":{"used":4096,"limit":274877906944},"concurrency":{"used":2,"limit":128},"storage":[{"kind":"keys","used":12,"limit":10000},{"kind":"secrets","used":-1,"limit":2000}],` + costBreaker + `"admitted":10,"refused":1,"retry_contract":{"calls":200,"early":50,"share_permille":250,"spike":7,"note":"wait for it"},` + charge + `}`,
	"GET /v1/secrets":                                             `{"secrets":[` + secretFields + `,"revision":12},{"id":"01920000-0000-7000-8000-000000000022","path":"llm/openai2","provider":"openai","state":"ACTIVE","created_at":"2026-01-02T03:04:05Z","fresh_seconds":300,"lease_seconds":3600,"revision":9}],` + charge + `}`,
	"GET /v1/secrets?prefix=llm%2Fopenai":                         `{"secrets":[` + secretFields + `,"revision":12}],` + charge + `}`,
	"GET /v1/secrets?prefix=llm%2F":                               `{"secrets":[` + secretFields + `,"revision":12}],` + charge + `}`,
	"GET /v1/secrets?prefix=llm%2Fnew":                            `{"secrets":[],` + charge + `}`,
	"POST /v1/secrets":                                            secretFields + `,"versions":[{"version":1,"state":"ACTIVE","weight":100,"created_at":"2026-01-02T03:04:05Z"}],"revision":12,` + charge + `}`,
	"GET " + secretPath:                                           secretWhole + charge + `}`,
	"POST " + secretPath + "/versions":                            secretWhole + `"version":2,` + charge + `}`,
	"POST " + secretPath + "/activate":                            secretWhole + charge + `}`,
	"POST " + secretPath + "/rollback":                            secretWhole + charge + `}`,
	"POST " + secretPath + "/versions/2/disable":                  secretWhole + charge + `}`,
	"POST " + secretPath + "/versions/1/destroy":                  secretWhole + charge + `}`,
	"POST " + secretPath + "/versions/1/restore":                  secretWhole + charge + `}`,
	"DELETE " + secretPath:                                        secretWhole + charge + `}`,
	"GET " + secretPath + "/grants":                               `{"grants":[{"credential":"01920000-0000-7000-8000-00000000000c","name":"ci","scope":"secret:read:llm/openai","exact":true},{"credential":"01920000-0000-7000-8000-00000000000d","name":"gateway","scope":"secret:read:llm/*","exact":false}],` + charge + `}`,
	"PUT " + secretPath + "/grants":                               `{"grants":[],` + charge + `}`,
	"POST /v1/secret-values/fetch":                                `{"revision":12,"items":[{"path":"llm/openai","status":"ok","secret_id":"01920000-0000-7000-8000-000000000021","provider":"openai","revision":12,"fresh_until":"2026-01-02T03:09:05Z","lease_end":"2026-01-02T04:04:05Z","versions":[{"version":1,"weight":90,"value":"sk-one"},{"version":2,"weight":10,"value":"sk-two"}]}],` + charge + `}`,
	"GET /v1/secret-values/watch?from_revision=11":                "event: revoked\nid: 12\ndata: {\"revision\":12,\"path\":\"llm/openai\"}\n\nevent: heartbeat\nid: 12\ndata: {\"revision\":12}\n\nevent: resync\nid: 13\ndata: {\"revision\":13}\n\n",
	"PUT /v1/routes/chat":                                         route + `,` + charge + `}`,
	"GET /v1/routes/chat":                                         route + `,"order":` + routeOrder + `,"panic":false,"retries":0,"retries_per_request":1},` + charge + `}`,
	"GET /v1/routes/chat?model=gpt-5":                             route + `,"order":` + routeOrder + `,"panic":false,"retries":0,"retries_per_request":1},` + charge + `}`,
	"GET /v1/routes":                                              `{"routes":[` + route + `}],` + charge + `}`,
	"POST /v1/routes/chat/report":                                 `{"order":` + routeOrder + `,"panic":true,"retries":12,"retries_per_request":1},` + charge + `}`,
	"DELETE /v1/routes/chat":                                      `{"name":"chat",` + charge + `}`,
	"POST /v1/webhooks":                                           webhook + `,"secret":"whsec_c2VjcmV0",` + charge + `}`,
	"GET /v1/webhooks":                                            `{"webhooks":[` + webhook + `}],` + charge + `}`,
	"GET /v1/webhooks/01920000-0000-7000-8000-000000000010":       webhook + `,` + charge + `}`,
	"DELETE /v1/webhooks/01920000-0000-7000-8000-000000000010":    `{"id":"01920000-0000-7000-8000-000000000010",` + charge + `}`,
	"POST /v1/webhooks/01920000-0000-7000-8000-000000000010/test": `{"event_id":"01920000-0000-7000-8000-000000000011",` + charge + `}`,
	"GET /v1/quota/tenants?page_size=50":                          `{"tenants":[{"tenant":"01920000-0000-7000-8000-00000000000d","tier":"gold","near_permille":912,"debt":100,"drawn":2.5,"day_lowered":true,"admitted":90,"refused":10,"retry_permille":250}],"total":3,` + charge + `}`,

	// The cost breaker.
	"GET /v1/quota/incidents":                                          `{"incidents":[{` + incident + `}],` + charge + `}`,
	"GET /v1/quota/incidents/01920000-0000-7000-8000-000000000020":     `{` + incident + `,"tier":"gold","policy_version":3,"factor_permille":400,"line_permille":2000,"recover_permille":1000,"peak_at":"2026-01-02T03:02:00Z","calls":5000,"refused_calls":1,"planned":1000,"used_until_stopped":5000,"predicted_stop_at":"2026-01-02T03:03:00Z","predicted_credits":5000,"lifted":false,"span_seconds":60,"timeline":[{"at":"2026-01-02T03:00:00Z","used":5000,"refused":1,"calls":5001,"risk_permille":3100,"stage":"stopped"}],"changes":[{"at":"2026-01-02T03:01:00Z","component":"loop","whole_tenant":false,"from":"calm","to":"no_bulk","risk_permille":2100,"used_per_minute":3000}],"components":[{"name":"loop","credits":5000,"calls":5000}],"keys":[],"operations":[{"name":"decrypt","credits":5000,"calls":5000}],"credentials":[],"advice":[{"cause":"RETRY_LOOP","detail":"all of it is one call","advice":"bound the retries"}],` + charge + `}`,
	"POST /v1/quota/cost-breaker/reset":                                `{` + strings.TrimSuffix(costBreaker, ",") + `,` + charge + `}`,
	"POST /v1/tenants/acme/quota/cost-breaker/reset":                   `{"cost_breaker":{"enabled":false,"risk_permille":0,"line_permille":2000,"recover_permille":1000,"used_per_minute":0,"allowed_per_minute":0},` + charge + `}`,
	"POST /v1/jobs?retain_hours=24":                                    jobRunning + `,` + charge + `}`,
	"POST /v1/jobs?retain_hours=72":                                    jobDone + `,` + charge + `}`,
	"GET /v1/jobs":                                                     `{"jobs":[` + jobRunning + `},` + jobDone + `}],` + charge + `}`,
	"GET " + jobPath:                                                   jobRunning + `,` + charge + `}`,
	"GET /v1/jobs/01920000-0000-7000-8000-000000000031":                jobDone + `,` + charge + `}`,
	"GET " + jobPath + "/results":                                      jobLines[:strings.IndexByte(jobLines, 10)+1],
	"GET /v1/jobs/01920000-0000-7000-8000-000000000031/results":        jobLines,
	"GET /v1/jobs/01920000-0000-7000-8000-000000000031/results?from=2": jobLines[strings.LastIndex(jobLines, `{"index"`):],
	"GET /v1/jobs/01920000-0000-7000-8000-000000000031/results?from=3": "",
	"DELETE " + jobPath:                                                `{"id":"01920000-0000-7000-8000-000000000030","state":"CANCELLED",` + charge + `}`,
	"DELETE /v1/jobs/01920000-0000-7000-8000-000000000031":             `{"id":"01920000-0000-7000-8000-000000000031","deleted":true,` + charge + `}`,

	"GET /v1/requests/01920000-0000-7000-8000-000000000002/why": `{"request":"01920000-0000-7000-8000-000000000002","tenant":"01920000-0000-7000-8000-00000000000d","ended_at":"2026-01-02T03:04:05Z",
"operation":"sign","key":"01920000-0000-7000-8000-00000000000a","outcome":"ok","summary":"it took 42.5 ms: 40.0 ms in the queue, mostly for SHARE, and 2.0 ms on hsm-1","reasons":[
{"code":"SHARE","unit":"thousandths of a slot","limit":1500,"have":2000,"wait_ms":30,"share":0.75,"explanation":"all slots worked for requests whose turn was before\u001b[31m","advice":"send less at once"},
{"code":"OWN_QUEUE","wait_ms":10,"share":0.25}],"queue_ms":40,"hsm_ms":2,"total_ms":42.5,"estimate_ms":38,"node":"hsm-1","attempts":1,"away":true,"cold_load":true,"class":"MID","urgency":"normal",
"reserved":12,"charged":12,"policy_version":3,` + charge + `}`,
	"GET /v1/scheduler": `{"nodes":[{"node":"hsm-1","domain":"hsm","down":false,"slots":4,"busy":4,"waiting":9,"granted":1000,"away":10,"behind_ms":12.25},
{"node":"hsm-2","domain":"hsm","down":true,"slots":4,"busy":0,"waiting":9,"granted":7,"away":0,"behind_ms":0},
{"node":"cpu","domain":"cpu","down":false,"slots":2,"busy":0,"waiting":0,"granted":5,"away":0,"behind_ms":0}],
"domains":[{"name":"cpu","slots":2,"busy":0,"waiting":0,"band":"below_safe","utilisation_fast":0,"utilisation_slow":0,"max_in_flight":1,"cap_applies":false,"load_cost_ms":0,"classes":[{"class":"HIGH","refused":0,"waited":[]}],"tenants":[]},
{"name":"hsm","slots":4,"busy":4,"waiting":9,"band":"from_hard","utilisation_fast":1,"utilisation_slow":0.96,"max_in_flight":1,"cap_applies":true,"load_cost_ms":0.4,
"classes":[{"class":"HIGH","refused":0,"waited":[{"code":"SHARE","seconds":12.5}]},{"class":"MID","refused":0,"waited":[]},{"class":"LOW","refused":3,"waited":[{"code":"GATE","seconds":7}]}],
"tenants":[{"id":"01920000-0000-7000-8000-00000000000d","name":"acme","weight":5000,"running":3,"interactive":1,"normal":6,"bulk":2,"used_ms":2750,"share":3,"lag_ms":-4.5,"over":true,"parked":"TENANT_CAP"},
{"id":"01920000-0000-7000-8000-000000000010","weight":1000,"running":1,"interactive":0,"normal":0,"bulk":0,"used_ms":250,"share":1,"lag_ms":3,"over":false}]}],
"waiting":9,"max_waiting":4096,"max_tenant":1024,"waiting_tenants":1,"oldest_ms":88.5,` + charge + `}`,
	"GET /v1/audit?page_size=50": `{"entries":[` + auditServed + `,` + auditRefused + `],` + complete + charge + `}`,
	"GET /v1/audit?page_size=1":  `{"entries":[` + auditServed + `],"next_page_token":"2",` + complete + charge + `}`,
	"GET /v1/tenants/acme/audit?component=gateway&credential=c-1&from=2026-01-02T00%3A00%3A00Z&key=k-1&operation=sign&outcome=ok&page_size=50&to=2026-01-03T00%3A00%3A00Z": `{"entries":[],` + complete + charge + `}`,
	"GET /v1/audit?after=end&order=arrival&page_size=1":                                  `{"entries":[],"resume_token":"end",` + complete + charge + `}`,
	"GET /v1/audit?page_size=10":                                                         `{"entries":[` + auditServed + `,` + auditRefused + `],` + complete + charge + `}`,
	"GET /v1/audit?order=arrival&page_size=1000&page_token=end":                          `{"entries":[` + auditServed + `,` + auditReading + `],"resume_token":"later",` + complete + charge + `}`,
	"GET /v1/audit?order=arrival&page_size=1000":                                         `{"entries":[` + auditRefused + `],"next_page_token":"2","resume_token":"2",` + complete + charge + `}`,
	"GET /v1/audit?order=arrival&page_size=1000&page_token=2":                            `{"entries":[` + auditServed + `],"resume_token":"3",` + complete + charge + `}`,
	"GET /v1/audit?after=api-1%2F8&order=arrival&page_size=1000":                         `{"entries":[` + auditServed + `],"resume_token":"3",` + complete + charge + `}`,
	"GET /v1/usage?by=component%2Creason&from=2026-01-02T00%3A00%3A00Z&granularity=hour": `{"granularity":"hour","from":"2026-01-02T00:00:00Z","to":"2026-01-02T04:00:00Z","rows":[` + usageLines + `],` + complete + charge + `}`,
	"GET /v1/tenants/acme/usage?granularity=day&reason=":                                 `{"granularity":"day","from":"2026-01-02T00:00:00Z","to":"2026-01-02T04:00:00Z","rows":[],"api_nodes":[],` + charge + `}`,
	"GET /v1/usage/bill?day=2026-01-02":                                                  bill + `"final":false,` + complete + charge + `}`,
	"GET /v1/service-level?month=2026-01": `{"month":"2026-01","promise":0.995,"kept":false,"tiers":[` +
		`{"tier":"gold","tenants":2,"requests":1000,"failed":1,"success":0.999,"kept":true,"tenants_below":0},` +
		`{"tier":"free","tenants":1,"requests":100,"failed":1,"success":0.99,"kept":false,"tenants_below":1}],"final":false,` + complete + charge + `}`,
	"GET /v1/tenants/acme/usage/bill": bill + `"final":true,` + complete + charge + `}`,
	"GET /v1/hsm/map": `{"domains":[{"id":"01920000-0000-7000-8000-00000000000e","name":"dev","generation":1,"slots":4,"nodes":[{"id":"hsm-1","mode":"active","state":"up","slots":4},
{"id":"hsm-2","mode":"drained","state":"closed","slots":4}]}],"tenants":[{"id":"01920000-0000-7000-8000-00000000000d","name":"acme","domain":"01920000-0000-7000-8000-00000000000e"}],
"placements":[{"key":"01920000-0000-7000-8000-00000000000f","node":"hsm-1","since":"2026-01-02T03:04:05Z","why":"load"}],"placed":1,` + charge + `}`,
}

// The audit trail and usage.
const (
	auditServed = `{"api_node":"api-1","sequence":9,"time":"2026-01-02T03:04:06.5Z","phase":"outcome","request_id":"01920000-0000-7000-8000-000000000002",
"tenant":"01920000-0000-7000-8000-00000000000d","project":"default","credential":"c-1","component":"gateway","address":"192.0.2.7","user_agent":"a=b|c\\d",
"operation":"sign","key":"k-1","key_name":"orders","algorithm":"SM2DSA","outcome":"ok","reserved":12,"charged":12,"queue_ms":0.2,"hsm_ms":1.5,"total_ms":2.25,"policy_version":3}`
	auditRefused = `{"api_node":"api-1","sequence":8,"time":"2026-01-02T03:04:05Z","phase":"outcome","request_id":"01920000-0000-7000-8000-000000000003",
"operation":"encrypt","outcome":"quota_exceeded","reasons":[{"code":"SHARE","wait_ms":1},{"code":"TENANT_RATE"}],"count":17,"reserved":0,"charged":0,"queue_ms":0,"hsm_ms":0,"total_ms":0.1,"policy_version":3}`
	auditReading = `{"api_node":"api-1","sequence":10,"time":"2026-01-02T03:04:07Z","phase":"outcome","request_id":"01920000-0000-7000-8000-000000000004",
"operation":"read-audit","outcome":"ok","reserved":2,"charged":2,"queue_ms":0,"hsm_ms":0,"total_ms":0.1,"policy_version":3}`
	complete   = `"complete_until":"2026-01-02T03:04:05Z","api_nodes":[{"api_node":"api-1","sequence":9,"until":"2026-01-02T03:04:05Z"}],`
	usageLines = `{"start":"2026-01-02T02:00:00Z","component":"gateway","requests":2,"credits":24.1,"bytes":64,"hsm_ms":3.5,"queue_ms":0},
{"start":"2026-01-02T03:00:00Z","component":"tde","reason":"TENANT_RATE","requests":17,"credits":0,"bytes":0,"hsm_ms":0,"queue_ms":0}`
	bill = `{"tenant":"01920000-0000-7000-8000-00000000000d","day":"2026-01-02","lines":[
{"start":"2026-01-02T00:00:00Z","project":"default","component":"gateway","key":"k-1","policy_version":3,"requests":2,"credits":24.000001,"bytes":64,"hsm_ms":3.5,"queue_ms":0}],
"total":{"requests":2,"credits":24.000001,"bytes":64,"hsm_ms":3.5,"queue_ms":0},`
)

// beyondCapacity refuses the tenant "full".
const beyondCapacity = `{"status":409,"code":"conflict","detail":"the HSMs can keep no more promises: there still fit 0 platinum or 2 gold","request_id":"r-1",
"reasons":[{"code":"capacity","limit":76800,"need":20000,"have":11600}]}`

// refusals are the codes of problems by the name of the key used.
var refusals = map[string]struct {
	status int
	code   string
	header string
}{
	"gone":        {404, "not_found", ""},
	"off":         {409, "key_disabled", ""},
	"going":       {409, "pending_deletion", ""},
	"forbidden":   {403, "permission_denied", ""},
	"tampered":    {400, "decryption_failed", ""},
	"limited":     {429, "quota_exceeded", "90"},
	"exhausted":   {402, "quota_exhausted", ""},
	"unspeakable": {422, "invalid_argument", ""},
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	target := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	who := map[string]string{"Bearer " + demoToken: "demo", "Bearer " + operatorToken: "operator"}[r.Header.Get("Authorization")]
	s.mu.Lock()
	s.last = fmt.Sprintf("%s: %s %s %s", who, r.Method, target, plainly(body))
	s.mu.Unlock()
	if who == "" {
		refuse(w, 401, "unauthenticated", "")
		return
	}
	if parts := strings.Split(target, "/"); len(parts) > 3 {
		if p, known := refusals[parts[3]]; known {
			refuse(w, p.status, p.code, p.header)
			return
		}
	}
	if r.Method == http.MethodDelete && strings.HasPrefix(target, "/v1/tenants/") && r.Header.Get("Sluice-Approval") != approvalID {
		refuse(w, 409, "approval_required", "")
		return
	}
	if strings.Contains(string(body), `"name":"full"`) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, beyondCapacity)
		return
	}
	if accept := r.Header.Get("Accept"); strings.Contains(target, "/quota/incidents/") && accept != "application/json" {
		w.Header().Set("Content-Type", accept)
		io.WriteString(w, "a report of the form "+accept)
		return
	}
	answer, known := answers[r.Method+" "+target]
	if target == "/v1/batch" {
		answer, known = s.batch(body), true
	}
	if path, dry := strings.CutSuffix(strings.Replace(target, "?dry_run=true&", "?", 1), "?dry_run=true"); dry || path != target {
		if _, known = answers[r.Method+" "+path]; known {
			answer = `{"dry_run":true,"cost":12.5,"request_id":"01920000-0000-7000-8000-000000000001","protection":"HSM"}`
		}
	}
	if !known {
		refuse(w, 404, "not_found", "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(target, "/results") {
		w.Header().Set("Sluice-Results-Complete", fmt.Sprint(!strings.HasPrefix(target, jobPath)))
	}
	io.WriteString(w, answer)
}

func refuse(w http.ResponseWriter, status int, code, retryAfter string) {
	w.Header().Set("Content-Type", "application/problem+json")
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.WriteHeader(status)
	named := ""
	if code == "approval_required" {
		named = `,"approval":"` + approvalID + `"`
	}
	fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"what is wrong\u001b[31m\nin words","request_id":"r-1"%s}`, status, code, named)
}

// plainly shows a body with what is base64 in it decoded, so that the scripts
// can be read.
func plainly(body []byte) string {
	var members map[string]any
	if json.Unmarshal(body, &members) != nil {
		return string(body)
	}
	for name, v := range members {
		switch name {
		case "message", "digest", "signature", "mac", "plaintext", "ciphertext", "aad", "data",
			"destination_aad", "source_iv", "iv", "wrapped", "public_key", "context":
			if text, isText := v.(string); isText {
				if b, err := base64.StdEncoding.DecodeString(text); err == nil {
					members[name] = string(b)
				}
			}
		}
	}
	b, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return string(body)
	}
	return string(b)
}
