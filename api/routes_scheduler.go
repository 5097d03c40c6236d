package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

func schedulerRoutes() []Route {
	return []Route{
		define(Route{Name: "scheduler", Group: anyTenant.group, Method: http.MethodGet, Path: "/v1/scheduler", Op: kms.OpReadNodes,
			Summary:     "Show who waits for the HSMs, and why",
			Description: "Nodes, queues, the utilisation gate, and the tenants with work, as the API node that is asked sees them."}, schedulerState),
	}
}

func schedulerState(c *call, _ *NoBody) (*SchedulerResponse, error) {
	q, err := c.service.Queues(c.context, &c.ticket)
	if err != nil {
		return nil, err
	}
	out := &SchedulerResponse{
		Nodes: make([]SchedulerNode, len(q.Nodes)), Domains: make([]SchedulerDomain, len(q.Domains)),
		Waiting: q.Waiting, MaxWaiting: q.MaxWaiting, MaxTenant: q.MaxTenant, WaitingTenants: q.WaitingTenants,
		OldestMS: milliseconds(q.Oldest), Charge: c.charge(),
	}
	for i := range q.Nodes {
		n := &q.Nodes[i]
		out.Nodes[i] = SchedulerNode{Node: n.Node, Domain: n.Domain, Down: n.Down, Slots: n.Slots, Busy: n.Busy, Waiting: n.Waiting,
			Granted: n.Granted, Away: n.Away, BehindMS: milliseconds(n.Behind)}
	}
	for i := range q.Domains {
		out.Domains[i] = schedulerDomain(&q.Domains[i])
	}
	return out, nil
}

func schedulerDomain(d *kms.QueueDomain) SchedulerDomain {
	out := SchedulerDomain{
		Name: d.Name, Slots: d.Slots, Busy: d.Busy, Waiting: d.Waiting, Band: d.Band, Fast: d.Fast, Slow: d.Slow,
		MaxInFlight: d.MaxInFlight, Capped: d.Capped, LoadCostMS: milliseconds(d.LoadCost),
		Classes: make([]SchedulerClass, len(d.Classes)), Tenants: make([]SchedulerTenant, len(d.Tenants)),
	}
	for i := range d.Classes {
		class := &d.Classes[i]
		of := SchedulerClass{Class: class.Class, Refused: class.Refused, Waited: make([]SchedulerWait, len(class.Waited))}
		for j, w := range class.Waited {
			of.Waited[j] = SchedulerWait{w.Code, w.Time.Seconds()}
		}
		out.Classes[i] = of
	}
	for i := range d.Tenants {
		t := &d.Tenants[i]
		out.Tenants[i] = SchedulerTenant{ID: t.Tenant, Name: t.Name, Weight: t.Weight, Running: t.Running,
			Interactive: t.Interactive, Normal: t.Normal, Bulk: t.Bulk, UsedMS: milliseconds(t.Used), Share: t.Share,
			LagMS: milliseconds(t.Lag), Over: t.Over, Parked: t.Parked}
	}
	return out
}
