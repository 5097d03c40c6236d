package outcome

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// Provider names whose answers are read. Another name, "" among them, is a
// provider of which nothing special is known; most speak as OpenAI does.
type Provider string

// The providers with rows of their own.
const (
	OpenAI      Provider = "openai"
	Anthropic   Provider = "anthropic"
	AzureOpenAI Provider = "azure-openai"
	Gemini      Provider = "gemini"
	Bedrock     Provider = "bedrock"
	DeepSeek    Provider = "deepseek"
	Moonshot    Provider = "moonshot"
	Zhipu       Provider = "zhipu"
	Qwen        Provider = "qwen"
)

// Class is what an answer was.
type Class string

// The classes.
const (
	OK         Class = "ok"
	Credential Class = "credential" // the key is wrong, revoked, or may not do this
	Quota      Class = "quota"      // the key's account has used up what it paid for
	RateLimit  Class = "rate_limit" // too many calls or tokens for now
	Transient  Class = "transient"  // the endpoint failed
	Caller     Class = "caller"     // the request was wrong, or was given up
)

// Scope is what an answer speaks of.
type Scope string

// The scopes.
const (
	Nothing  Scope = ""
	Key      Scope = "key"
	KeyModel Scope = "key+model"
	Endpoint Scope = "endpoint"
)

// Bounds of waiting.
const (
	// defaultCool is for a rate limit that does not say how long it lasts.
	defaultCool = 30 * time.Second
	// minCool and maxCool bound what a rate limit says: less is a busy loop,
	// more would let one odd header put a key out of use.
	minCool = time.Second
	maxCool = time.Minute
	// quotaCool is the least time that an account without money is left alone.
	quotaCool = 10 * time.Minute
	// maxRetryAfter bounds what is believed at all: the longest true periods
	// are days.
	maxRetryAfter = 7 * 24 * time.Hour
)

// MaxBody is how many bytes of an error's body are worth passing to Of. Longer
// ones are judged by their status.
const MaxBody = 64 << 10

// Verdict is what an answer means.
type Verdict struct {
	Class Class
	Scope Scope
	// Retryable: the same request may succeed later with the same key. It is
	// never so when part of the answer has been passed on.
	Retryable bool
	// RetryAfter is how long the provider said to wait, at most a week; 0: it
	// did not say.
	RetryAfter time.Duration
	// Cool is for how long Scope should not be used: RetryAfter within 1 s to
	// 60 s for a rate limit (30 s when it does not say), 10 min or more for a
	// quota, and 0 for everything else.
	Cool time.Duration
	// MidStream: the failure came after a status of success.
	MidStream bool
	// Row names the row of the table that decided.
	Row string
}

// Of judges an answer by its status, headers and body, of which MaxBody bytes
// are enough and none are needed with a status of success. now is for dates in
// headers.
func Of(p Provider, status int, header http.Header, body []byte, now time.Time) Verdict {
	said := parse(header, body)
	success := status >= 200 && status <= 299
	if success && !said.failed {
		return verdict(rowOK, 0)
	}
	if success {
		// Some answer 200 with an error in the body: then only the body counts.
		status = 0
	}
	v := verdict(find(p, status, said), retryAfter(header, said.message, said.delay, now))
	v.MidStream = success
	return v
}

// OfError judges a request that got no answer, by the error of net/http, or an
// answer whose body broke off. Giving up is the caller's; a time-out is not.
func OfError(err error) Verdict {
	row := &rowConnection
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		row = &rowCertificate
	} else if errors.Is(err, context.Canceled) {
		row = &rowCanceled
	} else if timedOut(err) {
		row = &rowTimeout
	} else if _, dns := errors.AsType[*net.DNSError](err); dns {
		row = &rowName
	}
	return verdict(*row, 0)
}

func timedOut(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && n.Timeout()
}

// verdict is a row applied to an answer that asks to wait.
func verdict(r Row, wait time.Duration) Verdict {
	v := Verdict{Class: r.Class, Scope: r.Scope, Retryable: r.Retryable, RetryAfter: wait, Row: r.Name}
	switch r.Class {
	case RateLimit:
		v.Cool = defaultCool
		if wait > 0 {
			v.Cool = min(max(wait, minCool), maxCool)
		}
	case Quota:
		v.Cool = max(wait, quotaCool)
	}
	return v
}
