package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Node is one node of the HSM pool.
type Node struct {
	ID          kms.NodeID       `json:"id"`
	Domain      string           `json:"domain,omitzero" doc:"Name of its domain; absent for the in-process engine"`
	DomainID    uuid.UUID        `json:"domain_id,omitzero"`
	Generation  uint32           `json:"generation,omitzero" doc:"Of its domain's roots"`
	Driver      string           `json:"driver,omitzero" doc:"pkcs11 or soft; absent while its token is closed, as are the other facts about that"`
	Model       string           `json:"model,omitzero"`
	Serial      string           `json:"serial,omitzero"`
	Label       string           `json:"label,omitzero"`
	Mode        kms.NodeMode     `json:"mode" doc:"What it is for: active; standby: it takes what active nodes cannot; cold: it stays closed; drained: it is out for maintenance"`
	State       kms.NodeState    `json:"state" doc:"up; warming: it loads its keys; draining: it ends its work; closed: as its mode wants; down: its token is opened anew by itself; out: it needs an operator"`
	Breaker     kms.BreakerState `json:"breaker" doc:"closed: work goes to it; open: none does; half-open: it is tested"`
	Enforced    bool             `json:"enforced" doc:"The token refuses to unwrap keys in the clear, whatever its caller asks for"`
	Slots       int              `json:"slots" doc:"Operations that it can run at once"`
	SlotsNow    int              `json:"slots_now" doc:"Operations that it is given at once now: fewer after the token was out of something"`
	Busy        int              `json:"busy" doc:"Slots in use"`
	Utilisation float64          `json:"utilisation" doc:"Share of the slot time used in the last second, 0 to 1"`
	BusySeconds float64          `json:"busy_seconds" doc:"Slot time used since the server started"`
	Epoch       uint64           `json:"epoch" doc:"Grows when the token is opened anew"`
	Families    []kms.Family     `json:"families,omitempty" doc:"Algorithm families that passed the self-test"`
	Handles     int              `json:"handles" doc:"Keys loaded now"`
	MaxHandles  int              `json:"max_handles" doc:"Keys that can be loaded at once"`
	Hits        uint64           `json:"hits" doc:"Uses of a loaded key"`
	Misses      uint64           `json:"misses" doc:"Uses that had to load the key first"`
	Loads       uint64           `json:"loads" doc:"Keys loaded since the server started"`
	EpochLoads  uint64           `json:"epoch_loads" doc:"Keys loaded since the token was opened"`
	MaxLoads    uint64           `json:"max_loads,omitzero" doc:"Keys that may be loaded until the token is opened anew; absent: no bound"`
	LoadCosts   []LoadCost       `json:"load_costs,omitempty" doc:"What loading a key takes, by family"`
	Operations  uint64           `json:"operations"`
	Errors      uint64           `json:"errors"`
	Faults      []NodeFault      `json:"faults,omitempty" doc:"The errors by class"`
	LastError   string           `json:"last_error,omitzero"`
}

// LoadCost is the average time that loading a key of a family takes.
type LoadCost struct {
	Family       kms.Family `json:"family"`
	Milliseconds float64    `json:"milliseconds"`
}

// NodeFault counts the errors of a class.
type NodeFault struct {
	Class string `json:"class" example:"token down"`
	Count uint64 `json:"count"`
}

// NodeListResponse lists the nodes.
type NodeListResponse struct {
	Nodes []Node `json:"nodes"`
	Charge
}

// NodeResponse is one node.
type NodeResponse struct {
	Node
	Charge
}

// SetNodeModeRequest is the body of set-node-mode.
type SetNodeModeRequest struct {
	Mode  kms.NodeMode `json:"mode" api:"required"`
	Force bool         `json:"force" doc:"Take the node out although no other one of its domain can serve some of its keys"`
}

// PoolMapResponse tells which tenant's keys are served where.
type PoolMapResponse struct {
	Domains       []PoolDomain    `json:"domains" doc:"The default one first"`
	Tenants       []TenantHome    `json:"tenants" doc:"A page of the tenants, ordered by name"`
	NextPageToken string          `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Placements    []NodePlacement `json:"placements" doc:"Keys that are at home elsewhere than their hash says, the newest first, at most 100"`
	Placed        int             `json:"placed" doc:"How many such keys there are"`
	Charge
}

// PoolDomain is a domain with its nodes.
type PoolDomain struct {
	ID         uuid.UUID  `json:"id"`
	Name       string     `json:"name"`
	Generation uint32     `json:"generation" doc:"Of its roots"`
	Slots      int        `json:"slots" doc:"Of the nodes that take work now"`
	Nodes      []PoolNode `json:"nodes"`
}

// PoolNode is a node of a domain.
type PoolNode struct {
	ID       kms.NodeID    `json:"id"`
	Mode     kms.NodeMode  `json:"mode"`
	State    kms.NodeState `json:"state"`
	Slots    int           `json:"slots"`
	Families []kms.Family  `json:"families,omitempty"`
}

// TenantHome names the domain that a tenant's keys live in.
type TenantHome struct {
	ID     uuid.UUID `json:"id"`
	Name   string    `json:"name"`
	Domain uuid.UUID `json:"domain"`
}

// NodePlacement is a key's home by the placement table.
type NodePlacement struct {
	Key   uuid.UUID  `json:"key"`
	Node  kms.NodeID `json:"node"`
	Since time.Time  `json:"since"`
	Why   string     `json:"why" doc:"load: its other home was busier than the rest when it was made; rebalancing: it was among the hottest keys of a node that stayed busier than the rest"`
}
