package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// JobState is the state of a job as answers have it: that of kms, or WAITING of
// one that runs but waits.
type JobState string

// jobWaiting is the state of a job that runs but waits for something.
const jobWaiting JobState = "WAITING"

func jobStates() []string {
	list := []string{string(jobWaiting)}
	for _, s := range kms.JobStates() {
		if s != kms.JobReceiving { // nobody is shown one of those
			list = append(list, string(s))
		}
	}
	return list
}

// Job is a job and how far it is.
type Job struct {
	ID         uuid.UUID  `json:"id"`
	State      JobState   `json:"state" doc:"WAITING: its items wait for what waits_for says. DONE, CANCELLED, STOPPED and EXPIRED are final"`
	Reason     string     `json:"reason,omitzero" doc:"Why it was STOPPED: credential_revoked, credential_expired, tenant_suspended, tenant_deleted, or restored: the database was"`
	Project    string     `json:"project" doc:"That of the credential"`
	Credential uuid.UUID  `json:"credential" doc:"Whose the items are, and the only one that reads the results"`
	Items      int64      `json:"items"`
	Done       int64      `json:"done" doc:"Items whose results can be read"`
	Failed     int64      `json:"failed" doc:"Those of them whose result is a problem"`
	Bytes      int64      `json:"bytes" doc:"Of the items as they were sent"`
	Credits    Cost       `json:"credits" doc:"Charged for items so far"`
	WaitsFor   string     `json:"waits_for,omitzero" doc:"Code of the reason for which its items wait" example:"TENANT_RATE"`
	WaitsUntil *time.Time `json:"waits_until,omitempty"`
	PerSecond  float64    `json:"items_per_second" doc:"Items done a second since it was submitted"`
	EndsAt     *time.Time `json:"ends_at,omitempty" doc:"When it would be done at that; absent: nobody can tell, or it is over"`
	CreatedAt  time.Time  `json:"created_at" doc:"When its items were taken in"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	ExpiresAt  time.Time  `json:"expires_at" doc:"When it ends if it is not done, or is deleted once it is over"`
}

// JobResponse is the answer of routes about one job.
type JobResponse struct {
	Job
	Charge
}

// JobListResponse is the answer of list-jobs.
type JobListResponse struct {
	Jobs          []Job  `json:"jobs"`
	NextPageToken string `json:"next_page_token,omitzero" doc:"Absent on the last page"`
	Charge
}

// CancelJobResponse is the answer of cancel-job.
type CancelJobResponse struct {
	ID      uuid.UUID `json:"id"`
	State   JobState  `json:"state,omitzero" doc:"Absent when it was deleted"`
	Deleted bool      `json:"deleted,omitzero" doc:"It was over, and was deleted with its results"`
	Charge
}

// JobResult is a line of a job's results: what became of an item.
type JobResult struct {
	Index      int64        `json:"index" doc:"The item's place in the job, from 0" min:"0"`
	Status     int          `json:"status" doc:"The HTTP status that the operation's own route would have answered with" min:"200" max:"599"`
	Result     BatchOutcome `json:"result,omitempty" doc:"What that route answers; absent when there is a problem"`
	Problem    *Problem     `json:"problem,omitempty" doc:"The problem that route would have answered with"`
	RetryAfter uint32       `json:"retry_after,omitzero"`
	Charge
}

func jobOf(j *kms.JobStatus) Job {
	out := Job{ID: j.ID, State: JobState(j.State), Reason: j.Reason, Project: j.Project, Credential: j.Credential, Items: j.Job.Items, Done: j.Done,
		Failed: j.Failed, Bytes: j.Bytes, Credits: Cost(j.Charged), PerSecond: j.PerSecond, EndsAt: maybeMoment(j.Ends),
		CreatedAt: j.Created.UTC(), EndedAt: maybeMoment(j.Ended), ExpiresAt: j.Expires.UTC()}
	if j.Waiting {
		out.State, out.WaitsFor, out.WaitsUntil = jobWaiting, j.Waits, maybeMoment(j.Due)
	}
	return out
}

// maybeMoment is a time as answers have it, nil for none.
func maybeMoment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
