package keystore

import (
	"errors"
	"fmt"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// RowError says that a stored object cannot be used because a column of it
// does not hold what it must. It names the object and the column, never the
// value. It is the cause of a kms.Error of KindInternal.
type RowError struct {
	Object Object
	Tenant uuid.UUID // zero when it is not known
	ID     uuid.UUID // zero when it is not known
	Column string
	Reason string
}

// Error names the object, the column and what is wrong.
func (e *RowError) Error() string {
	return fmt.Sprintf("stored %s %s of tenant %s: %s %s", e.Object, e.ID, e.Tenant, e.Column, e.Reason)
}

// Old tells whether the row was written by this service, but is not the last
// one that was: somebody put it back.
func (e *RowError) Old() bool { return e.Reason == reasonOld }

// Forged tells whether the row holds what it may, but not what this service
// wrote: somebody else changed it, or put it there.
func (e *RowError) Forged() bool { return e.Column == columnMAC || e.Column == columnMACVersion }

// errUnopened answers before Authenticate.
func errUnopened() error {
	return kms.Errorf(kms.KindStoreUnavailable, "the store does not have its row key yet")
}

// translate turns an error of a driver or of decoding into what callers of
// the ports may see. Nothing else in this package gives driver errors away.
func translate(err error) error {
	var row *RowError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrMissing):
		return kms.ErrNotFound
	case errors.Is(err, ErrExists):
		return kms.Wrap(kms.KindConflict, err, "an object of that name or id exists")
	case errors.Is(err, ErrStale), errors.Is(err, ErrOvertaken):
		return kms.Wrap(kms.KindPreconditionFailed, err, "the object has another revision")
	case errors.Is(err, ErrRefused):
		return kms.Wrap(kms.KindInternal, err, "the store refused the object")
	case errors.As(err, &row) && row.Old():
		return kms.Wrap(kms.KindInternal, err, "the stored object is an earlier one that was put back, and is refused")
	case errors.As(err, &row):
		return kms.Wrap(kms.KindInternal, err, "the stored object is damaged")
	default:
		return kms.Wrap(kms.KindStoreUnavailable, err, "the store is not available")
	}
}

// lasting tells whether looking again at once would give the same error: the
// object is missing or damaged.
func lasting(err error) bool {
	_, damaged := errors.AsType[*RowError](err)
	return damaged || isMissing(err)
}

func isMissing(err error) bool { return errors.Is(err, kms.ErrNotFound) }

// errRevision answers a change of a revision that is not the current one.
func errRevision() error { return translate(ErrStale) }

// errArgument answers a caller that hands over an object that cannot be
// stored. Such objects are refused before they reach a database, so that
// every dialect refuses the same ones.
func errArgument(field, reason string) error {
	return kms.Errorf(kms.KindInvalidArgument, "%s: %s", field, reason)
}
