package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

func nodeRoutes() []Route {
	group := anyTenant.group
	return []Route{
		define(Route{Name: "list-nodes", Group: group, Method: http.MethodGet, Path: "/v1/hsm/nodes", Op: kms.OpReadNodes,
			Summary: "List the nodes of the HSM pool"}, listNodes),
		define(Route{Name: "pool-map", Group: group, Method: http.MethodGet, Path: "/v1/hsm/map", Op: kms.OpReadNodes,
			Errors: makeErrors, Query: pageParameters, Summary: "Show which tenant's keys are served by which nodes"}, poolMap),
		change(Route{Name: "set-node-mode", Group: group, Method: http.MethodPost, Path: "/v1/hsm/nodes/{node}/mode", Op: kms.OpSetNodeMode,
			Errors: makeErrors, Summary: "Change what a node is for",
			Description: "It holds for every API node that has a node of that id, within a second, and across restarts. The answer comes before the node has changed: " +
				"its state tells. A node that leaves ends its work first, and its keys are loaded on others."},
			func(c *call, in *SetNodeModeRequest) (*NodeResponse, error) {
				return c.nodeOr(c.service.SetNodeMode(c.context, &c.ticket, kms.NodeID(c.object(0)), in.Mode, in.Force))
			},
			func(c *call, id string) (*NodeResponse, error) {
				return c.nodeOr(c.service.ReplayNode(c.context, &c.ticket, kms.NodeID(id)))
			}),
		define(Route{Name: "self-test-node", Group: group, Method: http.MethodPost, Path: "/v1/hsm/nodes/{node}/self-test", Op: kms.OpTestNode,
			Errors: keyErrors, Summary: "Test a node beside its work",
			Description: "It loads and uses a key of each algorithm family, checks the results with the in-process engine, and tampers with them. families are those that passed now."},
			func(c *call, _ *Empty) (*NodeResponse, error) {
				return c.nodeOr(c.service.SelfTestNode(c.context, &c.ticket, kms.NodeID(c.object(0))))
			}),
	}
}

func listNodes(c *call, _ *NoBody) (*NodeListResponse, error) {
	nodes, err := c.service.Nodes(c.context, &c.ticket)
	if err != nil {
		return nil, err
	}
	out := &NodeListResponse{Nodes: make([]Node, len(nodes)), Charge: c.charge()}
	for i := range nodes {
		out.Nodes[i] = nodeOf(&nodes[i])
	}
	return out, nil
}

func (c *call) nodeOr(n *kms.NodeStatus, err error) (*NodeResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &NodeResponse{nodeOf(n), c.charge()}, nil
}

func nodeOf(n *kms.NodeStatus) Node {
	out := Node{
		ID: n.ID, Domain: n.DomainName, DomainID: n.Domain, Generation: n.Generation, Driver: n.Driver, Model: n.Model, Serial: n.Serial,
		Label: n.Label, Mode: n.Mode, State: n.State, Breaker: n.Breaker, Enforced: n.Enforced,
		Slots: n.Slots, SlotsNow: n.SlotsNow, Busy: n.Busy, Utilisation: n.Utilisation, BusySeconds: n.BusyTime.Seconds(),
		Epoch: n.Epoch, Families: n.Families, Handles: n.Handles, MaxHandles: n.MaxHandles, Hits: n.Hits, Misses: n.Misses,
		Loads: n.Loads, EpochLoads: n.EpochLoads, MaxLoads: n.MaxEpochLoads,
		Operations: n.Operations, Errors: n.Errors, LastError: n.LastError,
	}
	for family, cost := range n.LoadCosts {
		out.LoadCosts = append(out.LoadCosts, LoadCost{family, float64(cost) / float64(time.Millisecond)})
	}
	slices.SortFunc(out.LoadCosts, func(a, b LoadCost) int { return strings.Compare(string(a.Family), string(b.Family)) })
	for class, count := range n.Faults {
		out.Faults = append(out.Faults, NodeFault{class, count})
	}
	slices.SortFunc(out.Faults, func(a, b NodeFault) int { return strings.Compare(a.Class, b.Class) })
	return out
}

func poolMap(c *call, _ *NoBody) (*PoolMapResponse, error) {
	m, err := c.service.Map(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &PoolMapResponse{NextPageToken: m.Next, Placed: m.Placed, Charge: c.charge(),
		Domains: make([]PoolDomain, len(m.Domains)), Tenants: make([]TenantHome, len(m.Tenants)), Placements: make([]NodePlacement, len(m.Placements))}
	for i, d := range m.Domains {
		out.Domains[i] = poolDomain(d, m.Nodes)
	}
	for i, t := range m.Tenants {
		out.Tenants[i] = TenantHome{ID: t.ID, Name: t.Name, Domain: t.Sealing.Domain}
	}
	for i, p := range m.Placements {
		out.Placements[i] = NodePlacement{Key: p.Key, Node: p.Node, Since: p.Since.UTC(), Why: p.Why}
	}
	return out, nil
}

// poolDomain joins a domain with the status of its nodes.
func poolDomain(d kms.DomainStatus, nodes []kms.NodeStatus) PoolDomain {
	out := PoolDomain{ID: d.ID, Name: d.Name, Generation: d.Generation}
	for _, n := range nodes {
		if n.Domain != d.ID {
			continue
		}
		if n.State == kms.NodeUp {
			out.Slots += n.SlotsNow
		}
		out.Nodes = append(out.Nodes, PoolNode{ID: n.ID, Mode: n.Mode, State: n.State, Slots: n.Slots, Families: n.Families})
	}
	return out
}
