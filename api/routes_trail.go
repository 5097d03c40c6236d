package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// trailErrors are those of reading the audit trail and usage.
var trailErrors = []kms.Kind{kms.KindNotFound, kms.KindInvalidArgument}

// The orders of the audit trail, as they are asked for.
const (
	orderNewest  = "newest"
	orderArrival = "arrival"
	// afterEnd is behind the last entry.
	afterEnd = "end"
)

var trailParameters = append([]Parameter{
	{Name: "from", Doc: "Entries of this time or later: RFC 3339, or a day of UTC"},
	{Name: "to", Doc: "Entries before this time"},
	{Name: "operation", Doc: "Of this operation"},
	{Name: "key", Doc: "Of the key with this id"},
	{Name: "credential", Doc: "Of the credential with this id"},
	{Name: "outcome", Doc: "With this outcome: ok, or the code of a problem"},
	{Name: "request", Doc: "Of the request with this id"},
	{Name: "project", Doc: "Of this project"},
	{Name: "component", Doc: "Of this component"},
	{Name: "api_node", Doc: "Of this API node's journal"},
	{Name: "order", Values: []string{orderNewest, orderArrival}, Default: orderNewest,
		Doc: "newest: by time, the latest first; arrival: as they came into the trail, which for each tenant and API node is the order of the journal"},
	{Name: "after", Doc: "In the order of arrival: begin behind this entry, API_NODE/SEQUENCE, or behind the last one: end"},
}, pageParameters...)

var usageParameters = []Parameter{
	{Name: "from", Doc: "Periods of this time or later: RFC 3339, or a day of UTC. Absent: today"},
	{Name: "to", Doc: "Periods that begin before this time. Absent: now"},
	{Name: "granularity", Values: values(kms.Granularities()...), Default: string(kms.ByDay), Doc: "Length of the periods"},
	{Name: "by", Doc: "Dimensions, with commas: " + strings.Join(values(kms.Dimensions()...), ", ") + "; tenant is for operators who ask about all"},
	{Name: "project", Doc: "Of this project"},
	{Name: "component", Doc: "Of this component"},
	{Name: "key", Doc: "Of the key with this id"},
	{Name: "algorithm", Doc: "With this algorithm"},
	{Name: "operation", Doc: "Of this operation"},
	{Name: "reason", Doc: "Of requests that were not served for this reason; empty: of those that were"},
}

const completenessDoc = " The trail follows the journals within a second or so; complete_until says how far it is."

func trailRoutes(a administration) []Route {
	whose := "Of the own tenant; of the own project only, for a credential that does not see all. For an operator: of all tenants, and of requests for which nobody was authenticated."
	if a.tenantAt {
		whose = "Of one tenant."
	}
	return []Route{
		define(Route{Name: a.name + "audit", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/audit", Op: kms.OpReadAudit,
			Errors: trailErrors, Query: trailParameters, Summary: "Read the audit trail",
			Description: whose + " The audit trail is a copy of all API nodes' journals; each entry says where it stands there." + completenessDoc},
			func(c *call, _ *NoBody) (*AuditResponse, error) { return readAudit(c, a.tenant(c)) }),
		define(Route{Name: a.name + "usage", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/usage", Op: kms.OpReadUsage,
			Errors: trailErrors, Query: usageParameters, Summary: "Show usage by period",
			Description: whose + " Usage is summed up from the entries of the audit trail." + completenessDoc},
			func(c *call, _ *NoBody) (*UsageResponse, error) { return readUsage(c, a.tenant(c)) }),
		define(Route{Name: a.name + "bill", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/usage/bill", Op: kms.OpReadUsage,
			Errors: trailErrors, Query: []Parameter{{Name: "day", Doc: "A day of UTC: 2026-01-31. Absent: today"}}, Summary: "Show what a day is charged",
			Description: "The lines are by project, component, key and version of the policy. Each is the sum of what the day's entries of the audit trail " +
				"with these were charged: read them with the same project, component and key." + completenessDoc},
			func(c *call, _ *NoBody) (*BillResponse, error) { return readBill(c, a.tenant(c)) }),
	}
}

// serviceLevelRoutes are for operators only, who promised it.
func serviceLevelRoutes() []Route {
	return []Route{
		define(Route{Name: "service-level", Group: anyTenant.group, Method: http.MethodGet, Path: "/v1/service-level", Op: kms.OpReadUsage,
			Errors: trailErrors, Query: []Parameter{{Name: "month", Doc: "A month of UTC: 2026-01. Absent: this one"}},
			Summary: "Show by tier what share of a month's requests succeeded",
			Description: "Failures are those of the service: what a client asks wrongly, or beyond its limits, is none. It is summed up from usage by the day, " +
				"as long as that is kept." + completenessDoc}, readServiceLevel),
	}
}

func readServiceLevel(c *call, _ *NoBody) (*ServiceLevelResponse, error) {
	month := c.server.clock()
	if text, given := c.query["month"]; given {
		var err error
		if month, err = time.Parse("2006-01", text); err != nil {
			return nil, kms.Errorf(kms.KindInvalidArgument, "month: must be a month: 2026-01")
		}
	}
	level, err := c.service.ServiceLevel(c.context, &c.ticket, month)
	if err != nil {
		return nil, err
	}
	out := &ServiceLevelResponse{Month: level.Month.Format("2006-01"), Promise: share(level.Line), Kept: true,
		Completeness: completeness(level.Nodes), Charge: c.charge()}
	for i := range level.Tiers {
		l := &level.Tiers[i]
		kept := l.Success() >= level.Line
		out.Kept = out.Kept && kept
		out.Tiers = append(out.Tiers, TierLevel{Tier: l.Tier, Tenants: l.Tenants, Requests: l.Requests, Failed: l.Failed,
			Success: share(l.Success()), Kept: kept, TenantsBelow: l.Below})
	}
	out.Final = !out.CompleteUntil.Before(level.End())
	return out, nil
}

// share is a number of ten-thousandths.
func share(permyriad int64) float64 { return float64(permyriad) / 10_000 }

func readAudit(c *call, tenant string) (*AuditResponse, error) {
	q, err := trailQuery(c)
	if err != nil {
		return nil, err
	}
	answer, err := c.service.AuditEntries(c.context, &c.ticket, tenant, *q)
	if err != nil {
		return nil, err
	}
	out := &AuditResponse{Entries: make([]AuditEntry, len(answer.Entries)), NextPageToken: answer.Next, ResumeToken: answer.Resume,
		Completeness: completeness(answer.Nodes), Charge: c.charge()}
	for i := range answer.Entries {
		out.Entries[i] = auditEntry(&answer.Entries[i])
	}
	return out, nil
}

func trailQuery(c *call) (q *kms.TrailQuery, err error) {
	q = &kms.TrailQuery{Op: kms.Op(c.query["operation"]), Outcome: c.query["outcome"], Project: c.query["project"],
		Component: c.query["component"], Node: c.query["api_node"], Page: c.page()}
	if q.From, err = c.time("from"); err != nil {
		return nil, err
	}
	if q.To, err = c.time("to"); err != nil {
		return nil, err
	}
	for name, field := range map[string]*uuid.UUID{"key": &q.Key, "credential": &q.Credential, "request": &q.Request} {
		if text, given := c.query[name]; given {
			if *field, err = uuid.Parse(text); err != nil {
				return nil, kms.Errorf(kms.KindInvalidArgument, "%s: must be an id", name)
			}
		}
	}
	if c.query["order"] == orderArrival {
		q.Order = kms.ByArrival
	}
	switch after, given := c.query["after"]; {
	case !given:
	case after == afterEnd:
		q.AtEnd = true
	default:
		if q.After, err = position(after); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// position reads NODE/SEQUENCE.
func position(text string) (*kms.TrailPosition, error) {
	i := strings.LastIndexByte(text, '/')
	sequence, err := strconv.ParseUint(text[i+1:], 10, 63)
	if err != nil || i < 1 {
		return nil, kms.Errorf(kms.KindInvalidArgument, "after: must be API_NODE/SEQUENCE or %s", afterEnd)
	}
	return &kms.TrailPosition{Node: text[:i], Sequence: sequence}, nil
}

// time reads a time or a day; absent it is the zero time.
func (c *call) time(name string) (time.Time, error) {
	text, given := c.query[name]
	if !given {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, kms.Errorf(kms.KindInvalidArgument, "%s: must be a time as in RFC 3339, or a day: 2026-01-31", name)
	}
	return t, nil
}

func auditEntry(t *kms.TrailEntry) AuditEntry {
	e := t.Entry
	out := AuditEntry{
		APINode: t.Node, Sequence: t.Sequence, Time: e.Time.UTC(), Phase: e.Phase, RequestID: e.RequestID, ClientRequestID: e.ClientRequestID,
		TraceID: e.TraceID, Tenant: e.Tenant, Project: e.Project, Credential: e.Credential, Subject: e.Subject, Component: e.Component,
		UserAgent: e.UserAgent, Operation: string(e.Op), Key: e.Key, KeyName: e.KeyName, Version: e.Version, Spec: string(e.Spec),
		Algorithm: string(e.Algorithm), Protection: string(e.Protection), Resource: e.Resource, Target: e.Target, Bytes: e.Bytes,
		Node: string(e.Node), Outcome: e.Outcome, Class: string(e.Class), Urgency: string(e.Urgency), Reserved: Cost(e.Cost), Charged: Cost(e.Charged),
		Settlement: string(e.Settlement), QueueMS: milliseconds(e.Wait), HSMMS: milliseconds(e.SlotTime), TotalMS: milliseconds(e.Total),
		Count: e.Count, DryRun: e.DryRun, Replayed: e.Replayed, Grouped: e.Grouped, Approval: e.Approval, Revision: e.Revision, PolicyVersion: e.PolicyVersion,
	}
	if e.Address.IsValid() {
		out.Address = e.Address.String()
	}
	for _, it := range e.Items {
		out.Items = append(out.Items, AuditItem{it.Secret, it.Status, it.Versions, it.LeaseEnd.UTC()})
	}
	for i := range e.Reasons {
		r := &e.Reasons[i]
		out.Reasons = append(out.Reasons, AuditReason{Code: r.Code, Limit: r.Limit, Need: r.Need, Have: r.Have,
			RetryMS: r.RetryIn.Milliseconds(), WaitMS: milliseconds(r.Waited)})
	}
	return out
}

func completeness(nodes []kms.ShippedNode) Completeness {
	out := Completeness{APINodes: make([]Shipped, len(nodes))}
	for i, n := range nodes {
		out.APINodes[i] = Shipped{APINode: n.Node, Sequence: n.Head.Sequence, Until: n.Until.UTC(), Ended: n.Ended}
	}
	if until := kms.CompleteUntil(nodes); !until.IsZero() {
		out.CompleteUntil = until.UTC()
	}
	return out
}

func readUsage(c *call, tenant string) (*UsageResponse, error) {
	q, err := usageQuery(c)
	if err != nil {
		return nil, err
	}
	answer, err := c.service.Usage(c.context, &c.ticket, tenant, *q)
	if err != nil {
		return nil, err
	}
	return &UsageResponse{Granularity: q.Granularity, From: q.Granularity.Start(q.From), To: q.To.UTC(), Rows: usageRows(answer.Rows),
		Completeness: completeness(answer.Nodes), Charge: c.charge()}, nil
}

func usageQuery(c *call) (q *kms.UsageQuery, err error) {
	q = &kms.UsageQuery{Granularity: kms.ByDay, Where: make(map[kms.Dimension]string)}
	if g := c.query["granularity"]; g != "" {
		q.Granularity = kms.Granularity(g)
	}
	if q.From, err = c.time("from"); err != nil {
		return nil, err
	}
	if q.To, err = c.time("to"); err != nil {
		return nil, err
	}
	if q.To.IsZero() {
		q.To = c.server.clock()
	}
	if q.From.IsZero() {
		q.From = kms.ByDay.Start(q.To)
	}
	if by := c.query["by"]; by != "" {
		for name := range strings.SplitSeq(by, ",") {
			d := kms.Dimension(name)
			if !slices.Contains(kms.Dimensions(), d) || slices.Contains(q.By, d) {
				return nil, kms.Errorf(kms.KindInvalidArgument, "by: must be some of %s, each once", strings.Join(values(kms.Dimensions()...), ", "))
			}
			q.By = append(q.By, d)
		}
	}
	for _, d := range kms.Dimensions() {
		if value, given := c.query[string(d)]; given {
			q.Where[d] = value
		}
	}
	return q, nil
}

func usageRows(rows []kms.UsageRow) []UsageRow {
	out := make([]UsageRow, len(rows))
	for i := range rows {
		u := &rows[i]
		out[i] = UsageRow{Start: u.Start.UTC(), Tenant: u.Tenant, Project: u.Project, Component: u.Component, Key: u.Key, Algorithm: u.Algorithm,
			Operation: string(u.Operation), Reason: u.Reason, Policy: u.Policy, UsageSum: usageSum(u.UsageSum)}
	}
	return out
}

func usageSum(s kms.UsageSum) UsageSum {
	return UsageSum{Requests: s.Requests, Credits: Cost(s.Charged), Bytes: s.Bytes, HSMMS: milliseconds(s.SlotTime), QueueMS: milliseconds(s.Wait)}
}

func readBill(c *call, tenant string) (*BillResponse, error) {
	day := c.server.clock()
	if text, given := c.query["day"]; given {
		var err error
		if day, err = time.Parse(time.DateOnly, text); err != nil {
			return nil, kms.Errorf(kms.KindInvalidArgument, "day: must be a day: 2026-01-31")
		}
	}
	bill, err := c.service.Bill(c.context, &c.ticket, tenant, day)
	if err != nil {
		return nil, err
	}
	out := &BillResponse{Tenant: bill.Tenant, Day: bill.Day.Format(time.DateOnly), Lines: usageRows(bill.Lines), Total: usageSum(bill.Total),
		Completeness: completeness(bill.Nodes), Charge: c.charge()}
	out.Final = !out.CompleteUntil.Before(bill.Day.Add(kms.ByDay.Period()))
	return out, nil
}
