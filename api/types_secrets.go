package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Secret is what is not secret of a provider secret.
type Secret struct {
	ID           uuid.UUID         `json:"id"`
	Path         string            `json:"path" doc:"Unique in the tenant, immutable" example:"llm/openai"`
	Provider     string            `json:"provider" example:"openai"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	State        kms.SecretState   `json:"state"`
	CreatedAt    time.Time         `json:"created_at"`
	DeletionDate time.Time         `json:"deletion_date,omitzero" doc:"When a secret that is pending deletion will be destroyed"`
	FreshSeconds int               `json:"fresh_seconds" doc:"For how long a client may use what it fetched without asking again"`
	LeaseSeconds int               `json:"lease_seconds" doc:"For how long it may use it when it cannot ask"`
	Versions     []SecretVersion   `json:"versions,omitempty" doc:"Ascending by number; not in lists"`
	Rollout      *Rollout          `json:"rollout,omitempty" doc:"The last rollout; absent: there was none"`
	Revision     uint64            `json:"revision" doc:"The tenant's revision as of the secret's last change" min:"1"`
}

// SecretVersion is a version of a secret.
type SecretVersion struct {
	Version   uint32                 `json:"version" doc:"Never used again" min:"1"`
	State     kms.SecretVersionState `json:"state"`
	Weight    uint32                 `json:"weight,omitzero" doc:"Of an ACTIVE version: its share of the calls"`
	CreatedAt time.Time              `json:"created_at"`
	NotAfter  time.Time              `json:"not_after,omitzero" doc:"It is not handed out from then on; absent: it does not expire"`
	RetiredAt time.Time              `json:"retired_at,omitzero" doc:"When it was last taken out of use"`
	DestroyAt time.Time              `json:"destroy_at,omitzero" doc:"When it will be destroyed, or was"`
}

// Rollout is how a version takes over from another.
type Rollout struct {
	State        kms.RolloutState `json:"state"`
	From         uint32           `json:"from" min:"1"`
	To           uint32           `json:"to" min:"1"`
	Steps        []uint32         `json:"steps" doc:"Weights of the new version"`
	Step         int              `json:"step" doc:"The current one, from 1"`
	StepInterval int              `json:"step_interval" doc:"Seconds of a step"`
	Observe      int              `json:"observe" doc:"Seconds for which the version that was replaced is kept"`
	Since        time.Time        `json:"since" doc:"When the current step, or the end, began"`
}

// SecretResponse is a secret.
type SecretResponse struct {
	Secret
	Charge
}

// SecretListResponse is a page of secrets.
type SecretListResponse struct {
	Secrets       []Secret `json:"secrets" doc:"Ordered by path"`
	NextPageToken string   `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// AddedSecretVersionResponse is a secret with the version that has the value.
type AddedSecretVersionResponse struct {
	Secret
	Version uint32 `json:"version" doc:"The version that has the value: a new one that is STAGED, or the one that had it before" min:"1"`
	Charge
}

// CreateSecretRequest is the body of create-secret.
type CreateSecretRequest struct {
	Path         string            `json:"path" api:"required" doc:"Visible ASCII characters other than *:\"%?#<>|, in segments separated by / that are neither empty nor . or .." maxlen:"MaxSecretPath" example:"llm/openai"`
	Provider     string            `json:"provider" api:"required" doc:"Lower-case letters, digits and -_." maxlen:"MaxProvider" example:"openai"`
	Value        SecretText        `json:"value" api:"required" doc:"UTF-8; it is never returned here" maxlen:"MaxSecretValue" example:"sk-…"`
	Metadata     map[string]string `json:"metadata" doc:"What is not secret, such as base_url, organization or region"`
	FreshSeconds *int              `json:"fresh_seconds" doc:"For how long a client may use what it fetched without asking again. Absent: as the policy says, 300 at first" min:"1" max:"MaxLease"`
	LeaseSeconds *int              `json:"lease_seconds" doc:"For how long it may use it when it cannot ask. Absent: as the policy says, 3600 at first" min:"1" max:"MaxLease"`
	NotAfter     *time.Time        `json:"not_after" doc:"The value is not handed out from then on. Absent: it does not expire"`
}

// UpdateSecretRequest is the body of update-secret.
type UpdateSecretRequest struct {
	Metadata         map[string]string `json:"metadata" doc:"Replaces all"`
	FreshSeconds     *int              `json:"fresh_seconds" min:"1" max:"MaxLease"`
	LeaseSeconds     *int              `json:"lease_seconds" min:"1" max:"MaxLease"`
	ExpectedRevision uint64            `json:"expected_revision" doc:"The revision that the secret must still have. Absent: any"`
}

// AddSecretVersionRequest is the body of add-secret-version.
type AddSecretVersionRequest struct {
	Value            SecretText `json:"value" api:"required" doc:"UTF-8; it is never returned here" maxlen:"MaxSecretValue" example:"sk-…"`
	NotAfter         *time.Time `json:"not_after" doc:"The value is not handed out from then on. Absent: it does not expire"`
	ExpectedRevision uint64     `json:"expected_revision" doc:"The revision that the secret must still have. Absent: any"`
}

// ActivateSecretRequest is the body of activate-secret.
type ActivateSecretRequest struct {
	Version          uint32   `json:"version" api:"required" min:"1"`
	Steps            []uint32 `json:"steps" doc:"Weights that the version takes on one after the other, ascending to 100. Absent: 100 at once, and unwatched" maxlen:"MaxRolloutSteps" example:"[10,30,100]"`
	StepInterval     *int     `json:"step_interval" doc:"Seconds of a step. Absent: 60" min:"1" max:"MaxStepInterval"`
	Observe          *int     `json:"observe" doc:"Seconds for which the version that is replaced is kept. Absent: 7 days" min:"MinObserve" max:"MaxObserve"`
	ExpectedRevision uint64   `json:"expected_revision" doc:"The revision that the secret must still have. Absent: any"`
}

// SecretRevisionRequest is the body of changes of a secret that need nothing
// else. It may be left out.
type SecretRevisionRequest struct {
	ExpectedRevision uint64 `json:"expected_revision" doc:"The revision that the secret must still have. Absent: any"`
}

// DestroySecretVersionRequest is the body of destroy-secret-version. It may be
// left out.
type DestroySecretVersionRequest struct {
	Days             *int   `json:"days" doc:"Days until the version is destroyed. Absent: 30" min:"MinDeletionDays" max:"MaxDeletionDays"`
	ExpectedRevision uint64 `json:"expected_revision" doc:"The revision that the secret must still have. Absent: any"`
}

// SecretGrant says that a credential may read a secret.
type SecretGrant struct {
	Credential uuid.UUID `json:"credential"`
	Name       string    `json:"name"`
	Scope      string    `json:"scope" doc:"By which it may" example:"secret:read:llm/*"`
	Exact      bool      `json:"exact" doc:"It has the scope of this path alone"`
}

// SecretGrantsResponse lists who may read a secret.
type SecretGrantsResponse struct {
	Grants []SecretGrant `json:"grants" doc:"The live credentials that may read it, ordered by name"`
	Charge
}

// SetSecretGrantsRequest is the body of set-secret-grants.
type SetSecretGrantsRequest struct {
	Credentials []string `json:"credentials" api:"required" doc:"Ids of the credentials that shall have the scope of this path; it is taken from all others, and wider scopes stay" maxlen:"MaxGrants"`
}

// FetchSecretsRequest is the body of fetch-secrets.
type FetchSecretsRequest struct {
	Items       []FetchItem `json:"items" api:"required" maxlen:"MaxFetchItems"`
	MinRevision uint64      `json:"min_revision" doc:"The answer must not be older, such as that of an event of watch-secrets. Absent: any will do"`
}

// FetchItem asks for one secret.
type FetchItem struct {
	Path         string `json:"path" example:"llm/openai"`
	HaveRevision uint64 `json:"have_revision" doc:"The revision of the secret that the client has; if it is the present one no value is sent"`
}

// FetchSecretsResponse has the values of secrets.
type FetchSecretsResponse struct {
	Revision uint64        `json:"revision" doc:"The tenant's revision as of which the items are, or later"`
	Items    []FetchedItem `json:"items" doc:"In the order in which they were asked for"`
	Charge
}

// FetchedItem is what became of one item.
type FetchedItem struct {
	Path         string            `json:"path"`
	Status       kms.FetchStatus   `json:"status" doc:"not_found: there is none, or the caller may not read it; denied: the same, told to who may list secrets; disabled: no version is to be used; unavailable: no HSM could open it"`
	SecretID     uuid.UUID         `json:"secret_id,omitzero"`
	Provider     string            `json:"provider,omitzero"`
	Revision     uint64            `json:"revision,omitzero"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	FreshUntil   time.Time         `json:"fresh_until,omitzero" doc:"Until then it may be used without asking again"`
	LeaseEnd     time.Time         `json:"lease_end,omitzero" doc:"Until then it may be used when nobody can be asked"`
	Versions     []FetchedVersion  `json:"versions,omitempty" doc:"Those that share the calls, by their weights, which need not add up to 100"`
	RetryAfterMS int64             `json:"retry_after_ms,omitzero"`
}

// FetchedVersion is the value of a version.
type FetchedVersion struct {
	Version uint32     `json:"version"`
	Weight  uint32     `json:"weight"`
	Value   SecretText `json:"value"`
}

// ReportSecretsRequest is the body of report-secrets.
type ReportSecretsRequest struct {
	Items []OutcomeItem `json:"items" api:"required" maxlen:"MaxReportItems"`
}

// OutcomeItem counts what calls with a version came to since the last report.
type OutcomeItem struct {
	SecretID   string `json:"secret_id"`
	Version    uint32 `json:"version"`
	OK         uint32 `json:"ok" doc:"Calls that the provider took"`
	Credential uint32 `json:"credential" doc:"Refusals of the key: 401, 403"`
	Quota      uint32 `json:"quota" doc:"Refusals because the account is out of credit: 402, 429 insufficient_quota"`
	RateLimit  uint32 `json:"rate_limit" doc:"429"`
	Transient  uint32 `json:"transient" doc:"Failures of the provider: 5xx, time-outs, connections"`
}

// ReportSecretsResponse says that a report was taken.
type ReportSecretsResponse struct {
	Charge
}

// SecretEvent is the data of an event of watch-secrets.
type SecretEvent struct {
	Revision uint64 `json:"revision"`
	Path     string `json:"path,omitzero" doc:"Of changed and revoked"`
}
