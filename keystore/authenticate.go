package keystore

import (
	"context"
	"errors"
	"log/slog"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// coder returns what makes and checks codes; KindStoreUnavailable before
// Authenticate. It is called before a row is read.
func (s *Store) coder() (*rowCoder, error) {
	if c := s.rows.Load(); c != nil {
		now := *c
		now.asOf = s.known.moment()
		return &now, nil
	}
	return nil, errUnopened()
}

// Authenticate gives the Store the key under which rows are authenticated, and
// opens it. It is called once, after the secrets were opened; until then only
// the system tenant can be found and made, and system secrets read and stored.
// Everything else gives KindStoreUnavailable.
//
// The system tenant, which was read without a code until now, must have one. In
// a new database, in which there is nothing else, it is given its code here; a
// database from before there were codes gets codes for everything, once. Any
// other row without the right code is refused. The error of a system tenant
// that is not the one that was written is a *RowError of KindInternal; the
// service must not start on it.
func (s *Store) Authenticate(ctx context.Context, rows kms.RowAuthenticator) error {
	if _, err := s.coder(); err == nil {
		return kms.Wrap(kms.KindInternal, errOpened, "the store is open already")
	}
	c := &rowCoder{rows: rows}
	sealed, adopt, err := s.authentication(ctx, c)
	switch {
	case err != nil:
	case sealed:
	case adopt:
		err = s.adopt(ctx, c)
	default:
		err = s.sealNew(ctx, c)
	}
	if err == nil {
		err = s.checkSealed(ctx, c)
	}
	if err != nil {
		return err
	}
	c.known = &s.known
	s.rows.Store(c)
	// What was cached without authentication ends.
	s.forgetAll()
	return nil
}

var (
	errOpened   = errors.New("keystore: Authenticate was called already")
	errNotNew   = errors.New("keystore: the database holds tenants, but rows of it were never authenticated")
	errUnsealed = errors.New("keystore: the database is still not sealed")
)

// authentication reads whether the rows of the database have codes, and if
// not, whether they were written before there were any.
func (s *Store) authentication(ctx context.Context, c *rowCoder) (sealed, adopt bool, err error) {
	row, err := s.driver.RowAuthentication(ctx)
	if err != nil {
		return false, false, translate(err)
	}
	d := newDecoder(ObjectDatabase, uuid.Nil(), uuid.Nil())
	adopt = d.boolean(row.Adopt, "adopt")
	sealed = !row.Code.MAC.Null || !row.Code.Version.Null
	if sealed && d.result() == nil {
		c.check(d, codeAuthentication, authenticationFields(adopt), row.Code)
	}
	return sealed, adopt, s.decoded(d.result())
}

// checkSealed expects the database to be sealed and its system tenant, if there
// is one, to be authentic.
func (s *Store) checkSealed(ctx context.Context, c *rowCoder) error {
	sealed, _, err := s.authentication(ctx, c)
	if err == nil && !sealed {
		err = kms.Wrap(kms.KindInternal, errUnsealed, "the database could not be authenticated")
	}
	if err != nil {
		return err
	}
	found, err := s.driver.TenantID(ctx, TenantIDParams{Name: kms.SystemTenantName})
	if err != nil {
		return translate(err)
	}
	row, err := s.driver.Tenant(ctx, TenantParams{ID: rowID(found)})
	if err != nil {
		return translate(err)
	}
	_, err = decodeTenant(c, row, nil)
	return s.decoded(err)
}

// sealNew gives the rows that a first start wrote before it had the row key
// their codes: those of the system tenant, in a database without any other.
func (s *Store) sealNew(ctx context.Context, c *rowCoder) error {
	rows, err := s.driver.ListTenants(ctx, ListTenantsParams{Limit: 2})
	if err != nil {
		return translate(err)
	}
	if len(rows) != 1 || rows[0].Name.String != kms.SystemTenantName {
		// Another process may have been first, and gone on.
		if sealed, _, err := s.authentication(ctx, c); err != nil || sealed {
			return err
		}
		return kms.Wrap(kms.KindInternal, errNotNew, "the database could not be authenticated")
	}
	adopting := &rowCoder{rows: c.rows, adopting: true}
	t, err := decodeTenant(adopting, rows[0], nil)
	if err != nil {
		return s.decoded(err)
	}
	p := sealing{coder: adopting, params: SealRowsParams{Tenant: t.ID}}
	row, err := s.driver.Project(ctx, ProjectParams{Tenant: t.ID, Name: kms.DefaultProject})
	if err != nil {
		return translate(err)
	}
	project, err := decodeProject(adopting, t.ID, row)
	if err != nil {
		return s.decoded(err)
	}
	p.tenant(t)
	p.project(project)
	p.authentication(false)
	return s.sealRows(ctx, &p)
}

// logAdopted tells how many rows were believed without a code.
func (s *Store) logAdopted(n int) {
	s.log.Warn("rows from before rows were authenticated are believed from now on", slog.Int("rows", n))
}
