package keystore

import "uuid"

// The parameters and rows of incidents of cost breakers.
type (
	// Keep is how many the tenant has afterwards at most.
	InsertCostIncidentParams struct {
		Incident CostIncidentRecord
		Keep     int
	}
	CostIncidentParams struct{ Tenant, ID uuid.UUID }
	// Before is the id of 16 bytes before which the page begins.
	ListCostIncidentsParams struct {
		Tenant uuid.UUID
		Before []byte
		Limit  int
	}
	DeleteCostIncidentsParams struct {
		Before Timestamp
		Limit  int
	}
	PutCostLiftParams struct{ Lift CostLiftRecord }
	CostLiftParams    struct{ Tenant uuid.UUID }
)

// CostIncidentRecord is an incident as it is written.
type CostIncidentRecord struct {
	Tenant, ID uuid.UUID
	Ended      Timestamp
	Document   []byte
	Code       Code
}

// CostIncidentRow is an incident as it was found.
type CostIncidentRow struct {
	ID       Bytes
	Ended    Integer
	Document Bytes
	Code     CodeRow
}

// CostLiftRecord is when a tenant's stop was lifted, as it is written.
type CostLiftRecord struct {
	Tenant uuid.UUID
	Lifted Timestamp
	Code   Code
}

// CostLiftRow is when a tenant's stop was lifted, as it was found.
type CostLiftRow struct {
	Lifted Integer
	Code   CodeRow
}
