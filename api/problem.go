package api

import (
	"encoding/json/v2"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Problem is the answer to a request that failed (RFC 9457). It never holds
// anything that the client sent.
type Problem struct {
	Type      string          `json:"type" doc:"URI of the problem type; about:blank when the status says all"`
	Title     string          `json:"title" doc:"Summary of the problem type"`
	Status    int             `json:"status" doc:"The HTTP status" min:"400" max:"599"`
	Detail    string          `json:"detail,omitzero" doc:"What is wrong with this request; absent for internal errors"`
	Code      Code            `json:"code" doc:"Stable code to decide on"`
	RequestID uuid.UUID       `json:"request_id" doc:"Names the request in the journal and in logs"`
	Reasons   []ProblemReason `json:"reasons,omitempty" doc:"Every gate that refused, with its numbers"`
	Approval  uuid.UUID       `json:"approval,omitzero" doc:"With approval_required: what another operator has to approve"`
}

// ProblemReason is one cause of a refusal.
type ProblemReason struct {
	Code    string   `json:"code" doc:"The gate that refused" example:"TENANT_RATE"`
	Unit    kms.Unit `json:"unit,omitzero" doc:"What the numbers count"`
	Limit   int64    `json:"limit,omitzero" doc:"The gate's limit, in its unit"`
	Need    int64    `json:"need,omitzero" doc:"What the request needs, in the gate's unit"`
	Have    int64    `json:"have,omitzero" doc:"What is left, in the gate's unit"`
	RetryMS int64    `json:"retry_ms,omitzero" doc:"Milliseconds after which this gate would let the request pass; absent when retrying does not help"`
	WaitMS  float64  `json:"wait_ms,omitzero" doc:"Milliseconds that the request waited for it before"`
}

// reasonOf is a reason as answers have it.
func reasonOf(r *kms.Reason) ProblemReason {
	return ProblemReason{Code: r.Code, Unit: r.Unit(), Limit: r.Limit, Need: r.Need, Have: r.Have,
		RetryMS: r.RetryIn.Milliseconds(), WaitMS: milliseconds(r.Waited)}
}

// Code is a problem's stable code: the name of a kms.Kind, or
// CodeMethodNotAllowed.
type Code string

// CodeMethodNotAllowed is the one code that is not a kms.Kind: only HTTP
// knows of methods.
const CodeMethodNotAllowed Code = "method_not_allowed"

// Content types of answers.
const (
	contentJSON    = "application/json"
	contentProblem = "application/problem+json"
)

// Problem types. The two URIs are those that "RateLimit header fields for
// HTTP" (draft-ietf-httpapi-ratelimit-headers-10, section 5) asks IANA to
// register; about:blank is RFC 9457, 4.2.1.
const (
	typeBlank           = "about:blank"
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problemType is what HTTP makes of a kind of error.
type problemType struct {
	status int
	uri    string // "": about:blank
	title  string // "": the text of the status, as about:blank wants it
}

// problemTypes is the one table from kinds of errors to HTTP. It has a row
// for every kind.
var problemTypes = map[kms.Kind]problemType{
	kms.KindInternal:           {status: http.StatusInternalServerError},
	kms.KindMalformed:          {status: http.StatusBadRequest},
	kms.KindTooLarge:           {status: http.StatusRequestEntityTooLarge},
	kms.KindUnsupportedMedia:   {status: http.StatusUnsupportedMediaType},
	kms.KindUnauthenticated:    {status: http.StatusUnauthorized},
	kms.KindPermissionDenied:   {status: http.StatusForbidden},
	kms.KindNotFound:           {status: http.StatusNotFound},
	kms.KindConflict:           {status: http.StatusConflict},
	kms.KindKeyDisabled:        {status: http.StatusConflict},
	kms.KindPendingDeletion:    {status: http.StatusConflict},
	kms.KindPreconditionFailed: {status: http.StatusPreconditionFailed},
	kms.KindDecryptionFailed:   {status: http.StatusBadRequest},
	kms.KindInvalidArgument:    {status: http.StatusUnprocessableEntity},
	kms.KindUnsatisfiable:      {status: http.StatusUnprocessableEntity},
	kms.KindQuotaExceeded: {http.StatusTooManyRequests, typeQuotaExceeded,
		"Request cannot be satisfied as assigned quota has been exceeded"},
	kms.KindQuotaExhausted: {status: http.StatusPaymentRequired},
	kms.KindReducedCapacity: {http.StatusServiceUnavailable, typeReducedCapacity,
		"Request cannot be satisfied due to temporary server capacity constraints"},
	kms.KindHSMUnavailable:   {status: http.StatusServiceUnavailable},
	kms.KindAuditUnavailable: {status: http.StatusServiceUnavailable},
	kms.KindStoreUnavailable: {status: http.StatusServiceUnavailable},
	kms.KindWaitExceeded:     {status: http.StatusGatewayTimeout},
	kms.KindApprovalRequired: {status: http.StatusConflict},
	kms.KindStaleReplica:     {status: http.StatusPreconditionFailed},

	kms.KindSecondFactor:        {status: http.StatusForbidden},
	kms.KindCredentialSuspended: {status: http.StatusForbidden},
}

// ProblemStatus returns the HTTP status of a kind of error.
func ProblemStatus(k kms.Kind) int { return problemTypes[k].status }

// problemOf makes the problem that tells a client of err, and the pause after
// which to retry, 0 for none. An error without a kind tells nothing.
func problemOf(err error) (p Problem, retryAfter time.Duration) {
	e, ok := errors.AsType[*kms.Error](err)
	if !ok || e.Kind == kms.KindInternal {
		e = &kms.Error{Kind: kms.KindInternal}
	}
	row := problemTypes[e.Kind]
	p = Problem{Type: row.uri, Title: row.title, Status: row.status, Detail: e.Detail, Code: Code(e.Kind.String()), Approval: e.Approval}
	if p.Type == "" {
		p.Type, p.Title = typeBlank, http.StatusText(row.status)
	}
	for i := range e.Reasons {
		p.Reasons = append(p.Reasons, reasonOf(&e.Reasons[i]))
	}
	return p, e.RetryAfter
}

// fail answers with the problem of err.
func (s *Server) fail(x *exchange, err error) {
	p, retryAfter := s.problem(x, err)
	h := x.Header()
	sayBulk(x, &p)
	if len(p.Reasons) > 0 && reasoned(p.Status) {
		s.describeTime(x)
	}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusRequestEntityTooLarge:
		// What is left of the body is not worth reading.
		h.Set("Connection", "close")
	}
	if retryAfter > 0 {
		// Retry-After counts whole seconds (RFC 9110, 10.2.3): rounded up,
		// since a retry before its time is refused again.
		h.Set("Retry-After", strconv.FormatUint(uint64(wholeSeconds(retryAfter)), 10))
	}
	x.writeProblem(p)
}

// wholeSeconds is a pause as Retry-After has it.
func wholeSeconds(d time.Duration) uint32 { return uint32(math.Ceil(d.Seconds())) }

// problem is the problem that tells a client of err, and the pause after which
// to retry, 0 for none. It logs what the client is not told.
func (s *Server) problem(x *exchange, err error) (Problem, time.Duration) {
	p, retryAfter := problemOf(err)
	p.RequestID = x.ticket.RequestID
	s.logFailure(x, p, err)
	if len(p.Reasons) > 0 && reasoned(p.Status) {
		// It was admitted or refused by numbers that are the caller's own, so
		// they tell nothing of what must look like something else.
		p.Reasons = reasonsOf(x.ticket.Reasons)
	}
	return p, retryAfter
}

// logFailure logs what the client is not told of an error on our side. The
// route logs errors without a kind itself.
func (s *Server) logFailure(x *exchange, p Problem, err error) {
	if p.Status < http.StatusInternalServerError || kms.KindOf(err) == kms.KindInternal && x.ticket.Op != "" {
		return
	}
	s.log.LogAttrs(x.context, slog.LevelWarn, "request failed",
		slog.String("request_id", x.ticket.RequestID.String()),
		slog.String("route", x.template()), slog.String("code", string(p.Code)), slog.Any("error", err))
}

// writeProblem sends a problem and completes it with the request's id.
func (x *exchange) writeProblem(p Problem) {
	p.RequestID = x.ticket.RequestID
	x.write(p.Status, contentProblem, p.encode())
}

func (p *Problem) encode() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		// A Problem holds strings and numbers only.
		panic(err)
	}
	return body
}
