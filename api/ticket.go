package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The headers of requests and answers that are ours.
const (
	headerRequestID   = "X-Request-Id"
	headerIdempotency = "Idempotency-Key"
	headerReplayed    = "Idempotent-Replayed"
	headerApproval    = "Sluice-Approval"
	headerSecond      = "Sluice-Second-Credential"
	headerOneTime     = "Sluice-One-Time-Code"
	headerUrgency     = "Sluice-Urgency"
	headerDeadline    = "Sluice-Deadline-Ms"
	headerCost        = "Sluice-Cost"
	headerPolicy      = "RateLimit-Policy"
	headerLimit       = "RateLimit"
	headerWeighted    = "X-RateLimit-Weighted"
	headerProtection  = "Sluice-Protection"
	headerTiming      = "Server-Timing"
	headerWaitReason  = "Sluice-Wait-Reason"
	headerDebug       = "Sluice-Debug"
	headerDecision    = "Sluice-Decision"
	headerTrace       = "Traceparent"
	headerCostWarning = "Sluice-Cost-Warning"
)

// Bounds of what a client may have recorded of itself: what one line of the
// journal can hold, and what real clients send.
const (
	maxClientRequestID = 128 // bytes
	maxUserAgent       = 256 // bytes
	// MaxDeadline is the longest deadline that a client may ask for: the
	// longest maximum wait of any tier.
	MaxDeadline = time.Minute
)

// openTicket fills in what is known of a request before its route is.
func (s *Server) openTicket(t *kms.Ticket, r *http.Request) {
	t.RequestID = uuid.NewV7()
	t.Received = s.clock()
	t.Urgency = kms.UrgencyNormal
	t.Address = s.proxies.client(r)
	t.ClientRequestID = printable(r.Header.Get(headerRequestID), maxClientRequestID)
	t.UserAgent = printable(r.Header.Get("User-Agent"), maxUserAgent)
	t.TraceID = traceID(r.Header[headerTrace])
}

// readDirectives fills in what the client says about how the request is to be
// treated. Unlike what it says of itself, that is refused when it is wrong:
// a misspelt urgency would otherwise be a slow answer that nobody understands.
func (s *Server) readDirectives(t *kms.Ticket, h http.Header) error {
	if values := h[headerUrgency]; len(values) > 0 {
		if len(values) > 1 || !slices.Contains(urgencies, kms.Urgency(values[0])) {
			return kms.Errorf(kms.KindMalformed, "header %s: must be given once, as one of %v", headerUrgency, urgencies)
		}
		t.Urgency = kms.Urgency(values[0])
	}
	if values := h[headerDeadline]; len(values) > 0 {
		ms, err := strconv.ParseUint(values[0], 10, 32)
		wait := time.Duration(ms) * time.Millisecond
		if len(values) > 1 || err != nil || wait == 0 || wait > MaxDeadline {
			return kms.Errorf(kms.KindMalformed, "header %s: must be given once, as milliseconds from 1 to %d",
				headerDeadline, MaxDeadline.Milliseconds())
		}
		t.Deadline = t.Received.Add(wait)
	}
	return s.readFactor(t, h)
}

// readFactor notes the second factor that the client sends. It is looked at only
// when the credential has to be proven.
func (s *Server) readFactor(t *kms.Ticket, h http.Header) error {
	second, code := h[headerSecond], h[headerOneTime]
	if len(second) > 1 || len(code) > 1 {
		return kms.Errorf(kms.KindMalformed, "headers %s and %s: may be given once", headerSecond, headerOneTime)
	}
	if len(code) == 1 {
		t.OneTimeCode = code[0]
	}
	if len(second) == 1 {
		t.Second = func(ctx context.Context) (*kms.Principal, error) {
			return s.authenticator.Authenticate(ctx, second[0], t.Address)
		}
	}
	return nil
}

var urgencies = []kms.Urgency{kms.UrgencyInteractive, kms.UrgencyNormal, kms.UrgencyBulk}

// printable returns at most limit bytes of s with everything but visible
// ASCII and the space replaced, so that a header can neither forge a line of
// a log nor fill the journal.
func printable(s string, limit int) string {
	s = s[:min(len(s), limit)]
	clean := true
	for i := range len(s) {
		clean = clean && ' ' <= s[i] && s[i] <= '~'
	}
	if clean {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '_'
		}
	}
	return string(b)
}

// Lengths of a traceparent header (W3C Trace Context, 3.2.2):
// version "-" trace-id "-" parent-id "-" flags.
const (
	traceIDStart      = 3
	traceIDEnd        = traceIDStart + 32
	parentIDEnd       = traceIDEnd + 1 + 16
	traceparentLength = parentIDEnd + 1 + 2
)

// traceID returns the trace id of a traceparent header, "" unless there is
// exactly one and it is valid: the standard has it ignored otherwise.
func traceID(values []string) string {
	if len(values) != 1 || len(values[0]) < traceparentLength {
		return ""
	}
	v := values[0]
	version, trace, parent, flags := v[:2], v[traceIDStart:traceIDEnd], v[traceIDEnd+1:parentIDEnd], v[parentIDEnd+1:traceparentLength]
	if v[2] != '-' || v[traceIDEnd] != '-' || v[parentIDEnd] != '-' || !lowerHex(version+trace+parent+flags) {
		return ""
	}
	// Version 00 ends after the flags; later ones may go on after a dash.
	switch rest := v[traceparentLength:]; {
	case version == "ff", version == "00" && rest != "", rest != "" && rest[0] != '-':
		return ""
	}
	if strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return ""
	}
	return trace
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
