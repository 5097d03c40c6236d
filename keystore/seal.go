package keystore

import (
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The functions below make the records of objects with their codes.

func (c *rowCoder) tenant(t *kms.Tenant) (r TenantRecord, err error) {
	r = encodeTenant(t)
	r.Code, err = c.code(codeTenant, r.fields())
	return r, err
}

func (c *rowCoder) project(p *kms.Project) (r ProjectRecord, err error) {
	r = encodeProject(p)
	r.Code, err = c.code(codeProject, r.fields())
	return r, err
}

func (c *rowCoder) key(tenant uuid.UUID, k *kms.Key, highest uint32) (KeyRecord, error) {
	r, err := encodeKey(tenant, k, highest)
	if err != nil {
		return r, err
	}
	r.Code, err = c.code(codeKey, r.fields(encodeVersions(k.Versions)))
	return r, err
}

func (c *rowCoder) versions(tenant, key uuid.UUID, versions []*kms.Version) ([]VersionRecord, error) {
	records := encodeVersions(versions)
	for i := range records {
		r := &records[i]
		var err error
		if r.Code, err = c.code(codeVersion, r.fields(tenant, key)); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// newVersion makes the record of a version of which no nonce is used.
func (c *rowCoder) newVersion(tenant, key uuid.UUID, v *kms.Version) (VersionRecord, error) {
	records, err := c.versions(tenant, key, []*kms.Version{v})
	if err != nil {
		return VersionRecord{}, err
	}
	r := records[0]
	r.NoncesCode, err = c.nonces(NoncesParams{Tenant: tenant, Key: key, Number: v.Number}, v.ID, 0)
	return r, err
}

// newKey makes what is stored of a new key.
func (c *rowCoder) newKey(k *kms.Key) (p InsertKeyParams, err error) {
	tenant := k.Tenant.ID
	if p.Key, err = c.key(tenant, k, 1); err != nil {
		return p, err
	}
	if p.Version, err = c.newVersion(tenant, k.ID, k.Versions[0]); err != nil {
		return p, err
	}
	p.Name, err = c.keyName(KeyNameRecord{Tenant: tenant, Name: k.Name, Kind: KindName, Key: k.ID})
	return p, err
}

// changedKey makes what is stored of a key's next state.
func (c *rowCoder) changedKey(next *storedKey, versions versionChanges) (p UpdateKeyParams, err error) {
	k := next.key
	if p.Key, err = c.key(k.Tenant.ID, k, next.highest); err != nil {
		return p, err
	}
	if p.Changed, err = c.versions(k.Tenant.ID, k.ID, versions.changed); err != nil || versions.added == nil {
		return p, err
	}
	added, err := c.newVersion(k.Tenant.ID, k.ID, versions.added)
	p.Added = &added
	return p, err
}

func (c *rowCoder) nonces(p NoncesParams, version uuid.UUID, nonces uint64) (Code, error) {
	return c.code(codeNonces, noncesFields(p, version, nonces))
}

func (c *rowCoder) keyName(r KeyNameRecord) (KeyNameRecord, error) {
	var err error
	r.Code, err = c.code(codeKeyName, r.fields())
	return r, err
}

func (c *rowCoder) aliasRevision(r AliasRevisionRecord) (AliasRevisionRecord, error) {
	var err error
	r.Code, err = c.code(codeAlias, r.fields())
	return r, err
}

func (c *rowCoder) credential(credential *kms.Credential) (CredentialRecord, error) {
	r, err := encodeCredential(credential)
	if err != nil {
		return r, err
	}
	r.Code, err = c.code(codeCredential, r.fields())
	return r, err
}

func (c *rowCoder) approval(a *storedApproval) (r ApprovalRecord, err error) {
	r = encodeApproval(a)
	r.Code, err = c.code(codeApproval, r.fields())
	return r, err
}
