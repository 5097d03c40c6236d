package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

func tenantRoutes() []Route {
	group := anyTenant.group
	return []Route{
		change(Route{Name: "create-tenant", Group: group, Method: http.MethodPost, Path: "/v1/tenants", Op: kms.OpCreateTenant,
			Success: http.StatusCreated, Errors: makeErrors, Summary: "Create a tenant",
			Description: capacityDescription}, createTenant, replayTenant),
		define(Route{Name: "list-tenants", Group: group, Method: http.MethodGet, Path: "/v1/tenants", Op: kms.OpReadTenant,
			Errors: makeErrors, Query: pageParameters, Summary: "List tenants"}, listTenants),
		define(Route{Name: "describe-tenant", Group: group, Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Op: kms.OpReadTenant,
			Errors: keyErrors, Summary: "Describe a tenant"}, describeTenant),
		change(Route{Name: "update-tenant", Group: group, Method: http.MethodPatch, Path: "/v1/tenants/{tenant}", Op: kms.OpUpdateTenant,
			Errors: makeErrors, Summary: "Change a tenant's tier or its consent to SEALED keys",
			Description: capacityDescription}, updateTenant, replayTenant),
		change(Route{Name: "suspend-tenant", Group: group, Method: http.MethodPost, Path: "/v1/tenants/{tenant}/suspend", Op: kms.OpSuspendTenant,
			Errors: makeErrors, Summary: "Suspend a tenant",
			Description: "Its credentials get permission_denied until it is resumed."}, setTenantState(kms.TenantSuspended), replayTenant),
		change(Route{Name: "resume-tenant", Group: group, Method: http.MethodPost, Path: "/v1/tenants/{tenant}/resume", Op: kms.OpResumeTenant,
			Errors: makeErrors, Summary: "Resume a suspended tenant"}, setTenantState(kms.TenantActive), replayTenant),
		change(Route{Name: "delete-tenant", Group: group, Method: http.MethodDelete, Path: "/v1/tenants/{tenant}", Op: kms.OpDeleteTenant,
			Success: http.StatusAccepted, Errors: makeErrors, Summary: "Delete a suspended tenant, for good",
			Description: "Its credentials end and its sealing key is erased before the answer; its keys are erased one by one after it. " +
				"void_at is the date by which every copy in a backup is void, when the sealing root is replaced and backups are kept as the service is configured. " +
				"The tenant can still be described, and its name stays taken."}, deleteTenant, replayTenant),
	}
}

func createTenant(c *call, in *CreateTenantRequest) (*TenantResponse, error) {
	t, err := c.service.CreateTenant(c.context, &c.ticket, kms.CreateTenantInput{
		Name: in.Name, Tier: in.Tier, AllowSealed: in.AllowSealed, Domain: in.Domain, Force: in.Force,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.created(t.ID)
	return c.tenant(t), nil
}

func replayTenant(c *call, id string) (*TenantResponse, error) {
	t, err := c.service.ReplayTenant(c.context, &c.ticket, c.route.Op, id)
	if err != nil {
		return nil, err
	}
	if c.route.Success == http.StatusCreated {
		c.created(t.ID)
	}
	return c.tenant(t), nil
}

func listTenants(c *call, _ *NoBody) (*TenantListResponse, error) {
	tenants, next, err := c.service.ListTenants(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &TenantListResponse{Tenants: make([]Tenant, len(tenants)), NextPageToken: next, Charge: c.charge()}
	for i, t := range tenants {
		out.Tenants[i] = tenantOf(t)
	}
	return out, nil
}

func describeTenant(c *call, _ *NoBody) (*TenantResponse, error) {
	return c.tenantOr(c.service.DescribeTenant(c.context, &c.ticket, c.object(0)))
}

func updateTenant(c *call, in *UpdateTenantRequest) (*TenantResponse, error) {
	if in.Tier == nil && in.AllowSealed == nil {
		return nil, kms.Errorf(kms.KindInvalidArgument, "body: give at least one of %s", c.route.shape.known)
	}
	return c.tenantOr(c.service.UpdateTenant(c.context, &c.ticket, c.object(0),
		kms.TenantChange{Tier: in.Tier, AllowSealed: in.AllowSealed}, in.Force))
}

func deleteTenant(c *call, _ *NoBody) (*TenantResponse, error) {
	return c.tenantOr(c.service.DeleteTenant(c.context, &c.ticket, c.object(0)))
}

func setTenantState(state kms.TenantState) func(*call, *Empty) (*TenantResponse, error) {
	return func(c *call, _ *Empty) (*TenantResponse, error) {
		return c.tenantOr(c.service.UpdateTenant(c.context, &c.ticket, c.object(0), kms.TenantChange{State: &state}, false))
	}
}

func (c *call) tenantOr(t *kms.Tenant, err error) (*TenantResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return c.tenant(t), nil
}

func (c *call) tenant(t *kms.Tenant) *TenantResponse {
	return &TenantResponse{tenantOf(t), c.charge()}
}

func tenantOf(t *kms.Tenant) Tenant {
	out := Tenant{ID: t.ID, Name: t.Name, Tier: t.Tier, State: t.State, AllowSealed: t.AllowSealed,
		Domain: t.Sealing.Domain, CreatedAt: t.Created.UTC(), Revision: t.Revision}
	if d := t.Deletion; d != nil {
		out.Deletion = &TenantDeletion{RequestedAt: d.Requested.UTC(), VoidAt: d.Void.UTC(), ErasedAt: d.Erased.UTC(), ShreddedAt: d.Shredded.UTC()}
	}
	return out
}
