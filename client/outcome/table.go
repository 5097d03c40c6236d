package outcome

import (
	"slices"
	"strings"
)

// Row is a line of the table: what an answer has to be like, and what it then
// means. Empty fields fit any answer.
type Row struct {
	Name     string
	Provider Provider
	Low      int      // lowest HTTP status; 0: any, and errors inside a stream
	High     int      // highest one
	Codes    []string // error codes, types or reasons, lower case: one of them
	Text     string   // words of the message, lower case
	Page     bool     // the body is a page for people: something before the API answered

	Class     Class
	Scope     Scope
	Retryable bool
}

// Table returns the rows in the order in which they are tried. Rows for errors
// without an answer, which OfError gives, come last.
func Table() []Row {
	return slices.Concat([]Row{rowOK}, rows, []Row{rowUnknown, rowCanceled, rowTimeout, rowName, rowCertificate, rowConnection})
}

// Rows that no answer has to fit.
var (
	rowOK = Row{Name: "ok", Class: OK}
	// rowUnknown is for an error in a stream, or in a body of status 200, that
	// says nothing known: the endpoint broke what it had begun.
	rowUnknown     = Row{Name: "stream-error", Class: Transient, Scope: Endpoint}
	rowCanceled    = Row{Name: "canceled", Class: Caller}
	rowTimeout     = Row{Name: "timeout", Class: Transient, Scope: Endpoint, Retryable: true}
	rowName        = Row{Name: "name-resolution", Class: Transient, Scope: Endpoint, Retryable: true}
	rowCertificate = Row{Name: "certificate", Class: Transient, Scope: Endpoint}
	rowConnection  = Row{Name: "connection", Class: Transient, Scope: Endpoint, Retryable: true}
)

// find returns the first row that fits.
func find(p Provider, status int, said problem) Row {
	for i := range rows {
		if rows[i].fits(p, status, said) {
			return rows[i]
		}
	}
	return rowUnknown
}

func (r *Row) fits(p Provider, status int, said problem) bool {
	return (r.Provider == "" || r.Provider == p) &&
		(r.Low == 0 || r.Low <= status && status <= r.High) &&
		(!r.Page || said.page) &&
		(r.Text == "" || strings.Contains(said.message, r.Text)) &&
		(len(r.Codes) == 0 || slices.ContainsFunc(said.codes, func(c string) bool { return slices.Contains(r.Codes, c) }))
}

// rows are the rows for answers. Sources: the providers' own pages on errors,
// read in November 2026.
var rows = slices.Concat(openAIRows, anthropicRows, azureRows, geminiRows, bedrockRows, moonshotRows, zhipuRows, qwenRows, codeRows, statusRows)

var openAIRows = []Row{
	// A request that is larger than the limit of a minute is no fault of the
	// minute: waiting does not help.
	{Name: "openai-request-too-large", Provider: OpenAI, Low: 429, High: 429, Text: "request too large", Class: Caller},
	{Name: "openai-region", Provider: OpenAI, Codes: []string{"unsupported_country_region_territory"}, Class: Caller},
	{Name: "openai-billing", Provider: OpenAI, Codes: []string{"billing_hard_limit_reached", "billing_not_active"}, Class: Quota, Scope: Key},
	{Name: "openai-account", Provider: OpenAI, Codes: []string{"account_deactivated", "access_terminated"}, Class: Credential, Scope: Key},
}

var anthropicRows = []Row{
	// Two refusals of status 400 that are not the caller's.
	{Name: "anthropic-credit", Provider: Anthropic, Low: 400, High: 403, Text: "credit balance is too low", Class: Quota, Scope: Key},
	{Name: "anthropic-usage-limit", Provider: Anthropic, Low: 400, High: 403, Text: "specified api usage limits", Class: Quota, Scope: Key},
	{Name: "anthropic-organization", Provider: Anthropic, Low: 400, High: 403, Text: "organization has been disabled", Class: Credential, Scope: Key},
	{Name: "anthropic-authentication", Provider: Anthropic, Codes: []string{"authentication_error"}, Class: Credential, Scope: Key},
	{Name: "anthropic-billing", Provider: Anthropic, Codes: []string{"billing_error"}, Class: Quota, Scope: Key},
	{Name: "anthropic-permission", Provider: Anthropic, Codes: []string{"permission_error"}, Class: Credential, Scope: KeyModel},
	{Name: "anthropic-rate-limit", Provider: Anthropic, Codes: []string{"rate_limit_error"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "anthropic-overloaded", Provider: Anthropic, Codes: []string{"overloaded_error"}, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "anthropic-internal", Provider: Anthropic, Codes: []string{"api_error", "timeout_error"}, Class: Transient, Scope: Endpoint, Retryable: true},
}

var azureRows = []Row{
	{Name: "azure-network-rules", Provider: AzureOpenAI, Low: 403, High: 403, Text: "firewall rules", Class: Caller},
	{Name: "azure-call-volume", Provider: AzureOpenAI, Low: 403, High: 403, Text: "out of call volume quota", Class: Quota, Scope: Key},
	{Name: "azure-permission", Provider: AzureOpenAI, Codes: []string{"permissiondenied"}, Class: Credential, Scope: Key},
	{Name: "azure-rate-limit", Provider: AzureOpenAI, Codes: []string{"ratelimitreached", "429", "too_many_requests"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
}

var geminiRows = []Row{
	// An invalid key is a 400 here.
	{Name: "gemini-api-key", Provider: Gemini, Codes: []string{"api_key_invalid"}, Class: Credential, Scope: Key},
	{Name: "gemini-api-key-text", Provider: Gemini, Low: 400, High: 403, Text: "api key not valid", Class: Credential, Scope: Key},
	{Name: "gemini-api-key-expired", Provider: Gemini, Low: 400, High: 403, Text: "api key expired", Class: Credential, Scope: Key},
	{Name: "gemini-location", Provider: Gemini, Low: 400, High: 403, Text: "location is not supported", Class: Caller},
	{Name: "gemini-billing", Provider: Gemini, Codes: []string{"failed_precondition", "billing_disabled"}, Text: "billing", Class: Quota, Scope: Key},
	{Name: "gemini-day", Provider: Gemini, Codes: []string{"resource_exhausted"}, Text: "perday", Class: Quota, Scope: KeyModel},
	{Name: "gemini-rate-limit", Provider: Gemini, Codes: []string{"resource_exhausted"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "gemini-permission", Provider: Gemini, Codes: []string{"permission_denied", "unauthenticated"}, Class: Credential, Scope: Key},
	{Name: "gemini-unavailable", Provider: Gemini, Codes: []string{"unavailable", "internal", "deadline_exceeded"}, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "gemini-canceled", Provider: Gemini, Codes: []string{"cancelled"}, Class: Caller},
}

var bedrockRows = []Row{
	{Name: "bedrock-credential", Provider: Bedrock, Codes: []string{"unrecognizedclientexception", "invalidsignatureexception",
		"expiredtokenexception", "invalidclienttokenid", "missingauthenticationtokenexception", "incompletesignatureexception"}, Class: Credential, Scope: Key},
	{Name: "bedrock-access", Provider: Bedrock, Codes: []string{"accessdeniedexception"}, Class: Credential, Scope: KeyModel},
	{Name: "bedrock-throttling", Provider: Bedrock, Codes: []string{"throttlingexception", "toomanyrequestsexception"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "bedrock-service-quota", Provider: Bedrock, Codes: []string{"servicequotaexceededexception"}, Class: Quota, Scope: KeyModel},
	// A model that is still being loaded is a 429, and one that failed a 424.
	{Name: "bedrock-model", Provider: Bedrock, Codes: []string{"modelnotreadyexception", "modelerrorexception", "modeltimeoutexception",
		"modelstreamerrorexception", "internalserverexception", "serviceunavailableexception"}, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "bedrock-validation", Provider: Bedrock, Codes: []string{"validationexception"}, Class: Caller},
}

var moonshotRows = []Row{
	{Name: "moonshot-quota", Provider: Moonshot, Codes: []string{"exceeded_current_quota_error"}, Class: Quota, Scope: Key},
	// The endpoint's overload is a 429 too, and no limit of the key.
	{Name: "moonshot-overloaded", Provider: Moonshot, Codes: []string{"engine_overloaded_error"}, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "moonshot-rate-limit", Provider: Moonshot, Codes: []string{"rate_limit_reached_error"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "moonshot-authentication", Provider: Moonshot, Codes: []string{"invalid_authentication_error", "incorrect_api_key_error"}, Class: Credential, Scope: Key},
}

// Zhipu numbers its errors; statuses are shared by unlike ones.
var zhipuRows = []Row{
	{Name: "zhipu-authentication", Provider: Zhipu, Codes: []string{"1000", "1001", "1002", "1003", "1004"}, Class: Credential, Scope: Key},
	{Name: "zhipu-account", Provider: Zhipu, Codes: []string{"1110", "1111", "1112", "1121"}, Class: Credential, Scope: Key},
	{Name: "zhipu-arrears", Provider: Zhipu, Codes: []string{"1113"}, Class: Quota, Scope: Key},
	{Name: "zhipu-permission", Provider: Zhipu, Codes: []string{"1220"}, Class: Credential, Scope: KeyModel},
	{Name: "zhipu-rate-limit", Provider: Zhipu, Codes: []string{"1302", "1303"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "zhipu-plan", Provider: Zhipu, Codes: []string{"1304", "1308", "1309", "1310"}, Class: Quota, Scope: Key},
	{Name: "zhipu-overloaded", Provider: Zhipu, Codes: []string{"1305", "1312", "1120", "1230", "1234", "500"}, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "zhipu-content", Provider: Zhipu, Codes: []string{"1301"}, Class: Caller},
}

var qwenRows = []Row{
	{Name: "qwen-api-key", Provider: Qwen, Codes: []string{"invalidapikey"}, Class: Credential, Scope: Key},
	{Name: "qwen-arrearage", Provider: Qwen, Codes: []string{"arrearage"}, Class: Quota, Scope: Key},
	{Name: "qwen-free-tier", Provider: Qwen, Codes: []string{"allocationquota.freetieronly"}, Class: Quota, Scope: KeyModel},
	// insufficient_quota is a limit of tokens by the minute here, not money.
	{Name: "qwen-throttling", Provider: Qwen, Codes: []string{"throttling", "throttling.ratequota", "throttling.burstrate", "throttling.allocationquota",
		"limit_requests", "limit_burst_rate", "insufficient_quota"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "qwen-access", Provider: Qwen, Codes: []string{"accessdenied", "accessdenied.unpurchased", "model.accessdenied", "access_denied"}, Class: Credential, Scope: KeyModel},
	{Name: "qwen-content", Provider: Qwen, Codes: []string{"datainspectionfailed", "data_inspection_failed"}, Class: Caller},
	{Name: "qwen-internal", Provider: Qwen, Codes: []string{"internalerror", "internalerror.algo", "internalerror.timeout", "systemerror",
		"modelservingerror", "modelunavailable", "requesttimeout"}, Class: Transient, Scope: Endpoint, Retryable: true},
}

// codeRows are of the language that OpenAI began and most providers speak,
// DeepSeek with no word of its own. They decide inside streams, where there is
// no status.
var codeRows = []Row{
	{Name: "quota-code", Codes: []string{"insufficient_quota", "insufficient_user_quota"}, Class: Quota, Scope: Key},
	{Name: "balance-text", Low: 402, High: 429, Text: "insufficient balance", Class: Quota, Scope: Key},
	{Name: "api-key-code", Codes: []string{"invalid_api_key", "authentication_error", "invalid_authentication_error"}, Class: Credential, Scope: Key},
	{Name: "rate-limit-code", Codes: []string{"rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error"}, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "server-code", Codes: []string{"server_error", "internal_error", "internal_server_error", "service_unavailable_error", "overloaded_error", "server_overloaded", "api_error", "timeout_error"},
		Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "content-code", Codes: []string{"content_filter", "content_policy_violation"}, Class: Caller},
}

var statusRows = []Row{
	{Name: "status-401", Low: 401, High: 401, Class: Credential, Scope: Key},
	{Name: "status-402", Low: 402, High: 402, Class: Quota, Scope: Key},
	// A page for people comes from what stands before the API, and says
	// nothing of a key, which it may not even have read.
	{Name: "page-403", Low: 403, High: 403, Page: true, Class: Transient, Scope: Endpoint},
	{Name: "status-403", Low: 403, High: 403, Class: Credential, Scope: KeyModel},
	{Name: "status-408", Low: 408, High: 408, Class: Transient, Scope: Endpoint, Retryable: true},
	{Name: "status-429", Low: 429, High: 429, Class: RateLimit, Scope: KeyModel, Retryable: true},
	{Name: "status-5xx", Low: 500, High: 599, Class: Transient, Scope: Endpoint, Retryable: true},
	// The rest, 400, 404, 413 and 422 among it, is of the request, as are
	// redirects, which nobody may follow with a key.
	{Name: "status-other", Low: 100, High: 499, Class: Caller},
	{Name: "status-unknown", Low: 600, High: 999, Class: Transient, Scope: Endpoint},
	{Name: "request-code", Codes: []string{"invalid_request_error", "invalidparameter", "invalid_parameter_error", "invalid_argument"}, Class: Caller},
}
