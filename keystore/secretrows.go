package keystore

import (
	"encoding/json/v2"
	"math"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// secretDocument is what is said of a secret and its versions, as it is stored:
// JSON in its one encoding, times in UTC microseconds, 0 for none, durations in
// microseconds.
type secretDocument struct {
	Provider string                  `json:"provider"`
	Metadata map[string]string       `json:"metadata,omitempty"`
	Created  Timestamp               `json:"created"`
	Deletion Timestamp               `json:"deletion,omitzero"`
	Fresh    int64                   `json:"fresh"`
	Lease    int64                   `json:"lease"`
	Highest  uint32                  `json:"highest"`
	Versions []secretVersionDocument `json:"versions"`
	Rollout  *rolloutDocument        `json:"rollout,omitempty"`
}

type secretVersionDocument struct {
	Number      uint32    `json:"n"`
	State       string    `json:"state"`
	Weight      uint32    `json:"weight,omitzero"`
	Created     Timestamp `json:"created"`
	NotAfter    Timestamp `json:"not_after,omitzero"`
	Retired     Timestamp `json:"retired,omitzero"`
	DestroyAt   Timestamp `json:"destroy_at,omitzero"`
	Fingerprint []byte    `json:"fingerprint,omitempty"`
	Pepper      uint32    `json:"pepper,omitzero"`
}

type rolloutDocument struct {
	State    string    `json:"state"`
	From     uint32    `json:"from"`
	To       uint32    `json:"to"`
	Steps    []uint32  `json:"steps"`
	Step     int       `json:"step"`
	Interval int64     `json:"interval"`
	Observe  int64     `json:"observe"`
	Since    Timestamp `json:"since"`
}

// documentTime is a time in a document; see secretDocument.
func documentTime(t time.Time) Timestamp {
	if t.IsZero() {
		return 0
	}
	return timestamp(t)
}

func timeOfDocument(t Timestamp) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}

func encodeProviderSecret(s *kms.ProviderSecret) (ProviderSecretRecord, error) {
	d := secretDocument{Provider: s.Provider, Metadata: s.Metadata, Created: documentTime(s.Created), Deletion: documentTime(s.DeletionDate),
		Fresh: s.Fresh.Microseconds(), Lease: s.Lease.Microseconds(), Highest: s.Highest,
		Versions: make([]secretVersionDocument, len(s.Versions))}
	for i, v := range s.Versions {
		d.Versions[i] = secretVersionDocument{Number: v.Number, State: string(v.State), Weight: v.Weight, Created: documentTime(v.Created),
			NotAfter: documentTime(v.NotAfter), Retired: documentTime(v.Retired), DestroyAt: documentTime(v.DestroyAt), Pepper: v.FingerprintVersion}
		if v.FingerprintVersion != 0 {
			d.Versions[i].Fingerprint = v.Fingerprint[:]
		}
	}
	if r := s.Rollout; r != nil {
		d.Rollout = &rolloutDocument{State: string(r.State), From: r.From, To: r.To, Steps: r.Steps, Step: r.Step,
			Interval: r.Interval.Microseconds(), Observe: r.Observe.Microseconds(), Since: documentTime(r.Since)}
	}
	document, err := json.Marshal(&d, json.Deterministic(true))
	if err != nil {
		return ProviderSecretRecord{}, errArgument("metadata", "is not text")
	}
	return ProviderSecretRecord{Tenant: s.Tenant, ID: s.ID, Path: s.Path, State: string(s.State), Document: document,
		Due: maybeTimestamp(storedTime(s.Due())), Revision: s.Revision}, nil
}

// secretOfDocument is the other way; ok is false for what is no document.
func secretOfDocument(document []byte) (s *kms.ProviderSecret, ok bool) {
	var d secretDocument
	if err := json.Unmarshal(document, &d, json.RejectUnknownMembers(true)); err != nil {
		return nil, false
	}
	s = &kms.ProviderSecret{Provider: word(d.Provider), Metadata: d.Metadata, Created: timeOfDocument(d.Created), DeletionDate: timeOfDocument(d.Deletion),
		Fresh: time.Duration(d.Fresh) * time.Microsecond, Lease: time.Duration(d.Lease) * time.Microsecond, Highest: d.Highest,
		Versions: make([]*kms.SecretVersion, len(d.Versions))}
	for i := range d.Versions {
		v := &d.Versions[i]
		s.Versions[i] = &kms.SecretVersion{Number: v.Number, State: kms.SecretVersionState(word(v.State)), Weight: v.Weight,
			Created: timeOfDocument(v.Created), NotAfter: timeOfDocument(v.NotAfter), Retired: timeOfDocument(v.Retired),
			DestroyAt: timeOfDocument(v.DestroyAt), FingerprintVersion: v.Pepper}
		if copy(s.Versions[i].Fingerprint[:], v.Fingerprint) != len(v.Fingerprint) {
			return nil, false
		}
	}
	if r := d.Rollout; r != nil {
		s.Rollout = &kms.Rollout{State: kms.RolloutState(r.State), From: r.From, To: r.To, Steps: r.Steps, Step: r.Step,
			Interval: time.Duration(r.Interval) * time.Microsecond, Observe: time.Duration(r.Observe) * time.Microsecond, Since: timeOfDocument(r.Since)}
	}
	return s, true
}

// decodeProviderSecret makes a secret of its row. values tells whether the
// values of its versions were read too.
func decodeProviderSecret(c *rowCoder, tenant uuid.UUID, r *ProviderSecretRow, want *uuid.UUID, values bool) (*kms.ProviderSecret, error) {
	d := newDecoder(ObjectProviderSecret, tenant, rowID(r.ID))
	document := d.bytes(r.Document, "document")
	record := ProviderSecretRecord{Tenant: tenant, ID: d.id(r.ID, "id"), Path: d.text(r.Path, "path"), State: d.text(r.State, "state"),
		Document: document, Revision: d.revision(r.Revision)}
	due := d.maybeTime(r.Due, "due")
	d.wanted(record.ID, want)
	if d.result() == nil {
		// Before what it says is looked at.
		c.check(d, codeProviderSecret, record.fields(), r.Code)
	}
	if d.result() != nil {
		return nil, d.result()
	}
	s, ok := secretOfDocument(document)
	if !ok {
		d.fail("document", reasonFormat)
		return nil, d.result()
	}
	s.ID, s.Tenant, s.Path, s.State, s.Revision = record.ID, tenant, record.Path, kms.SecretState(word(record.State)), record.Revision
	d.require(due.Equal(storedTime(s.Due())), "due", "does not follow from the dates")
	if values {
		d.values(c, s, r.Versions)
	}
	if d.result() == nil {
		checkProviderSecret(s, values, d.fail)
	}
	c.current(d, rowOf(ObjectProviderSecret, tenant, s.ID), s.Revision)
	return s, d.result()
}

// values puts the values of versions to them.
func (d *decoder) values(c *rowCoder, s *kms.ProviderSecret, rows []ProviderVersionRow) {
	for i := range rows {
		r := &rows[i]
		record := ProviderVersionRecord{Number: d.number(r.Number, "version number"), DataKey: d.bytes(r.DataKey, "version data_key"),
			Value: d.bytes(r.Value, "version value")}
		if d.result() != nil {
			return
		}
		c.check(d, codeProviderVersion, record.fields(s.Tenant, s.ID), r.Code)
		v := s.Version(record.Number)
		if v == nil {
			d.fail("version number", "is not one of the secret's")
			return
		}
		v.DataKey, v.Value = record.DataKey, record.Value
	}
}

// checkProviderSecret checks a secret; values tells whether those of its
// versions are there.
func checkProviderSecret(s *kms.ProviderSecret, values bool, fail failFunc) {
	switch {
	case s.ID == uuid.Nil() || s.Tenant == uuid.Nil():
		fail("id", reasonMissing)
	case !kms.ValidSecretPath(s.Path):
		fail("path", "is not a valid path")
	case !kms.ValidProvider(s.Provider):
		fail("provider", "is not a valid name")
	case s.State != kms.SecretInUse && s.State != kms.SecretPendingDeletion && s.State != kms.SecretGone:
		fail("state", reasonUnknown)
	case s.DeletionDate.IsZero() == (s.State == kms.SecretPendingDeletion):
		fail("deletion", "does not go with the state")
	case s.Created.IsZero():
		fail("created", reasonMissing)
	case s.Fresh < kms.MinFresh || s.Lease < s.Fresh || s.Lease > kms.MaxLease:
		fail("lease", reasonRange)
	case len(s.Versions) == 0:
		fail("versions", reasonMissing)
	default:
		for name, value := range s.Metadata {
			if !storableText(name) || !storableText(value) {
				fail("metadata", "is not text")
			}
		}
		checkProviderVersions(s, values, fail)
		checkRollout(s, fail)
	}
}

func checkProviderVersions(s *kms.ProviderSecret, values bool, fail failFunc) {
	var last, weight uint32
	for _, v := range s.Versions {
		destroyed := v.State == kms.SecretDestroyed
		switch {
		case v.Number <= last || v.Number > s.Highest:
			fail("version number", reasonRange)
		case !knownSecretVersionState(v.State):
			fail("version state", reasonUnknown)
		case s.State == kms.SecretGone && !destroyed:
			fail("version state", "is not that of a destroyed secret's")
		case v.Weight > 0 && v.State != kms.SecretActive:
			fail("version weight", "does not go with the state")
		case destroyed == (v.FingerprintVersion != 0):
			fail("version fingerprint", "does not go with the state")
		case v.DestroyAt.IsZero() && (destroyed || v.State == kms.SecretRetired):
			fail("version destroy_at", reasonMissing)
		case values && (destroyed != (v.DataKey == nil) || destroyed != (v.Value == nil)):
			fail("version value", "does not go with the state")
		}
		last = v.Number
		weight += v.Weight
	}
	if weight != 0 && weight != 100 {
		fail("version weight", reasonRange)
	}
}

func knownSecretVersionState(s kms.SecretVersionState) bool {
	for _, known := range kms.SecretVersionStates() {
		if s == known {
			return true
		}
	}
	return false
}

func checkRollout(s *kms.ProviderSecret, fail failFunc) {
	r := s.Rollout
	if r == nil {
		return
	}
	running := r.State == kms.RolloutRunning
	switch {
	case !running && r.State != kms.RolloutDone && r.State != kms.RolloutRolledBack && r.State != kms.RolloutCancelled:
		fail("rollout state", reasonUnknown)
	case r.From == r.To || s.Version(r.From) == nil || s.Version(r.To) == nil:
		fail("rollout", "names no two versions")
	case running && (s.Version(r.From).State != kms.SecretActive || s.Version(r.To).State != kms.SecretActive):
		fail("rollout", "runs with versions that are not in use")
	case len(r.Steps) == 0 || r.Step < 0 || r.Step >= len(r.Steps):
		fail("rollout step", reasonRange)
	case r.Interval < kms.MinInterval || r.Observe < kms.MinObserve || r.Since.IsZero():
		fail("rollout interval", reasonRange)
	}
}

func (r *ProviderSecretRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.ID).text(r.Path).text(r.State).bytes(r.Document).number(r.Revision)
}

func (r *ProviderVersionRecord) fields(tenant, secret uuid.UUID) fields {
	return fields{}.id(tenant).id(secret).number(uint64(r.Number)).bytes(r.DataKey).bytes(r.Value)
}

func (r *SecretRevisionRecord) fields() fields { return fields{}.id(r.Tenant).number(r.Revision) }

func (r *SecretChangeRecord) fields() fields {
	return fields{}.id(r.Tenant).number(r.Revision).text(r.Path).text(r.Kind).time(r.Made)
}

func decodeSecretRevision(c *rowCoder, tenant uuid.UUID, r *SecretRevisionRow) (uint64, error) {
	d := newDecoder(ObjectProviderSecret, tenant, uuid.Nil())
	record := SecretRevisionRecord{Tenant: tenant, Revision: d.revision(r.Revision)}
	if d.result() == nil {
		c.check(d, codeSecretRevision, record.fields(), r.Code)
	}
	return record.Revision, d.result()
}

func decodeSecretChange(c *rowCoder, tenant uuid.UUID, r *SecretChangeRow) (kms.SecretChange, error) {
	d := newDecoder(ObjectProviderSecret, tenant, uuid.Nil())
	record := SecretChangeRecord{Tenant: tenant, Revision: d.revision(r.Revision), Path: d.text(r.Path, "path"), Kind: d.text(r.Kind, "kind"),
		Made: timestamp(d.time(r.Made, "made"))}
	d.require(record.Kind == string(kms.SecretChanged) || record.Kind == string(kms.SecretRevoked), "kind", reasonUnknown)
	if d.result() == nil {
		c.check(d, codeSecretChange, record.fields(), r.Code)
	}
	return kms.SecretChange{Revision: record.Revision, Path: record.Path, Kind: kms.SecretChangeKind(word(record.Kind))}, d.result()
}

func decodeSecretOutcome(tenant, secret uuid.UUID, r *SecretOutcomeRow) (kms.SecretOutcome, error) {
	d := newDecoder(ObjectProviderSecret, tenant, secret)
	count := func(c Integer, column string) int64 { return d.integer(c, column, 0, math.MaxInt64) }
	return kms.SecretOutcome{Secret: secret, Version: d.number(r.Version, "version"), OK: count(r.OK, "ok"),
		Credential: count(r.Credential, "credential"), Quota: count(r.Quota, "quota"), RateLimit: count(r.RateLimit, "rate_limit"),
		Transient: count(r.Transient, "transient")}, d.result()
}
