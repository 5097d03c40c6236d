package kms

import (
	"context"
	"time"
	"uuid"
)

// Keys stores keys and answers look-ups from an authenticated cache. Every
// method takes the tenant; an object of another tenant and a missing one give
// ErrNotFound. All methods are safe for concurrent use; other errors carry
// KindStoreUnavailable.
type Keys interface {
	// Lookup finds a key by id or name. A warm look-up costs no database
	// call. The result is shared and must not be changed.
	Lookup(ctx context.Context, tenant uuid.UUID, ref string) (*Key, error)
	// CreateKey stores a key with its first version. KindConflict when the
	// tenant has a key of that name.
	CreateKey(ctx context.Context, key *Key) error
	// AddVersion appends a version numbered one above the highest ever used
	// and makes it primary, if the key's revision is still the given one;
	// KindPreconditionFailed otherwise. It returns the new state.
	AddVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, v *Version) (*Key, error)
	// UpdateKey applies a change if the revision is still the given one;
	// KindPreconditionFailed otherwise. It returns the new state.
	UpdateKey(ctx context.Context, tenant, key uuid.UUID, revision uint64, change KeyChange) (*Key, error)
	// ListKeys returns up to page.Size keys ordered by name, and the token
	// of the next page, "" at the end. Empty project: all projects.
	ListKeys(ctx context.Context, tenant uuid.UUID, project string, page Page) ([]*Key, string, error)
}

// KeyChange is a change of a key's metadata; nil fields stay as they are.
type KeyChange struct {
	State              *KeyState
	DeletionDate       *time.Time // with State; zero clears it
	Description        *string
	Tags               map[string]string // replaces all tags when not nil
	DeletionProtection *bool
}

// Page asks for one page of a list.
type Page struct {
	Size  int    // 1 to MaxPageSize
	Token string // "" for the first page; else what the page before returned
}

// MaxPageSize bounds the items of one page of a list.
const MaxPageSize = 1000

// Tenants stores tenants and their projects.
type Tenants interface {
	Tenant(ctx context.Context, id uuid.UUID) (*Tenant, error)
	// TenantByRef finds a tenant by id or name.
	TenantByRef(ctx context.Context, ref string) (*Tenant, error)
	// CreateTenant stores a tenant with its project "default". KindConflict
	// when the name is taken.
	CreateTenant(ctx context.Context, t *Tenant) error
	// UpdateTenant applies a change if the revision is still the given one;
	// KindPreconditionFailed otherwise.
	UpdateTenant(ctx context.Context, id uuid.UUID, revision uint64, change TenantChange) (*Tenant, error)
	ListTenants(ctx context.Context, page Page) ([]*Tenant, string, error)
	// CountTenants counts the tenants that are not deleted by tier, the system
	// tenant left out. It believes the database: the rows are not
	// authenticated.
	CountTenants(ctx context.Context) (map[Tier]int64, error)
	// CreateProject: KindConflict when the tenant has a project of that name.
	CreateProject(ctx context.Context, p *Project) error
	// Project: ErrNotFound when the tenant has no such project.
	Project(ctx context.Context, tenant uuid.UUID, name string) (*Project, error)
	ListProjects(ctx context.Context, tenant uuid.UUID, page Page) ([]*Project, string, error)
}

// TenantChange is a change of a tenant; nil fields stay as they are.
type TenantChange struct {
	Tier        *Tier
	State       *TenantState
	AllowSealed *bool
}

// op is the operation that makes the change, by the state if there is one.
func (c TenantChange) op() Op {
	switch {
	case c.State == nil:
		return OpUpdateTenant
	case *c.State == TenantSuspended:
		return OpSuspendTenant
	}
	return OpResumeTenant
}

// Credentials stores credentials.
type Credentials interface {
	// CredentialForAuthentication is the one look-up without a tenant: the
	// tenant is what it finds out. A warm look-up costs no database call;
	// the result is shared and must not be changed. The caller has checked
	// the MAC of the id, so unknown ids do not reach the database.
	CredentialForAuthentication(ctx context.Context, id uuid.UUID) (*Credential, error)
	Credential(ctx context.Context, tenant, id uuid.UUID) (*Credential, error)
	CreateCredential(ctx context.Context, c *Credential) error
	// UpdateCredential applies a change if the revision is still the given
	// one; KindPreconditionFailed otherwise.
	UpdateCredential(ctx context.Context, tenant, id uuid.UUID, revision uint64, change CredentialChange) (*Credential, error)
	ListCredentials(ctx context.Context, tenant uuid.UUID, page Page) ([]*Credential, string, error)
}

// CredentialChange is a change of a credential; nil fields stay as they are.
type CredentialChange struct {
	Scopes  []string           // replaces all when not nil
	Secrets []CredentialSecret // replaces the live secrets when not nil
	Revoked *time.Time         // cannot be taken back
	Guard   *Guard             // replaces it when not nil
}

// SystemSecrets stores the service's own sealed secrets by name and version
// (the credential pepper). They belong to the system tenant.
type SystemSecrets interface {
	// SystemSecrets returns the versions of a name, ascending; none is no error.
	SystemSecrets(ctx context.Context, name string) ([]SystemSecret, error)
	// PutSystemSecret: KindConflict when the version exists.
	PutSystemSecret(ctx context.Context, s SystemSecret) error
}

// SystemSecret is one version of a sealed secret of the service.
type SystemSecret struct {
	Name    string
	Version uint32
	Blob    []byte // format SLB1
	Created time.Time
}

// Idempotency remembers the answers to state-changing calls.
type Idempotency interface {
	// Begin claims a key for a request. It returns (nil, nil) when the claim
	// is new and the caller shall act and then call Finish or Abandon; the
	// finished record when the same request was answered before;
	// KindInvalidArgument when the fingerprint differs and KindConflict
	// while the first request is in flight. Claims and records expire after
	// IdempotencyTTL; a claim that a crash left in flight expires after
	// IdempotencyClaimTTL.
	Begin(ctx context.Context, k IdempotencyKey, fingerprint [32]byte) (*IdempotencyRecord, error)
	Finish(ctx context.Context, k IdempotencyKey, r IdempotencyRecord) error
	// Abandon releases a claim whose request changed nothing.
	Abandon(ctx context.Context, k IdempotencyKey) error
}

// Lifetimes of what Idempotency remembers: a day covers a client's retry of
// yesterday's job, a minute is longer than any management call may take.
const (
	IdempotencyTTL      = 24 * time.Hour
	IdempotencyClaimTTL = time.Minute
)

// IdempotencyKey names a claim: keys of different credentials never meet.
type IdempotencyKey struct {
	Tenant     uuid.UUID
	Credential uuid.UUID
	Key        string // the client's Idempotency-Key, 1 to 255 bytes
}

// IdempotencyRecord is what is replayed: never a body, which could hold a
// secret shown once.
type IdempotencyRecord struct {
	Status   int
	Resource string // id of what the request made or changed
	Secret   bool   // the answer carried a secret shown once
}

// Quota decides whether a request may run and what it costs.
type Quota interface {
	// Admit peeks every gate and commits to all or none, without I/O. A
	// refusal is an *Error of KindQuotaExceeded, KindQuotaExhausted or
	// KindUnsatisfiable with all reasons. The reservation's id is the
	// request id.
	Admit(r *AdmitRequest) (Reservation, error)
	// Settle ends a reservation: once, idempotent, memory only.
	Settle(r Reservation, outcome Settlement)
	// Leave says that a request of a batch is over and only waits for the
	// others to be recorded: it no longer counts against concurrency. Settle
	// has to follow.
	Leave(r Reservation)
	// Book has entries recorded whose requests a crash ended with their
	// reservations, and charges of the tenant what they say, as far as record
	// does not fail. It returns record's errors.
	Book(of *Tenant, entries []*Entry, record func() []error) []error
	// Penalise charges a credential for a request that was refused before it
	// was admitted. It refuses nothing.
	Penalise(tenant *Tenant, credential uuid.UUID)
}

// AdmitRequest is what quota needs to know of a request.
type AdmitRequest struct {
	RequestID uuid.UUID
	Principal *Principal
	Op        Op
	Spec      Spec      // "" for operations on no key
	Source    Spec      // re-encryption: of the key that decrypts
	Key       uuid.UUID // zero for operations on no key
	Bytes     int       // plaintext, ciphertext or message given
	// Items is how many times the price is due of an operation on several
	// objects (OpFetchSecrets), which may be none; of others it is 0.
	Items   int
	Urgency Urgency
	Batch   bool // it is an item of a batch
	// Target is the tenant that is acted on, if it is not the principal's.
	Target uuid.UUID
	// Versions is how many versions that are not destroyed the key has which is
	// to get one more; otherwise 0.
	Versions int
	// Gates takes every gate with its numbers, nil: nobody has asked. It does
	// not make what happens any different.
	Gates *[]Reason
}

// Reservation is what Admit committed.
type Reservation struct {
	RequestID uuid.UUID
	Tenant    uuid.UUID
	Cost      Credits
	// PolicyVersion is that of the policy which decided; 0: the one that is in
	// force when the request comes in.
	PolicyVersion uint64
	// LeaseWait is how long the request waited for this node's part of limits
	// that several share; a refusal has it too.
	LeaseWait time.Duration

	// What is left afterwards, for the answer's headers.
	PerSecond Credits // the refill of the tenant's bucket at its full rate
	Left      Credits // in the bucket; below zero it is debt
	Burst     Credits // what it holds at most
	DayEnd    time.Time
	// DayLeft is what the day's total still has; DayLimit 0: it has none.
	DayLeft, DayLimit Credits
	// Exhausted is when nothing will be left of the day or month if the use goes
	// on as it is, told while the cost breaker marks answers; else it is zero.
	Exhausted time.Time
}

// Credits counts micro-credits: 1,000,000 is one credit of the cost table.
type Credits int64

// Credit is one credit.
const Credit Credits = 1_000_000

// Settlement says how a reservation ended.
type Settlement struct {
	State    SettlementState
	Charged  Credits
	SlotTime time.Duration
}

// SettlementState is the end of a reservation.
type SettlementState string

// The settlement states.
const (
	Settled   SettlementState = "SETTLED"   // ran: charged in full
	Partial   SettlementState = "PARTIAL"   // ran and failed by the client's fault: a quarter, at least 1
	Cancelled SettlementState = "CANCELLED" // never ran, or failed by ours: nothing
)

// Charge is the rule of settlement: what a reservation of the given cost is
// charged when it ends in the state. All of it when settled; when partial a
// quarter, but at least one credit and at most the cost; nothing when
// cancelled or in an unknown state. A negative cost is charged nothing.
func (s SettlementState) Charge(cost Credits) Credits {
	cost = max(cost, 0)
	switch s {
	case Settled:
		return cost
	case Partial:
		return min(cost, max(cost/4, Credit))
	}
	return 0
}

// Urgency is what a caller says of one request; it shares out the tenant's
// own part only.
type Urgency string

// The urgencies.
const (
	UrgencyInteractive Urgency = "interactive"
	UrgencyNormal      Urgency = "normal"
	UrgencyBulk        Urgency = "bulk"
)

// NodeID names a node: an HSM token of a domain or the in-process engine.
type NodeID string

// Scheduler hands work to a slot of a node.
type Scheduler interface {
	// Do waits for a slot on one of f.Nodes, runs work there, frees the slot
	// and returns. It does not return while work runs; ctx, f.MaxWait and the policy
	// bound the waiting only. When work never ran it returns an *Error of
	// KindWaitExceeded, KindReducedCapacity or the kind of ctx's end, whose
	// reasons say what refused it; what it waited for is in the Turn.
	Do(ctx context.Context, f Flow, work func(NodeID)) (Turn, error)
}

// Turn is how a request came to its slot, or why it did not.
type Turn struct {
	// Wait is the time from the call to the start of work or to giving up.
	Wait time.Duration
	// Waits are what it waited for, the longest first; their Waited add up to
	// Wait. nil: it did not wait. The caller owns them.
	Waits    []Reason
	Class    Class
	Estimate time.Duration // of the wait, made at arrival; 0: none was made
	Aged     bool          // it took the lane of those who have waited long
	Away     bool          // it ran on another node than the one preferred
}

// Class is what the gate of the pool takes a request for: HIGH, MID or LOW, by
// the tier and the urgency.
type Class string

// Flow is what the scheduler knows of a request.
type Flow struct {
	Tenant  uuid.UUID
	Tier    Tier // of the tenant: decides its share and its class
	Urgency Urgency
	Cost    Credits
	// Nodes that can run the work, the preferred one first; not empty.
	Nodes []NodeID
	// MaxWait bounds the waiting, beside what the policy allows; 0: that alone.
	// Less means that only a slot that is free now will do.
	MaxWait time.Duration
	// Waited is since when the request was there, if it comes again because the
	// node that it ran on failed: it stands before what came after it.
	Waited time.Duration
}

// Verb is what a node can be asked to do with a key.
type Verb uint8

// The verbs.
const (
	VerbSign Verb = iota
	VerbVerify
	VerbEncrypt
	VerbDecrypt
	VerbMAC
	VerbRandom
	VerbDigest
	// VerbAgree computes the shared secret with the public key Peer: the
	// x-coordinate of ECDH (SP 800-56A, 5.7.1.2), as long as the field.
	VerbAgree
	// VerbDerive computes Length bytes from the key and the context Input.
	VerbDerive
	// VerbEncapsulate makes a shared secret for the holder of the private key
	// (Secret) and its encapsulation (Output); VerbDecapsulate takes that as
	// Input and gives the secret as Output.
	VerbEncapsulate
	VerbDecapsulate
	// VerbWrap and VerbUnwrap protect caller's bytes by RFC 5649.
	VerbWrap
	VerbUnwrap
)

// Work is one operation for a node: inputs, then outputs. It belongs to the
// caller until Device.Do and to the device until Do returns.
type Work struct {
	Verb      Verb
	Algorithm Algorithm
	Key       *Key     // nil for random and digest
	Version   *Version // of Key
	Digest    Digest   // VerbDigest only

	// Input is the message, digest, plaintext or ciphertext.
	Input []byte
	// Prehashed says that Input is the digest named by Algorithm.Hash.
	Prehashed bool
	Signature []byte // VerbVerify
	Nonce     []byte // AEAD: 12 bytes, unique per version
	AAD       []byte // AEAD; may be empty
	UserID    []byte // SM2 with a message: 1 to 8191 bytes
	Order     SM2Order
	Length    int    // VerbRandom, VerbDerive: bytes wanted
	Peer      []byte // VerbAgree: SubjectPublicKeyInfo of the other party, DER

	// Output is the signature (ECDSA, SM2: ASN.1 DER), MAC, digest, random
	// bytes, plaintext or ciphertext (AEAD: with the 16-byte tag at its end),
	// shared secret, derived or wrapped bytes.
	Output []byte
	// Secret is VerbEncapsulate's shared secret.
	Secret []byte
	// Valid is VerbVerify's answer.
	Valid bool

	// Measured by the device.
	SlotTime time.Duration
	ColdLoad bool // the key's handle was not in the node's cache
}

// SM2Order is the layout of an SM2 ciphertext.
type SM2Order string

// The orders: C1C3C2 is that of GB/T 32918.4 and the default.
const (
	SM2OrderC1C3C2 SM2Order = "C1C3C2"
	SM2OrderC1C2C3 SM2Order = "C1C2C3"
	SM2OrderASN1   SM2Order = "ASN1"
)

// ImportMaterial is a key from outside on its way in.
type ImportMaterial struct {
	Wrapping ImportWrapping
	Private  []byte // of the import parameters
	Wrapped  []byte
}

// Device runs work on nodes and makes and seals material. Errors that the
// input caused carry their kind (KindDecryptionFailed, KindInvalidArgument);
// KindHSMUnavailable means that the node failed and another may be tried. All
// methods are safe for concurrent use.
type Device interface {
	// Nodes returns the nodes that can run w now, the preferred one first;
	// KindHSMUnavailable when there is none. Only w's Verb, Algorithm, Key
	// and Version count.
	Nodes(w *Work) ([]NodeID, error)
	// Do runs w on the node. The caller holds one of the node's slots.
	Do(ctx context.Context, node NodeID, w *Work) error
	// ProtectionFor returns the strongest protection that the domain's nodes
	// give keys of the spec: ProtectionHSM or ProtectionSealed.
	ProtectionFor(domain uuid.UUID, s Spec) (Protection, error)
	// CreatorNodes returns the nodes on which material of the spec can be made.
	CreatorNodes(domain uuid.UUID, s Spec, p Protection) ([]NodeID, error)
	// Generate makes material on the node for key (of which ID, Tenant, Spec,
	// Usage and Protection count) and version (ID and Number) and fills in
	// the version's PublicKey and Blob. The caller holds a slot.
	Generate(ctx context.Context, node NodeID, key *Key, version *Version) error
	// ImportNodes returns the nodes on which keys for imports are made and
	// used.
	ImportNodes() ([]NodeID, error)
	// NewImportKey makes a key pair for imports: the SubjectPublicKeyInfo and
	// the private half, which the caller seals and wipes.
	NewImportKey(ctx context.Context, node NodeID, w ImportWrapping) (public, private []byte, err error)
	// Import is Generate for material from outside. KindInvalidArgument when
	// it is not what its parameters and the key's spec say.
	Import(ctx context.Context, node NodeID, key *Key, version *Version, m ImportMaterial) error
	// NewSealingKey makes a sealing key for a tenant in a domain; the zero id
	// is the default domain.
	NewSealingKey(ctx context.Context, tenant, domain uuid.UUID) (SealingKey, error)
	// Seal and Unseal protect the service's own small secrets under a
	// sealing key; name and version are bound to the blob.
	Seal(ctx context.Context, k SealingKey, name string, version uint32, secret []byte) ([]byte, error)
	Unseal(ctx context.Context, k SealingKey, name string, version uint32, blob []byte) ([]byte, error)
	NodePool
}

// Journal records entries.
type Journal interface {
	// Record appends e and returns when it is durable, whether ctx has ended
	// or not. An error means that the answer must be withheld. e is not kept.
	Record(ctx context.Context, e *Entry) error
	// RecordAll is Record of several entries, which become durable together.
	// The errors stand in the order of the entries.
	RecordAll(ctx context.Context, entries []*Entry) []error
}

// JobMix is what a job is of.
type JobMix struct {
	Items map[Op]int64 // how many are of an operation
	Bytes int64        // of all items, as they were sent
}

// Observer receives what happened, for metrics. Implementations must be fast
// and safe for concurrent use.
type Observer interface {
	// Request is called once per request, after its entry was recorded.
	Request(t *Ticket, err error)
	// JobSubmitted is called once per job, after Request of the one that submitted it.
	JobSubmitted(t *Ticket, m JobMix)
}
