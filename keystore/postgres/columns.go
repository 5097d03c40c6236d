package postgres

import (
	"time"
	"uuid"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-kms/sluice/keystore"
)

// The types below read columns as the key store keeps them, see
// keystore.Text. Reading never fails; a value that has no place there
// ("infinity") is neither valid nor NULL.

// idColumn reads a uuid.
type idColumn struct{ *keystore.Bytes }

// ScanUUID implements pgtype.UUIDScanner.
func (c idColumn) ScanUUID(v pgtype.UUID) error {
	*c.Bytes = keystore.Bytes{Valid: v.Valid, Null: !v.Valid}
	if v.Valid {
		c.Bytes.Bytes = v.Bytes[:]
	}
	return nil
}

// timeColumn reads a timestamptz.
type timeColumn struct{ *keystore.Integer }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (c timeColumn) ScanTimestamptz(v pgtype.Timestamptz) error {
	finite := v.Valid && v.InfinityModifier == pgtype.Finite
	*c.Integer = keystore.Integer{Valid: finite, Null: !v.Valid}
	if finite {
		c.Int64 = v.Time.UnixMicro()
	}
	return nil
}

// boolColumn reads a boolean.
type boolColumn struct{ *keystore.Integer }

// ScanBool implements pgtype.BoolScanner.
func (c boolColumn) ScanBool(v pgtype.Bool) error {
	*c.Integer = keystore.Integer{Valid: v.Valid, Null: !v.Valid}
	if v.Bool {
		c.Int64 = 1
	}
	return nil
}

// id is an id as an argument.
func id(u uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

// storedID is an id that was read, as an argument.
func storedID(b []byte) pgtype.UUID { return id(uuid.UUID(b)) }

// maybeID is an id as an argument, NULL for none.
func maybeID(u *uuid.UUID) pgtype.UUID {
	if u == nil {
		return pgtype.UUID{}
	}
	return id(*u)
}

// moment is a time as an argument.
func moment(t keystore.Timestamp) time.Time { return time.UnixMicro(t).UTC() }

// maybeMoment is a time as an argument, NULL for none.
func maybeMoment(t *keystore.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	m := moment(*t)
	return &m
}

// codeVersion is the version of a code as an argument, NULL for no code.
func codeVersion(c keystore.Code) *int64 {
	if c.MAC == nil {
		return nil
	}
	version := int64(c.Version)
	return &version
}
