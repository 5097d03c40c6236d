package client

import (
	"context"
	"net/http"
)

// Node is one node of the HSM pool: an HSM token, or the in-process engine.
type Node struct {
	ID       string   `json:"id"`
	Domain   string   `json:"domain,omitzero"` // "" for the in-process engine
	DomainID string   `json:"domain_id,omitzero"`
	Driver   string   `json:"driver"` // "pkcs11" or "soft"
	Model    string   `json:"model,omitzero"`
	Serial   string   `json:"serial,omitzero"`
	Label    string   `json:"label,omitzero"`
	State    string   `json:"state"`    // "up", "down" or "out"
	Enforced bool     `json:"enforced"` // the token refuses to unwrap keys in the clear, whoever asks
	Slots    int      `json:"slots"`    // operations that it runs at once
	Busy     int      `json:"busy"`     // slots in use
	Epoch    uint64   `json:"epoch"`    // grows when the token was lost and joined again
	Families []string `json:"families"` // algorithm families that passed the self-test
	Handles  int      `json:"handles"`  // keys loaded now
	Hits     uint64   `json:"hits"`     // uses of a loaded key
	Misses   uint64   `json:"misses"`   // uses that had to load the key first
	// Operations and Errors count since the server started.
	Operations uint64 `json:"operations"`
	Errors     uint64 `json:"errors"`
	LastError  string `json:"last_error,omitzero"`
}

// NodesOutput is the output of Nodes.
type NodesOutput struct {
	Nodes []Node `json:"nodes"`
	Charge
}

// Nodes reports the nodes of the HSM pool. It takes an operator's credential.
func (c *Client) Nodes(ctx context.Context) (*NodesOutput, error) {
	return invoke[NodesOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "hsm", "nodes"}})
}
