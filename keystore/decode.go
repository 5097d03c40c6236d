package keystore

import (
	"encoding/json/v2"
	"math"
	"net/netip"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// decoder reads the columns of one object and keeps the first thing that is
// wrong with it.
type decoder struct {
	err *RowError
}

func newDecoder(object Object, tenant, id uuid.UUID) *decoder {
	return &decoder{err: &RowError{Object: object, Tenant: tenant, ID: id}}
}

// result returns nil as an error when nothing was wrong.
func (d *decoder) result() error {
	if d.err.Reason == "" {
		return nil
	}
	return d.err
}

func (d *decoder) fail(column, reason string) {
	if d.err.Reason == "" {
		d.err.Column, d.err.Reason = column, reason
	}
}

func (d *decoder) require(ok bool, column, reason string) {
	if !ok {
		d.fail(column, reason)
	}
}

const (
	reasonMissing = "is missing"
	reasonType    = "has the wrong type"
	reasonRange   = "is out of range"
	reasonUnknown = "is unknown"
	reasonFormat  = "is malformed"
)

func (d *decoder) present(valid, null bool, column string) bool {
	switch {
	case null:
		d.fail(column, reasonMissing)
	case !valid:
		d.fail(column, reasonType)
	}
	return valid
}

// maybeBlank reads text that may be empty.
func (d *decoder) maybeBlank(c Text, column string) string {
	d.present(c.Valid, c.Null, column)
	return c.String
}

func (d *decoder) text(c Text, column string) string {
	if d.present(c.Valid, c.Null, column) && c.String == "" {
		d.fail(column, "is blank")
	}
	return c.String
}

func (d *decoder) name(c Text, column string) string {
	s := d.text(c, column)
	d.require(kms.ValidName(s), column, "is not a valid name")
	return s
}

func (d *decoder) id(c Bytes, column string) (id uuid.UUID) {
	if d.present(c.Valid, c.Null, column) && len(c.Bytes) != len(id) {
		d.fail(column, "is not an id")
	}
	copy(id[:], c.Bytes)
	return id
}

func (d *decoder) bytes(c Bytes, column string) []byte {
	if d.present(c.Valid, c.Null, column) && len(c.Bytes) == 0 {
		d.fail(column, "is blank")
	}
	return c.Bytes
}

// maybeBytes reads bytes that may be NULL.
func (d *decoder) maybeBytes(c Bytes, column string) []byte {
	if c.Null {
		return nil
	}
	return d.bytes(c, column)
}

func (d *decoder) integer(c Integer, column string, low, high int64) int64 {
	if d.present(c.Valid, c.Null, column) && (c.Int64 < low || c.Int64 > high) {
		d.fail(column, reasonRange)
	}
	return c.Int64
}

func (d *decoder) boolean(c Integer, column string) bool {
	return d.integer(c, column, 0, 1) == 1
}

// number reads a counter from 1 that the code keeps in 32 bits.
func (d *decoder) number(c Integer, column string) uint32 {
	return uint32(d.integer(c, column, 1, math.MaxUint32))
}

func (d *decoder) revision(c Integer) uint64 {
	return uint64(d.integer(c, "revision", 1, math.MaxInt64))
}

// The years 0 to 9999, in microseconds: those that RFC 3339 can write, in which
// answers hold times. One that it cannot would cost the whole list its answer.
var (
	earliest = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	latest   = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1
)

func (d *decoder) time(c Integer, column string) time.Time {
	return time.UnixMicro(d.integer(c, column, earliest, latest)).UTC()
}

// maybeTime reads a time that may be NULL, which is the zero time. Only NULL
// is: a value of another type must not turn "revoked" into "not revoked".
func (d *decoder) maybeTime(c Integer, column string) time.Time {
	if c.Null {
		return time.Time{}
	}
	return d.time(c, column)
}

// period reads a duration, kept in microseconds.
func (d *decoder) period(c Integer, column string) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(d.integer(c, column, 0, longest)) * time.Microsecond
}

// rowID returns a row's id for error messages, zero when it is not one.
func rowID(c Bytes) (id uuid.UUID) {
	if len(c.Bytes) == len(id) {
		copy(id[:], c.Bytes)
	}
	return id
}

// The functions below make objects of rows, as far as the rows can be believed:
// when they hold what they must, carry the code of their content, and are the
// ones asked for, where the caller knows which (want; nil: any).

func (d *decoder) wanted(id uuid.UUID, want *uuid.UUID) {
	d.require(want == nil || id == *want, "id", "is not the one asked for")
}

func decodeTenant(c *rowCoder, r *TenantRow, want *uuid.UUID) (*kms.Tenant, error) {
	d := newDecoder(ObjectTenant, rowID(r.ID), rowID(r.ID))
	t := d.tenant(r)
	d.wanted(t.ID, want)
	if d.result() == nil {
		record := encodeTenant(t)
		c.check(d, codeTenant, record.fields(), r.Code)
		c.current(d, rowOf(ObjectTenant, t.ID, t.ID), t.Revision)
	}
	return t, d.result()
}

func (d *decoder) tenant(r *TenantRow) *kms.Tenant {
	t := &kms.Tenant{
		ID:          d.id(r.ID, "id"),
		Name:        d.name(r.Name, "name"),
		Tier:        kms.Tier(word(d.text(r.Tier, "tier"))),
		State:       kms.TenantState(word(d.text(r.State, "state"))),
		AllowSealed: d.boolean(r.AllowSealed, "allow_sealed"),
		Sealing: kms.SealingKey{
			ID:             d.id(r.SealingID, "sealing_id"),
			Domain:         d.id(r.SealingDomain, "sealing_domain"),
			RootGeneration: d.number(r.SealingGeneration, "sealing_generation"),
			Wrapped:        d.maybeBytes(r.SealingWrapped, "sealing_wrapped"),
		},
		Deletion: d.deletion(r),
		Created:  d.time(r.Created, "created"),
		Revision: d.revision(r.Revision),
	}
	t.Sealing.Tenant = t.ID
	d.require(knownTier(t.Tier), "tier", reasonUnknown)
	d.require(knownTenantState(t.State), "state", reasonUnknown)
	checkDeletion(t, d.fail)
	return t
}

func decodeProject(c *rowCoder, tenant uuid.UUID, r *ProjectRow) (*kms.Project, error) {
	d := newDecoder(ObjectProject, tenant, uuid.Nil())
	p := &kms.Project{
		Tenant:  tenant,
		Name:    d.name(r.Name, "name"),
		Created: d.time(r.Created, "created"),
	}
	if d.result() == nil {
		record := encodeProject(p)
		c.check(d, codeProject, record.fields(), r.Code)
	}
	return p, d.result()
}

// storedKey is a key with what only the store knows of it. The key's Tenant
// is nil: it is bound on look-up.
type storedKey struct {
	key     *kms.Key
	highest uint32 // the highest version number ever used
}

// keyDestroyed is the state of a key's tombstone. It is the store's own: for
// everybody else the key is missing.
const keyDestroyed kms.KeyState = "DESTROYED"

func (k *storedKey) destroyed() bool { return k.key.State == keyDestroyed }

func decodeKey(c *rowCoder, tenant uuid.UUID, r *KeyRow, want *uuid.UUID) (storedKey, error) {
	d := newDecoder(ObjectKey, tenant, rowID(r.ID))
	k := &kms.Key{
		ID:                 d.id(r.ID, "id"),
		Project:            word(d.name(r.Project, "project")),
		Name:               d.name(r.Name, "name"),
		Spec:               kms.Spec(word(d.text(r.Spec, "spec"))),
		Usage:              kms.Usage(word(d.text(r.Usage, "usage"))),
		Protection:         kms.Protection(word(d.text(r.Protection, "protection"))),
		State:              kms.KeyState(word(d.text(r.State, "state"))),
		Description:        d.maybeBlank(r.Description, "description"),
		Tags:               d.tags(r.Tags),
		Created:            d.time(r.Created, "created"),
		DeletionDate:       d.maybeTime(r.DeletionDate, "deletion_date"),
		DeletionProtection: d.boolean(r.DeletionProtection, "deletion_protection"),
		Origin:             kms.Origin(word(d.text(r.Origin, "origin"))),
		RotationPeriod:     d.period(r.RotationPeriod, "rotation_period"),
		NextRotation:       d.maybeTime(r.NextRotation, "next_rotation"),
		LastUsed:           d.maybeTime(r.LastUsed, "last_used"),
		LastUsedOp:         kms.Op(word(d.maybeBlank(r.LastUsedOp, "last_used_op"))),
		Primary:            d.number(r.PrimaryVersion, "primary_version"),
		Revision:           d.revision(r.Revision),
	}
	stored := storedKey{key: k, highest: d.number(r.HighestVersion, "highest_version")}
	// Together, because they are kept and go together.
	versions := make([]kms.Version, len(r.Versions))
	k.Versions = make([]*kms.Version, len(r.Versions))
	for i := range r.Versions {
		versions[i] = d.version(&r.Versions[i])
		k.Versions[i] = &versions[i]
	}
	d.wanted(k.ID, want)
	d.require(d.maybeTime(r.Due, "due").Equal(dueDate(k)), "due", "does not follow from the dates")
	switch {
	case d.result() != nil:
	case stored.destroyed():
		checkTombstone(k, d.fail)
	default:
		checkKey(k, stored.highest, d.fail)
	}
	if d.result() == nil {
		c.checkKey(d, tenant, &stored, r)
		c.current(d, rowOf(ObjectKey, tenant, k.ID), k.Revision)
	}
	return stored, d.result()
}

func (c *rowCoder) checkKey(d *decoder, tenant uuid.UUID, k *storedKey, r *KeyRow) {
	record, err := encodeKey(tenant, k.key, k.highest)
	d.require(err == nil, "tags", reasonFormat)
	versions := encodeVersions(k.key.Versions)
	c.check(d, codeKey, record.fields(versions), r.Code)
	for i := range versions {
		c.check(d, codeVersion, versions[i].fields(tenant, k.key.ID), r.Versions[i].Code)
	}
}

func (d *decoder) version(r *VersionRow) kms.Version {
	return kms.Version{
		ID:        d.id(r.ID, "version id"),
		Number:    d.number(r.Number, "version number"),
		State:     kms.VersionState(word(d.text(r.State, "version state"))),
		Created:   d.time(r.Created, "version created"),
		DestroyAt: d.maybeTime(r.DestroyAt, "version destroy_at"),
		PublicKey: d.maybeBytes(r.PublicKey, "version public_key"),
		Blob:      d.maybeBytes(r.Blob, "version blob"),
	}
}

// decodeKeyName returns the id of the key that has a name or an alias.
func decodeKeyName(c *rowCoder, tenant uuid.UUID, name string, r *KeyNameRow) (uuid.UUID, error) {
	d := newDecoder(ObjectKeyName, tenant, rowID(r.Key))
	d.require(d.name(r.Name, "name") == name, "name", "is not the one asked for")
	kind := d.text(r.Kind, "kind")
	d.require(kind == KindName || kind == KindAlias, "kind", reasonUnknown)
	id := d.id(r.Key, "key_id")
	if d.result() == nil {
		record := KeyNameRecord{Tenant: tenant, Name: name, Kind: kind, Key: id}
		c.check(d, codeKeyName, record.fields(), r.Code)
	}
	if kind == KindAlias && d.result() == nil {
		c.alias(d, tenant, name, id, &r.Alias)
	}
	return id, d.result()
}

// alias reports through d an alias that its revision does not go with: it led
// to that key before.
func (c *rowCoder) alias(d *decoder, tenant uuid.UUID, name string, key uuid.UUID, r *AliasRevisionRow) {
	revision := kms.FirstAliasRevision
	if !r.none() {
		record := decodeAliasRevision(d, c, tenant, name, r)
		revision = record.Revision
		d.require(record.Key != nil && *record.Key == key, "revision", reasonOld)
	}
	c.current(d, rowOfAlias(tenant, name), revision)
}

// none tells that there is no row.
func (r *AliasRevisionRow) none() bool {
	return r.Revision.Null && r.Key.Null && r.Code.MAC.Null && r.Code.Version.Null
}

func decodeAliasRevision(d *decoder, c *rowCoder, tenant uuid.UUID, name string, r *AliasRevisionRow) AliasRevisionRecord {
	record := AliasRevisionRecord{Tenant: tenant, Name: name, Revision: d.revision(r.Revision)}
	if !r.Key.Null {
		id := d.id(r.Key, "key_id")
		record.Key = &id
	}
	if d.result() == nil {
		c.check(d, codeAlias, record.fields(), r.Code)
	}
	return record
}

func (d *decoder) tags(c Text) map[string]string {
	s := d.text(c, "tags")
	var tags map[string]string
	if err := json.Unmarshal([]byte(s), &tags); err != nil || tags == nil {
		d.fail("tags", reasonFormat)
	}
	if len(tags) == 0 {
		return nil
	}
	return tags
}

// decodeCredential decodes a credential; tenant is nil when that is what the
// caller is to find out.
func decodeCredential(co *rowCoder, r *CredentialRow, tenant, want *uuid.UUID) (*kms.Credential, error) {
	d := newDecoder(ObjectCredential, rowID(r.Tenant), rowID(r.ID))
	c := &kms.Credential{
		ID:        d.id(r.ID, "id"),
		Tenant:    d.id(r.Tenant, "tenant"),
		Project:   word(d.name(r.Project, "project")),
		Name:      d.text(r.Name, "name"),
		Component: d.maybeBlank(r.Component, "component"),
		Scopes:    d.strings(r.Scopes, "scopes"),
		Created:   d.time(r.Created, "created"),
		Expires:   d.maybeTime(r.Expires, "expires"),
		Revoked:   d.maybeTime(r.Revoked, "revoked"),
		Revision:  d.revision(r.Revision),
		LastUsed:  d.maybeTime(r.LastUsed, "last_used"),

		LastAddress: d.maybeBlank(r.LastAddress, "last_address"),
		Guard:       d.guard(r.Guard, "guard"),
	}
	for _, s := range d.strings(r.Networks, "networks") {
		prefix, err := netip.ParsePrefix(s)
		d.require(err == nil, "networks", reasonFormat)
		c.Networks = append(c.Networks, prefix)
	}
	for i := range r.Secrets {
		c.Secrets = append(c.Secrets, d.secret(&r.Secrets[i]))
	}
	d.wanted(c.ID, want)
	d.require(tenant == nil || c.Tenant == *tenant, "tenant", "is not the one asked for")
	if d.result() == nil {
		checkCredential(c, d.fail)
	}
	if d.result() == nil {
		record, err := encodeCredential(c)
		d.require(err == nil, "scopes", reasonFormat)
		co.check(d, codeCredential, record.fields(), r.Code)
		co.current(d, rowOf(ObjectCredential, c.Tenant, c.ID), c.Revision)
	}
	return c, d.result()
}

func (d *decoder) secret(r *SecretRow) kms.CredentialSecret {
	s := kms.CredentialSecret{
		PepperVersion: d.number(r.PepperVersion, "secret pepper_version"),
		Created:       d.time(r.Created, "secret created"),
		Expires:       d.maybeTime(r.Expires, "secret expires"),
	}
	hash := d.bytes(r.Hash, "secret hash")
	d.require(len(hash) == len(s.Hash), "secret hash", "has the wrong length")
	copy(s.Hash[:], hash)
	return s
}

func (d *decoder) strings(c Text, column string) []string {
	s := d.text(c, column)
	var list []string
	// null would read as an empty list, which for networks means "from
	// anywhere".
	if err := json.Unmarshal([]byte(s), &list); err != nil || list == nil {
		d.fail(column, reasonFormat)
	}
	return list
}

func decodeSystemSecret(name string, r *SystemSecretRow) (kms.SystemSecret, error) {
	d := newDecoder(ObjectSystemSecret, uuid.Nil(), uuid.Nil())
	s := kms.SystemSecret{
		Name:    name,
		Version: d.number(r.Version, "version"),
		Blob:    d.bytes(r.Blob, "blob"),
		Created: d.time(r.Created, "created"),
	}
	return s, d.result()
}
