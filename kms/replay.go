package kms

import "context"

// ReplayTenant is Replay for an operation on a tenant, which it returns as it
// is now.
func (s *Service) ReplayTenant(ctx context.Context, t *Ticket, op Op, id string) (*Tenant, error) {
	var tenant *Tenant
	err := s.replayOther(ctx, t, op, nil, func(t *Ticket) (err error) {
		if tenant, err = s.tenants.TenantByRef(ctx, id); err == nil {
			t.onTenant(tenant)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return tenant, nil
}

// ReplayProject is Replay for an operation on a project of the tenant that ref
// names, "" for the own.
func (s *Service) ReplayProject(ctx context.Context, t *Ticket, op Op, ref, name string) (*Project, error) {
	var p *Project
	err := s.replayOther(ctx, t, op, administers(op, ref), func(t *Ticket) error {
		tenant, err := s.target(ctx, t, ref)
		if err != nil {
			return err
		}
		t.Target, t.Resource = tenant.ID, name
		p, err = s.tenants.Project(ctx, tenant.ID, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ReplayCredential is Replay for an operation on a credential of the tenant
// that ref names, "" for the own. A secret is not shown again.
func (s *Service) ReplayCredential(ctx context.Context, t *Ticket, op Op, ref, id string) (*Credential, error) {
	var c *Credential
	err := s.replayOther(ctx, t, op, administers(op, ref), func(t *Ticket) (err error) {
		c, err = s.credential(ctx, t, ref, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ReplayAlias is Replay for SetAlias: it returns the key that the alias stands
// for now.
func (s *Service) ReplayAlias(ctx context.Context, t *Ticket, alias string) (*Key, error) {
	err := s.replayOther(ctx, t, OpSetAlias, always, func(t *Ticket) error {
		t.Resource = alias
		key, err := s.lookup(ctx, t.By, alias)
		switch {
		case err != nil:
			return err
		case key.Name == alias:
			return ErrNotFound // a name is no alias
		case !t.By.Allowed(OpSetAlias, key):
			return ErrPermissionDenied
		}
		t.Key = key
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.Key, nil
}

// replayOther replays an operation on something other than a key; find looks
// up what it was on.
func (s *Service) replayOther(ctx context.Context, t *Ticket, op Op, allowed func(*Ticket) bool, find func(*Ticket) error) error {
	t.Replayed = true
	return s.run(ctx, t, &task{op: op, replay: true, allowed: allowed, prepare: find})
}
