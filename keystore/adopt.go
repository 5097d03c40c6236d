package keystore

import (
	"context"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// adoptBatch is how many objects are read at once, and sealed in one
// transaction, when a database from before there were codes gets them.
const adoptBatch = 100

// sealing collects codes for rows of one tenant that have none. Its methods
// are called with objects; the first error stays.
type sealing struct {
	coder  *rowCoder
	params SealRowsParams
	err    error
}

func (p *sealing) add(row SealedRow, table string, f fields) {
	if p.err != nil {
		return
	}
	if row.Code, p.err = p.coder.code(table, f); p.err == nil {
		p.params.Rows = append(p.params.Rows, row)
	}
}

func (p *sealing) tenant(t *kms.Tenant) {
	r := encodeTenant(t)
	p.add(SealedRow{Table: SealTenant}, codeTenant, r.fields())
}

func (p *sealing) project(project *kms.Project) {
	r := encodeProject(project)
	p.add(SealedRow{Table: SealProject, Name: r.Name}, codeProject, r.fields())
}

// key adds the key, its name and its versions but not their nonces.
func (p *sealing) key(k *storedKey) {
	tenant, versions := p.params.Tenant, encodeVersions(k.key.Versions)
	r, err := encodeKey(tenant, k.key, k.highest)
	if err != nil && p.err == nil {
		p.err = err
	}
	p.add(SealedRow{Table: SealKey, ID: r.ID}, codeKey, r.fields(versions))
	for i := range versions {
		p.add(SealedRow{Table: SealVersion, ID: r.ID, Number: versions[i].Number}, codeVersion, versions[i].fields(tenant, r.ID))
	}
	name := KeyNameRecord{Tenant: tenant, Name: r.Name, Kind: KindName, Key: r.ID}
	p.add(SealedRow{Table: SealKeyName, Name: r.Name}, codeKeyName, name.fields())
}

func (p *sealing) nonces(key uuid.UUID, number uint32, version uuid.UUID, nonces uint64) {
	of := NoncesParams{Tenant: p.params.Tenant, Key: key, Number: number}
	p.add(SealedRow{Table: SealNonces, ID: key, Number: number}, codeNonces, noncesFields(of, version, nonces))
}

func (p *sealing) credential(c *kms.Credential) {
	r, err := encodeCredential(c)
	if err != nil && p.err == nil {
		p.err = err
	}
	p.add(SealedRow{Table: SealCredential, ID: r.ID}, codeCredential, r.fields())
}

func (p *sealing) authentication(adopt bool) {
	if p.err != nil {
		return
	}
	var code Code
	code, p.err = p.coder.code(codeAuthentication, authenticationFields(adopt))
	p.params.Authentication = &code
}

// sealRows stores what was collected and begins anew.
func (s *Store) sealRows(ctx context.Context, p *sealing) error {
	if p.err != nil {
		return p.err
	}
	if len(p.params.Rows) == 0 && p.params.Authentication == nil {
		return nil
	}
	err := s.driver.SealRows(ctx, p.params)
	p.params.Rows, p.params.Authentication = nil, nil
	return translate(err)
}

// adopt gives every row of a database from before there were codes its code.
// Such rows are believed as they are: there is nothing to check them by. Rows
// that have a code already, from an attempt that was cut short, must have the
// right one. Damaged objects stay without, and thereby refused.
//
// Who can write to the database can make any database look like such a one; see
// the package comment.
func (s *Store) adopt(ctx context.Context, c *rowCoder) error {
	a := &adoption{store: s, coder: &rowCoder{rows: c.rows, adopting: true}}
	err := pages(func(after position) ([]*TenantRow, error) {
		return s.driver.ListTenants(ctx, ListTenantsParams{After: after.name, Limit: adoptBatch})
	}, func(r *TenantRow) position { return position{name: r.Name.String} },
		func(rows []*TenantRow) error {
			for _, row := range rows {
				if err := a.tenant(ctx, row); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	end := sealing{coder: c}
	end.authentication(true)
	if err := s.sealRows(ctx, &end); err != nil {
		return err
	}
	s.logAdopted(a.rows)
	return nil
}

// pages reads a list to its end.
func pages[Row any](read func(after position) ([]Row, error), where func(Row) position, each func([]Row) error) error {
	var after position
	for {
		rows, err := read(after)
		if err != nil {
			return translate(err)
		}
		if len(rows) == 0 {
			return nil
		}
		if err := each(rows); err != nil {
			return err
		}
		start := after
		if after = where(rows[len(rows)-1]); after.compare(start) <= 0 {
			return kms.Wrap(kms.KindInternal, errOrder, "the list cannot be read")
		}
	}
}

// adoption is an adoption under way.
type adoption struct {
	store *Store
	coder *rowCoder
	rows  int
}

// believed tells whether an object can be given its code.
func (a *adoption) believed(err error) bool {
	if err != nil {
		a.store.damaged(err)
	}
	return err == nil
}

func (a *adoption) seal(ctx context.Context, p *sealing) error {
	a.rows += len(p.params.Rows)
	return a.store.sealRows(ctx, p)
}

func (a *adoption) tenant(ctx context.Context, row *TenantRow) error {
	t, err := decodeTenant(a.coder, row, nil)
	if !a.believed(err) {
		return nil
	}
	p := &sealing{coder: a.coder, params: SealRowsParams{Tenant: t.ID}}
	p.tenant(t)
	if err := a.seal(ctx, p); err != nil {
		return err
	}
	driver := a.store.driver
	err = pages(func(after position) ([]*ProjectRow, error) {
		return driver.ListProjects(ctx, ListProjectsParams{Tenant: t.ID, After: after.name, Limit: adoptBatch})
	}, func(r *ProjectRow) position { return position{name: r.Name.String} },
		func(rows []*ProjectRow) error {
			for _, row := range rows {
				if project, err := decodeProject(a.coder, t.ID, row); a.believed(err) {
					p.project(project)
				}
			}
			return a.seal(ctx, p)
		})
	if err == nil {
		err = pages(func(after position) ([]*KeyRow, error) {
			return driver.ListKeys(ctx, ListKeysParams{Tenant: t.ID, After: after.name, Limit: adoptBatch})
		}, func(r *KeyRow) position { return position{name: r.Name.String} },
			func(rows []*KeyRow) error { return a.keys(ctx, p, rows) })
	}
	if err != nil {
		return err
	}
	return pages(func(after position) ([]*CredentialRow, error) {
		return driver.ListCredentials(ctx, ListCredentialsParams{
			Tenant: t.ID, AfterName: after.name, AfterID: []byte(after.id), Limit: adoptBatch})
	}, func(r *CredentialRow) position { return position{name: r.Name.String, id: string(r.ID.Bytes)} },
		func(rows []*CredentialRow) error {
			for _, row := range rows {
				if c, err := decodeCredential(a.coder, row, &t.ID, nil); a.believed(err) {
					p.credential(c)
				}
			}
			return a.seal(ctx, p)
		})
}

func (a *adoption) keys(ctx context.Context, p *sealing, rows []*KeyRow) error {
	for _, row := range rows {
		k, err := decodeKey(a.coder, p.params.Tenant, row, nil)
		if !a.believed(err) {
			continue
		}
		p.key(&k)
		for _, v := range k.key.Versions {
			of := NoncesParams{Tenant: p.params.Tenant, Key: k.key.ID, Number: v.Number}
			row, err := a.store.driver.Nonces(ctx, of)
			if err != nil {
				return translate(err)
			}
			if id, nonces, err := decodeNonces(a.coder, of, row); a.believed(err) {
				p.nonces(k.key.ID, v.Number, id, nonces)
			}
		}
	}
	return a.seal(ctx, p)
}
