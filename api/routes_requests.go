package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

func requestRoutes() []Route {
	return []Route{
		define(Route{Name: "why", Group: ownTenant.group, Method: http.MethodGet, Path: "/v1/requests/{request}/why", Op: kms.OpReadRequest,
			Errors: keyErrors, Summary: "Show why a request took as long as it did, or was refused",
			Description: fmt.Sprintf("Of a request of the own tenant, or for an operator of any. Any API node can tell. "+
				"For %.0f minutes it tells all; of requests that neither waited nor were refused, and under a flood of those that did, only the node that served them does. "+
				"Otherwise, and for as long as the audit trail is kept, it tells what that has, some seconds after the request has ended.", kms.RecordsKept.Minutes())}, why),
	}
}

func why(c *call, _ *NoBody) (*WhyResponse, error) {
	r, err := c.service.Why(c.context, &c.ticket, c.object(0))
	if err != nil {
		return nil, err
	}
	out := &WhyResponse{
		Request: r.RequestID, Tenant: r.Tenant, EndedAt: r.Time.UTC(), Operation: r.Op, Key: r.Key, Outcome: r.Outcome,
		Summary: summary(r), Reasons: make([]WhyReason, len(r.Reasons)),
		QueueMS: milliseconds(r.Wait), HSMMS: milliseconds(r.SlotTime), TotalMS: milliseconds(r.Total), EstimateMS: milliseconds(r.Estimate),
		Node: r.Node, Attempts: r.Attempts, Away: r.Away, Aged: r.Aged, ColdLoad: r.ColdLoad, Class: r.Class, Urgency: r.Urgency,
		Reserved: Cost(r.Cost), Charged: Cost(r.Charged), PolicyVersion: r.PolicyVersion, Charge: c.charge(),
	}
	for i := range r.Reasons {
		out.Reasons[i] = whyReason(r, &r.Reasons[i])
	}
	return out, nil
}

func whyReason(r *kms.RequestRecord, reason *kms.Reason) WhyReason {
	out := WhyReason{Code: reason.Code, Unit: reason.Unit(), Limit: reason.Limit, Need: reason.Need, Have: reason.Have,
		RetryMS: reason.RetryIn.Milliseconds(), WaitMS: milliseconds(reason.Waited)}
	if r.Wait > 0 {
		out.Share = float64(reason.Waited) / float64(r.Wait)
	}
	out.Explanation, out.Advice = reason.Explain()
	return out
}

// summary says what took how long.
func summary(r *kms.RequestRecord) string {
	var b strings.Builder
	if r.Outcome == "ok" {
		fmt.Fprintf(&b, "it took %.1f ms", milliseconds(r.Total))
	} else {
		fmt.Fprintf(&b, "it ended as %s after %.1f ms", r.Outcome, milliseconds(r.Total))
	}
	switch {
	case r.Wait > 0:
		fmt.Fprintf(&b, ": %.1f ms in the queue", milliseconds(r.Wait))
		if len(r.Reasons) > 0 {
			fmt.Fprintf(&b, ", mostly for %s", longest(r.Reasons).Code)
		}
	default:
		b.WriteString(": it did not wait")
	}
	if r.SlotTime > 0 {
		fmt.Fprintf(&b, ", and %.1f ms on %s", milliseconds(r.SlotTime), r.Node)
	}
	return b.String()
}

// longest is the reason that was waited for longest.
func longest(reasons []kms.Reason) *kms.Reason {
	most := &reasons[0]
	for i := range reasons {
		if reasons[i].Waited > most.Waited {
			most = &reasons[i]
		}
	}
	return most
}
