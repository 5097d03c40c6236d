package keystore

import (
	"context"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Tenant implements kms.Tenants; warm, it is as cheap as Lookup.
func (s *Store) Tenant(ctx context.Context, id uuid.UUID) (*kms.Tenant, error) {
	return s.tenants.get(ctx, id)
}

// TenantByRef implements kms.Tenants.
func (s *Store) TenantByRef(ctx context.Context, ref string) (*kms.Tenant, error) {
	id, isID := parseID(ref)
	if !isID {
		if len(ref) > kms.MaxNameLength {
			return nil, kms.ErrNotFound
		}
		var err error
		if id, err = s.tenantNames.get(ctx, ref); err != nil {
			return nil, err
		}
	}
	t, err := s.tenants.get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !isID && t.Name != ref {
		// The row that gave the id away is not the one that it names.
		return nil, s.decoded(&RowError{Object: ObjectTenant, Tenant: id, ID: id, Column: "name", Reason: "is not the one asked for"})
	}
	return t, nil
}

func (s *Store) loadTenantID(ctx context.Context, name string) (uuid.UUID, error) {
	if !kms.ValidName(name) {
		return uuid.UUID{}, kms.ErrNotFound
	}
	if _, err := s.coder(); err != nil && name != kms.SystemTenantName {
		return uuid.UUID{}, err
	}
	found, err := s.driver.TenantID(ctx, TenantIDParams{Name: name})
	if err != nil {
		return uuid.UUID{}, translate(err)
	}
	d := newDecoder(ObjectTenant, uuid.Nil(), uuid.Nil())
	id := d.id(found, "id")
	return id, s.decoded(d.result())
}

func (s *Store) loadTenant(ctx context.Context, id uuid.UUID) (*kms.Tenant, error) {
	c, notOpen := s.coder()
	row, err := s.driver.Tenant(ctx, TenantParams{ID: id})
	if err != nil {
		return nil, translate(err)
	}
	if notOpen != nil {
		return s.unopenedTenant(row, notOpen)
	}
	t, err := decodeTenant(c, row, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return t, nil
}

// unopenedTenant returns the system tenant without its authentication, which
// is how the secret is found that authenticates it.
func (s *Store) unopenedTenant(row *TenantRow, notOpen error) (*kms.Tenant, error) {
	d := newDecoder(ObjectTenant, rowID(row.ID), rowID(row.ID))
	t := d.tenant(row)
	switch {
	case row.Name.String != kms.SystemTenantName:
		return nil, notOpen
	case d.result() != nil:
		return nil, s.decoded(d.result())
	}
	return t, nil
}

// CreateTenant implements kms.Tenants. The tenant has the revision 1 and a
// sealing key of its own. Until Authenticate was called this is for the system
// tenant only.
func (s *Store) CreateTenant(ctx context.Context, t *kms.Tenant) error {
	err := argument(func(fail failFunc) {
		switch {
		case t.Revision != 1:
			fail("revision", "must be 1")
		case t.Deleted():
			fail("deleted_at", "must not be set")
		}
		checkTenant(t, fail)
	})
	if err != nil {
		return err
	}
	first := &kms.Project{Tenant: t.ID, Name: kms.DefaultProject, Created: t.Created}
	p := InsertTenantParams{Tenant: encodeTenant(t), Project: encodeProject(first)}
	c, err := s.coder()
	switch {
	case err == nil:
		if p.Tenant, err = c.tenant(t); err == nil {
			p.Project, err = c.project(first)
		}
	case t.Name == kms.SystemTenantName:
		err = nil // Authenticate gives it its codes
	}
	if err != nil {
		return err
	}
	defer s.tenantNames.drop(t.Name)
	defer s.dropTenant(t.ID)
	return translate(s.driver.InsertTenant(ctx, p))
}

// UpdateTenant implements kms.Tenants. Keys looked up after it returned belong
// to the changed tenant. KindConflict when the tenant was deleted.
func (s *Store) UpdateTenant(ctx context.Context, id uuid.UUID, revision uint64, change kms.TenantChange) (*kms.Tenant, error) {
	return s.changeTenant(ctx, id, revision, func(t *kms.Tenant) error {
		if t.Deleted() {
			return kms.Errorf(kms.KindConflict, "the tenant was deleted")
		}
		if change.Tier != nil {
			t.Tier = *change.Tier
		}
		if change.State != nil {
			t.State = *change.State
		}
		if change.AllowSealed != nil {
			t.AllowSealed = *change.AllowSealed
		}
		return nil
	})
}

func (s *Store) changeTenant(ctx context.Context, id uuid.UUID, revision uint64, change func(*kms.Tenant) error) (*kms.Tenant, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	t, err := s.loadTenant(ctx, id)
	if err != nil {
		return nil, err
	}
	if t.Revision != revision {
		return nil, errRevision()
	}
	// t was just read: nobody shares it.
	if err := change(t); err != nil {
		return nil, err
	}
	t.Revision++
	if err := argument(func(fail failFunc) { checkTenant(t, fail) }); err != nil {
		return nil, err
	}
	record, err := c.tenant(t)
	if err != nil {
		return nil, err
	}
	defer s.dropTenant(id)
	if err := s.driver.UpdateTenant(ctx, UpdateTenantParams{Tenant: record}); err != nil {
		return nil, translate(err)
	}
	s.known.raise(rowOf(ObjectTenant, id, id), t.Revision)
	return t, nil
}

// ListTenants implements kms.Tenants, ordered by name. Damaged tenants are
// reported to the log and left out.
func (s *Store) ListTenants(ctx context.Context, page kms.Page) ([]*kms.Tenant, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	l := listing[*TenantRow, *kms.Tenant]{
		scope: scope{kind: 't'},
		rows: func(ctx context.Context, after position, limit int) ([]*TenantRow, error) {
			return s.driver.ListTenants(ctx, ListTenantsParams{After: after.name, Limit: limit})
		},
		rowPosition: func(r *TenantRow) position { return position{name: r.Name.String} },
		decode:      func(r *TenantRow) (*kms.Tenant, error) { return decodeTenant(c, r, nil) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// CountTenants implements kms.Tenants. What is of no known tier is counted as
// free, which is what it has.
func (s *Store) CountTenants(ctx context.Context) (map[kms.Tier]int64, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.CountTenants(ctx, CountTenantsParams{Except: kms.SystemTenantName})
	if err != nil {
		return nil, translate(err)
	}
	counts := make(map[kms.Tier]int64, len(rows))
	for _, row := range rows {
		tier := kms.Tier(row.Tier.String)
		if !slices.Contains(kms.Tiers(), tier) {
			tier = kms.TierFree
		}
		counts[tier] += row.Count.Int64
	}
	return counts, nil
}

// CreateProject implements kms.Tenants. ErrNotFound when there is no such
// tenant.
func (s *Store) CreateProject(ctx context.Context, p *kms.Project) error {
	if !kms.ValidName(p.Name) {
		return errArgument("name", "is not a valid name")
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	record, err := c.project(p)
	if err != nil {
		return err
	}
	return translate(s.driver.InsertProject(ctx, InsertProjectParams{Project: record}))
}

// Project implements kms.Tenants. It is not cached: only management calls ask.
func (s *Store) Project(ctx context.Context, tenant uuid.UUID, name string) (*kms.Project, error) {
	if !kms.ValidName(name) {
		return nil, kms.ErrNotFound
	}
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.Project(ctx, ProjectParams{Tenant: tenant, Name: name})
	if err != nil {
		return nil, translate(err)
	}
	p, err := decodeProject(c, tenant, row)
	if err != nil {
		return nil, s.decoded(err)
	}
	if p.Name != name {
		return nil, s.decoded(&RowError{Object: ObjectProject, Tenant: tenant, Column: "name", Reason: "is not the one asked for"})
	}
	return p, nil
}

// ListProjects implements kms.Tenants, ordered by name. ErrNotFound when there
// is no such tenant. Damaged projects are reported to the log and left out.
func (s *Store) ListProjects(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]*kms.Project, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*ProjectRow, *kms.Project]{
		scope: scope{kind: 'p', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*ProjectRow, error) {
			return s.driver.ListProjects(ctx, ListProjectsParams{Tenant: tenant, After: after.name, Limit: limit})
		},
		rowPosition: func(r *ProjectRow) position { return position{name: r.Name.String} },
		decode:      func(r *ProjectRow) (*kms.Project, error) { return decodeProject(c, tenant, r) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}
