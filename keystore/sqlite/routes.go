package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectRoute = `SELECT name, document, revision, mac, mac_version FROM routes WHERE tenant = ? AND name = ?`
	listRoutes  = `SELECT name, document, revision, mac, mac_version FROM routes WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?`
	// Not behind an end that the route had meanwhile.
	insertRoute = `INSERT INTO routes (tenant, name, document, revision, mac, mac_version)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS
			(SELECT 1 FROM route_ends WHERE tenant = ?1 AND name = ?2 AND revision >= ?4)`
	updateRoute = `UPDATE routes SET document = ?3, revision = ?4, mac = ?5, mac_version = ?6
		WHERE tenant = ?1 AND name = ?2 AND revision = ?4 - 1`
	deleteRoute = `DELETE FROM routes WHERE tenant = ? AND name = ? AND revision = ?`

	selectRouteEnd = `SELECT revision, mac, mac_version FROM route_ends WHERE tenant = ? AND name = ?`
	putRouteEnd    = `INSERT INTO route_ends (tenant, name, revision, mac, mac_version) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (tenant, name) DO UPDATE SET revision = excluded.revision, mac = excluded.mac, mac_version = excluded.mac_version
		WHERE route_ends.tenant = excluded.tenant`

	selectRouteHealth = `SELECT route, document, revision, mac, mac_version FROM route_health WHERE tenant = ? AND name = ?`
	insertRouteHealth = `INSERT INTO route_health (tenant, name, route, document, revision, mac, mac_version)
		SELECT tenant, name, ?3, ?4, ?5, ?6, ?7 FROM routes WHERE tenant = ?1 AND name = ?2`
	updateRouteHealth = `UPDATE route_health SET route = ?3, document = ?4, revision = ?5, mac = ?6, mac_version = ?7
		WHERE tenant = ?1 AND name = ?2 AND revision = ?5 - 1`
	deleteRouteHealth = `DELETE FROM route_health WHERE tenant = ? AND name = ?`
)

func routeTargets(r *keystore.RouteRow) []any {
	return []any{&r.Name, &r.Document, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// Route implements keystore.RouteDriver.
func (db *DB) Route(ctx context.Context, p keystore.RouteParams) (*keystore.RouteRow, error) {
	var r keystore.RouteRow
	err := db.row(ctx, selectRoute, p.Tenant[:], p.Name).Scan(routeTargets(&r)...)
	return &r, db.translate(err)
}

// ListRoutes implements keystore.RouteDriver.
func (db *DB) ListRoutes(ctx context.Context, p keystore.ListRoutesParams) (all []*keystore.RouteRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.RouteRow)
		all = append(all, r)
		return rows.Scan(routeTargets(r)...)
	}, listRoutes, p.Tenant[:], p.After, p.Limit)
	return all, err
}

// PutRoute implements keystore.RouteDriver.
func (db *DB) PutRoute(ctx context.Context, p keystore.PutRouteParams) error {
	r := &p.Route
	statement := updateRoute
	if p.New {
		statement = insertRoute
	}
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, statement, r.Tenant[:], r.Name, r.Document, r.Revision, r.Code.MAC, codeVersion(r.Code))
	})
}

// DeleteRoute implements keystore.RouteDriver.
func (db *DB) DeleteRoute(ctx context.Context, p keystore.DeleteRouteParams) error {
	e := &p.End
	return db.write(ctx, func(tx transaction) error {
		if _, err := tx.exec(ctx, deleteRouteHealth, e.Tenant[:], e.Name); err != nil {
			return err
		}
		if err := tx.execOne(ctx, keystore.ErrStale, deleteRoute, e.Tenant[:], e.Name, p.Was); err != nil {
			return err
		}
		return tx.execOne(ctx, keystore.ErrStale, putRouteEnd, e.Tenant[:], e.Name, e.Revision, e.Code.MAC, codeVersion(e.Code))
	})
}

// RouteEnd implements keystore.RouteDriver.
func (db *DB) RouteEnd(ctx context.Context, p keystore.RouteParams) (*keystore.RouteEndRow, error) {
	var r keystore.RouteEndRow
	err := db.row(ctx, selectRouteEnd, p.Tenant[:], p.Name).Scan(&r.Revision, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// RouteHealth implements keystore.RouteDriver.
func (db *DB) RouteHealth(ctx context.Context, p keystore.RouteParams) (*keystore.RouteHealthRow, error) {
	var r keystore.RouteHealthRow
	err := db.row(ctx, selectRouteHealth, p.Tenant[:], p.Name).Scan(&r.Route, &r.Document, &r.Revision, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// PutRouteHealth implements keystore.RouteDriver.
func (db *DB) PutRouteHealth(ctx context.Context, p keystore.PutRouteHealthParams) error {
	r := &p.Health
	statement, missing := updateRouteHealth, keystore.ErrStale
	if r.Revision == 1 {
		statement, missing = insertRouteHealth, keystore.ErrMissing
	}
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, missing, statement, r.Tenant[:], r.Name, r.Route[:], r.Document, r.Revision, r.Code.MAC, codeVersion(r.Code))
	})
}
