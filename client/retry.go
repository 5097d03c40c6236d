package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// Bounds of the pauses between attempts.
const (
	// firstBackoff is of the order of a fail-over inside the service.
	firstBackoff = 100 * time.Millisecond
	// maxBackoff bounds the doubling.
	maxBackoff = 5 * time.Second
	// maxRetryAfter is the longest pause that is taken at the service's word:
	// a rate limit refills within it, while an hour's wait is for the caller
	// to decide on.
	maxRetryAfter = 30 * time.Second
)

// repeatable tells whether to send a call again after an attempt that failed
// with err: whether it may succeed then. It does no harm: operations with keys
// change nothing, and calls that do carry an Idempotency-Key, by which the
// service carries them out once.
func repeatable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return errors.Is(err, ErrNoAnswer) && !untrusted(err)
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
	case http.StatusConflict:
		// An earlier attempt is still under way: only then is there a pause.
		if e.RetryAfter == 0 {
			return false
		}
	default:
		return false
	}
	return e.RetryAfter <= maxRetryAfter
}

// untrusted tells whether the peer is not who it should be.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// pause is the time between an attempt, counted from 1, that failed with err
// and the next one. It doubles and its second half is random, so that clients
// that fail together do not return together ("equal jitter"; M. Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). With a
// Retry-After it is that, and up to a tenth more.
func pause(err error, attempt int) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter + rand.N(e.RetryAfter/10)
	}
	backoff := min(firstBackoff<<min(attempt-1, 10), maxBackoff)
	return backoff/2 + rand.N(backoff/2)
}

// sleep waits, unless ctx ends first or would end before the wait does; then
// it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
