package client

import (
	"context"
	"net/http"
	"time"
)

// NodeMode is what a node is for.
type NodeMode string

// The modes.
const (
	NodeActive  NodeMode = "active"  // serves
	NodeStandby NodeMode = "standby" // takes what active nodes of its domain cannot
	NodeCold    NodeMode = "cold"    // stays closed
	NodeDrained NodeMode = "drained" // is out for maintenance
)

// Node is one node of the HSM pool: an HSM token, or the in-process engine.
type Node struct {
	ID         string   `json:"id"`
	Domain     string   `json:"domain,omitzero"` // "" for the in-process engine
	DomainID   string   `json:"domain_id,omitzero"`
	Generation uint32   `json:"generation,omitzero"` // of its domain's roots
	Driver     string   `json:"driver,omitzero"`     // "pkcs11" or "soft"; "" while its token is closed
	Model      string   `json:"model,omitzero"`
	Serial     string   `json:"serial,omitzero"`
	Label      string   `json:"label,omitzero"`
	Mode       NodeMode `json:"mode"`
	State      string   `json:"state"`    // "up", "warming", "draining", "closed", "down" or "out"
	Breaker    string   `json:"breaker"`  // "closed", "open" or "half-open"
	Enforced   bool     `json:"enforced"` // the token refuses to unwrap keys in the clear, whoever asks
	Slots      int      `json:"slots"`    // operations that it can run at once
	// SlotsNow is fewer than Slots after the token was out of something.
	SlotsNow    int      `json:"slots_now"`
	Busy        int      `json:"busy"`         // slots in use
	Utilisation float64  `json:"utilisation"`  // share of the slot time used in the last second, 0 to 1
	BusySeconds float64  `json:"busy_seconds"` // slot time used since the server started
	Epoch       uint64   `json:"epoch"`        // grows when the token is opened anew
	Families    []string `json:"families,omitempty"`
	Handles     int      `json:"handles"` // keys loaded now
	MaxHandles  int      `json:"max_handles"`
	Hits        uint64   `json:"hits"`        // uses of a loaded key
	Misses      uint64   `json:"misses"`      // uses that had to load the key first
	Loads       uint64   `json:"loads"`       // keys loaded since the server started
	EpochLoads  uint64   `json:"epoch_loads"` // keys loaded since the token was opened
	// MaxLoads is after how many of them the token is opened anew; 0: never.
	MaxLoads  uint64     `json:"max_loads,omitzero"`
	LoadCosts []LoadCost `json:"load_costs,omitempty"`
	// Operations and Errors count since the server started.
	Operations uint64      `json:"operations"`
	Errors     uint64      `json:"errors"`
	Faults     []NodeFault `json:"faults,omitempty"` // the errors by class
	LastError  string      `json:"last_error,omitzero"`
}

// LoadCost is the average time that loading a key of a family takes.
type LoadCost struct {
	Family       string  `json:"family"`
	Milliseconds float64 `json:"milliseconds"`
}

// NodeFault counts the errors of a class.
type NodeFault struct {
	Class string `json:"class"`
	Count uint64 `json:"count"`
}

// NodesOutput is the output of Nodes.
type NodesOutput struct {
	Nodes []Node `json:"nodes"`
	Charge
}

// NodeOutput is one node.
type NodeOutput struct {
	Node
	Charge
}

// Nodes reports the nodes of the HSM pool. It takes an operator's credential,
// as do all methods on nodes.
func (c *Client) Nodes(ctx context.Context) (*NodesOutput, error) {
	return invoke[NodesOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "hsm", "nodes"}})
}

// SetNodeModeInput is the input of SetNodeMode.
type SetNodeModeInput struct {
	Mode NodeMode `json:"mode"`
	// Force takes a node out although no other one of its domain can serve
	// some of its keys.
	Force bool `json:"force,omitzero"`
}

// SetNodeMode changes what a node is for, on every API node that has it. It
// returns before the node has changed: see Node.State.
func (c *Client) SetNodeMode(ctx context.Context, node string, in SetNodeModeInput) (*NodeOutput, error) {
	return invoke[NodeOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "hsm", "nodes", node, "mode"}, in: in, changes: true})
}

// SelfTestNode tests a node beside its work; Families of its output are those
// that passed now.
func (c *Client) SelfTestNode(ctx context.Context, node string) (*NodeOutput, error) {
	return invoke[NodeOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "hsm", "nodes", node, "self-test"}, prepares: true})
}

// PoolMap tells which tenant's keys are served where.
type PoolMap struct {
	Domains []PoolDomain `json:"domains"` // the default one first
	Tenants []TenantHome `json:"tenants"` // a page of them, by name
	Next    string       `json:"next_page_token,omitzero"`
	// Placements are keys that are at home elsewhere than their hash says, the
	// newest first, at most 100 of Placed.
	Placements []NodePlacement `json:"placements"`
	Placed     int             `json:"placed"`
	Charge
}

// PoolDomain is a domain with its nodes.
type PoolDomain struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Generation uint32     `json:"generation"` // of its roots
	Slots      int        `json:"slots"`      // of the nodes that take work now
	Nodes      []PoolNode `json:"nodes"`
}

// PoolNode is a node of a domain.
type PoolNode struct {
	ID       string   `json:"id"`
	Mode     NodeMode `json:"mode"`
	State    string   `json:"state"`
	Slots    int      `json:"slots"`
	Families []string `json:"families,omitempty"`
}

// TenantHome names the domain that a tenant's keys live in.
type TenantHome struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Domain string `json:"domain"` // id
}

// NodePlacement is a key's home by the placement table.
type NodePlacement struct {
	Key   string    `json:"key"`
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// PoolMap returns the map of the pool with the page of tenants that page
// names, "" for the first.
func (c *Client) PoolMap(ctx context.Context, page string) (*PoolMap, error) {
	request := call{method: http.MethodGet, path: []string{"v1", "hsm", "map"}}
	if page != "" {
		request.query = map[string][]string{"page_token": {page}}
	}
	return invoke[PoolMap](ctx, c, request)
}
