package keystore

import "uuid"

// The parameters and rows of the audit trail and of usage.
type (
	ShippedParams struct{ Node string }
	// ShippedRow is how far a node's journal is.
	ShippedRow struct {
		Node     Text
		Sequence Integer
		Hash     Bytes
		Until    Integer
		Ended    Integer
	}
	// ShipParams is a batch of one node. AfterSequence and AfterHash are what
	// the node's row must have; a node without a row has 0 and zeroes.
	ShipParams struct {
		Node          string
		AfterSequence uint64
		AfterHash     []byte
		Sequence      uint64
		Hash          []byte
		Until         Timestamp
		Ended         bool
		Entries       []AuditEntryRecord
		Usage         []UsageRecord // ordered by its key
	}
	// AuditEntryRecord is a row as it is written: an entry, or several that are
	// in its payload. Then what names one entry is the first one's, and the
	// later or last one's the last one's.
	AuditEntryRecord struct {
		Entries      int // in the row
		Since        Timestamp
		LastSequence uint64
		LastRequest  uuid.UUID

		Sequence   uint64
		Tenant     uuid.UUID
		Time       Timestamp // the latest one
		Request    uuid.UUID // the lowest one
		Project    string
		Component  string
		Op         string
		Key        uuid.UUID
		Credential uuid.UUID
		Outcome    string
		Payload    []byte
	}
	// AuditEntryRow is a row as it was found. Entries is 1 where it is NULL.
	AuditEntryRow struct {
		Ordinal    Integer
		Entries    Integer
		Node       Text
		Sequence   Integer
		Tenant     Bytes
		Time       Integer
		Project    Text
		Component  Text
		Op         Text
		Key        Bytes
		Credential Bytes
		Request    Bytes
		Outcome    Text
		Payload    Bytes
	}
	// NewestAuditEntriesParams asks for rows with entries from From to Until
	// that come before the place of Time and Ordinal. Tenant nil: of all.
	NewestAuditEntriesParams struct {
		Tenant        *uuid.UUID
		From, Until   Timestamp
		BeforeTime    Timestamp
		BeforeOrdinal int64
		Limit         int
	}
	ArrivedAuditEntriesParams struct {
		Tenant       *uuid.UUID
		AfterOrdinal int64
		Limit        int
	}
	// ArrivedOfOpParams asks for an operation's entries among the Limit that
	// follow AfterOrdinal.
	ArrivedOfOpParams struct {
		Op           string
		AfterOrdinal int64
		Limit        int
	}
	// AuditEntriesOfRequestParams asks for the rows that name a request, and
	// for those with entries from From to Until that may hold it.
	AuditEntriesOfRequestParams struct {
		Tenant      *uuid.UUID
		Request     uuid.UUID
		From, Until Timestamp
		Limit       int
	}
	// AuditEntriesAtParams asks for the rows of a node that may hold Sequence:
	// they begin at After or later.
	AuditEntriesAtParams struct {
		Tenant          *uuid.UUID
		Node            string
		After, Sequence uint64
	}

	// UsageRecord is usage that is added to what there is of its key.
	UsageRecord struct {
		Granularity string
		Tenant      uuid.UUID
		Start       Timestamp
		Project     string
		Component   string
		Key         uuid.UUID
		Algorithm   string
		Op          string
		Reason      string
		Policy      uint64

		Requests, Charged, Bytes, Slot, Wait int64
	}
	// UsageParams asks for usage by period and those dimensions that are set in
	// By, of those values that are not nil.
	UsageParams struct {
		Tenant      *uuid.UUID
		Granularity string
		From, To    Timestamp
		By          UsageColumns[bool]
		Project     *string
		Component   *string
		Key         *uuid.UUID
		Algorithm   *string
		Op          *string
		Reason      *string
		Limit       int
	}
	// UsageColumns has something for each dimension.
	UsageColumns[T any] struct {
		Tenant, Project, Component, Key, Algorithm, Op, Reason, Policy T
	}
	// UsageRow is usage as it was found; dimensions that were not asked for are
	// NULL.
	UsageRow struct {
		Start     Integer
		Tenant    Bytes
		Project   Text
		Component Text
		Key       Bytes
		Algorithm Text
		Op        Text
		Reason    Text
		Policy    Integer

		Requests, Charged, Bytes, Slot, Wait Integer
	}

	DeleteAuditEntriesParams struct {
		Before Timestamp
		Limit  int
	}
	DeleteUsageParams struct {
		Granularity string
		Before      Timestamp
		Limit       int
	}
)
