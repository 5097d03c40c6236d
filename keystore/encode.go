package keystore

import (
	"encoding/json/v2"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func timestamp(t time.Time) Timestamp { return t.UnixMicro() }

func maybeTimestamp(t time.Time) *Timestamp {
	if t.IsZero() {
		return nil
	}
	ts := timestamp(t)
	return &ts
}

func encodeTenant(t *kms.Tenant) TenantRecord {
	r := TenantRecord{
		ID: t.ID, Name: t.Name, Tier: string(t.Tier), State: string(t.State), AllowSealed: t.AllowSealed,
		SealingID: t.Sealing.ID, SealingDomain: t.Sealing.Domain,
		SealingGeneration: t.Sealing.RootGeneration, SealingWrapped: t.Sealing.Wrapped,
		Created: timestamp(t.Created), Revision: t.Revision,
	}
	r.deletion(t.Deletion)
	return r
}

func encodeProject(p *kms.Project) ProjectRecord {
	return ProjectRecord{Tenant: p.Tenant, Name: p.Name, Created: timestamp(p.Created)}
}

func encodeKey(tenant uuid.UUID, k *kms.Key, highest uint32) (KeyRecord, error) {
	tags := "{}"
	if len(k.Tags) > 0 {
		b, err := json.Marshal(k.Tags, json.Deterministic(true))
		if err != nil {
			return KeyRecord{}, errArgument("tags", "are not text")
		}
		tags = string(b)
	}
	return KeyRecord{
		Tenant: tenant, ID: k.ID, Project: k.Project, Name: k.Name,
		Spec: string(k.Spec), Usage: string(k.Usage), Protection: string(k.Protection), State: string(k.State),
		Description: k.Description, Tags: tags,
		Created: timestamp(k.Created), DeletionDate: maybeTimestamp(k.DeletionDate),
		DeletionProtection: k.DeletionProtection,
		Origin:             string(k.Origin), RotationPeriod: k.RotationPeriod.Microseconds(),
		NextRotation: maybeTimestamp(k.NextRotation), Due: maybeTimestamp(dueDate(k)),
		PrimaryVersion: k.Primary, HighestVersion: highest, Revision: k.Revision,
	}, nil
}

// dueDate returns the earliest date at which something is due for a key, zero
// for never: what the keeper has to do, and nothing that it would find not to
// be due.
func dueDate(k *kms.Key) (due time.Time) {
	earlier := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	switch {
	case k.State == kms.KeyPendingDeletion:
		earlier(k.DeletionDate)
	case k.State == kms.KeyEnabled && k.RotationPeriod > 0:
		earlier(k.NextRotation)
	}
	for _, v := range k.Versions {
		if v.State == kms.VersionPendingDestruction {
			earlier(v.DestroyAt)
		}
	}
	return storedTime(due)
}

func encodeVersion(v *kms.Version) VersionRecord {
	return VersionRecord{ID: v.ID, Number: v.Number, State: string(v.State), Created: timestamp(v.Created),
		DestroyAt: maybeTimestamp(v.DestroyAt), PublicKey: v.PublicKey, Blob: v.Blob}
}

func encodeVersions(versions []*kms.Version) []VersionRecord {
	records := make([]VersionRecord, len(versions))
	for i, v := range versions {
		records[i] = encodeVersion(v)
	}
	return records
}

func encodeCredential(c *kms.Credential) (CredentialRecord, error) {
	networks := make([]string, len(c.Networks))
	for i, n := range c.Networks {
		if !n.IsValid() {
			return CredentialRecord{}, errArgument("networks", reasonFormat)
		}
		networks[i] = n.String()
	}
	scopesJSON, err := json.Marshal(c.Scopes)
	if err != nil {
		return CredentialRecord{}, errArgument("scopes", "are not text")
	}
	networksJSON, err := json.Marshal(networks)
	if err != nil {
		return CredentialRecord{}, errArgument("networks", reasonFormat)
	}
	r := CredentialRecord{
		Tenant: c.Tenant, ID: c.ID, Project: c.Project, Name: c.Name, Component: c.Component,
		Scopes: string(scopesJSON), Networks: string(networksJSON),
		Created: timestamp(c.Created), Expires: maybeTimestamp(c.Expires), Revoked: maybeTimestamp(c.Revoked),
		Revision: c.Revision,
	}
	for i := range c.Secrets {
		s := &c.Secrets[i]
		r.Secrets = append(r.Secrets, SecretRecord{Hash: s.Hash[:], PepperVersion: s.PepperVersion,
			Created: timestamp(s.Created), Expires: maybeTimestamp(s.Expires)})
	}
	r.Guard, err = encodeGuard(c.Guard)
	return r, err
}
