package kms

// Op names an operation: in scopes, prices, journal entries and metrics.
type Op string

// The operations on keys.
const (
	OpEncrypt   Op = "encrypt"
	OpDecrypt   Op = "decrypt"
	OpSign      Op = "sign"
	OpVerify    Op = "verify"
	OpMAC       Op = "mac"
	OpVerifyMAC Op = "verify-mac"
	OpDataKey   Op = "datakey"
	OpPublic    Op = "public"

	// OpDecryptLegacy is the permission to decrypt with an algorithm that
	// authenticates nothing, beside OpDecrypt.
	OpDecryptLegacy Op = "decrypt-legacy"

	OpReencrypt    Op = "reencrypt" // decrypts with one key, encrypts with another
	OpWrap         Op = "wrap"
	OpUnwrap       Op = "unwrap"
	OpSharedSecret Op = "shared-secret"
	OpDerive       Op = "derive"
	OpEncapsulate  Op = "encapsulate"
	OpDecapsulate  Op = "decapsulate"
	OpCSR          Op = "csr"

	OpCreateKey   Op = "create"
	OpDescribeKey Op = "describe"
	OpListKeys    Op = "list"
	OpUpdateKey   Op = "update"
	OpRotateKey   Op = "rotate"
	OpEnableKey   Op = "enable"
	OpDisableKey  Op = "disable"
	OpDeleteKey   Op = "destroy" // schedule deletion
	OpCancelDel   Op = "cancel-deletion"

	OpEnableVersion  Op = "enable-version"
	OpDisableVersion Op = "disable-version"
	OpDestroyVersion Op = "destroy-version" // schedule destruction
	OpCancelDestroy  Op = "cancel-destruction"
	OpSetAlias       Op = "set-alias"
	OpDeleteAlias    Op = "delete-alias"
	OpListAliases    Op = "list-aliases"
	OpImportKey      Op = "import"
	OpImportParams   Op = "import-parameters"

	OpRandom Op = "random"
	OpBatch  Op = "batch" // of operations that have entries of their own
	OpDigest Op = "digest"

	OpCreateJob      Op = "create-job" // of operations that have entries of their own
	OpReadJob        Op = "read-job"
	OpListJobs       Op = "list-jobs"
	OpReadJobResults Op = "read-job-results"
	OpCancelJob      Op = "cancel-job"
	OpDeleteJob      Op = "delete-job"
)

// The operations on tenants, projects, credentials and the service.
const (
	OpCreateTenant     Op = "create-tenant"
	OpReadTenant       Op = "read-tenant"
	OpUpdateTenant     Op = "update-tenant"
	OpSuspendTenant    Op = "suspend-tenant"
	OpResumeTenant     Op = "resume-tenant"
	OpDeleteTenant     Op = "delete-tenant"
	OpCreateProject    Op = "create-project"
	OpReadProject      Op = "read-project"
	OpCreateCredential Op = "create-credential"
	OpReadCredential   Op = "read-credential"
	OpRotateCredential Op = "rotate-credential"
	OpRevokeCredential Op = "revoke-credential"
	OpClearCredential  Op = "clear-credential"    // ends a flag of it
	OpEnrolCode        Op = "enrol-one-time-code" // of a credential
	OpReadNodes        Op = "read-nodes"
	OpSetNodeMode      Op = "set-node-mode"
	OpTestNode         Op = "test-node"
	OpReadPolicy       Op = "read-policy"
	OpCheckPolicy      Op = "check-policy"
	OpPutPolicy        Op = "put-policy"
	OpReadQuota        Op = "read-quota"
	OpReadCapacity     Op = "read-capacity"
	OpReadQuotas       Op = "read-quotas" // of all tenants
	OpLiftCost         Op = "lift-cost"   // the stop of the cost breaker
	OpReadRequest      Op = "read-request"
	OpReadAudit        Op = "read-audit"
	OpReadUsage        Op = "read-usage"
	OpApprove          Op = "approve"
	OpReadApprovals    Op = "read-approvals"
	OpCreateWebhook    Op = "create-webhook"
	OpReadWebhook      Op = "read-webhook"
	OpDeleteWebhook    Op = "delete-webhook"
	OpTestWebhook      Op = "test-webhook"
)

// The operations on provider secrets.
const (
	OpCreateSecret     Op = "create-secret"
	OpListSecrets      Op = "list-secrets"
	OpReadSecret       Op = "read-secret" // what is not secret
	OpUpdateSecret     Op = "update-secret"
	OpDeleteSecret     Op = "delete-secret" // schedule deletion
	OpAddSecretVersion Op = "add-secret-version"
	OpActivateSecret   Op = "activate-secret"
	OpRollbackSecret   Op = "rollback-secret"
	OpDisableSecret    Op = "disable-secret-version"
	OpDestroySecret    Op = "destroy-secret-version" // schedule destruction
	OpRestoreSecret    Op = "restore-secret-version"
	OpReadSecretGrants Op = "read-secret-grants"
	OpSetSecretGrants  Op = "set-secret-grants"
	OpGiveSecretGrant  Op = "give-secret-grant" // to one credential, as part of it
	OpTakeSecretGrant  Op = "take-secret-grant"
	OpFetchSecrets     Op = "fetch-secrets"
	OpWatchSecrets     Op = "watch-secrets"
	OpReportSecrets    Op = "report-secrets"
)

// What a caller does about himself, whatever his scopes.
const (
	OpLogin    Op = "login"
	OpReadSelf Op = "read-self" // his token, the mounts that he has
	OpLogout   Op = "logout"
	// OpProveCredential: a second factor lets his flagged credential go on.
	OpProveCredential Op = "prove-credential"
)

// The operations on routes over providers.
const (
	OpPutRoute    Op = "put-route"
	OpReadRoute   Op = "read-route" // with the order to use now
	OpListRoutes  Op = "list-routes"
	OpDeleteRoute Op = "delete-route"
	OpReportRoute Op = "report-route"
)

// What the service's keeper does on its own account.
const (
	OpKeeperAdvanceSecret  Op = "keeper-advance-secret"  // takes a rollout on
	OpKeeperRollbackSecret Op = "keeper-rollback-secret" // its new version fails
	OpKeeperDestroySecret  Op = "keeper-destroy-secret"
	OpKeeperTryKey         Op = "keeper-try-key" // asks a provider whether it takes a key

	OpKeeperRotate  Op = "keeper-rotate"
	OpKeeperDestroy Op = "keeper-destroy"
	OpKeeperRevoke  Op = "keeper-revoke"          // a credential of a deleted tenant
	OpKeeperFlag    Op = "keeper-flag-credential" // a credential that is suspicious
	OpKeeperErase   Op = "keeper-erase"           // ends the erasure of a deleted tenant
	OpKeeperShred   Op = "keeper-shred"           // notes that no copy of it can be opened
	OpFoundOld      Op = "found-old"              // a row that is older than it was
	OpRestore       Op = "restore"                // changes are made again in a restored database
)

// What is done about a domain's roots, outside of any request.
const (
	OpRewrapTenant Op = "rewrap-tenant" // a tenant's sealing key
	OpRewrapKeys   Op = "rewrap-keys"   // the keys of a tenant
	OpRetireRoots  Op = "retire-roots"  // those of one generation are destroyed
	OpInitDomain   Op = "init-domain"   // its roots are made
	OpJoinDomain   Op = "join-domain"   // further tokens get them
	OpReplaceRoots Op = "replace-roots" // the next generation is made
	OpGiveRoots    Op = "give-roots"    // people confirmed a token's transport key
	OpCheckBackups Op = "check-backups"
)

// OpClass groups operations for scopes.
type OpClass uint8

// The classes. The scope "key:*" covers use, read and create; "key:manage"
// covers read, create and manage.
const (
	ClassUse     OpClass = iota // uses key material
	ClassRead                   // reads metadata or the public half
	ClassCreate                 // creates and rotates
	ClassManage                 // changes state and metadata
	ClassDestroy                // ends in loss of material
	ClassImport                 // takes material from outside
	ClassLegacy                 // weak algorithms, for old data
	ClassList                   // tells which secrets there are
	ClassReport                 // tells what came of calls
)

// OpInfo is an operation's row in the table of operations.
type OpInfo struct {
	Op    Op
	Class OpClass
	// Family is the first part of the scope that allows the operation:
	// "key", "secret", "route", "tenant" (administration inside a tenant) or "operator".
	Family string
	// Usage is what the key must have been made for; "" when any will do.
	Usage Usage
	// Changes tells whether the operation changes stored state; such
	// operations write an intent to the journal first.
	Changes bool
	// PerKey tells whether the operation acts on one existing key, so that a
	// scope's glob applies.
	PerKey bool
	// PerSecret tells whether it acts on secrets, to whose paths a scope's glob
	// applies.
	PerSecret bool
	// TwoOperators tells whether the operation needs the approval of a second
	// operator, where the service is set so. Its task says of what: see
	// task.act.
	TwoOperators bool
}

var ops = []OpInfo{
	{Op: OpEncrypt, Class: ClassUse, Family: "key", Usage: UsageEncryptDecrypt, PerKey: true},
	{Op: OpDecrypt, Class: ClassUse, Family: "key", Usage: UsageEncryptDecrypt, PerKey: true},
	{Op: OpSign, Class: ClassUse, Family: "key", Usage: UsageSignVerify, PerKey: true},
	{Op: OpVerify, Class: ClassUse, Family: "key", Usage: UsageSignVerify, PerKey: true},
	{Op: OpMAC, Class: ClassUse, Family: "key", Usage: UsageGenerateVerifyMAC, PerKey: true},
	{Op: OpVerifyMAC, Class: ClassUse, Family: "key", Usage: UsageGenerateVerifyMAC, PerKey: true},
	{Op: OpDataKey, Class: ClassUse, Family: "key", Usage: UsageEncryptDecrypt, PerKey: true},
	{Op: OpPublic, Class: ClassRead, Family: "key", PerKey: true},

	{Op: OpDecryptLegacy, Class: ClassLegacy, Family: "key", Usage: UsageEncryptDecrypt, PerKey: true},
	{Op: OpReencrypt, Class: ClassUse, Family: "key", Usage: UsageEncryptDecrypt, PerKey: true},
	{Op: OpWrap, Class: ClassUse, Family: "key", Usage: UsageWrapUnwrap, PerKey: true},
	{Op: OpUnwrap, Class: ClassUse, Family: "key", Usage: UsageWrapUnwrap, PerKey: true},
	{Op: OpSharedSecret, Class: ClassUse, Family: "key", Usage: UsageKeyAgreement, PerKey: true},
	{Op: OpDerive, Class: ClassUse, Family: "key", Usage: UsageDerive, PerKey: true},
	{Op: OpEncapsulate, Class: ClassUse, Family: "key", Usage: UsageEncapsulateDecapsulate, PerKey: true},
	{Op: OpDecapsulate, Class: ClassUse, Family: "key", Usage: UsageEncapsulateDecapsulate, PerKey: true},
	{Op: OpCSR, Class: ClassUse, Family: "key", Usage: UsageSignVerify, PerKey: true},

	{Op: OpCreateKey, Class: ClassCreate, Family: "key", Changes: true},
	{Op: OpDescribeKey, Class: ClassRead, Family: "key", PerKey: true},
	{Op: OpListKeys, Class: ClassRead, Family: "key"},
	{Op: OpUpdateKey, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpRotateKey, Class: ClassCreate, Family: "key", Changes: true, PerKey: true},
	{Op: OpEnableKey, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpDisableKey, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpDeleteKey, Class: ClassDestroy, Family: "key", Changes: true, PerKey: true},
	{Op: OpCancelDel, Class: ClassDestroy, Family: "key", Changes: true, PerKey: true},

	{Op: OpEnableVersion, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpDisableVersion, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpDestroyVersion, Class: ClassDestroy, Family: "key", Changes: true, PerKey: true},
	{Op: OpCancelDestroy, Class: ClassDestroy, Family: "key", Changes: true, PerKey: true},
	{Op: OpSetAlias, Class: ClassManage, Family: "key", Changes: true, PerKey: true},
	{Op: OpDeleteAlias, Class: ClassManage, Family: "key", Changes: true},
	{Op: OpListAliases, Class: ClassRead, Family: "key"},
	{Op: OpImportKey, Class: ClassImport, Family: "key", Changes: true},
	{Op: OpImportParams, Class: ClassImport, Family: "key"},

	{Op: OpRandom, Class: ClassUse, Family: "key"},
	{Op: OpDigest, Class: ClassUse, Family: "key"},
	{Op: OpBatch, Class: ClassUse, Family: "batch"}, // no scope: its items need theirs
	{Op: OpCreateJob, Class: ClassUse, Family: "batch", Changes: true},
	{Op: OpReadJob, Class: ClassRead, Family: "batch"},
	{Op: OpListJobs, Class: ClassRead, Family: "batch"},
	{Op: OpReadJobResults, Class: ClassRead, Family: "batch"},
	{Op: OpCancelJob, Class: ClassManage, Family: "batch", Changes: true},
	{Op: OpDeleteJob, Class: ClassManage, Family: "batch", Changes: true},

	{Op: OpCreateTenant, Class: ClassCreate, Family: "operator", Changes: true},
	{Op: OpReadTenant, Class: ClassRead, Family: "operator"},
	{Op: OpUpdateTenant, Class: ClassManage, Family: "operator", Changes: true},
	{Op: OpSuspendTenant, Class: ClassManage, Family: "operator", Changes: true},
	{Op: OpResumeTenant, Class: ClassManage, Family: "operator", Changes: true},
	{Op: OpDeleteTenant, Class: ClassDestroy, Family: "operator", Changes: true, TwoOperators: true},
	{Op: OpReadNodes, Class: ClassRead, Family: "operator"},
	{Op: OpSetNodeMode, Class: ClassManage, Family: "operator", Changes: true},
	{Op: OpTestNode, Class: ClassManage, Family: "operator"},
	{Op: OpReadCapacity, Class: ClassRead, Family: "operator"},
	{Op: OpReadPolicy, Class: ClassRead, Family: "operator"},
	{Op: OpCheckPolicy, Class: ClassRead, Family: "operator"},
	{Op: OpPutPolicy, Class: ClassManage, Family: "operator", Changes: true, TwoOperators: true},
	{Op: OpCreateProject, Class: ClassCreate, Family: "tenant", Changes: true},
	{Op: OpReadProject, Class: ClassRead, Family: "tenant"},
	{Op: OpCreateCredential, Class: ClassCreate, Family: "tenant", Changes: true, TwoOperators: true},
	{Op: OpReadCredential, Class: ClassRead, Family: "tenant"},
	{Op: OpRotateCredential, Class: ClassManage, Family: "tenant", Changes: true, TwoOperators: true},
	{Op: OpRevokeCredential, Class: ClassDestroy, Family: "tenant", Changes: true},
	{Op: OpClearCredential, Class: ClassManage, Family: "tenant", Changes: true},
	{Op: OpEnrolCode, Class: ClassManage, Family: "tenant", Changes: true},
	{Op: OpReadQuota, Class: ClassRead, Family: "usage"},
	{Op: OpReadQuotas, Class: ClassRead, Family: "operator"},
	{Op: OpLiftCost, Class: ClassManage, Family: "tenant", Changes: true},
	{Op: OpCreateWebhook, Class: ClassCreate, Family: "tenant", Changes: true},
	{Op: OpReadWebhook, Class: ClassRead, Family: "tenant"},
	{Op: OpDeleteWebhook, Class: ClassManage, Family: "tenant", Changes: true},
	{Op: OpTestWebhook, Class: ClassManage, Family: "tenant"},
	{Op: OpReadRequest, Class: ClassRead, Family: "usage"},
	{Op: OpReadAudit, Class: ClassRead, Family: "audit"},
	{Op: OpReadUsage, Class: ClassRead, Family: "usage"},
	{Op: OpApprove, Class: ClassManage, Family: "operator", Changes: true},
	{Op: OpReadApprovals, Class: ClassRead, Family: "operator"},
	{Op: OpCreateSecret, Class: ClassCreate, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpListSecrets, Class: ClassList, Family: "secret"},
	{Op: OpReadSecret, Class: ClassRead, Family: "secret", PerSecret: true},
	{Op: OpUpdateSecret, Class: ClassManage, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpDeleteSecret, Class: ClassDestroy, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpAddSecretVersion, Class: ClassCreate, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpActivateSecret, Class: ClassManage, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpRollbackSecret, Class: ClassManage, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpDisableSecret, Class: ClassManage, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpDestroySecret, Class: ClassDestroy, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpRestoreSecret, Class: ClassManage, Family: "secret", Changes: true, PerSecret: true},
	{Op: OpReadSecretGrants, Class: ClassRead, Family: "tenant"},
	{Op: OpSetSecretGrants, Class: ClassManage, Family: "tenant", Changes: true},
	{Op: OpGiveSecretGrant, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpTakeSecretGrant, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpFetchSecrets, Class: ClassUse, Family: "secret", PerSecret: true},
	{Op: OpWatchSecrets, Class: ClassUse, Family: "secret", PerSecret: true},
	{Op: OpReportSecrets, Class: ClassReport, Family: "secret"},
	{Op: OpLogin, Class: ClassRead, Family: "self"},
	{Op: OpReadSelf, Class: ClassRead, Family: "self"},
	{Op: OpLogout, Class: ClassRead, Family: "self"},
	{Op: OpProveCredential, Class: ClassManage, Family: "self", Changes: true},
	{Op: OpPutRoute, Class: ClassManage, Family: "route", Changes: true},
	{Op: OpReadRoute, Class: ClassRead, Family: "route"},
	{Op: OpListRoutes, Class: ClassRead, Family: "route"},
	{Op: OpDeleteRoute, Class: ClassManage, Family: "route", Changes: true},
	{Op: OpReportRoute, Class: ClassReport, Family: "route"},
	{Op: OpKeeperAdvanceSecret, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpKeeperRollbackSecret, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpKeeperTryKey, Class: ClassUse, Family: "keeper"},
	{Op: OpKeeperDestroySecret, Class: ClassDestroy, Family: "keeper", Changes: true},
	{Op: OpKeeperRotate, Class: ClassManage, Family: "keeper", Changes: true, PerKey: true},
	{Op: OpKeeperDestroy, Class: ClassDestroy, Family: "keeper", Changes: true, PerKey: true},
	{Op: OpKeeperRevoke, Class: ClassDestroy, Family: "keeper", Changes: true},
	{Op: OpKeeperFlag, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpKeeperErase, Class: ClassDestroy, Family: "keeper", Changes: true},
	{Op: OpKeeperShred, Class: ClassDestroy, Family: "keeper", Changes: true},
	{Op: OpFoundOld, Class: ClassRead, Family: "keeper"},
	{Op: OpRestore, Class: ClassManage, Family: "keeper", Changes: true},
	{Op: OpRewrapTenant, Class: ClassManage, Family: "roots", Changes: true},
	{Op: OpRewrapKeys, Class: ClassManage, Family: "roots", Changes: true},
	{Op: OpRetireRoots, Class: ClassDestroy, Family: "roots", Changes: true},
	{Op: OpInitDomain, Class: ClassCreate, Family: "roots", Changes: true},
	{Op: OpJoinDomain, Class: ClassManage, Family: "roots", Changes: true},
	{Op: OpReplaceRoots, Class: ClassCreate, Family: "roots", Changes: true},
	{Op: OpGiveRoots, Class: ClassManage, Family: "roots", Changes: true},
	{Op: OpCheckBackups, Class: ClassRead, Family: "roots"},
}

var opIndex = func() map[Op]*OpInfo {
	m := make(map[Op]*OpInfo, len(ops))
	for i := range ops {
		m[ops[i].Op] = &ops[i]
	}
	return m
}()

// Ops returns the table of operations. The caller must not change it.
func Ops() []OpInfo { return ops }

// Info returns the operation's row, nil for an unknown operation.
func (o Op) Info() *OpInfo { return opIndex[o] }
