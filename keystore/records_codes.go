package keystore

import "uuid"

// Code is the code of a row as it is written. The zero value is none, which
// only the first row of a new database may have.
type Code struct {
	MAC     []byte
	Version uint32
}

// CodeRow is the code of a row as it was found.
type CodeRow struct {
	MAC     Bytes
	Version Integer
}

// The parameters and rows of the authentication of rows.
type (
	// RowAuthenticationRow says whether the database had rows before rows had
	// codes, and has a code itself once they have theirs.
	RowAuthenticationRow struct {
		Adopt Integer
		Code  CodeRow
	}
	// SealRowsParams has codes for rows of one tenant.
	SealRowsParams struct {
		Tenant uuid.UUID
		Rows   []SealedRow
		// Authentication is the code of the one row of RowAuthentication, nil
		// to leave it.
		Authentication *Code
	}
	// SealedRow names a row of the table by the parts of its key that are not
	// the tenant.
	SealedRow struct {
		Table  SealedTable
		ID     uuid.UUID // of a key or credential
		Name   string    // of a project or a key's name
		Number uint32    // of a version
		Code   Code
	}
)

// SealedTable is a table whose rows can be given codes.
type SealedTable uint8

// The tables whose rows SealRows knows.
const (
	SealTenant SealedTable = iota
	SealProject
	SealKey
	SealVersion
	SealNonces
	SealKeyName
	SealCredential
)
