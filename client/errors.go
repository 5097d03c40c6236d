package client

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the stable code of a problem that the service reports. Each one is
// an error that errors.Is finds in what the methods of Client return:
//
//	if errors.Is(err, client.ErrKeyDisabled) { … }
type Code string

// The codes. Later versions of the service may report more.
const (
	ErrInternal             Code = "internal"
	ErrMalformed            Code = "malformed"
	ErrTooLarge             Code = "too_large"
	ErrUnsupportedMediaType Code = "unsupported_media_type"
	ErrMethodNotAllowed     Code = "method_not_allowed"
	// ErrUnauthenticated: the credential is unknown, wrong, expired or revoked.
	ErrUnauthenticated Code = "unauthenticated"
	// ErrPermissionDenied: the credential's scopes do not cover the call.
	ErrPermissionDenied Code = "permission_denied"
	// ErrNotFound: the object does not exist, or belongs to another tenant.
	ErrNotFound Code = "not_found"
	// ErrConflict: the name is taken, the object's state forbids the call, or
	// the answer to a repeated call held a secret that is lost.
	ErrConflict        Code = "conflict"
	ErrKeyDisabled     Code = "key_disabled"
	ErrPendingDeletion Code = "pending_deletion"
	// ErrRevision: the object is not in the revision that the call names.
	ErrRevision Code = "revision"
	// ErrStaleReplica: the API node does not know yet of the revision that a fetch
	// asks for; another one may.
	ErrStaleReplica Code = "stale_replica"
	// ErrDecryptionFailed: one answer for all that can be wrong with a ciphertext.
	ErrDecryptionFailed Code = "decryption_failed"
	ErrInvalidArgument  Code = "invalid_argument"
	// ErrUnsatisfiable: the call needs more than its limits ever allow.
	ErrUnsatisfiable Code = "unsatisfiable"
	// ErrQuotaExceeded: a rate limit; see Error.RetryAfter and Error.Reasons.
	ErrQuotaExceeded Code = "quota_exceeded"
	// ErrQuotaExhausted: a total for the day or month is used up.
	ErrQuotaExhausted Code = "quota_exhausted"
	// ErrReducedCapacity: the HSMs are busier than the tenant's class may add to.
	ErrReducedCapacity  Code = "reduced_capacity"
	ErrHSMUnavailable   Code = "hsm_unavailable"
	ErrAuditUnavailable Code = "audit_unavailable"
	ErrStoreUnavailable Code = "store_unavailable"
	// ErrApprovalRequired: the call takes two operators. Another one approves
	// Error.Approval; then the call is repeated with WithApproval.
	ErrApprovalRequired Code = "approval_required"
	// ErrSecondFactor: the credential was used in an unusual way, and its calls
	// need a second factor: see WithSecondCredential and WithOneTimeCode.
	ErrSecondFactor Code = "second_factor_required"
	// ErrCredentialSuspended: the credential was used in an unusual way, and does
	// nothing until an administrator of its tenant clears it.
	ErrCredentialSuspended Code = "credential_suspended"
	// ErrWaitExceeded: no slot of an HSM came free in the time allowed.
	ErrWaitExceeded Code = "wait_exceeded"
)

// Error is the code itself.
func (c Code) Error() string { return string(c) }

// Errors of the way to the service and back.
var (
	// ErrNoAnswer wraps what kept a request from being answered: no
	// connection, a broken one, or one that cannot be trusted.
	ErrNoAnswer = errors.New("no answer from the service")
	// ErrBadAnswer wraps what is wrong with an answer that is not one of the
	// service: not its JSON, or larger than it can be.
	ErrBadAnswer = errors.New("the answer is not one of the service")
)

// Error is a call that the service refused (RFC 9457), or that this package
// did not send because it cannot succeed; then Status is 0. It holds nothing
// of what was sent.
type Error struct {
	Status     int    // the HTTP status
	Code       Code   // "" when something before the service answered
	Title      string // of the kind of problem
	Detail     string // of this one; may be empty
	RequestID  string // names the request in the service's journal
	Reasons    []Reason
	RetryAfter time.Duration // 0 when none is given
	Approval   string        // with ErrApprovalRequired: the id of what has to be approved
}

// Reason is one gate that refused, with its numbers in the gate's unit.
type Reason struct {
	Code  string
	Limit int64
	Need  int64
	Have  int64
	// RetryIn is after how long the gate would let the call pass, 0 when
	// retrying does not help.
	RetryIn time.Duration
	// Unit is what the numbers count; Waited for how long the call waited for
	// this before it was refused for another reason.
	Unit   string
	Waited time.Duration
}

// Error is one line: code or status, detail, request id.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Code != "":
		b.WriteString(string(e.Code))
	default:
		b.WriteString("HTTP status ")
		b.WriteString(strconv.Itoa(e.Status))
	}
	if text := e.text(); text != "" {
		b.WriteString(": ")
		b.WriteString(text)
	}
	if e.RequestID != "" {
		b.WriteString(" (request ")
		b.WriteString(e.RequestID)
		b.WriteByte(')')
	}
	return b.String()
}

func (e *Error) text() string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Title
}

// Unwrap returns the code, so that errors.Is finds it.
func (e *Error) Unwrap() error {
	if e.Code == "" {
		return nil
	}
	return e.Code
}

// invalid is the error of a call that is not worth sending.
func invalid(format string, args ...any) *Error {
	return &Error{Code: ErrInvalidArgument, Detail: fmt.Sprintf(format, args...)}
}

// problem is the body of a refusal.
type problem struct {
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Code      Code   `json:"code"`
	RequestID string `json:"request_id"`
	Approval  string `json:"approval"`
	Reasons   []struct {
		Code    string  `json:"code"`
		Limit   int64   `json:"limit"`
		Need    int64   `json:"need"`
		Have    int64   `json:"have"`
		RetryMS int64   `json:"retry_ms"`
		Unit    string  `json:"unit"`
		WaitMS  float64 `json:"wait_ms"`
	} `json:"reasons"`
}

// refusal makes the error of an answer whose status is not a success. Of a
// body that is not a problem of the service, such as a proxy's page, nothing
// is repeated.
func refusal(r *http.Response, body []byte) *Error {
	e := &Error{
		Status:     r.StatusCode,
		RequestID:  r.Header.Get(headerRequestID),
		RetryAfter: retryAfter(r.Header),
	}
	if mediaType(r.Header) != "application/problem+json" || !e.read(body) {
		e.Title = http.StatusText(r.StatusCode)
	}
	return e
}

// read fills in what a problem says, and tells whether it is one.
func (e *Error) read(body []byte) bool {
	var p problem
	if json.Unmarshal(body, &p) != nil {
		return false
	}
	e.Code, e.Title, e.Detail, e.Approval = p.Code, p.Title, p.Detail, p.Approval
	if p.RequestID != "" {
		e.RequestID = p.RequestID
	}
	for _, r := range p.Reasons {
		e.Reasons = append(e.Reasons, Reason{
			Code: r.Code, Limit: r.Limit, Need: r.Need, Have: r.Have,
			RetryIn: time.Duration(r.RetryMS) * time.Millisecond, Unit: r.Unit,
			Waited: time.Duration(r.WaitMS * float64(time.Millisecond)),
		})
	}
	return true
}

// retryAfter reads the header Retry-After in both of its forms (RFC 9110,
// 10.2.3). A malformed one counts as none.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		// The date's whole seconds are those of the answer's clock.
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		return max(0, at.Sub(now))
	}
	return 0
}
