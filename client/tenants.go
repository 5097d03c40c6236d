package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Tier names a set of quota parameters.
type Tier string

// The tiers, the strongest first.
const (
	TierPlatinum Tier = "platinum"
	TierGold     Tier = "gold"
	TierSilver   Tier = "silver"
	TierFree     Tier = "free"
)

// TenantState is the state of a tenant.
type TenantState string

// The tenant states. Nobody can authenticate in a tenant that is not active. Of
// a deleted one the keys are being erased; then backups may hold copies; then
// none of those can be opened any more.
const (
	TenantActive    TenantState = "ACTIVE"
	TenantSuspended TenantState = "SUSPENDED"
	TenantDeleting  TenantState = "DELETING"
	TenantDeleted   TenantState = "DELETED"
	TenantShredded  TenantState = "SHREDDED"
)

// Tenant is a customer of the service.
type Tenant struct {
	ID    string      `json:"id"`
	Name  string      `json:"name"` // unique, immutable
	Tier  Tier        `json:"tier"`
	State TenantState `json:"state"`
	// AllowSealed tells whether keys that no HSM offers become SEALED without
	// the request saying so.
	AllowSealed bool      `json:"allow_sealed"`
	Domain      string    `json:"domain,omitzero"` // id of the domain of HSM nodes that its keys live in
	CreatedAt   time.Time `json:"created_at"`
	Revision    uint64    `json:"revision"` // grows by one with every change
	// Deletion is set of a deleted tenant.
	Deletion *TenantDeletion `json:"deletion,omitzero"`
}

// TenantDeletion is the record of a tenant's shredding.
type TenantDeletion struct {
	RequestedAt time.Time `json:"requested_at"`         // when its credentials ended and its sealing key was erased
	VoidAt      time.Time `json:"void_at"`              // when every copy in a backup is void
	ErasedAt    time.Time `json:"erased_at,omitzero"`   // when its last key was erased; zero: not yet
	ShreddedAt  time.Time `json:"shredded_at,omitzero"` // when it was noted that no copy can be opened; zero: not yet
}

// TenantOutput is a tenant as one call returns it.
type TenantOutput struct {
	Tenant
	Charge
}

// CreateTenantInput is the input of CreateTenant.
type CreateTenantInput struct {
	Name        string `json:"name"`          // as for a key
	Tier        Tier   `json:"tier,omitzero"` // "": TierFree
	AllowSealed bool   `json:"allow_sealed,omitzero"`
	// Domain is the name or id of the domain of HSM nodes that the tenant's
	// keys live in, for good; "": the default one.
	Domain string `json:"domain,omitzero"`
	// Force makes it although the HSMs cannot keep what its tier promises: see
	// ReasonCapacity.
	Force bool `json:"force,omitzero"`
}

// CreateTenant makes a tenant with its project "default". It takes an
// operator's credential, as do all methods on tenants.
func (c *Client) CreateTenant(ctx context.Context, in CreateTenantInput) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "tenants"}, in: in, changes: true})
}

// GetTenant returns a tenant by its id or name.
func (c *Client) GetTenant(ctx context.Context, tenant string) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "tenants", tenant}})
}

type tenantPage struct {
	Tenants []*Tenant `json:"tenants"`
	Next    string    `json:"next_page_token"`
}

// ListTenants returns the tenants by name. Pages are fetched as the loop gets
// to them; an error ends it.
func (c *Client) ListTenants(ctx context.Context) iter.Seq2[*Tenant, error] {
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "tenants"}},
		func(p *tenantPage) ([]*Tenant, string) { return p.Tenants, p.Next })
}

// UpdateTenantInput is the input of UpdateTenant; what is zero stays as it is.
type UpdateTenantInput struct {
	Tier        Tier  `json:"tier,omitzero"`
	AllowSealed *bool `json:"allow_sealed,omitzero"`
	// Force raises the tier although the HSMs cannot keep what it promises.
	Force bool `json:"force,omitzero"`
}

// UpdateTenant changes a tenant's tier or its consent to SEALED keys.
func (c *Client) UpdateTenant(ctx context.Context, tenant string, in UpdateTenantInput) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodPatch, path: []string{"v1", "tenants", tenant}, in: in, changes: true})
}

// SuspendTenant refuses all requests of a tenant until ResumeTenant.
func (c *Client) SuspendTenant(ctx context.Context, tenant string) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "tenants", tenant, "suspend"}, changes: true})
}

// ResumeTenant ends a suspension.
func (c *Client) ResumeTenant(ctx context.Context, tenant string) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "tenants", tenant, "resume"}, changes: true})
}

// DeleteTenant deletes a suspended tenant, for good: its credentials end and its
// sealing key is erased before the call returns, its keys after it. The service
// may want two operators: see Approval.
func (c *Client) DeleteTenant(ctx context.Context, tenant string) (*TenantOutput, error) {
	return invoke[TenantOutput](ctx, c, call{method: http.MethodDelete, path: []string{"v1", "tenants", tenant}, changes: true})
}

// Project is a namespace inside a tenant.
type Project struct {
	Name      string    `json:"name"` // unique in the tenant, immutable
	CreatedAt time.Time `json:"created_at"`
}

// ProjectOutput is a project as one call returns it.
type ProjectOutput struct {
	Project
	Charge
}

// CreateProject makes a project in a tenant; "" is the credential's own, any
// other takes an operator.
func (c *Client) CreateProject(ctx context.Context, tenant, name string) (*ProjectOutput, error) {
	return invoke[ProjectOutput](ctx, c, call{method: http.MethodPost, path: inTenant(tenant, "projects"), changes: true,
		in: struct {
			Name string `json:"name"`
		}{name}})
}

type projectPage struct {
	Projects []*Project `json:"projects"`
	Next     string     `json:"next_page_token"`
}

// ListProjects returns a tenant's projects by name; "" is the credential's
// own tenant. See ListTenants.
func (c *Client) ListProjects(ctx context.Context, tenant string) iter.Seq2[*Project, error] {
	return list(ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "projects")},
		func(p *projectPage) ([]*Project, string) { return p.Projects, p.Next })
}

// inTenant is the path of what belongs to a tenant, "" being the credential's.
func inTenant(tenant string, rest ...string) []string {
	if tenant == "" {
		return append([]string{"v1"}, rest...)
	}
	return append([]string{"v1", "tenants", tenant}, rest...)
}
