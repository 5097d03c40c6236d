package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/sluice-kms/sluice/keystore"
)

// Result codes of SQLite (https://www.sqlite.org/rescode.html). The low byte
// of an extended code is its primary code.
const (
	codeConstraint           = 19
	codeConstraintForeignKey = 787
	codeConstraintPrimaryKey = 1555
	codeConstraintUnique     = 2067
	codeIOErrFsync           = 1034
	codeIOErrDirFsync        = 1290
)

// errFailed answers writes after an fsync failed.
var errFailed = errors.New("sqlite: an earlier write could not be made durable; the process must stop")

// coded is an error with a result code, as *sqlite.Error of the driver is.
type coded interface {
	error
	Code() int
}

// translate turns errors of SQLite into those of the driver interface. The
// texts of SQLite name tables and columns, never values; those of constraints
// are left out all the same, because the sentinel says it all.
func (db *DB) translate(err error) error {
	if err == nil || errors.Is(err, keystore.ErrMissing) || errors.Is(err, keystore.ErrStale) || errors.Is(err, keystore.ErrOvertaken) {
		return err
	}
	if errors.Is(err, sql.ErrNoRows) {
		return keystore.ErrMissing
	}
	var e coded
	if errors.As(err, &e) {
		switch e.Code() {
		case codeConstraintUnique, codeConstraintPrimaryKey:
			return keystore.ErrExists
		case codeConstraintForeignKey:
			return keystore.ErrMissing
		case codeIOErrFsync, codeIOErrDirFsync:
			db.failOnce.Do(func() { close(db.failed) })
		}
		if e.Code()&0xff == codeConstraint {
			return keystore.ErrRefused
		}
	}
	return fmt.Errorf("sqlite: %w", err)
}
