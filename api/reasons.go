package api

import (
	"encoding/json/v2"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Decision is the content of the header Sluice-Decision: all that decided when
// and whether a request ran.
type Decision struct {
	Cost          Cost            `json:"cost" doc:"Credits reserved"`
	PolicyVersion uint64          `json:"policy_version"`
	Gates         []ProblemReason `json:"gates" doc:"Every gate of the quota as it was when the request came in; have is what was left"`
	Class         kms.Class       `json:"class,omitzero" doc:"At the gate of the HSMs: HIGH, MID or LOW; absent when the request did not come to it"`
	Urgency       kms.Urgency     `json:"urgency"`
	EstimateMS    float64         `json:"estimate_ms,omitzero" doc:"The wait that was expected; absent when a slot was free"`
	WaitMS        float64         `json:"wait_ms" doc:"The wait"`
	Reasons       []ProblemReason `json:"reasons,omitempty" doc:"Why it was refused, and what it waited for, the longest first"`
	Node          string          `json:"node,omitzero" doc:"That ran it last"`
	Attempts      int             `json:"attempts,omitzero" doc:"Nodes tried"`
	Away          bool            `json:"away,omitzero" doc:"It ran on another node than the one preferred"`
	Aged          bool            `json:"aged,omitzero" doc:"It took the lane of those who have waited long"`
	ColdLoad      bool            `json:"cold_load,omitzero" doc:"The key had to be loaded first"`
}

// readDebug notes that the whole decision is asked for. Without the scope the
// header is ignored: a client that always sends it is served all the same, and
// nobody learns which credentials have the scope.
func (c *call) readDebug() {
	by := c.ticket.By
	c.ticket.Debug = c.request.Header.Get(headerDebug) == "1" && by != nil && by.Scopes.Debug()
}

// describeDecision tells the whole decision, in a header, since not every
// answer is JSON, and in the log.
func (s *Server) describeDecision(x *exchange) {
	t := &x.ticket
	d := Decision{
		Cost: Cost(t.Cost), PolicyVersion: t.PolicyVersion, Gates: reasonsOf(t.Gates),
		Class: t.Class, Urgency: t.Urgency, EstimateMS: milliseconds(t.Estimate), WaitMS: milliseconds(t.Wait),
		Reasons: reasonsOf(t.Reasons), Node: printable(string(t.Node), kms.MaxNameLength),
		Attempts: t.Attempts, Away: t.Away, Aged: t.Aged, ColdLoad: t.ColdLoad,
	}
	body, err := json.Marshal(&d, json.Deterministic(true))
	if err != nil {
		// A Decision holds words of our own and numbers only.
		panic(err)
	}
	x.set(x.Header(), headerDecision, string(body))
	s.log.LogAttrs(x.context, slog.LevelInfo, "decision",
		slog.String("request_id", t.RequestID.String()), slog.String("route", x.template()), slog.String("decision", string(body)))
}

// reasonsOf are reasons as answers have them.
func reasonsOf(list []kms.Reason) []ProblemReason {
	out := make([]ProblemReason, len(list))
	for i := range list {
		out[i] = reasonOf(&list[i])
	}
	return out
}

// waitReasons writes what a request waited for as a list of tokens with
// parameters (RFC 9651), milliseconds as in Server-Timing.
func waitReasons(reasons []kms.Reason) string {
	b := make([]byte, 0, 128)
	for i := range reasons {
		if r := &reasons[i]; r.Waited > 0 {
			if len(b) > 0 {
				b = append(b, ", "...)
			}
			b = append(b, r.Code...)
			b = appendDuration(b, ";dur=", r.Waited)
		}
	}
	return string(b)
}

// milliseconds is a duration in milliseconds, to the microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// reasoned tells whether answers of a status can have reasons.
func reasoned(status int) bool {
	switch status {
	case http.StatusPaymentRequired, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
