package outcometest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
)

// Case is an answer of a provider, or the error of a request without one, and
// what it means. Texts are made up; codes and forms are those of the providers.
type Case struct {
	Name     string
	Provider outcome.Provider
	Status   int
	Header   http.Header
	Body     string
	Stream   bool  // the body is server-sent events, or frames
	Frames   bool  // it is frames, as Bedrock's
	Page     bool  // the body is HTML
	Breaks   bool  // the connection breaks behind the body
	Err      error // instead of an answer
	Want     outcome.Verdict
}

// Fine is an answer that is none of an error.
var Fine = Case{Name: "fine", Status: http.StatusOK, Body: `{"id":"1","choices":[]}`, Want: outcome.Verdict{Class: outcome.OK, Row: "ok"}}

// FullHeader is the case's header with the type of its body.
func (c *Case) FullHeader() http.Header {
	h := c.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	switch {
	case c.Frames:
		h.Set("Content-Type", "application/vnd.amazon.eventstream")
	case c.Stream:
		h.Set("Content-Type", "text/event-stream")
	case c.Page:
		h.Set("Content-Type", "text/html; charset=utf-8")
	default:
		h.Set("Content-Type", "application/json")
	}
	return h
}

// Answers are the cases with an answer.
func Answers() []Case { return answers }

// Errors are the cases without one. Only their Err and Want matter.
func Errors() []Case { return failures }

// failures are as net/http reports them.
var failures = []Case{
	{Name: "canceled", Err: &url.Error{Op: "Post", Err: context.Canceled}, Want: outcome.Verdict{Class: outcome.Caller, Row: "canceled"}},
	{Name: "deadline", Err: &url.Error{Op: "Post", Err: context.DeadlineExceeded}, Want: endpoint("timeout")},
	{Name: "time-out of reading", Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, Want: endpoint("timeout")},
	{Name: "no such host", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, Want: endpoint("name-resolution")},
	{Name: "certificate", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Row: "certificate"}},
	{Name: "refused", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Want: endpoint("connection")},
	{Name: "reset", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Want: endpoint("connection")},
	{Name: "closed early", Err: io.ErrUnexpectedEOF, Want: endpoint("connection")},
}

func endpoint(row string) outcome.Verdict {
	return outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: row}
}

var answers = []Case{
	{Name: "openai: request larger than a minute's limit", Provider: outcome.OpenAI, Status: 429, Body: `{"error": {"message": "Request too large for gpt-4 on tokens per min (TPM): Limit 30000, Requested 50000.", "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "openai-request-too-large"}},
	{Name: "openai: region", Provider: outcome.OpenAI, Status: 403, Body: `{"error": {"message": "Country, region, or territory not supported", "type": "request_forbidden", "param": null, "code": "unsupported_country_region_territory"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "openai-region"}},
	{Name: "openai: hard limit", Provider: outcome.OpenAI, Status: 400, Body: `{"error": {"message": "Billing hard limit has been reached", "type": "invalid_request_error", "param": null, "code": "billing_hard_limit_reached"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "openai-billing"}},
	{Name: "openai: account", Provider: outcome.OpenAI, Status: 401, Body: `{"error": {"message": "The account is deactivated", "type": "invalid_request_error", "param": null, "code": "account_deactivated"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "openai-account"}},
	{Name: "openai: invalid key", Provider: outcome.OpenAI, Status: 401, Body: `{"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "api-key-code"}},
	{Name: "openai: no code", Provider: outcome.OpenAI, Status: 401,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "status-401"}},
	{Name: "openai: insufficient quota", Provider: outcome.OpenAI, Status: 429, Body: `{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "quota-code"}},
	{Name: "openai: rate limit, words", Provider: outcome.OpenAI, Status: 429, Body: `{"error": {"message": "Rate limit reached for gpt-4o on requests per min (RPM): Limit 3. Please try again in 20s. Visit the site.", "type": "requests", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 20 * time.Second, Cool: 20 * time.Second, Row: "rate-limit-code"}},
	{Name: "openai: rate limit, words in ms", Provider: outcome.OpenAI, Status: 429, Body: `{"error": {"message": "Please try again in 120ms.", "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 120 * time.Millisecond, Cool: time.Second, Row: "rate-limit-code"}},
	{Name: "openai: rate limit, minutes", Provider: outcome.OpenAI, Status: 429, Body: `{"error": {"message": "Please try again in 6m2.5s.", "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 362500 * time.Millisecond, Cool: time.Minute, Row: "rate-limit-code"}},
	{Name: "openai: rate limit, milliseconds in the header", Provider: outcome.OpenAI, Status: 429, Header: http.Header{"Retry-After-Ms": {"1500"}, "Retry-After": {"2"}}, Body: `{"error": {"message": "Please try again in 20s.", "type": "requests", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 1500 * time.Millisecond, Cool: 1500 * time.Millisecond, Row: "rate-limit-code"}},
	{Name: "openai: rate limit, resets", Provider: outcome.OpenAI, Status: 429, Header: http.Header{"X-Ratelimit-Reset-Requests": {"8s"}, "X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Tokens": {"6m0s"}, "X-Ratelimit-Remaining-Tokens": {"900"}}, Body: `{"error": {"message": "slower", "type": "requests", "param": null, "code": "rate_limit_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 8 * time.Second, Cool: 8 * time.Second, Row: "rate-limit-code"}},
	{Name: "openai: overloaded", Provider: outcome.OpenAI, Status: 503, Body: `{"error": {"message": "The engine is currently overloaded", "type": "server_error", "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "server-code"}},
	{Name: "openai: no access to the model", Provider: outcome.OpenAI, Status: 403, Body: `{"error": {"message": "Project does not have access to model", "type": "invalid_request_error", "param": null, "code": "model_not_found"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.KeyModel, Row: "status-403"}},
	{Name: "openai: bad prompt", Provider: outcome.OpenAI, Status: 400, Body: `{"error": {"message": "bad", "type": "invalid_request_error", "param": null, "code": "context_length_exceeded"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "openai: content", Provider: outcome.OpenAI, Status: 400, Body: `{"error": {"message": "blocked", "type": "invalid_request_error", "param": null, "code": "content_policy_violation"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "content-code"}},
	{Name: "anthropic: credit", Provider: outcome.Anthropic, Status: 400, Body: `{"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "anthropic-credit"}},
	{Name: "anthropic: usage limit", Provider: outcome.Anthropic, Status: 400, Body: `{"type": "error", "error": {"type": "invalid_request_error", "message": "You have reached your specified API usage limits."}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "anthropic-usage-limit"}},
	{Name: "anthropic: organization", Provider: outcome.Anthropic, Status: 400, Body: `{"type": "error", "error": {"type": "invalid_request_error", "message": "This organization has been disabled."}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "anthropic-organization"}},
	{Name: "anthropic: authentication", Provider: outcome.Anthropic, Status: 401, Body: `{"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "anthropic-authentication"}},
	{Name: "anthropic: billing", Provider: outcome.Anthropic, Status: 402, Body: `{"type": "error", "error": {"type": "billing_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "anthropic-billing"}},
	{Name: "anthropic: permission", Provider: outcome.Anthropic, Status: 403, Body: `{"type": "error", "error": {"type": "permission_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.KeyModel, Row: "anthropic-permission"}},
	{Name: "anthropic: rate limit", Provider: outcome.Anthropic, Status: 429, Header: http.Header{"Retry-After": {"17"}}, Body: `{"type": "error", "error": {"type": "rate_limit_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 17 * time.Second, Cool: 17 * time.Second, Row: "anthropic-rate-limit"}},
	{Name: "anthropic: rate limit, reset", Provider: outcome.Anthropic, Status: 429, Header: http.Header{"Date": {"Mon, 30 Nov 2026 12:00:00 GMT"}, "Anthropic-Ratelimit-Input-Tokens-Remaining": {"0"}, "Anthropic-Ratelimit-Input-Tokens-Reset": {"2026-11-30T12:00:09Z"}, "Anthropic-Ratelimit-Requests-Remaining": {"3"}, "Anthropic-Ratelimit-Requests-Reset": {"2026-11-30T12:00:40Z"}}, Body: `{"type": "error", "error": {"type": "rate_limit_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 9 * time.Second, Cool: 9 * time.Second, Row: "anthropic-rate-limit"}},
	{Name: "anthropic: overloaded", Provider: outcome.Anthropic, Status: 529, Body: `{"type": "error", "error": {"type": "overloaded_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "anthropic-overloaded"}},
	{Name: "anthropic: internal", Provider: outcome.Anthropic, Status: 500, Body: `{"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "anthropic-internal"}},
	{Name: "anthropic: too large", Provider: outcome.Anthropic, Status: 413, Body: `{"type": "error", "error": {"type": "request_too_large", "message": "m"}, "request_id": "req_1"}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "azure: network rules", Provider: outcome.AzureOpenAI, Status: 403, Body: `{"error": {"code": "AccessDenied", "message": "Access denied due to Virtual Network/Firewall rules."}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "azure-network-rules"}},
	{Name: "azure: call volume", Provider: outcome.AzureOpenAI, Status: 403, Body: `{"error": {"code": "403", "message": "Out of call volume quota. Quota will be replenished in 3 days."}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "azure-call-volume"}},
	{Name: "azure: permission", Provider: outcome.AzureOpenAI, Status: 401, Body: `{"error": {"code": "PermissionDenied", "message": "The principal lacks the required data action."}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "azure-permission"}},
	{Name: "azure: key", Provider: outcome.AzureOpenAI, Status: 401, Body: `{"statusCode": 401, "message": "Access denied due to invalid subscription key."}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "status-401"}},
	{Name: "azure: rate limit", Provider: outcome.AzureOpenAI, Status: 429, Body: `{"error": {"code": "429", "message": "Requests have exceeded the call rate limit. Please retry after 6 seconds."}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 6 * time.Second, Cool: 6 * time.Second, Row: "azure-rate-limit"}},
	{Name: "azure: rate limit, header", Provider: outcome.AzureOpenAI, Status: 429, Header: http.Header{"X-Ms-Retry-After-Ms": {"2500"}}, Body: `{"error": {"code": "RateLimitReached", "message": "slower"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 2500 * time.Millisecond, Cool: 2500 * time.Millisecond, Row: "azure-rate-limit"}},
	{Name: "azure: content", Provider: outcome.AzureOpenAI, Status: 400, Body: `{"error": {"code": "content_filter", "message": "filtered", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "content-code"}},
	{Name: "azure: no deployment", Provider: outcome.AzureOpenAI, Status: 404, Body: `{"error": {"code": "DeploymentNotFound", "message": "none"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "gemini: invalid key", Provider: outcome.Gemini, Status: 400, Body: `{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "gemini-api-key"}},
	{Name: "gemini: invalid key, words", Provider: outcome.Gemini, Status: 400, Body: `{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "gemini-api-key-text"}},
	{Name: "gemini: expired key", Provider: outcome.Gemini, Status: 400, Body: `{"error": {"code": 400, "message": "API key expired. Please renew the API key.", "status": "INVALID_ARGUMENT"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "gemini-api-key-expired"}},
	{Name: "gemini: location", Provider: outcome.Gemini, Status: 400, Body: `{"error": {"code": 400, "message": "User location is not supported for the API use.", "status": "FAILED_PRECONDITION"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "gemini-location"}},
	{Name: "gemini: billing", Provider: outcome.Gemini, Status: 400, Body: `{"error": {"code": 400, "message": "The free tier is not available here. Please enable billing.", "status": "FAILED_PRECONDITION"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "gemini-billing"}},
	{Name: "gemini: a day's requests", Provider: outcome.Gemini, Status: 429, Body: `{"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}, {"retryDelay": "41s"}]}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.KeyModel, RetryAfter: 41 * time.Second, Cool: 10 * time.Minute, Row: "gemini-day"}},
	{Name: "gemini: rate limit", Provider: outcome.Gemini, Status: 429, Body: `{"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"}]}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 36500 * time.Millisecond, Cool: 36500 * time.Millisecond, Row: "gemini-rate-limit"}},
	{Name: "gemini: rate limit in a list", Provider: outcome.Gemini, Status: 429, Body: `[{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}]`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "gemini-rate-limit"}},
	{Name: "gemini: leaked key", Provider: outcome.Gemini, Status: 403, Body: `{"error": {"code": 403, "message": "Your API key was reported as leaked.", "status": "PERMISSION_DENIED"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "gemini-permission"}},
	{Name: "gemini: overloaded", Provider: outcome.Gemini, Status: 503, Body: `{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "gemini-unavailable"}},
	{Name: "gemini: canceled", Provider: outcome.Gemini, Status: 499, Body: `{"error": {"code": 499, "message": "m", "status": "CANCELLED"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "gemini-canceled"}},
	{Name: "bedrock: credential", Provider: outcome.Bedrock, Status: 403, Header: http.Header{"X-Amzn-Errortype": {"UnrecognizedClientException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "bedrock-credential"}},
	{Name: "bedrock: access", Provider: outcome.Bedrock, Status: 403, Header: http.Header{"X-Amzn-Errortype": {"AccessDeniedException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.KeyModel, Row: "bedrock-access"}},
	{Name: "bedrock: throttling", Provider: outcome.Bedrock, Status: 429, Header: http.Header{"X-Amzn-Errortype": {"ThrottlingException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "bedrock-throttling"}},
	{Name: "bedrock: service quota", Provider: outcome.Bedrock, Status: 400, Header: http.Header{"X-Amzn-Errortype": {"ServiceQuotaExceededException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.KeyModel, Cool: 10 * time.Minute, Row: "bedrock-service-quota"}},
	{Name: "bedrock: model not ready", Provider: outcome.Bedrock, Status: 429, Header: http.Header{"X-Amzn-Errortype": {"ModelNotReadyException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "bedrock-model"}},
	{Name: "bedrock: model error", Provider: outcome.Bedrock, Status: 424, Header: http.Header{"X-Amzn-Errortype": {"ModelErrorException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "bedrock-model"}},
	{Name: "bedrock: validation", Provider: outcome.Bedrock, Status: 400, Header: http.Header{"X-Amzn-Errortype": {"ValidationException:http://internal.test/"}}, Body: `{"message": "m"}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "bedrock-validation"}},
	{Name: "bedrock: type in the body", Provider: outcome.Bedrock, Status: 403, Body: `{"__type": "com.amazon.coral.service#ExpiredTokenException", "message": "expired"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "bedrock-credential"}},
	{Name: "deepseek: balance", Provider: outcome.DeepSeek, Status: 402, Body: `{"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": null, "code": "invalid_request_error"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "balance-text"}},
	{Name: "deepseek: balance, no words", Provider: outcome.DeepSeek, Status: 402,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "status-402"}},
	{Name: "deepseek: key", Provider: outcome.DeepSeek, Status: 401, Body: `{"error": {"message": "Authentication Fails", "type": "authentication_error", "param": null, "code": "invalid_request_error"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "api-key-code"}},
	{Name: "deepseek: rate limit", Provider: outcome.DeepSeek, Status: 429, Body: `{"error": {"message": "Rate Limit Reached", "type": null, "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "status-429"}},
	{Name: "deepseek: parameters", Provider: outcome.DeepSeek, Status: 422, Body: `{"error": {"message": "Invalid parameters", "type": "invalid_request_error", "param": null, "code": "invalid_request_error"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "deepseek: overloaded", Provider: outcome.DeepSeek, Status: 503, Body: `{"error": {"message": "busy", "type": null, "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-5xx"}},
	{Name: "moonshot: quota", Provider: outcome.Moonshot, Status: 429, Body: `{"error": {"message": "Your account is suspended, please check your plan", "type": "exceeded_current_quota_error", "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "moonshot-quota"}},
	{Name: "moonshot: overloaded", Provider: outcome.Moonshot, Status: 429, Body: `{"error": {"message": "The engine is currently overloaded", "type": "engine_overloaded_error", "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "moonshot-overloaded"}},
	{Name: "moonshot: rate limit", Provider: outcome.Moonshot, Status: 429, Body: `{"error": {"message": "max RPM reached, please try again after 1 seconds", "type": "rate_limit_reached_error", "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: time.Second, Cool: time.Second, Row: "moonshot-rate-limit"}},
	{Name: "moonshot: authentication", Provider: outcome.Moonshot, Status: 401, Body: `{"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error", "param": null, "code": null}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "moonshot-authentication"}},
	{Name: "zhipu: token", Provider: outcome.Zhipu, Status: 401, Body: `{"error": {"code": "1002", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "zhipu-authentication"}},
	{Name: "zhipu: locked", Provider: outcome.Zhipu, Status: 401, Body: `{"error": {"code": "1112", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "zhipu-account"}},
	{Name: "zhipu: arrears", Provider: outcome.Zhipu, Status: 429, Body: `{"error": {"code": "1113", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "zhipu-arrears"}},
	{Name: "zhipu: permission", Provider: outcome.Zhipu, Status: 403, Body: `{"error": {"code": "1220", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.KeyModel, Row: "zhipu-permission"}},
	{Name: "zhipu: concurrency", Provider: outcome.Zhipu, Status: 429, Body: `{"error": {"code": "1302", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "zhipu-rate-limit"}},
	{Name: "zhipu: plan", Provider: outcome.Zhipu, Status: 429, Body: `{"error": {"code": "1308", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "zhipu-plan"}},
	{Name: "zhipu: overloaded", Provider: outcome.Zhipu, Status: 429, Body: `{"error": {"code": "1305", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "zhipu-overloaded"}},
	{Name: "zhipu: content", Provider: outcome.Zhipu, Status: 400, Body: `{"error": {"code": "1301", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "zhipu-content"}},
	{Name: "qwen: key", Provider: outcome.Qwen, Status: 401, Body: `{"code": "InvalidApiKey", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.Key, Row: "qwen-api-key"}},
	{Name: "qwen: arrearage", Provider: outcome.Qwen, Status: 400, Body: `{"code": "Arrearage", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, Row: "qwen-arrearage"}},
	{Name: "qwen: free tier", Provider: outcome.Qwen, Status: 403, Body: `{"code": "AllocationQuota.FreeTierOnly", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.KeyModel, Cool: 10 * time.Minute, Row: "qwen-free-tier"}},
	{Name: "qwen: rate", Provider: outcome.Qwen, Status: 429, Body: `{"code": "Throttling.RateQuota", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "qwen-throttling"}},
	{Name: "qwen: tokens", Provider: outcome.Qwen, Status: 429, Body: `{"code": "Throttling.AllocationQuota", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "qwen-throttling"}},
	{Name: "qwen: access", Provider: outcome.Qwen, Status: 403, Body: `{"code": "AccessDenied.Unpurchased", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Credential, Scope: outcome.KeyModel, Row: "qwen-access"}},
	{Name: "qwen: content", Provider: outcome.Qwen, Status: 400, Body: `{"code": "DataInspectionFailed", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "qwen-content"}},
	{Name: "qwen: internal", Provider: outcome.Qwen, Status: 500, Body: `{"code": "InternalError.Algo", "message": "m", "request_id": "r"}`,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "qwen-internal"}},
	{Name: "qwen: tokens, as OpenAI says it", Provider: outcome.Qwen, Status: 429, Body: `{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}`,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "qwen-throttling"}},
	{Name: "any: a page of 403", Provider: outcome.OpenAI, Status: 403, Body: `<html>Attention required</html>`, Page: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Row: "page-403"}},
	{Name: "any: time-out of the request", Provider: outcome.DeepSeek, Status: 408,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-408"}},
	{Name: "any: 429 with a date", Status: 429, Header: http.Header{"Date": {"Mon, 30 Nov 2026 12:00:00 GMT"}, "Retry-After": {"Mon, 30 Nov 2026 12:00:25 GMT"}},
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 25 * time.Second, Cool: 25 * time.Second, Row: "status-429"}},
	{Name: "any: 429 without headers", Status: 429,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, Cool: 30 * time.Second, Row: "status-429"}},
	{Name: "any: 429 for an hour", Status: 429, Header: http.Header{"Retry-After": {"3600"}},
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: time.Hour, Cool: time.Minute, Row: "status-429"}},
	{Name: "any: 429, reset in Unix time", Status: 429, Header: http.Header{"Date": {"Mon, 30 Nov 2026 12:00:00 GMT"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1796040007"}},
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 7 * time.Second, Cool: 7 * time.Second, Row: "status-429"}},
	{Name: "any: 429, reset in milliseconds of Unix time", Status: 429, Header: http.Header{"Date": {"Mon, 30 Nov 2026 12:00:00 GMT"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1796040003000"}},
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Retryable: true, RetryAfter: 3 * time.Second, Cool: 3 * time.Second, Row: "status-429"}},
	{Name: "any: 500", Status: 500,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-5xx"}},
	{Name: "any: 502", Status: 502, Body: `<html>`, Page: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-5xx"}},
	{Name: "any: 504", Status: 504,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-5xx"}},
	{Name: "any: 520", Status: 520,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Retryable: true, Row: "status-5xx"}},
	{Name: "any: 400", Status: 400,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 404", Status: 404,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 413", Status: 413,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 422", Status: 422,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 307", Status: 307,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 499", Status: 499,
		Want: outcome.Verdict{Class: outcome.Caller, Row: "status-other"}},
	{Name: "any: 999", Status: 999,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, Row: "status-unknown"}},
	{Name: "success", Provider: outcome.OpenAI, Status: 200, Body: `{"id": "r", "type": "message", "error": null, "choices": []}`,
		Want: outcome.Verdict{Class: outcome.OK, Row: "ok"}},
	{Name: "success with an empty code", Provider: outcome.Qwen, Status: 200, Body: `{"status_code": 200, "code": "", "message": "", "output": {}}`,
		Want: outcome.Verdict{Class: outcome.OK, Row: "ok"}},
	{Name: "success with an error in the body", Provider: outcome.Zhipu, Status: 200, Body: `{"error": {"code": "1113", "message": "m"}}`,
		Want: outcome.Verdict{Class: outcome.Quota, Scope: outcome.Key, Cool: 10 * time.Minute, MidStream: true, Row: "zhipu-arrears"}},
	{Name: "stream: fine", Provider: outcome.OpenAI, Status: 200, Body: "data: {\"choices\":[{\"delta\":{\"content\":\"an \\\"error\\\" is no error\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"an \\\"error\\\" is no error\"}}]}\n\ndata: [DONE]\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.OK, Row: "ok"}},
	{Name: "stream: anthropic overloaded", Provider: outcome.Anthropic, Status: 200, Body: "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"Overloaded\"}, \"request_id\": \"req_1\"}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "anthropic-overloaded"}},
	{Name: "stream: anthropic rate limit", Provider: outcome.Anthropic, Status: 200, Body: "event: error\r\ndata: {\"type\": \"error\", \"error\": {\"type\": \"rate_limit_error\", \"message\": \"m\"}, \"request_id\": \"req_1\"}\r\n\r\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Cool: 30 * time.Second, MidStream: true, Row: "anthropic-rate-limit"}},
	{Name: "stream: openai chunk", Provider: outcome.OpenAI, Status: 200, Body: "data: {\"choices\":[{\"delta\":{\"content\":\"an \\\"error\\\" is no error\"}}]}\n\ndata: {\"error\": {\"message\": \"The server had an error\", \"type\": \"server_error\", \"param\": null, \"code\": null}}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "server-code"}},
	{Name: "stream: openai response.failed", Provider: outcome.OpenAI, Status: 200, Body: "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 3s.\"}}}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, RetryAfter: 3 * time.Second, Cool: 3 * time.Second, MidStream: true, Row: "rate-limit-code"}},
	{Name: "stream: unknown error", Provider: outcome.OpenAI, Status: 200, Body: "event: error\ndata: {\"type\":\"error\",\"code\":\"ERR_SOMETHING\",\"message\":\"m\"}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "stream-error"}},
	{Name: "stream: error that is no JSON", Status: 200, Body: "event: error\ndata: upstream went away\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "stream-error"}},
	{Name: "stream: invalid request", Provider: outcome.OpenAI, Status: 200, Body: "data: {\"error\": {\"message\": \"bad\", \"type\": \"invalid_request_error\", \"param\": null, \"code\": null}}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Caller, MidStream: true, Row: "request-code"}},
	{Name: "stream: qwen", Provider: outcome.Qwen, Status: 200, Body: "id:1\nevent:error\n:HTTP_STATUS/400\ndata:{\"code\": \"DataInspectionFailed\", \"message\": \"m\", \"request_id\": \"r\"}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Caller, MidStream: true, Row: "qwen-content"}},
	{Name: "stream: gemini", Provider: outcome.Gemini, Status: 200, Body: "data: {\"error\": {\"code\": 503, \"message\": \"m\", \"status\": \"UNAVAILABLE\"}}\n\n", Stream: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "gemini-unavailable"}},
	{Name: "stream: breaks off", Provider: outcome.OpenAI, Status: 200, Body: "data: {\"choices\":[{\"delta\":{\"content\":\"an \\\"error\\\" is no error\"}}]}\n\n", Stream: true, Breaks: true,
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "connection"}},
	{Name: "stream: bedrock throttling", Provider: outcome.Bedrock, Status: 200, Stream: true, Frames: true,
		Body: frame("event", ":event-type", "chunk", `{"bytes":"eyJhIjoxfQ=="}`) + frame("exception", ":exception-type", "throttlingException", `{"message":"m"}`),
		Want: outcome.Verdict{Class: outcome.RateLimit, Scope: outcome.KeyModel, Cool: 30 * time.Second, MidStream: true, Row: "bedrock-throttling"}},
	{Name: "stream: bedrock error", Provider: outcome.Bedrock, Status: 200, Stream: true, Frames: true,
		Body: frame("error", ":error-code", "SomethingNew", ""),
		Want: outcome.Verdict{Class: outcome.Transient, Scope: outcome.Endpoint, MidStream: true, Row: "stream-error"}},
	{Name: "stream: bedrock, fine", Provider: outcome.Bedrock, Status: 200, Stream: true, Frames: true,
		Body: strings.Repeat(frame("event", ":event-type", "chunk", strings.Repeat("exception", 100)), 100) + frame("event", ":event-type", "chunk", strings.Repeat("x", 100_000)),
		Want: outcome.Verdict{Class: outcome.OK, Row: "ok"}},
}

// frame is a message of an AWS event stream.
func frame(kind, name, value, payload string) string {
	var headers []byte
	for _, h := range [][2]string{{":message-type", kind}, {name, value}, {":content-type", "application/json"}} {
		headers = append(headers, byte(len(h[0])))
		headers = append(headers, h[0]...)
		headers = append(headers, 7)
		headers = binary.BigEndian.AppendUint16(headers, uint16(len(h[1])))
		headers = append(headers, h[1]...)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(12+len(headers)+len(payload)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}
