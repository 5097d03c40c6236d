package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-kms/sluice/keystore"
)

// SQLSTATE codes (https://www.postgresql.org/docs/15/errcodes-appendix.html).
// The first two characters of a code are its class.
const (
	codeForeignKey      = "23503"
	codeUnique          = "23505"
	codeDuplicateSchema = "42P06"
	codePrivilege       = "42501" // also a row that a policy refuses
	classIntegrity      = "23"
	classData           = "22"
)

// translate turns errors of PostgreSQL into those of the driver interface. The
// messages of the server are left out: they quote values.
func translate(err error) error {
	if err == nil || errors.Is(err, keystore.ErrMissing) || errors.Is(err, keystore.ErrStale) || errors.Is(err, keystore.ErrOvertaken) || errors.Is(err, keystore.ErrExists) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return keystore.ErrMissing
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case e.Code == codeUnique:
			return keystore.ErrExists
		case e.Code == codeForeignKey:
			return keystore.ErrMissing
		case e.Code == codePrivilege, strings.HasPrefix(e.Code, classIntegrity), strings.HasPrefix(e.Code, classData):
			return keystore.ErrRefused
		}
		return serverError(e.Code)
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return fmt.Errorf("postgres: %w", end)
		}
	}
	return fmt.Errorf("postgres: the server cannot be reached: %w", err)
}

// serverError is what the server says, without its words.
type serverError string

func (e serverError) Error() string { return "postgres: the server answers with SQLSTATE " + string(e) }
