package keystore

import (
	"context"
	"encoding/json/v2"
	"errors"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Route implements kms.ProviderRoutes.
func (s *Store) Route(ctx context.Context, tenant uuid.UUID, name string) (*kms.ProviderRoute, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	if !kms.ValidRouteName(name) {
		return nil, kms.ErrNotFound
	}
	row, err := s.driver.Route(ctx, RouteParams{Tenant: tenant, Name: name})
	if err != nil {
		return nil, translate(err)
	}
	r, err := decodeRoute(c, tenant, row)
	if err == nil && r.Name != name {
		err = &RowError{Object: ObjectRoute, Tenant: tenant, ID: r.ID, Column: "name", Reason: "is not the one asked for"}
	}
	if err != nil {
		return nil, s.decoded(err)
	}
	return r, nil
}

// ListRoutes implements kms.ProviderRoutes. Damaged ones are reported to the log
// and left out.
func (s *Store) ListRoutes(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]*kms.ProviderRoute, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*RouteRow, *kms.ProviderRoute]{
		scope: scope{kind: 'r', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*RouteRow, error) {
			return s.driver.ListRoutes(ctx, ListRoutesParams{Tenant: tenant, After: after.name, Limit: limit})
		},
		rowPosition: func(r *RouteRow) position { return position{name: r.Name.String} },
		decode:      func(r *RouteRow) (*kms.ProviderRoute, error) { return decodeRoute(c, tenant, r) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// PutRoute implements kms.ProviderRoutes. Of several new ones at once, more than
// the last free places can be taken.
func (s *Store) PutRoute(ctx context.Context, r *kms.ProviderRoute) error {
	r.Created = storedTime(r.Created)
	if err := argument(func(fail failFunc) { checkRoute(r, fail) }); err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	_, err = s.driver.Route(ctx, RouteParams{Tenant: r.Tenant, Name: r.Name})
	created := errors.Is(err, ErrMissing)
	if err != nil && !created {
		return translate(err)
	}
	if created {
		before, err := s.routeRevision(ctx, c, r.Tenant, r.Name, nil)
		if err != nil {
			return err
		}
		if r.Revision != before+1 {
			return errRevision()
		}
		rows, err := s.driver.ListRoutes(ctx, ListRoutesParams{Tenant: r.Tenant, Limit: kms.MaxRoutes})
		switch {
		case err != nil:
			return translate(err)
		case len(rows) == kms.MaxRoutes:
			return kms.Errorf(kms.KindConflict, "the tenant has %d routes already", kms.MaxRoutes)
		}
	}
	record, err := encodeRoute(r)
	if err != nil {
		return err
	}
	if record.Code, err = c.code(codeRoute, record.fields()); err != nil {
		return err
	}
	err = s.driver.PutRoute(ctx, PutRouteParams{Route: record, New: created})
	if errors.Is(err, ErrExists) {
		err = ErrStale // it was made meanwhile
	}
	if err != nil {
		return translate(err)
	}
	s.known.raise(rowOfRoute(r.Tenant, r.Name), kms.RouteRevisions+r.Revision)
	return nil
}

// DeleteRoute implements kms.ProviderRoutes.
func (s *Store) DeleteRoute(ctx context.Context, tenant uuid.UUID, name string) error {
	c, err := s.coder()
	if err != nil {
		return err
	}
	row, err := s.driver.Route(ctx, RouteParams{Tenant: tenant, Name: name})
	if err != nil {
		return translate(err)
	}
	revision, err := s.routeRevision(ctx, c, tenant, name, row)
	if err != nil {
		return err
	}
	end := RouteEndRecord{Tenant: tenant, Name: name, Revision: revision + 1}
	if end.Code, err = c.code(codeRouteEnd, end.fields()); err != nil {
		return err
	}
	if err := s.driver.DeleteRoute(ctx, DeleteRouteParams{Was: row.Revision.Int64, End: end}); err != nil {
		return translate(err)
	}
	s.known.raise(rowOfRoute(tenant, name), kms.RouteRevisions+end.Revision)
	return nil
}

// RouteRevision implements kms.ProviderRoutes.
func (s *Store) RouteRevision(ctx context.Context, tenant uuid.UUID, name string) (uint64, error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	row, err := s.driver.Route(ctx, RouteParams{Tenant: tenant, Name: name})
	if err != nil && !errors.Is(err, ErrMissing) {
		return 0, translate(err)
	}
	if err != nil {
		row = nil
	}
	return s.routeRevision(ctx, c, tenant, name, row)
}

// routeRevision is the highest revision that a route is known to have had, by its
// row, unless that is nil or damaged, and by its last end.
func (s *Store) routeRevision(ctx context.Context, c *rowCoder, tenant uuid.UUID, name string, row *RouteRow) (uint64, error) {
	end, err := s.routeEnd(ctx, c, tenant, name)
	if err != nil {
		return 0, err
	}
	revision := max(end, s.knownRoute(tenant, name))
	if row != nil {
		if r, err := decodeRoute(c, tenant, row); err == nil {
			revision = max(revision, r.Revision)
		}
	}
	return revision, nil
}

// knownRoute is the revision that a route is known to have had, 0 for none.
func (s *Store) knownRoute(tenant uuid.UUID, name string) uint64 {
	known := s.known.of(rowOfRoute(tenant, name)).revision
	return max(known, kms.RouteRevisions) - kms.RouteRevisions
}

// routeEnd is the revision with which a route was last deleted, 0 for never.
func (s *Store) routeEnd(ctx context.Context, c *rowCoder, tenant uuid.UUID, name string) (uint64, error) {
	row, err := s.driver.RouteEnd(ctx, RouteParams{Tenant: tenant, Name: name})
	switch {
	case errors.Is(err, ErrMissing):
		return 0, nil
	case err != nil:
		return 0, translate(err)
	}
	end, err := decodeRouteEnd(c, tenant, name, row)
	return end.Revision, s.decoded(err)
}

// readRouteRevision is readRevision for a route: that of its row, or of its end.
func (s *Store) readRouteRevision(ctx context.Context, c *rowCoder, tenant uuid.UUID, name string) (uint64, error) {
	row, err := s.driver.Route(ctx, RouteParams{Tenant: tenant, Name: name})
	if errors.Is(err, ErrMissing) {
		end, err := s.routeEnd(ctx, c, tenant, name)
		if err == nil && end == 0 {
			return 0, ErrMissing
		}
		return kms.RouteRevisions + end, err
	}
	if err != nil {
		return 0, err
	}
	r, err := decodeRoute(c, tenant, row)
	if r == nil {
		return 0, err
	}
	return kms.RouteRevisions + r.Revision, err
}

// HealthOfRoute implements kms.ProviderRoutes. A damaged health is reported to
// the log; then nothing is known, and the next report replaces it.
func (s *Store) HealthOfRoute(ctx context.Context, r *kms.ProviderRoute) ([]byte, uint64, error) {
	c, err := s.coder()
	if err != nil {
		return nil, 0, err
	}
	row, err := s.driver.RouteHealth(ctx, RouteParams{Tenant: r.Tenant, Name: r.Name})
	if errors.Is(err, ErrMissing) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, translate(err)
	}
	record, err := decodeRouteHealth(c, r, row)
	if err != nil {
		s.damaged(err)
		return nil, record.Revision, nil
	}
	return record.Document, record.Revision, nil
}

// SetHealthOfRoute implements kms.ProviderRoutes. ErrNotFound when the route is
// gone.
func (s *Store) SetHealthOfRoute(ctx context.Context, r *kms.ProviderRoute, health []byte, revision uint64) error {
	if len(health) == 0 || len(health) > kms.MaxRouteHealth {
		return errArgument("health", reasonRange)
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	record := RouteHealthRecord{Tenant: r.Tenant, Name: r.Name, Route: r.ID, Document: health, Revision: revision + 1}
	if record.Code, err = c.code(codeRouteHealth, record.fields()); err != nil {
		return err
	}
	err = s.driver.PutRouteHealth(ctx, PutRouteHealthParams{Health: record})
	if errors.Is(err, ErrExists) {
		err = ErrStale
	}
	return translate(err)
}

// routeDocument is what is said of a route, as it is stored: JSON in its one
// encoding.
type routeDocument struct {
	ID         []byte           `json:"id"`
	Created    Timestamp        `json:"created"`
	Models     []string         `json:"models"`
	AuthHeader string           `json:"auth_header"`
	Residency  string           `json:"residency,omitzero"`
	LastResort bool             `json:"last_resort,omitzero"`
	Targets    []targetDocument `json:"targets"`
}

type targetDocument struct {
	Name          string   `json:"name"`
	Provider      string   `json:"provider"`
	BaseURL       string   `json:"base_url"`
	Region        string   `json:"region"`
	RetentionDays int      `json:"retention_days,omitzero"`
	Capabilities  []string `json:"capabilities,omitempty"`
	Secret        string   `json:"secret,omitzero"`
	Weight        uint32   `json:"weight,omitzero"`
}

func encodeRoute(r *kms.ProviderRoute) (RouteRecord, error) {
	d := routeDocument{ID: r.ID[:], Created: timestamp(r.Created), Models: r.Models, AuthHeader: r.AuthHeader, Residency: r.Residency,
		LastResort: r.LastResort, Targets: make([]targetDocument, len(r.Targets))}
	for i := range r.Targets {
		d.Targets[i] = targetDocument(r.Targets[i])
	}
	document, err := json.Marshal(&d, json.Deterministic(true))
	if err != nil {
		return RouteRecord{}, errArgument("route", "is not text")
	}
	return RouteRecord{Tenant: r.Tenant, Name: r.Name, Document: document, Revision: r.Revision}, nil
}

func decodeRoute(c *rowCoder, tenant uuid.UUID, row *RouteRow) (*kms.ProviderRoute, error) {
	d := newDecoder(ObjectRoute, tenant, uuid.Nil())
	record := RouteRecord{Tenant: tenant, Name: d.text(row.Name, "name"), Document: d.bytes(row.Document, "document"), Revision: d.revision(row.Revision)}
	if d.result() == nil {
		// Before what it says is looked at.
		c.check(d, codeRoute, record.fields(), row.Code)
	}
	if d.result() != nil {
		return nil, d.result()
	}
	var doc routeDocument
	if err := json.Unmarshal(record.Document, &doc, json.RejectUnknownMembers(true)); err != nil {
		d.fail("document", reasonFormat)
		return nil, d.result()
	}
	r := &kms.ProviderRoute{Tenant: tenant, Name: record.Name, Models: doc.Models, AuthHeader: doc.AuthHeader, Residency: doc.Residency,
		LastResort: doc.LastResort, Created: timeOfDocument(doc.Created), Revision: record.Revision, Targets: make([]kms.RouteTarget, len(doc.Targets))}
	copy(r.ID[:], doc.ID)
	for i := range doc.Targets {
		r.Targets[i] = kms.RouteTarget(doc.Targets[i])
	}
	checkRoute(r, d.fail)
	c.current(d, rowOfRoute(tenant, r.Name), kms.RouteRevisions+r.Revision)
	return r, d.result()
}

func decodeRouteEnd(c *rowCoder, tenant uuid.UUID, name string, row *RouteEndRow) (RouteEndRecord, error) {
	d := newDecoder(ObjectRouteEnd, tenant, uuid.Nil())
	record := RouteEndRecord{Tenant: tenant, Name: name, Revision: d.revision(row.Revision)}
	if d.result() == nil {
		c.check(d, codeRouteEnd, record.fields(), row.Code)
	}
	return record, d.result()
}

func checkRoute(r *kms.ProviderRoute, fail failFunc) {
	switch {
	case r.ID == uuid.Nil() || r.Tenant == uuid.Nil():
		fail("id", reasonMissing)
	case r.Created.IsZero():
		fail("created", reasonMissing)
	case r.Revision == 0:
		fail("revision", reasonRange)
	case r.Check() != nil:
		fail("document", "is not a route")
	}
}

func decodeRouteHealth(c *rowCoder, r *kms.ProviderRoute, row *RouteHealthRow) (RouteHealthRecord, error) {
	d := newDecoder(ObjectRouteHealth, r.Tenant, r.ID)
	record := RouteHealthRecord{Tenant: r.Tenant, Name: r.Name, Route: d.id(row.Route, "route"), Document: d.bytes(row.Document, "document"),
		Revision: d.revision(row.Revision)}
	d.require(record.Route == r.ID, "route", "is another one")
	if d.result() == nil {
		c.check(d, codeRouteHealth, record.fields(), row.Code)
	}
	return record, d.result()
}

func (r *RouteRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).bytes(r.Document).number(r.Revision)
}

func (r *RouteEndRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).number(r.Revision)
}

func (r *RouteHealthRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).id(r.Route).bytes(r.Document).number(r.Revision)
}
