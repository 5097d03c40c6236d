package keystore

import (
	"context"
	"errors"
)

// Errors with which a driver classifies what its database said. Every other
// error of a driver means that the database could not be used. None of them,
// wrapped or not, may carry values of the statement.
var (
	// ErrMissing: the row, or the row that a new one refers to, is not there.
	ErrMissing = errors.New("keystore: no such row")
	// ErrExists: a row with that key is there already.
	ErrExists = errors.New("keystore: the row exists")
	// ErrStale: the row does not have the revision that the change is for.
	ErrStale = errors.New("keystore: the row has another revision")
	// ErrOvertaken: the revision that a change of a secret, which is the tenant's,
	// or of an alias is to follow is not the present one.
	ErrOvertaken = errors.New("keystore: another change came first")
	// ErrRefused: the database's constraints refuse the values.
	ErrRefused = errors.New("keystore: a constraint refuses the row")
)

// Driver runs the statements of one SQL dialect. It contains no rules: Store
// validates what is written and judges what is read. Every method takes the
// tenant where there is one and has it in the statement's condition. Each
// write is one transaction, durable when the method returns nil. All methods
// are safe for concurrent use.
//
// The updates write all of the record that can change, with its Revision as
// the new one, if the stored revision is one less, and give ErrStale otherwise.
// Lists return up to Limit rows that come after the position in the byte order
// of names, which is the order of the result.
type Driver interface {
	TenantDriver
	KeyDriver
	VersionDriver
	AliasDriver
	CredentialDriver
	ApprovalDriver
	NodeSettingDriver
	PolicyDriver
	WebhookDriver
	DeliveryDriver
	JournalHeadDriver
	ProviderSecretDriver
	RouteDriver
	ProbeDriver
	JobDriver
	BaselineDriver
	CostIncidentDriver
	SystemSecretDriver
	ClaimDriver
	RecordDriver
	TrailDriver
	AuthenticationDriver
	// Close waits for calls under way and lets go of the database.
	Close() error
}

// TenantDriver is the part of Driver for tenants and projects.
type TenantDriver interface {
	Tenant(context.Context, TenantParams) (*TenantRow, error)
	TenantID(context.Context, TenantIDParams) (Bytes, error)
	ListTenants(context.Context, ListTenantsParams) ([]*TenantRow, error)
	// InsertTenant stores the tenant and its first project together.
	InsertTenant(context.Context, InsertTenantParams) error
	UpdateTenant(context.Context, UpdateTenantParams) error
	// DueDeletions returns the ids of up to Limit tenants, in their order and
	// after After, that are DELETING, or DELETED and void at Now or before.
	DueDeletions(context.Context, DueDeletionsParams) ([]Bytes, error)
	// CountObjects counts a tenant's keys and secrets that are not destroyed, and
	// its credentials that are neither revoked nor expired at Now.
	CountObjects(context.Context, CountObjectsParams) (ObjectCounts, error)
	// CountTenants counts the tenants that are not deleted, but Except, by
	// tier.
	CountTenants(context.Context, CountTenantsParams) ([]*TenantCountRow, error)

	Project(context.Context, ProjectParams) (*ProjectRow, error)
	ListProjects(context.Context, ListProjectsParams) ([]*ProjectRow, error)
	InsertProject(context.Context, InsertProjectParams) error
}

// KeyDriver is the part of Driver for keys as a whole. Destroyed keys are rows
// like any other for Key, and missing everywhere else.
type KeyDriver interface {
	Key(context.Context, KeyParams) (*KeyRow, error)
	// KeyName finds a name, or an alias with its revision.
	KeyName(context.Context, KeyNameParams) (*KeyNameRow, error)
	ListKeys(context.Context, ListKeysParams) ([]*KeyRow, error)
	// InsertKey stores the key, its first version and its name together.
	InsertKey(context.Context, InsertKeyParams) error
	// UpdateKey updates the key, stores the version that was added, and
	// updates those that changed, together.
	UpdateKey(context.Context, UpdateKeyParams) error
	// DestroyKey updates the key and its versions and removes its names,
	// together.
	DestroyKey(context.Context, DestroyKeyParams) error
	// DueKeys returns up to Limit keys of all tenants that are due at Now or
	// before and come after After, in the order of due date, tenant and id.
	DueKeys(context.Context, DueKeysParams) ([]*DueKeyRow, error)
	// TouchKeys stores those uses that are later than the stored ones.
	TouchKeys(context.Context, TouchKeysParams) error
}

// VersionDriver is the part of Driver for what belongs to one version and not
// to the state of its key.
type VersionDriver interface {
	// Nonces returns what is counted of a version.
	Nonces(context.Context, NoncesParams) (*NoncesRow, error)
	// UpdateNonces sets the count if it is still Was; ErrStale otherwise.
	UpdateNonces(context.Context, UpdateNoncesParams) error
}

// AliasDriver is the part of Driver for aliases.
type AliasDriver interface {
	// SetAlias stores an alias or moves it to another key. ErrMissing when
	// the key is missing or destroyed, ErrExists when a key has that name.
	// It and DeleteAlias store the revision as well, together: ErrOvertaken when
	// it does not follow the one that is there.
	SetAlias(context.Context, SetAliasParams) error
	DeleteAlias(context.Context, DeleteAliasParams) error
	// AliasRevision: ErrMissing when the alias never was, or is from before there
	// were revisions.
	AliasRevision(context.Context, AliasRevisionParams) (*AliasRevisionRow, error)
	// ListAliases returns the aliases of one key, or of all, with their revisions.
	ListAliases(context.Context, ListAliasesParams) ([]*KeyNameRow, error)
}

// CredentialDriver is the part of Driver for credentials.
type CredentialDriver interface {
	// CredentialForAuthentication is the one statement that finds a tenant's
	// row without the tenant.
	CredentialForAuthentication(context.Context, CredentialForAuthenticationParams) (*CredentialRow, error)
	Credential(context.Context, CredentialParams) (*CredentialRow, error)
	ListCredentials(context.Context, ListCredentialsParams) ([]*CredentialRow, error)
	InsertCredential(context.Context, InsertCredentialParams) error
	// UpdateCredential replaces the stored secrets as well.
	UpdateCredential(context.Context, UpdateCredentialParams) error
	// TouchCredentials stores those uses that are later than the stored ones.
	TouchCredentials(context.Context, TouchCredentialsParams) error
}

// ApprovalDriver is the part of Driver for approvals, which are operators' and
// of no tenant. Expired ones are missing.
type ApprovalDriver interface {
	Approval(context.Context, ApprovalParams) (*ApprovalRow, error)
	ListApprovals(context.Context, ListApprovalsParams) ([]*ApprovalRow, error)
	InsertApproval(context.Context, InsertApprovalParams) error
	UpdateApproval(context.Context, UpdateApprovalParams) error
	// DeleteExpiredApprovals removes up to Limit approvals that expired at or
	// before Now, and returns how many.
	DeleteExpiredApprovals(context.Context, DeleteExpiredApprovalsParams) (int, error)
}

// NodeSettingDriver is the part of Driver for what operators want of nodes.
type NodeSettingDriver interface {
	NodeSetting(context.Context, NodeSettingParams) (*NodeSettingRow, error)
	// ListNodeSettings returns all, ordered by node.
	ListNodeSettings(context.Context) ([]*NodeSettingRow, error)
	InsertNodeSetting(context.Context, InsertNodeSettingParams) error
	UpdateNodeSetting(context.Context, UpdateNodeSettingParams) error
}

// PolicyDriver is the part of Driver for the versions of the policy, which are
// the operators' and of no tenant.
type PolicyDriver interface {
	// NewestPolicy returns the highest version; ErrMissing when there is none.
	NewestPolicy(context.Context) (Integer, error)
	Policy(context.Context, PolicyParams) (*PolicyRow, error)
	// ListPolicies returns versions below Before without their documents,
	// descending.
	ListPolicies(context.Context, ListPoliciesParams) ([]*PolicyRow, error)
	// InsertPolicy: ErrExists when the version exists.
	InsertPolicy(context.Context, InsertPolicyParams) error
}

// WebhookDriver is the part of Driver for webhooks.
type WebhookDriver interface {
	Webhook(context.Context, WebhookParams) (*WebhookRow, error)
	// ListWebhooks returns them in the order of their ids.
	ListWebhooks(context.Context, ListWebhooksParams) ([]*WebhookRow, error)
	InsertWebhook(context.Context, InsertWebhookParams) error
	// UpdateWebhook changes the state.
	UpdateWebhook(context.Context, UpdateWebhookParams) error
	// DeleteWebhook removes its deliveries too.
	DeleteWebhook(context.Context, DeleteWebhookParams) error
	// TouchWebhook notes that it took an event, or, if it did not fail before,
	// since when it fails. A missing one is none to note anything of.
	TouchWebhook(context.Context, TouchWebhookParams) error
}

// DeliveryDriver is the part of Driver for the queue of deliveries.
type DeliveryDriver interface {
	// InsertDeliveries stores those whose webhook is there and has none of the
	// same Once, and drops the oldest beyond Keep that wait, together. It
	// returns how many it dropped.
	InsertDeliveries(context.Context, InsertDeliveriesParams) (dropped int, err error)
	// ClaimDeliveries makes those that are due at Now due at Until and returns
	// them: of each webhook the first, of each tenant up to OfTenant, none of
	// those that are Busy.
	ClaimDeliveries(context.Context, ClaimDeliveriesParams) ([]*DeliveryRow, error)
	// The others say nothing of a delivery that is missing.
	RetryDelivery(context.Context, RetryDeliveryParams) error
	EndDelivery(context.Context, EndDeliveryParams) error
	DeleteDelivery(context.Context, DeliveryParams) error
	// DeleteEndedDeliveries removes up to Limit deliveries of all tenants that
	// ended at or before Before, and returns how many.
	DeleteEndedDeliveries(context.Context, DeleteEndedDeliveriesParams) (int, error)
}

// JournalHeadDriver is the part of Driver for signed heads of journals, which
// are the operators' and of no tenant.
type JournalHeadDriver interface {
	// PutJournalHead stores the head of an hour: where there is none, in place
	// of one with a lower sequence, or with the same and the same hash.
	// ErrStale otherwise.
	PutJournalHead(context.Context, PutJournalHeadParams) error
	// ListJournalHeads returns the node's heads of up to Limit hours,
	// descending.
	ListJournalHeads(context.Context, ListJournalHeadsParams) ([]*JournalHeadRow, error)
}

// ProviderSecretDriver is the part of Driver for provider secrets. Destroyed
// secrets are rows like any other for ProviderSecret, and missing everywhere
// else.
type ProviderSecretDriver interface {
	ProviderSecret(context.Context, ProviderSecretParams) (*ProviderSecretRow, error)
	ProviderSecretID(context.Context, ProviderSecretPathParams) (Bytes, error)
	// ListProviderSecrets reads no values.
	ListProviderSecrets(context.Context, ListProviderSecretsParams) ([]*ProviderSecretRow, error)
	// InsertProviderSecret and UpdateProviderSecret store the secret, the values
	// of new versions, the tenant's revision and the change, and remove what is
	// to go, together. ErrOvertaken when the tenant's revision is not one less.
	InsertProviderSecret(context.Context, InsertProviderSecretParams) error
	UpdateProviderSecret(context.Context, UpdateProviderSecretParams) error
	// DueProviderSecrets is DueKeys for secrets.
	DueProviderSecrets(context.Context, DueKeysParams) ([]*DueKeyRow, error)
	// SecretRevision: ErrMissing when the tenant never had a secret.
	SecretRevision(context.Context, SecretRevisionParams) (*SecretRevisionRow, error)
	// SecretChanges returns them in the order of their revisions.
	SecretChanges(context.Context, SecretChangesParams) ([]*SecretChangeRow, error)
	// DeleteSecretChanges removes up to Limit changes of all tenants that were
	// made at or before Before, and returns how many.
	DeleteSecretChanges(context.Context, DeleteSecretChangesParams) (int, error)
	// AddSecretOutcomes adds to the counts; those of missing secrets are left
	// out.
	AddSecretOutcomes(context.Context, AddSecretOutcomesParams) error
	SecretOutcomes(context.Context, SecretOutcomesParams) ([]*SecretOutcomeRow, error)
}

// RouteDriver is the part of Driver for routes over providers.
type RouteDriver interface {
	Route(context.Context, RouteParams) (*RouteRow, error)
	// ListRoutes returns them in the order of their names.
	ListRoutes(context.Context, ListRoutesParams) ([]*RouteRow, error)
	// PutRoute and PutRouteHealth store what follows a revision, ErrStale when
	// that is not the present one; or a new one, ErrExists when there is one.
	PutRoute(context.Context, PutRouteParams) error
	// DeleteRoute removes its health too, and stores its end. ErrStale when the
	// route has another revision than Was.
	DeleteRoute(context.Context, DeleteRouteParams) error
	// RouteEnd: ErrMissing when the route was never deleted.
	RouteEnd(context.Context, RouteParams) (*RouteEndRow, error)
	// RouteHealth: ErrMissing when nothing was reported yet.
	RouteHealth(context.Context, RouteParams) (*RouteHealthRow, error)
	// PutRouteHealth: ErrMissing when the route is gone.
	PutRouteHealth(context.Context, PutRouteHealthParams) error
}

// ProbeDriver is the part of Driver for the endpoints that are probed.
type ProbeDriver interface {
	// WantEndpoints stores those that are not there, due at Due, and moves the
	// end of all to Until where that is later.
	WantEndpoints(context.Context, WantEndpointsParams) error
	Endpoints(context.Context, EndpointsParams) ([]*EndpointRow, error)
	// ClaimEndpoints moves up to Limit of those that are due and wanted at Now to
	// Until, and returns them; each is given to one caller.
	ClaimEndpoints(context.Context, ClaimEndpointsParams) ([]*EndpointRow, error)
	EndProbe(context.Context, EndProbeParams) error
	// DeleteEndpoints removes up to Limit that are not wanted after Now, and
	// returns how many.
	DeleteEndpoints(context.Context, DeleteEndpointsParams) (int, error)
}

// JobDriver is the part of Driver for jobs and their chunks.
type JobDriver interface {
	Job(context.Context, JobParams) (*JobRow, error)
	// ListJobs returns them in the order of their ids.
	ListJobs(context.Context, ListJobsParams) ([]*JobRow, error)
	// InsertJob: ErrStale when the tenant has Most jobs that are not over.
	InsertJob(context.Context, InsertJobParams) error
	// JobByClaim: ErrMissing when no job of the tenant has the claim.
	JobByClaim(context.Context, JobByClaimParams) (*JobRow, error)
	// UpdateJob leaves Due and Waits as they are, which DelayJob changes; a
	// missing one is none to delay. ErrExists when another of the tenant's jobs has
	// the claim.
	UpdateJob(context.Context, UpdateJobParams) error
	DelayJob(context.Context, DelayJobParams) error
	// DeleteJobChunks removes up to Limit chunks of a job that are not computed,
	// or of All, and returns how many.
	DeleteJobChunks(context.Context, DeleteJobChunksParams) (int, error)
	// DeleteJob removes a job; ErrStale when it has chunks.
	DeleteJob(context.Context, JobParams) error
	// JobProgress has zeroes for a missing job.
	JobProgress(context.Context, JobParams) (*JobProgressRow, error)
	// DueJobs returns of each tenant behind After that is not Busy the first job
	// that is running and due at Now, and has a chunk that is or none that is not
	// done.
	DueJobs(context.Context, DueJobsParams) ([]*JobNameRow, error)
	// ExpiredJobs returns jobs of all tenants that expired at Now or before.
	ExpiredJobs(context.Context, ExpiredJobsParams) ([]*JobNameRow, error)

	// InsertJobChunk: ErrMissing when the job is.
	InsertJobChunk(context.Context, InsertJobChunkParams) error
	JobChunk(context.Context, JobChunkParams) (*JobChunkRow, error)
	// JobChunkOf returns the last chunk that begins with the item or before, with
	// its output only.
	JobChunkOf(context.Context, JobChunkOfParams) (*JobChunkRow, error)
	// DueJobChunks returns the numbers of chunks that are due at Now, the longest
	// first.
	DueJobChunks(context.Context, DueJobChunksParams) ([]Integer, error)
	UpdateJobChunk(context.Context, UpdateJobChunkParams) error
	// RenewJobChunk moves the date of a chunk that is running at the revision;
	// ErrStale otherwise.
	RenewJobChunk(context.Context, RenewJobChunkParams) error
	// ReleaseJobChunks makes the chunks of a node that are running due at Now.
	ReleaseJobChunks(context.Context, ReleaseJobChunksParams) error
	// ComputedJobChunks returns chunks of all tenants that a node has computed.
	ComputedJobChunks(context.Context, ComputedJobChunksParams) ([]*JobChunkNameRow, error)
}

// BaselineDriver is the part of Driver for what is usual of credentials.
type BaselineDriver interface {
	Baseline(context.Context, BaselineParams) (*BaselineRow, error)
	// PutBaselines stores baselines together in place of those that there are;
	// those of missing credentials are left out.
	PutBaselines(context.Context, PutBaselinesParams) error
}

// CostIncidentDriver is the part of Driver for incidents of cost breakers.
type CostIncidentDriver interface {
	// InsertCostIncident removes the tenant's oldest beyond Keep too.
	InsertCostIncident(context.Context, InsertCostIncidentParams) error
	CostIncident(context.Context, CostIncidentParams) (*CostIncidentRow, error)
	// ListCostIncidents returns up to Limit with ids before Before, descending.
	ListCostIncidents(context.Context, ListCostIncidentsParams) ([]*CostIncidentRow, error)
	// DeleteCostIncidents removes up to Limit of all tenants that ended at or
	// before Before, and returns how many.
	DeleteCostIncidents(context.Context, DeleteCostIncidentsParams) (int, error)
	// PutCostLift replaces what there is.
	PutCostLift(context.Context, PutCostLiftParams) error
	CostLift(context.Context, CostLiftParams) (*CostLiftRow, error)
}

// SystemSecretDriver is the part of Driver for the service's own secrets.
type SystemSecretDriver interface {
	// SystemSecrets returns the versions of a name, ascending.
	SystemSecrets(context.Context, SystemSecretsParams) ([]*SystemSecretRow, error)
	InsertSystemSecret(context.Context, InsertSystemSecretParams) error
}

// ClaimDriver is the part of Driver for idempotency.
type ClaimDriver interface {
	// Claim stores a claim in flight where there is none or an expired one,
	// and returns nil; otherwise it returns the one that is there.
	Claim(context.Context, ClaimParams) (*ClaimRow, error)
	// FinishClaim turns a claim in flight into an answer; ErrMissing when
	// there is none in flight.
	FinishClaim(context.Context, FinishClaimParams) error
	// DeleteClaim removes a claim in flight; ErrMissing when there is none.
	DeleteClaim(context.Context, DeleteClaimParams) error
	// DeleteExpiredClaims removes up to Limit claims and answers of all
	// tenants that expired at or before Now, and returns how many.
	DeleteExpiredClaims(context.Context, DeleteExpiredClaimsParams) (int, error)
}

// RecordDriver is the part of Driver for the records of requests, which expire.
type RecordDriver interface {
	// InsertRequestRecords stores records together, ordered by tenant; those of
	// missing tenants are left out, and those that are there already stay.
	InsertRequestRecords(context.Context, InsertRequestRecordsParams) error
	// RequestRecord: ErrMissing also for one that expired at Now or before.
	RequestRecord(context.Context, RequestRecordParams) (*RequestRecordRow, error)
	// AnyRequestRecord is RequestRecord of whatever tenant.
	AnyRequestRecord(context.Context, AnyRequestRecordParams) (*RequestRecordRow, error)
	// DeleteExpiredRecords removes up to Limit records of all tenants that
	// expired at or before Now, and returns how many.
	DeleteExpiredRecords(context.Context, DeleteExpiredRecordsParams) (int, error)
}

// TrailDriver is the part of Driver for the audit trail and usage. Where a
// Tenant is a pointer, nil means all tenants.
type TrailDriver interface {
	Shipped(context.Context, ShippedParams) (*ShippedRow, error)
	// ListShipped returns all, ordered by node.
	ListShipped(context.Context) ([]*ShippedRow, error)
	// Ship moves the node's row on, gives the entries ordinals above all that
	// there are, and adds the usage, together. ErrStale when the row is not what
	// it must be.
	Ship(context.Context, ShipParams) error
	// NewestAuditEntries returns rows by time, then ordinal, descending.
	NewestAuditEntries(context.Context, NewestAuditEntriesParams) ([]*AuditEntryRow, error)
	// ArrivedAuditEntries returns rows by ordinal.
	ArrivedAuditEntries(context.Context, ArrivedAuditEntriesParams) ([]*AuditEntryRow, error)
	// ArrivedOfOp returns entries of all tenants by ordinal.
	ArrivedOfOp(context.Context, ArrivedOfOpParams) ([]*AuditEntryRow, error)
	// AuditEntriesOfRequest returns them as NewestAuditEntries does.
	AuditEntriesOfRequest(context.Context, AuditEntriesOfRequestParams) ([]*AuditEntryRow, error)
	// AuditEntriesAt returns rows in any order.
	AuditEntriesAt(context.Context, AuditEntriesAtParams) ([]*AuditEntryRow, error)
	// LastOrdinal returns the highest ordinal ever given, 0 for none.
	LastOrdinal(context.Context) (Integer, error)
	// Usage returns rows ordered by all their columns.
	Usage(context.Context, UsageParams) ([]*UsageRow, error)
	// DeleteAuditEntries and DeleteUsage remove up to Limit of the oldest
	// before Before, of all tenants, and return how many.
	DeleteAuditEntries(context.Context, DeleteAuditEntriesParams) (int, error)
	DeleteUsage(context.Context, DeleteUsageParams) (int, error)
}

// AuthenticationDriver is the part of Driver for the codes of rows that were
// written without.
type AuthenticationDriver interface {
	RowAuthentication(context.Context) (*RowAuthenticationRow, error)
	// SealRows sets codes of rows that have none, together; it leaves rows
	// that have one, and passes over missing ones.
	SealRows(context.Context, SealRowsParams) error
}
