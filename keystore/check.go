package keystore

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-kms/sluice/kms"
)

// The checks below say what a stored object may be. They run on what is read
// and on what is to be written, so that nothing is stored that would be
// refused when it comes back. Each reports through fail what it finds.

type failFunc func(field, reason string)

func knownTier(t kms.Tier) bool { return slices.Contains(kms.Tiers(), t) }

func knownTenantState(s kms.TenantState) bool {
	switch s {
	case kms.TenantActive, kms.TenantSuspended, kms.TenantDeleting, kms.TenantDeleted, kms.TenantShredded:
		return true
	}
	return false
}

func knownVersionState(s kms.VersionState) bool {
	switch s {
	case kms.VersionEnabled, kms.VersionDisabled, kms.VersionPendingDestruction, kms.VersionDestroyed:
		return true
	}
	return false
}

func knownOrigin(o kms.Origin) bool {
	return o == kms.OriginGenerated || o == kms.OriginImportedProcess
}

func checkTenant(t *kms.Tenant, fail failFunc) {
	switch {
	case !kms.ValidName(t.Name):
		fail("name", "is not a valid name")
	case !knownTier(t.Tier):
		fail("tier", reasonUnknown)
	case !knownTenantState(t.State):
		fail("state", reasonUnknown)
	case t.Sealing.Tenant != t.ID:
		fail("sealing key", "belongs to another tenant")
	case t.Sealing.RootGeneration == 0:
		fail("sealing key", reasonMissing)
	case t.Revision == 0:
		fail("revision", reasonRange)
	default:
		checkDeletion(t, fail)
	}
}

// checkKey checks a key whose highest version number ever used is highest.
func checkKey(k *kms.Key, highest uint32, fail failFunc) {
	info := k.Spec.Info()
	switch {
	case !kms.ValidName(k.Name):
		fail("name", "is not a valid name")
	case !kms.ValidName(k.Project):
		fail("project", "is not a valid name")
	case info == nil:
		fail("spec", reasonUnknown)
	case info.Algorithms(k.Usage) == nil:
		fail("usage", "is not one of the spec's")
	case k.Protection != kms.ProtectionHSM && k.Protection != kms.ProtectionSealed:
		fail("protection", reasonUnknown)
	case k.State != kms.KeyEnabled && k.State != kms.KeyDisabled && k.State != kms.KeyPendingDeletion:
		fail("state", reasonUnknown)
	case k.DeletionDate.IsZero() == (k.State == kms.KeyPendingDeletion):
		fail("deletion_date", "does not go with the state")
	case !storableText(k.Description):
		fail("description", "is not text")
	case !knownOrigin(k.Origin):
		fail("origin", reasonUnknown)
	case k.RotationPeriod < 0:
		fail("rotation_period", reasonRange)
	case k.NextRotation.IsZero() == (k.RotationPeriod > 0):
		fail("next_rotation", "does not go with the period")
	case k.Revision == 0:
		fail("revision", reasonRange)
	case k.Version(k.Primary) == nil:
		fail("primary_version", "names no version")
	case k.Version(k.Primary).State == kms.VersionDestroyed:
		fail("primary_version", "names a destroyed version")
	default:
		checkVersions(k.Versions, info, highest, fail)
	}
}

func checkVersions(versions []*kms.Version, info *kms.SpecInfo, highest uint32, fail failFunc) {
	var last uint32
	for _, v := range versions {
		switch {
		case v.Number <= last || v.Number > highest:
			fail("version number", reasonRange)
		case !knownVersionState(v.State):
			fail("version state", reasonUnknown)
		case info.Symmetric() != (len(v.PublicKey) == 0):
			fail("version public_key", "does not go with the spec")
		case v.DestroyAt.IsZero() == (v.State == kms.VersionPendingDestruction):
			fail("version destroy_at", "does not go with the state")
		case (len(v.Blob) == 0) != (v.State == kms.VersionDestroyed):
			fail("version blob", "does not go with the state")
		}
		last = v.Number
	}
}

// checkTombstone checks what is left of a destroyed key: no material.
func checkTombstone(k *kms.Key, fail failFunc) {
	for _, v := range k.Versions {
		if v.State != kms.VersionDestroyed || v.Blob != nil {
			fail("version state", "is not that of a destroyed key's")
		}
	}
}

func checkCredential(c *kms.Credential, fail failFunc) {
	switch {
	case c.Name == "" || len(c.Name) > kms.MaxNameLength || !storableText(c.Name):
		fail("name", "is not a valid name")
	case !kms.ValidName(c.Project):
		fail("project", "is not a valid name")
	case len(c.Component) > kms.MaxNameLength || !storableText(c.Component):
		fail("component", "is not a valid name")
	case len(c.Scopes) == 0:
		fail("scopes", reasonMissing)
	case c.Revision == 0:
		fail("revision", reasonRange)
	default:
		checkSecrets(c.Secrets, fail)
		checkGuard(c.Guard, fail)
	}
}

func checkSecrets(secrets []kms.CredentialSecret, fail failFunc) {
	for i := range secrets {
		if secrets[i].PepperVersion == 0 {
			fail("secret pepper_version", reasonRange)
		}
	}
}

// storableText tells whether every dialect stores s as it is: PostgreSQL's
// text takes no zero byte and nothing that is not UTF-8.
func storableText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// argument runs a check on what a caller hands over and returns the first
// thing that is wrong as an error of KindInvalidArgument.
func argument(check func(failFunc)) error {
	var err error
	check(func(field, reason string) {
		if err == nil {
			err = errArgument(field, reason)
		}
	})
	return err
}
