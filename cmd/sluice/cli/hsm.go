package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const (
	// nodeWait bounds the waiting for a node that changes: work that waits
	// for a slot on it does so for 30 s at most, and opening a token takes
	// seconds.
	nodeWait = 90 * time.Second
	// nodePoll is how often it is asked meanwhile.
	nodePoll = 300 * time.Millisecond
)

func (p *program) hsmStatus() *cobra.Command {
	return p.operatorVerb(&cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the HSM pool",
		Long: `Show the nodes of the HSM pool: HSM tokens, and "cpu", the engine inside the
service for what the tokens lack.

MODE is what a node is for, STATE what it does, BREAKER whether work goes to
it. SLOTS are those it is given now, of those it has. USED is the share of the
slot time used in the last second. KEYS are loaded, of those that fit, HITS the
share of uses that found the key loaded, FAULTS the errors by class. ENFORCED
tells whether the token itself refuses to give keys away in the clear.`,
		Example: `  sluice hsm status
  watch -n 1 sluice hsm status`,
		Args: noArguments,
	}, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		pool, err := api.Nodes(ctx)
		if err != nil {
			return err
		}
		return s.show(pool, func(w io.Writer) error { return nodeTable(w, pool.Nodes) })
	})
}

func nodeTable(w io.Writer, nodes []client.Node) error {
	rows := make([][]string, len(nodes))
	for i := range nodes {
		rows[i] = nodeRow(&nodes[i])
	}
	return table(w, []string{"NODE", "MODE", "STATE", "BREAKER", "DOMAIN", "DRIVER", "TOKEN", "ENFORCED", "EPOCH", "SLOTS", "BUSY", "USED",
		"KEYS", "HITS", "OPERATIONS", "ERRORS", "FAULTS", "LAST ERROR"}, rows)
}

func nodeRow(n *client.Node) []string {
	hits := "-"
	if all := n.Hits + n.Misses; all > 0 {
		hits = fmt.Sprintf("%.1f%%", 100*float64(n.Hits)/float64(all))
	}
	enforced := "-"
	if n.DomainID != "" && n.Driver != "" {
		enforced = map[bool]string{true: "yes", false: "NO"}[n.Enforced]
	}
	var faults []string
	for _, f := range n.Faults {
		faults = append(faults, fmt.Sprintf("%s %d", f.Class, f.Count))
	}
	return []string{n.ID, string(n.Mode), n.State, n.Breaker, dash(n.Domain), dash(n.Driver), dash(n.Label), enforced,
		strconv.FormatUint(n.Epoch, 10), fmt.Sprintf("%d/%d", n.SlotsNow, n.Slots), strconv.Itoa(n.Busy),
		fmt.Sprintf("%.0f%%", 100*n.Utilisation), fmt.Sprintf("%d/%d", n.Handles, n.MaxHandles), hits,
		strconv.FormatUint(n.Operations, 10), strconv.FormatUint(n.Errors, 10), dash(strings.Join(faults, ", ")), n.LastError}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (p *program) hsmMap() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "map",
		Short: "Show which tenant's keys are served by which nodes",
		Long: `Show which tenant's keys are served by which nodes: each tenant's domain, its
nodes, and the slots of those that take work now. Below stand keys that are at
home on another node than their hash says, with the reason.`,
		Example: "  sluice hsm map --limit 20",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "tenants")
	return p.operatorVerb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		pool, err := poolMap(ctx, api, limit)
		if err != nil {
			return err
		}
		return s.show(pool, func(w io.Writer) error { return showMap(w, pool) })
	})
}

// poolMap puts the pages of the map together until it has as many tenants as
// are wanted, 0 for all.
func poolMap(ctx context.Context, api *client.Client, limit int) (*client.PoolMap, error) {
	pool, err := api.PoolMap(ctx, "")
	for err == nil && pool.Next != "" && (limit == 0 || len(pool.Tenants) < limit) {
		var next *client.PoolMap
		if next, err = api.PoolMap(ctx, pool.Next); err == nil {
			pool.Tenants, pool.Next = append(pool.Tenants, next.Tenants...), next.Next
		}
	}
	if err != nil {
		return nil, err
	}
	if limit > 0 && len(pool.Tenants) > limit {
		pool.Tenants = pool.Tenants[:limit]
	}
	return pool, nil
}

func showMap(w io.Writer, pool *client.PoolMap) error {
	domains := map[string]client.PoolDomain{}
	for _, d := range pool.Domains {
		domains[d.ID] = d
	}
	var rows [][]string
	for _, t := range pool.Tenants {
		d := domains[t.Domain]
		var nodes []string
		for _, n := range d.Nodes {
			name := n.ID
			if n.State != "up" || n.Mode != client.NodeActive {
				name += " (" + n.State + ", " + string(n.Mode) + ")"
			}
			nodes = append(nodes, name)
		}
		rows = append(rows, []string{t.Name, dash(d.Name), dash(strings.Join(nodes, ", ")), strconv.Itoa(d.Slots)})
	}
	if err := table(w, []string{"TENANT", "DOMAIN", "NODES", "SLOTS"}, rows); err != nil || pool.Placed == 0 {
		return err
	}
	rows = nil
	for _, placed := range pool.Placements {
		rows = append(rows, []string{placed.Key, placed.Node, date(placed.Since), placed.Why})
	}
	fmt.Fprintf(w, "\n%d keys are placed by table:\n", pool.Placed)
	return table(w, []string{"KEY", "NODE", "SINCE", "WHY"}, rows)
}

// modeVerb is a verb that gives a node a mode and waits until it has it.
func (p *program) modeVerb(c *cobra.Command, mode client.NodeMode, done ...string) *cobra.Command {
	var force, noWait bool
	c.Flags().BoolVar(&noWait, "no-wait", false, "return at once, not when the node has changed")
	leaves := mode == client.NodeCold || mode == client.NodeDrained
	if leaves {
		c.Flags().BoolVar(&force, "force", false, "do it although no other node of the domain can serve some keys; requests for them will fail")
	}
	return p.nodeVerb(c, func(s *session, node string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		n, err := api.SetNodeMode(ctx, node, client.SetNodeModeInput{Mode: mode, Force: force})
		if err != nil {
			return err
		}
		status := &n.Node
		if !noWait {
			if status, err = s.awaitNode(ctx, api, status, done); err != nil {
				return err
			}
		}
		return s.show(status, func(w io.Writer) error { return nodeTable(w, []client.Node{*status}) })
	})
}

// awaitNode waits until the node is in one of the states, and tells of every
// change meanwhile.
func (s *session) awaitNode(ctx context.Context, api *client.Client, n *client.Node, done []string) (*client.Node, error) {
	end := time.Now().Add(nodeWait)
	told := ""
	for !slices.Contains(done, n.State) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("node %s is %s after %v; it goes on: see \"sluice hsm status\"", n.ID, n.State, nodeWait)
		}
		if now := fmt.Sprintf("node %s is %s, %d busy", n.ID, n.State, n.Busy); now != told {
			s.say("%s", now)
			told = now
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(nodePoll):
		}
		pool, err := api.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(pool.Nodes, func(have client.Node) bool { return have.ID == n.ID })
		if i < 0 {
			return nil, fmt.Errorf("node %s is gone", n.ID)
		}
		n = &pool.Nodes[i]
	}
	return n, nil
}

// nodeVerb is a verb whose argument is the id of a node.
func (p *program) nodeVerb(c *cobra.Command, run func(s *session, node string) error) *cobra.Command {
	s := p.session(c)
	s.operator = true
	c.Args = argument("NODE")
	c.ValidArgsFunction = s.completeAt(0, nodeIDs)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

// nodeIDs lists the nodes with what they do.
func nodeIDs(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		pool, err := c.Nodes(ctx)
		if err != nil {
			return
		}
		for _, n := range pool.Nodes {
			if n.DomainID != "" && !yield(cobra.CompletionWithDesc(n.ID, string(n.Mode)+", "+n.State)) {
				return
			}
		}
	}
}

// domainNames lists the domains with their nodes.
func domainNames(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		pool, err := c.PoolMap(ctx, "")
		if err != nil {
			return
		}
		for _, d := range pool.Domains {
			if !yield(cobra.CompletionWithDesc(d.Name, fmt.Sprintf("%d nodes, %d slots", len(d.Nodes), d.Slots))) {
				return
			}
		}
	}
}

func (p *program) hsmDrain() *cobra.Command {
	return p.modeVerb(&cobra.Command{
		Use:   "drain NODE",
		Short: "Take a node out for maintenance without failing a request",
		Long: `Take a node out for maintenance: new work goes to other nodes of its domain,
the keys that are loaded on it are loaded there, its work ends, and its token is
closed. It stays out, across restarts and on every API node that has it, until
"sluice hsm enable". A node that no other can stand in for is refused.`,
		Example: "  sluice hsm drain hsm-2",
	}, client.NodeDrained, "closed")
}

func (p *program) hsmEnable() *cobra.Command {
	return p.modeVerb(&cobra.Command{
		Use:   "enable NODE",
		Short: "Let a node serve",
		Long: `Let a node serve: its token is opened and tested, loads the keys that are at home
on it, and takes work. A node that was left out, because its PIN was wrong for
instance, is tried once more.`,
		Example: "  sluice hsm enable hsm-2",
	}, client.NodeActive, "up", "out")
}

func (p *program) hsmStandby() *cobra.Command {
	return p.modeVerb(&cobra.Command{
		Use:   "standby NODE",
		Short: "Keep a node for what the active nodes cannot serve",
		Long: `Keep a node on standby: its token is open, and it serves what the active nodes of
its domain cannot: all when they are lost, some when none of them has a free
slot.`,
		Example: "  sluice hsm standby hsm-3",
	}, client.NodeStandby, "up", "out")
}

func (p *program) hsmCold() *cobra.Command {
	return p.modeVerb(&cobra.Command{
		Use:   "cold NODE",
		Short: "Keep a node closed until it is wanted",
		Long: `Keep a node closed until "sluice hsm enable" or "sluice hsm standby". It leaves as
with "sluice hsm drain".`,
		Example: "  sluice hsm cold hsm-4",
	}, client.NodeCold, "closed")
}

func (p *program) hsmSelfTest() *cobra.Command {
	return p.nodeVerb(&cobra.Command{
		Use:   "self-test NODE",
		Short: "Test a node beside its work",
		Long: `Test a node beside its work: it loads and uses a key of each algorithm family,
and the results are checked and tampered with. The families that passed are
shown.`,
		Example: "  sluice hsm self-test hsm-1",
	}, func(s *session, node string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		n, err := api.SelfTestNode(ctx, node)
		if err != nil {
			return err
		}
		return s.show(n, func(w io.Writer) error {
			return details(w, field{"Node", n.ID}, field{"State", n.State}, field{"Passed", strings.Join(n.Families, ", ")})
		})
	})
}
