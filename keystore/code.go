package keystore

import (
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"math"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// rowCoder makes and checks the codes of rows.
type rowCoder struct {
	rows kms.RowAuthenticator
	// adopting lets rows pass that have no code yet; see adopt.go.
	adopting bool
	// known is nil where any revision will do. What was learned after asOf is
	// no measure for a row that may have been read before.
	known *revisions
	asOf  uint64
}

// errNoRowKey is the cause when there is no key to make a code with.
var errNoRowKey = errors.New("keystore: the row key has no version")

// code makes the code of a row under the newest version of the key.
func (c *rowCoder) code(table string, f fields) (Code, error) {
	mac, version, ok := c.rows.MAC(0, table, f...)
	if !ok {
		return Code{}, kms.Wrap(kms.KindInternal, errNoRowKey, "the row cannot be authenticated")
	}
	return Code{MAC: mac[:], Version: version}, nil
}

// Columns of codes, as errors name them.
const (
	columnMAC        = "mac"
	columnMACVersion = "mac_version"
)

// check reports through d a row that does not have the code of its content.
func (c *rowCoder) check(d *decoder, table string, f fields, found CodeRow) {
	if found.MAC.Null && found.Version.Null && c.adopting {
		return
	}
	// Version 0 would ask for the newest, whichever that is.
	version := d.integer(found.Version, columnMACVersion, 1, math.MaxUint32)
	if d.result() != nil {
		return
	}
	mac, _, ok := c.rows.MAC(uint32(version), table, f...)
	switch {
	case !ok:
		d.fail(columnMACVersion, reasonUnknown)
	case !hmac.Equal(mac[:], found.MAC.Bytes):
		d.fail(columnMAC, "is not that of the row")
	}
}

// The names of tables in codes. They are part of what is authenticated and
// never change.
const (
	codeTenant      = "tenants"
	codeProject     = "projects"
	codeKey         = "keys"
	codeVersion     = "key_versions"
	codeNonces      = "key_versions nonces"
	codeKeyName     = "key_names"
	codeAlias       = "alias_revisions"
	codeCredential  = "credentials"
	codeApproval    = "approvals"
	codeNodeSetting = "node_settings"
	codePolicy      = "policies"
	codeWebhook     = "webhooks"
	codeDelivery    = "deliveries"

	codeProviderSecret  = "secrets"
	codeProviderVersion = "secret_versions"
	codeSecretRevision  = "secret_revisions"
	codeSecretChange    = "secret_changes"
	codeRoute           = "routes"
	codeRouteHealth     = "route_health"
	codeRouteEnd        = "route_ends"
	codeJob             = "jobs"
	codeJobChunk        = "job_chunks"
	codeBaseline        = "credential_baselines"
	codeCostIncident    = "cost_incidents"
	codeCostLift        = "cost_lifts"

	codeAuthentication = "row_authentication"
)

// fields are the authenticated columns of a row, in the order in which the
// functions below list them, which never changes: a new column goes to the
// end. Each is encoded so that no two values are the same, NULL included.
type fields [][]byte

func (f fields) bytes(b []byte) fields      { return append(f, b) }
func (f fields) text(s string) fields       { return append(f, []byte(s)) }
func (f fields) id(id uuid.UUID) fields     { return append(f, id[:]) }
func (f fields) number(n uint64) fields     { return append(f, binary.BigEndian.AppendUint64(nil, n)) }
func (f fields) time(t Timestamp) fields    { return f.number(uint64(t)) }
func (f fields) boolean(b bool) fields      { return f.number(map[bool]uint64{false: 0, true: 1}[b]) }
func (f fields) maybeBytes(b []byte) fields { return f.maybe(b != nil, b) }

// maybe encodes a column that may be NULL.
func (f fields) maybe(present bool, b []byte) fields {
	if !present {
		return append(f, []byte{0})
	}
	return append(f, append([]byte{1}, b...))
}

func (f fields) maybeTime(t *Timestamp) fields {
	if t == nil {
		return f.maybe(false, nil)
	}
	return f.maybe(true, binary.BigEndian.AppendUint64(nil, uint64(*t)))
}

func (f fields) maybeID(id *uuid.UUID) fields {
	if id == nil {
		return f.maybe(false, nil)
	}
	return f.maybe(true, id[:])
}

// fields has what tells of a deletion of deleted tenants only: other rows are
// older than those columns.
func (r *TenantRecord) fields() fields {
	f := fields{}.id(r.ID).text(r.Name).text(r.Tier).text(r.State).boolean(r.AllowSealed).
		id(r.SealingID).id(r.SealingDomain).number(uint64(r.SealingGeneration)).bytes(r.SealingWrapped).
		time(r.Created).number(r.Revision)
	if r.Deleted != nil || r.Void != nil || r.Erased != nil || r.Shredded != nil {
		f = f.maybeTime(r.Deleted).maybeTime(r.Void).maybeTime(r.Erased).maybeTime(r.Shredded)
	}
	return f
}

func (r *ProjectRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).time(r.Created)
}

// fields covers the set of the key's versions, so that none can be removed,
// put back or moved to another key. It leaves out the dates by which the key
// is found to be due, which follow from the others.
func (r *KeyRecord) fields(versions []VersionRecord) fields {
	f := make(fields, 0, 24)
	f = f.id(r.Tenant).id(r.ID).text(r.Project).text(r.Name).text(r.Spec).text(r.Usage).text(r.Protection).
		text(r.State).text(r.Description).text(r.Tags).time(r.Created).maybeTime(r.DeletionDate).
		boolean(r.DeletionProtection).text(r.Origin).number(uint64(r.RotationPeriod)).maybeTime(r.NextRotation).
		number(uint64(r.PrimaryVersion)).number(uint64(r.HighestVersion)).number(r.Revision).
		number(uint64(len(versions)))
	for i := range versions {
		v := &versions[i]
		f = f.number(uint64(v.Number)).id(v.ID).text(v.State).maybeTime(v.DestroyAt)
	}
	return f
}

func (r *VersionRecord) fields(tenant, key uuid.UUID) fields {
	return fields{}.id(tenant).id(key).id(r.ID).number(uint64(r.Number)).text(r.State).time(r.Created).
		maybeTime(r.DestroyAt).maybeBytes(r.PublicKey).maybeBytes(r.Blob)
}

// noncesFields are apart from the version's, because they change without it.
func noncesFields(p NoncesParams, version uuid.UUID, nonces uint64) fields {
	return fields{}.id(p.Tenant).id(p.Key).number(uint64(p.Number)).id(version).number(nonces)
}

func (r *KeyNameRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).text(r.Kind).id(r.Key)
}

func (r *AliasRevisionRecord) fields() fields {
	return fields{}.id(r.Tenant).text(r.Name).number(r.Revision).maybeID(r.Key)
}

// fields covers the credential's secrets in their order.
func (r *CredentialRecord) fields() fields {
	f := fields{}.id(r.Tenant).id(r.ID).text(r.Project).text(r.Name).text(r.Component).text(r.Scopes).text(r.Networks).
		time(r.Created).maybeTime(r.Expires).maybeTime(r.Revoked).number(r.Revision).number(uint64(len(r.Secrets)))
	for i := range r.Secrets {
		s := &r.Secrets[i]
		f = f.bytes(s.Hash).number(uint64(s.PepperVersion)).time(s.Created).maybeTime(s.Expires)
	}
	if r.Guard != nil {
		f = f.bytes(r.Guard)
	}
	return f
}

func (r *ApprovalRecord) fields() fields {
	return fields{}.id(r.ID).text(r.Op).text(r.Resource).bytes(r.Fingerprint).id(r.RequestedBy).maybeID(r.ApprovedBy).
		boolean(r.Used).time(r.Created).time(r.Expires).number(r.Revision)
}

func (r *NodeSettingRecord) fields() fields {
	return fields{}.text(r.Node).text(r.Mode).time(r.Changed).number(r.Revision)
}

func (r *PolicyRecord) fields() fields {
	return fields{}.number(r.Version).bytes(r.Digest).text(r.Comment).time(r.Created).id(r.By)
}

func (r *WebhookRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.ID).text(r.URL).text(r.Types).bytes(r.Secret).text(r.State).time(r.Created).number(r.Revision)
}

// fields leaves out when it is tried and how often it was, which change with
// each attempt.
func (r *DeliveryRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.Webhook).id(r.Event).text(r.Once).text(r.Type).bytes(r.Body).time(r.Created)
}

func authenticationFields(adopt bool) fields { return fields{}.boolean(adopt) }
