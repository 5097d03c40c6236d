package keystore

import "uuid"

// The parameters and rows of jobs.
type (
	JobParams struct {
		Tenant uuid.UUID
		ID     uuid.UUID
	}
	ListJobsParams struct {
		Tenant     uuid.UUID
		Credential *uuid.UUID // nil: of all
		After      uuid.UUID
		Limit      int
	}
	InsertJobParams struct {
		Job JobRecord
		// Most is how many the tenant may have that are not over: of those that are
		// RECEIVING the ones count that have not expired at Now.
		Most int
		Now  Timestamp
	}
	UpdateJobParams struct {
		Job JobRecord
		// Claim is set with the update; nil: it stays.
		Claim []byte
	}
	JobByClaimParams struct {
		Tenant uuid.UUID
		Claim  []byte
	}
	DelayJobParams struct {
		JobParams
		Due   Timestamp
		Waits string
	}
	DeleteJobChunksParams struct {
		JobParams
		All   bool // those that are computed too
		Limit int
	}
	DueJobsParams struct {
		Now   Timestamp
		After uuid.UUID
		Busy  []uuid.UUID
		Limit int
	}
	ExpiredJobsParams struct {
		Now   Timestamp
		Limit int
	}
	InsertJobChunkParams struct {
		Chunk JobChunkRecord
		Input []byte
	}
	JobChunkParams struct {
		JobParams
		Number int
	}
	JobChunkOfParams struct {
		JobParams
		Item int64
	}
	DueJobChunksParams struct {
		JobParams
		Now   Timestamp
		Limit int
	}
	UpdateJobChunkParams struct {
		Chunk JobChunkRecord
		// What is set is stored, nil as NULL; the rest stays.
		Input, Output, Entries JobContent
	}
	RenewJobChunkParams struct {
		JobChunkParams
		Revision uint64
		Due      Timestamp
	}
	ReleaseJobChunksParams struct {
		Node string
		Now  Timestamp
	}
	ComputedJobChunksParams struct {
		Node  string
		Limit int
	}
)

// JobContent is what is sealed of a chunk as it is written, if it is set.
type JobContent struct {
	Set   bool
	Bytes []byte // nil: NULL
}

// JobRecord is a job as it is written; Revision 1 is a new one.
type JobRecord struct {
	Tenant     uuid.UUID
	ID         uuid.UUID
	Credential uuid.UUID
	State      string
	Expires    Timestamp
	Document   []byte
	Revision   uint64
	Code       Code
	// Due and Waits are written of a new one only.
	Due   Timestamp
	Waits string
}

// JobRow is a job as it was found.
type JobRow struct {
	ID         Bytes
	Credential Bytes
	State      Text
	Expires    Integer
	Document   Bytes
	Revision   Integer
	Code       CodeRow
	Due        Integer
	Waits      Text
}

// JobNameRow names a job as it was found.
type JobNameRow struct{ Tenant, ID Bytes }

// JobProgressRow sums up the chunks of a job, without looking at their codes.
type JobProgressRow struct {
	Items, Done, Failed, Charged, Unfinished Integer
}

// JobChunkRecord is a chunk as it is written, without what is sealed of it;
// Revision 1 is a new one.
type JobChunkRecord struct {
	Tenant   uuid.UUID
	Job      uuid.UUID
	Number   int
	ID       uuid.UUID
	First    int64
	Items    int
	State    string
	Pass     uint32
	Pending  int
	Failed   int
	Charged  int64
	Owner    string
	Position uint64
	Due      *Timestamp
	Revision uint64
	Code     Code
}

// JobChunkRow is a chunk as it was found.
type JobChunkRow struct {
	Number   Integer
	ID       Bytes
	First    Integer
	Items    Integer
	State    Text
	Pass     Integer
	Pending  Integer
	Failed   Integer
	Charged  Integer
	Owner    Text
	Position Integer
	Due      Integer
	Revision Integer
	Code     CodeRow
	// Input and Entries are not read where only the output is asked for.
	Input, Output, Entries Bytes
}

// JobChunkNameRow names a chunk as it was found.
type JobChunkNameRow struct {
	Tenant, Job Bytes
	Number      Integer
}
