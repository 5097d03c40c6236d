package keystore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// secretRevisions is what this process knows of the tenants' revisions. A
// secret is cached only after its tenant's revision was read, and a revision
// grows only after what it changed was dropped from the cache: so what is cached
// is never older than the revision that is known. It holds one word for each
// tenant whose secrets were used.
type secretRevisions struct {
	known  sync.Map // :: tenant → *atomic.Uint64
	follow atomic.Pointer[func(uuid.UUID)]

	mu    sync.Mutex // guards the rest
	moved chan struct{}
}

// advance notes a revision after what it changed was dropped, and tells who
// follows.
func (r *secretRevisions) advance(tenant uuid.UUID, revision uint64) {
	if v, ok := r.known.Load(tenant); ok {
		known := v.(*atomic.Uint64)
		for old := known.Load(); old < revision && !known.CompareAndSwap(old, revision); old = known.Load() {
		}
	}
	r.tell(tenant)
}

// forget forgets all revisions: before the secrets are, see secretRevisions.
func (r *secretRevisions) forget() { r.known.Clear() }

// tell wakes those who wait for a revision and calls the follower.
func (r *secretRevisions) tell(tenant uuid.UUID) {
	r.mu.Lock()
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
	r.mu.Unlock()
	if f := r.follow.Load(); f != nil {
		(*f)(tenant)
	}
}

// wait returns a channel that is closed at the next advance.
func (r *secretRevisions) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return r.moved
}

// FollowSecrets implements kms.SecretChanges.
func (s *Store) FollowSecrets(f func(tenant uuid.UUID)) { s.secretRevisions.follow.Store(&f) }

// SecretsRevision implements kms.SecretChanges.
func (s *Store) SecretsRevision(ctx context.Context, tenant uuid.UUID) (uint64, error) {
	if s.follower != nil && !s.follower.fresh() {
		return 0, errStale
	}
	if v, ok := s.secretRevisions.known.Load(tenant); ok {
		return v.(*atomic.Uint64).Load(), nil
	}
	stored, err := s.readSecretRevision(ctx, tenant)
	if err != nil {
		return 0, err
	}
	first := new(atomic.Uint64)
	first.Store(stored)
	v, _ := s.secretRevisions.known.LoadOrStore(tenant, first)
	return v.(*atomic.Uint64).Load(), nil
}

// readSecretRevision reads a tenant's revision, 0 for one without secrets.
func (s *Store) readSecretRevision(ctx context.Context, tenant uuid.UUID) (uint64, error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	row, err := s.driver.SecretRevision(ctx, SecretRevisionParams{Tenant: tenant})
	if errors.Is(err, ErrMissing) {
		return 0, nil
	}
	if err != nil {
		return 0, translate(err)
	}
	revision, err := decodeSecretRevision(c, tenant, row)
	return revision, s.decoded(err)
}

// AwaitSecretsRevision implements kms.SecretChanges.
func (s *Store) AwaitSecretsRevision(ctx context.Context, tenant uuid.UUID, want uint64) (uint64, error) {
	for {
		moved := s.secretRevisions.wait()
		known, err := s.SecretsRevision(ctx, tenant)
		if err != nil || known >= want {
			return known, err
		}
		if s.follower != nil {
			s.follower.announce()
		}
		select {
		case <-ctx.Done():
			return known, nil
		case <-moved:
		}
	}
}

// Secret implements kms.ProviderSecrets. A warm look-up calls no database.
func (s *Store) Secret(ctx context.Context, tenant, id uuid.UUID) (*kms.ProviderSecret, error) {
	return s.providerSecrets.get(ctx, keyID{tenant, id})
}

// SecretByPath implements kms.ProviderSecrets.
func (s *Store) SecretByPath(ctx context.Context, tenant uuid.UUID, path string) (*kms.ProviderSecret, error) {
	if len(path) > kms.MaxSecretPath {
		return nil, kms.ErrNotFound
	}
	id, err := s.secretPaths.get(ctx, keyName{tenant, path})
	if err != nil {
		return nil, err
	}
	secret, err := s.Secret(ctx, tenant, id)
	if err == nil && secret.Path != path {
		// The row that led here was not written so.
		err = translate(&RowError{Object: ObjectProviderSecret, Tenant: tenant, ID: id, Column: "path", Reason: "is not the one asked for"})
		s.damaged(err)
		return nil, err
	}
	return secret, err
}

func (s *Store) loadSecretID(ctx context.Context, k keyName) (uuid.UUID, error) {
	if !kms.ValidSecretPath(k.name) {
		return uuid.UUID{}, kms.ErrNotFound
	}
	if _, err := s.SecretsRevision(ctx, k.tenant); err != nil {
		return uuid.UUID{}, err
	}
	found, err := s.driver.ProviderSecretID(ctx, ProviderSecretPathParams{Tenant: k.tenant, Path: k.name})
	if err != nil {
		return uuid.UUID{}, translate(err)
	}
	d := newDecoder(ObjectProviderSecret, k.tenant, rowID(found))
	id := d.id(found, "id")
	return id, s.decoded(d.result())
}

func (s *Store) loadProviderSecret(ctx context.Context, k keyID) (*kms.ProviderSecret, error) {
	// First: see secretRevisions.
	if _, err := s.SecretsRevision(ctx, k.tenant); err != nil {
		return nil, err
	}
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.ProviderSecret(ctx, ProviderSecretParams{Tenant: k.tenant, ID: k.key})
	if err != nil {
		return nil, translate(err)
	}
	secret, err := decodeProviderSecret(c, k.tenant, row, &k.key, true)
	if err != nil {
		return nil, s.decoded(err)
	}
	if secret.State == kms.SecretGone {
		return nil, kms.ErrNotFound
	}
	return secret, nil
}

// ListSecrets implements kms.ProviderSecrets. Damaged secrets are reported to
// the log and left out.
func (s *Store) ListSecrets(ctx context.Context, tenant uuid.UUID, prefix string, page kms.Page) ([]*kms.ProviderSecret, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*ProviderSecretRow, *kms.ProviderSecret]{
		scope: scope{kind: 's', tenant: tenant, project: prefix},
		rows: func(ctx context.Context, after position, limit int) ([]*ProviderSecretRow, error) {
			return s.driver.ListProviderSecrets(ctx, ListProviderSecretsParams{Tenant: tenant, From: prefix, After: after.name,
				Before: prefix + pathsEnd, Limit: limit})
		},
		rowPosition: func(r *ProviderSecretRow) position { return position{name: r.Path.String} },
		decode: func(r *ProviderSecretRow) (*kms.ProviderSecret, error) {
			return decodeProviderSecret(c, tenant, r, nil, false)
		},
		damaged: s.damaged,
	}
	return l.page(ctx, page)
}

// pathsEnd is behind every character that a path can have.
const pathsEnd = "\x7f"

// CreateSecret implements kms.ProviderSecrets.
func (s *Store) CreateSecret(ctx context.Context, secret *kms.ProviderSecret) error {
	secret.Created = storedTime(secret.Created)
	p := InsertProviderSecretParams{}
	return s.changeSecrets(ctx, 0, secret, kms.SecretChanged, &p.SecretChangeParams, func(c *rowCoder, record ProviderSecretRecord) error {
		var err error
		p.Secret = record
		if p.Versions, err = c.providerVersions(secret, secret.Versions); err != nil {
			return err
		}
		return s.driver.InsertProviderSecret(ctx, p)
	})
}

// UpdateSecret implements kms.ProviderSecrets. Numbers are never taken back:
// KindInvalidArgument when the highest one would be lower.
func (s *Store) UpdateSecret(ctx context.Context, was, next *kms.ProviderSecret, kind kms.SecretChangeKind) error {
	if next.Highest < was.Highest || next.ID != was.ID || next.Tenant != was.Tenant || next.Path != was.Path {
		return errArgument("secret", "is another, or has lost versions")
	}
	p := UpdateProviderSecretParams{Was: was.Revision, Uncount: restarted(was.Rollout, next.Rollout)}
	var added []*kms.SecretVersion
	for _, v := range next.Versions {
		before := was.Version(v.Number)
		switch {
		case before == nil:
			added = append(added, v)
		case v.State == kms.SecretDestroyed && before.State != kms.SecretDestroyed:
			p.Destroyed = append(p.Destroyed, v.Number)
		}
	}
	return s.changeSecrets(ctx, was.Revision, next, kind, &p.SecretChangeParams, func(c *rowCoder, record ProviderSecretRecord) error {
		var err error
		p.Secret = record
		if p.Added, err = c.providerVersions(next, added); err != nil {
			return err
		}
		return s.driver.UpdateProviderSecret(ctx, p)
	})
}

// restarted tells whether the counting of outcomes begins anew.
func restarted(was, next *kms.Rollout) bool {
	switch {
	case was == nil || next == nil:
		return was != next
	}
	return was.To != next.To || !was.Since.Equal(next.Since)
}

// maxOvertaken is how often a change takes the tenant's next revision before it
// gives up: each time another change of the tenant was made.
const maxOvertaken = 32

// changeSecrets gives a secret's next state the tenant's next revision and
// stores it; write is called again when another change of the tenant came first.
// was is the secret's revision: the next one is above it even if the tenant's
// row is gone, or gateways would take the change for an older state.
func (s *Store) changeSecrets(ctx context.Context, was uint64, next *kms.ProviderSecret, kind kms.SecretChangeKind, p *SecretChangeParams,
	write func(*rowCoder, ProviderSecretRecord) error) error {
	roundTimes(next)
	if err := argument(func(fail failFunc) { checkProviderSecret(next, true, fail) }); err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	for range maxOvertaken {
		var revision uint64
		if revision, err = s.readSecretRevision(ctx, next.Tenant); err != nil {
			return err
		}
		next.Revision = max(revision, was) + 1
		var record ProviderSecretRecord
		if record, err = c.secretChange(next, kind, timestamp(s.now()), p); err != nil {
			return err
		}
		if err = write(c, record); !errors.Is(err, ErrOvertaken) {
			break
		}
	}
	// Whatever came of it: the change may have been made.
	s.dropSecret(next.Tenant, next.ID, next.Path)
	if err != nil {
		return translate(err)
	}
	s.known.raise(rowOf(ObjectProviderSecret, next.Tenant, next.ID), next.Revision)
	s.knowSecretRevision(next.Tenant, next.Revision)
	return nil
}

// knowSecretRevision notes the revision of a change of this process. When
// another process made the one before, what that changed may be cached still:
// then it is for the follower, who comes to both.
func (s *Store) knowSecretRevision(tenant uuid.UUID, revision uint64) {
	if s.follower != nil {
		v, ok := s.secretRevisions.known.Load(tenant)
		if ok && v.(*atomic.Uint64).Load()+1 < revision {
			s.follower.announce()
			return
		}
	}
	s.secretRevisions.advance(tenant, revision)
}

// secretChange makes the records of a change.
func (c *rowCoder) secretChange(next *kms.ProviderSecret, kind kms.SecretChangeKind, made Timestamp, p *SecretChangeParams) (ProviderSecretRecord, error) {
	record, err := encodeProviderSecret(next)
	if err != nil {
		return record, err
	}
	if record.Code, err = c.code(codeProviderSecret, record.fields()); err != nil {
		return record, err
	}
	p.Revision = SecretRevisionRecord{Tenant: next.Tenant, Revision: next.Revision}
	if p.Revision.Code, err = c.code(codeSecretRevision, p.Revision.fields()); err != nil {
		return record, err
	}
	p.Change = SecretChangeRecord{Tenant: next.Tenant, Revision: next.Revision, Path: next.Path, Kind: string(kind), Made: made}
	p.Change.Code, err = c.code(codeSecretChange, p.Change.fields())
	p.Oldest = next.Revision - min(next.Revision, kms.SecretChangesKept) + 1
	return record, err
}

func (c *rowCoder) providerVersions(s *kms.ProviderSecret, versions []*kms.SecretVersion) (list []ProviderVersionRecord, err error) {
	for _, v := range versions {
		r := ProviderVersionRecord{Number: v.Number, DataKey: v.DataKey, Value: v.Value}
		if r.Code, err = c.code(codeProviderVersion, r.fields(s.Tenant, s.ID)); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// roundTimes makes the times those that will come back from the database.
func roundTimes(s *kms.ProviderSecret) {
	s.Created, s.DeletionDate = storedTime(s.Created), storedTime(s.DeletionDate)
	for _, v := range s.Versions {
		v.Created, v.NotAfter, v.Retired, v.DestroyAt = storedTime(v.Created), storedTime(v.NotAfter), storedTime(v.Retired), storedTime(v.DestroyAt)
	}
	if s.Rollout != nil {
		s.Rollout.Since = storedTime(s.Rollout.Since)
	}
}

// dropSecret forgets what is cached of a secret.
func (s *Store) dropSecret(tenant, id uuid.UUID, path string) {
	s.providerSecrets.drop(keyID{tenant, id})
	s.secretPaths.drop(keyName{tenant, path})
}

// ChangesOfSecrets implements kms.SecretChanges. What was changed behind the
// service's back is missing, and so a gap.
func (s *Store) ChangesOfSecrets(ctx context.Context, tenant uuid.UUID, after uint64, limit int) (changes []kms.SecretChange, gap bool, err error) {
	c, err := s.coder()
	if err != nil {
		return nil, false, err
	}
	known, err := s.SecretsRevision(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.driver.SecretChanges(ctx, SecretChangesParams{Tenant: tenant, After: after, Limit: limit})
	if err != nil {
		return nil, false, translate(err)
	}
	last := after
	for _, row := range rows {
		change, err := decodeSecretChange(c, tenant, row)
		if err != nil {
			s.damaged(err)
			continue
		}
		if change.Revision != last+1 {
			changes, gap = nil, true
		}
		changes, last = append(changes, change), change.Revision
	}
	if len(rows) < limit && last < known {
		// The newest are missing, which is no order in which they go.
		changes, gap = nil, true
	}
	return changes, gap, nil
}

// DueSecrets implements kms.ProviderSecrets.
func (s *Store) DueSecrets(ctx context.Context, now time.Time, after kms.DueSecret, limit int) ([]kms.DueSecret, error) {
	p := DueKeysParams{Now: timestamp(now), After: DuePosition{timestamp(after.Due), after.Tenant[:], after.Secret[:]}}
	due, err := s.due(ctx, ObjectProviderSecret, p, limit, s.driver.DueProviderSecrets)
	if err != nil {
		return nil, err
	}
	list := make([]kms.DueSecret, len(due))
	for i, d := range due {
		list[i] = kms.DueSecret{Due: d.Due, Tenant: d.Tenant, Secret: d.Key}
	}
	return list, nil
}

// AddOutcomes implements kms.SecretOutcomes.
func (s *Store) AddOutcomes(ctx context.Context, tenant uuid.UUID, list []kms.SecretOutcome) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	p := AddSecretOutcomesParams{Tenant: tenant}
	for _, o := range list {
		p.Outcomes = append(p.Outcomes, SecretOutcomeRecord(o))
	}
	return translate(s.driver.AddSecretOutcomes(ctx, p))
}

// Outcomes implements kms.SecretOutcomes.
func (s *Store) Outcomes(ctx context.Context, tenant, secret uuid.UUID) ([]kms.SecretOutcome, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.SecretOutcomes(ctx, SecretOutcomesParams{Tenant: tenant, Secret: secret})
	if err != nil {
		return nil, translate(err)
	}
	list := make([]kms.SecretOutcome, 0, len(rows))
	for _, r := range rows {
		o, err := decodeSecretOutcome(tenant, secret, r)
		if err != nil {
			return nil, s.decoded(err)
		}
		list = append(list, o)
	}
	return list, nil
}

func sizeProviderSecret(_ keyID, s *kms.ProviderSecret) int {
	n := int(unsafe.Sizeof(*s)) + len(s.Path) + len(s.Provider)
	if s.Metadata != nil {
		n += mapOverhead
	}
	for name, value := range s.Metadata {
		n += len(name) + len(value)
	}
	for _, v := range s.Versions {
		n += int(unsafe.Sizeof(v)) + int(unsafe.Sizeof(*v)) + len(v.DataKey) + len(v.Value)
	}
	if s.Rollout != nil {
		n += int(unsafe.Sizeof(*s.Rollout)) + 4*len(s.Rollout.Steps)
	}
	return n
}
