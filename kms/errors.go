package kms

import (
	"errors"
	"fmt"
	"time"
	"uuid"
)

// Kind classifies an error by what the caller can do about it. The api
// package maps each kind to one HTTP status and one stable code.
type Kind uint8

// The kinds. KindInternal is the zero value: an error without a kind tells
// the client nothing.
const (
	KindInternal Kind = iota
	KindMalformed
	KindTooLarge
	KindUnsupportedMedia
	KindUnauthenticated
	KindPermissionDenied
	KindNotFound
	KindConflict
	KindKeyDisabled
	KindPendingDeletion
	KindPreconditionFailed
	KindDecryptionFailed
	KindInvalidArgument
	KindUnsatisfiable
	KindQuotaExceeded
	KindQuotaExhausted
	KindReducedCapacity
	KindHSMUnavailable
	KindAuditUnavailable
	KindStoreUnavailable
	KindWaitExceeded
	KindApprovalRequired
	KindStaleReplica
	KindSecondFactor
	KindCredentialSuspended
	kindCount
)

// Kinds returns every kind, for tables that must be complete.
func Kinds() []Kind {
	all := make([]Kind, kindCount)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

var kindNames = [kindCount]string{
	KindInternal:            "internal",
	KindMalformed:           "malformed",
	KindTooLarge:            "too_large",
	KindUnsupportedMedia:    "unsupported_media_type",
	KindUnauthenticated:     "unauthenticated",
	KindPermissionDenied:    "permission_denied",
	KindNotFound:            "not_found",
	KindConflict:            "conflict",
	KindKeyDisabled:         "key_disabled",
	KindPendingDeletion:     "pending_deletion",
	KindPreconditionFailed:  "revision",
	KindDecryptionFailed:    "decryption_failed",
	KindInvalidArgument:     "invalid_argument",
	KindUnsatisfiable:       "unsatisfiable",
	KindQuotaExceeded:       "quota_exceeded",
	KindQuotaExhausted:      "quota_exhausted",
	KindReducedCapacity:     "reduced_capacity",
	KindHSMUnavailable:      "hsm_unavailable",
	KindAuditUnavailable:    "audit_unavailable",
	KindStoreUnavailable:    "store_unavailable",
	KindWaitExceeded:        "wait_exceeded",
	KindApprovalRequired:    "approval_required",
	KindStaleReplica:        "stale_replica",
	KindSecondFactor:        "second_factor_required",
	KindCredentialSuspended: "credential_suspended",
}

// String is the kind's stable code, as clients and the journal see it.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k]
	}
	return kindNames[KindInternal]
}

// Reason is one cause of a wait or a refusal, with its numbers. Limit, Need
// and Have are in the unit of the code: see Reasons.
type Reason struct {
	Code    string
	Limit   int64
	Need    int64
	Have    int64
	RetryIn time.Duration // 0 when retrying does not help
	Waited  time.Duration // for this reason; 0 for a refusal
}

// Error is an error that a caller may see. Detail is safe for clients: it
// never holds anything the client sent nor anything secret. Err is for the
// log only.
type Error struct {
	Kind       Kind
	Detail     string
	Reasons    []Reason
	RetryAfter time.Duration // 0: none is given
	Approval   uuid.UUID     // KindApprovalRequired: what has to be approved
	Err        error
}

// Error joins detail and cause, for logs.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Detail
	}
	return fmt.Sprintf("%s: %v", e.Detail, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of a kind whose detail is safe for clients. Operands
// must not come from the request.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Wrap makes an Error of a kind around a cause that only the log sees.
func Wrap(kind Kind, err error, detail string) *Error {
	return &Error{Kind: kind, Detail: detail, Err: err}
}

// KindOf returns the kind of the first Error in the chain, KindInternal when
// there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// Errors that are the same wherever they arise, so that neither text nor
// kind tells two causes apart.
var (
	// ErrNotFound answers for a missing object and for another tenant's.
	ErrNotFound = &Error{Kind: KindNotFound, Detail: "no such object"}
	// ErrUnauthenticated answers for unknown, wrong, expired and revoked
	// credentials.
	ErrUnauthenticated = &Error{Kind: KindUnauthenticated, Detail: "the credential is missing or not valid"}
	// ErrPermissionDenied answers when the credential's scopes do not cover
	// the operation.
	ErrPermissionDenied = &Error{Kind: KindPermissionDenied, Detail: "the credential's scopes do not allow this operation"}
	// ErrDecryptionFailed answers for every failure of a decryption that
	// the ciphertext can cause.
	ErrDecryptionFailed = &Error{Kind: KindDecryptionFailed, Detail: "the ciphertext cannot be decrypted"}
	// ErrImport answers for everything that can be wrong with an import's
	// token or with the key that came with it.
	ErrImport = &Error{Kind: KindInvalidArgument, Detail: "the token or the wrapped key is not valid, or not one of the spec"}
)
