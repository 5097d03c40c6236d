package kms

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"uuid"
)

// CreateSecretInput is the input of Service.CreateSecret.
type CreateSecretInput struct {
	Path     string
	Provider string
	Value    []byte
	Metadata map[string]string
	Fresh    time.Duration // 0: as the policy says
	Lease    time.Duration // 0: as the policy says
	NotAfter time.Time     // of the first version; zero: it does not expire
}

// CreateSecret makes a secret whose first version is in use.
func (s *Service) CreateSecret(ctx context.Context, t *Ticket, in CreateSecretInput) (*ProviderSecret, error) {
	secret := &ProviderSecret{ID: newID(), Path: in.Path, Provider: in.Provider, Metadata: maps.Clone(in.Metadata), State: SecretInUse,
		Fresh: in.Fresh, Lease: in.Lease, Highest: 1}
	times := s.secretTimes()
	if secret.Lease == 0 {
		secret.Lease = max(times.Lease, secret.Fresh)
	}
	if secret.Fresh == 0 {
		secret.Fresh = min(times.Fresh, secret.Lease)
	}
	first := &SecretVersion{Number: 1, State: SecretActive, Weight: 100, NotAfter: in.NotAfter}
	secret.Versions = []*SecretVersion{first}
	err := s.run(ctx, t, &task{op: OpCreateSecret, bytes: len(in.Value), allowed: reachesSecrets(OpCreateSecret),
		prepare: func(t *Ticket) error {
			secret.Tenant, t.Resource, t.Version = t.By.Tenant.ID, secret.ID.String(), 1
			switch {
			case !ValidSecretPath(in.Path):
				return errSecretPath("path")
			case !t.By.AllowedSecret(OpCreateSecret, in.Path):
				return ErrPermissionDenied
			case !ValidProvider(in.Provider):
				return Errorf(KindInvalidArgument, "provider: must be 1 to %d lower-case letters, digits and -_.", MaxProvider)
			}
			if err := secret.checkPolicy(); err != nil {
				return err
			}
			return s.checkSecretValue(in.Value, in.NotAfter)
		},
		store: func(ctx context.Context, t *Ticket) error {
			if err := s.sealVersion(ctx, t.By.Tenant, secret, first, in.Value); err != nil {
				return err
			}
			secret.Created = first.Created
			return s.secrets.CreateSecret(ctx, secret)
		}})
	if err != nil {
		return nil, err
	}
	s.try(secret.Tenant, secret.Path, 1)
	return secret, nil
}

func errSecretPath(field string) error {
	return Errorf(KindInvalidArgument, `%s: must be 1 to %d visible ASCII characters other than *:\"%%?#<>|, in segments separated by / that are neither empty nor . or ..`,
		field, MaxSecretPath)
}

// checkPolicy checks what people say of a secret.
func (s *ProviderSecret) checkPolicy() error {
	if s.Fresh < MinFresh || s.Fresh > s.Lease || s.Lease > MaxLease {
		return Errorf(KindInvalidArgument, "policy: fresh_seconds must be at least 1, lease_seconds no less than that and at most %d", int(MaxLease/time.Second))
	}
	if err := checkMetadata(nil, s.Metadata); err != nil {
		return Errorf(KindInvalidArgument, "metadata: at most %d entries; names are printable UTF-8 of 1 to %d bytes, values of at most %d", MaxTags, MaxTagKey, MaxTagValue)
	}
	return nil
}

func (s *Service) checkSecretValue(value []byte, notAfter time.Time) error {
	switch {
	case len(value) == 0 || len(value) > MaxSecretValue || !utf8.Valid(value):
		return Errorf(KindInvalidArgument, "value: must be UTF-8 of 1 to %d bytes", MaxSecretValue)
	case !notAfter.IsZero() && !notAfter.After(s.clock()):
		return Errorf(KindInvalidArgument, "not_after: must be in the future")
	}
	return nil
}

// sealVersion completes a version with its value.
func (s *Service) sealVersion(ctx context.Context, t *Tenant, secret *ProviderSecret, v *SecretVersion, value []byte) error {
	v.Created, v.FingerprintVersion = s.clock(), s.pepper.current
	v.Fingerprint, _ = s.valueFingerprint(v.FingerprintVersion, secret, value)
	return s.sealSecretValue(ctx, t, secret, v, value)
}

// reachesSecrets lets pass who may run the operation on some secret; on which
// is decided when it is known.
func reachesSecrets(op Op) func(*Ticket) bool {
	return func(t *Ticket) bool { return t.By.Scopes.reaches(op.Info()) }
}

// secret finds a secret on which the principal may run the operation. One on
// which it may not is missing, unless the principal may list secrets.
func (s *Service) secret(ctx context.Context, t *Ticket, op Op, ref string) (*ProviderSecret, error) {
	id, ok := parseRef(ref)
	if !ok {
		return nil, ErrNotFound
	}
	secret, err := s.secrets.Secret(ctx, t.By.Tenant.ID, id)
	if err != nil {
		return nil, err
	}
	return visibleSecret(t, op, secret)
}

// visibleSecret lets pass a secret on which the principal may run the operation.
func visibleSecret(t *Ticket, op Op, secret *ProviderSecret) (*ProviderSecret, error) {
	if !t.By.AllowedSecret(op, secret.Path) {
		if t.By.Allowed(OpListSecrets, nil) {
			return nil, ErrPermissionDenied
		}
		return nil, ErrNotFound
	}
	t.Resource, t.Revision = secret.ID.String(), secret.Revision
	return secret, nil
}

// DescribeSecret returns a secret's metadata.
func (s *Service) DescribeSecret(ctx context.Context, t *Ticket, ref string) (secret *ProviderSecret, err error) {
	err = s.run(ctx, t, &task{op: OpReadSecret, allowed: reachesSecrets(OpReadSecret),
		store: func(ctx context.Context, t *Ticket) error {
			secret, err = s.secret(ctx, t, OpReadSecret, ref)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// DescribeSecretAt is DescribeSecret of the secret that has a path.
func (s *Service) DescribeSecretAt(ctx context.Context, t *Ticket, path string) (secret *ProviderSecret, err error) {
	err = s.run(ctx, t, &task{op: OpReadSecret, allowed: reachesSecrets(OpReadSecret),
		prepare: func(*Ticket) error {
			if !ValidSecretPath(path) {
				return errSecretPath("path")
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			if secret, err = s.secrets.SecretByPath(ctx, t.By.Tenant.ID, path); err == nil {
				secret, err = visibleSecret(t, OpReadSecret, secret)
			}
			return err
		}})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// maxDirectoryPages bounds what one listing of a directory reads: 100,000
// secrets.
const maxDirectoryPages = 100

// SecretDirectory returns what is in a directory of the tenant's secrets, sorted:
// the next segments of the paths below it, with a slash at its end where there
// is more behind. A directory is "" for all, or a path that ends with a slash.
// KindUnsatisfiable when there is too much below it.
func (s *Service) SecretDirectory(ctx context.Context, t *Ticket, directory string) (names []string, err error) {
	err = s.run(ctx, t, &task{op: OpListSecrets,
		prepare: func(*Ticket) error {
			if directory != "" && (!strings.HasSuffix(directory, "/") || !ValidSecretPath(directory+"x")) {
				return errSecretPath("directory")
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			names, err = s.directory(ctx, t.By.Tenant.ID, directory)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return names, nil
}

func (s *Service) directory(ctx context.Context, tenant uuid.UUID, directory string) (names []string, err error) {
	page := Page{Size: MaxPageSize}
	for range maxDirectoryPages {
		list, next, err := s.secrets.ListSecrets(ctx, tenant, directory, page)
		if err != nil {
			return nil, err
		}
		for _, secret := range list {
			name, _, deeper := strings.Cut(secret.Path[len(directory):], "/")
			if deeper {
				name += "/"
			}
			// Paths are sorted, so those of one directory stand together.
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
		}
		if next == "" {
			return names, nil
		}
		page.Token = next
	}
	return nil, Errorf(KindUnsatisfiable, "there is too much below this directory; list one that is deeper")
}

// ListSecrets returns a page of the secrets whose path begins with prefix,
// ordered by path.
func (s *Service) ListSecrets(ctx context.Context, t *Ticket, prefix string, page Page) (list []*ProviderSecret, next string, err error) {
	err = s.run(ctx, t, &task{op: OpListSecrets,
		prepare: func(*Ticket) error {
			if prefix != "" && !ValidSecretPath(prefix+"x") { // "llm/" is no path, and a prefix
				return errSecretPath("prefix")
			}
			return checkPage(page)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			list, next, err = s.secrets.ListSecrets(ctx, t.By.Tenant.ID, prefix, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// SecretRef names a secret to change, and the revision that it must still have;
// 0: any.
type SecretRef struct {
	ID       string
	Expected uint64
}

// secretChange is a change of a secret.
type secretChange struct {
	op      Op
	ref     SecretRef
	version uint32 // that it is about, 0 for none
	kind    SecretChangeKind
	bytes   int
	// plan computes the next state; errNoChange when it is the present one.
	plan func(now time.Time, next *ProviderSecret) error
	// seal completes the next state where that takes an HSM; nil: nothing to do.
	seal func(ctx context.Context, t *Ticket, next *ProviderSecret) error
}

// errNoChange is a plan's word that there is nothing to change.
var errNoChange = errors.New("kms: nothing changes")

func (s *Service) changeSecret(ctx context.Context, t *Ticket, c secretChange) (*ProviderSecret, error) {
	var was, next *ProviderSecret
	err := s.run(ctx, t, &task{op: c.op, bytes: c.bytes, allowed: reachesSecrets(c.op),
		prepare: func(t *Ticket) (err error) {
			if was, err = s.secret(ctx, t, c.op, c.ref.ID); err != nil {
				return err
			}
			if c.ref.Expected != 0 && c.ref.Expected != was.Revision {
				return Errorf(KindPreconditionFailed, "the secret has another revision")
			}
			t.Version = c.version
			next = was.Clone()
			if err = c.plan(s.clock(), next); err == errNoChange {
				next, err = was, nil
			}
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			if next == was {
				return nil
			}
			if c.seal != nil {
				if err := c.seal(ctx, t, next); err != nil {
					return err
				}
			}
			err := s.secrets.UpdateSecret(ctx, was, next, c.kind)
			if c.ref.Expected == 0 {
				err = concurrently(err)
			}
			return err
		}})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// UpdateSecretInput is the input of Service.UpdateSecret; nil fields stay.
type UpdateSecretInput struct {
	Metadata     map[string]string // replaces all
	Fresh, Lease *time.Duration
}

// UpdateSecret changes what is said of a secret.
func (s *Service) UpdateSecret(ctx context.Context, t *Ticket, ref SecretRef, in UpdateSecretInput) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpUpdateSecret, ref: ref, kind: SecretChanged,
		plan: func(_ time.Time, next *ProviderSecret) error {
			if in.Metadata != nil {
				next.Metadata = maps.Clone(in.Metadata)
			}
			if in.Fresh != nil {
				next.Fresh = *in.Fresh
			}
			if in.Lease != nil {
				next.Lease = *in.Lease
			}
			return next.checkPolicy()
		}})
}

// AddSecretVersion gives a secret a STAGED version. When a version has that
// value already, whatever its state, that one is the answer and nothing changes.
func (s *Service) AddSecretVersion(ctx context.Context, t *Ticket, ref SecretRef, value []byte, notAfter time.Time) (secret *ProviderSecret, number uint32, err error) {
	secret, err = s.changeSecret(ctx, t, secretChange{op: OpAddSecretVersion, ref: ref, kind: SecretChanged, bytes: len(value),
		plan: func(_ time.Time, next *ProviderSecret) error {
			if next.State != SecretInUse {
				return errSecretPending
			}
			if err := s.checkSecretValue(value, notAfter); err != nil {
				return err
			}
			if v := s.sameValue(next, value); v != nil {
				number, t.Version = v.Number, v.Number
				return errNoChange
			}
			live := 0
			for _, v := range next.Versions {
				if v.State != SecretDestroyed {
					live++
				}
			}
			if live >= MaxSecretVersions || len(next.Versions) >= MaxSecretTombstones {
				return Errorf(KindConflict, "a secret has at most %d versions that are not destroyed", MaxSecretVersions)
			}
			next.Highest++
			number = next.Highest
			next.Versions = append(next.Versions, &SecretVersion{Number: number, State: SecretStaged, NotAfter: notAfter})
			t.Version = number
			return nil
		},
		seal: func(ctx context.Context, t *Ticket, next *ProviderSecret) error {
			return s.sealVersion(ctx, t.By.Tenant, next, next.Version(number), value)
		}})
	if err != nil {
		return nil, 0, err
	}
	s.try(secret.Tenant, secret.Path, number)
	return secret, number, nil
}

// ActivateSecret brings a version into use, at once or in steps.
func (s *Service) ActivateSecret(ctx context.Context, t *Ticket, ref SecretRef, in ActivateInput) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpActivateSecret, ref: ref, version: in.Version, kind: SecretChanged,
		plan: func(now time.Time, next *ProviderSecret) error { return next.activate(now, in) }})
}

// RollbackSecret gives the calls back to the version before.
func (s *Service) RollbackSecret(ctx context.Context, t *Ticket, ref SecretRef) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpRollbackSecret, ref: ref, kind: SecretChanged,
		plan: func(now time.Time, next *ProviderSecret) error {
			err := next.rollback(now)
			if err == nil {
				t.Version = next.active().Number
			}
			return err
		}})
}

// DisableSecretVersion takes a version out of use at once, the last one too.
func (s *Service) DisableSecretVersion(ctx context.Context, t *Ticket, ref SecretRef, number uint32) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpDisableSecret, ref: ref, version: number, kind: SecretRevoked,
		plan: func(now time.Time, next *ProviderSecret) error { return next.disable(now, number) }})
}

// DestroySecretVersion sets the date at which a version that is not in use is
// destroyed.
func (s *Service) DestroySecretVersion(ctx context.Context, t *Ticket, ref SecretRef, number uint32, days int) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpDestroySecret, ref: ref, version: number, kind: SecretRevoked,
		plan: func(now time.Time, next *ProviderSecret) error { return next.scheduleDestruction(now, number, days) }})
}

// RestoreSecretVersion makes a disabled or retired version STAGED, and takes a
// scheduled deletion of the secret back.
func (s *Service) RestoreSecretVersion(ctx context.Context, t *Ticket, ref SecretRef, number uint32) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpRestoreSecret, ref: ref, version: number, kind: SecretChanged,
		plan: func(_ time.Time, next *ProviderSecret) error { return next.restore(number) }})
}

// DeleteSecret takes a secret out of use at once and sets the date of its
// destruction.
func (s *Service) DeleteSecret(ctx context.Context, t *Ticket, ref SecretRef, days int) (*ProviderSecret, error) {
	return s.changeSecret(ctx, t, secretChange{op: OpDeleteSecret, ref: ref, kind: SecretRevoked,
		plan: func(now time.Time, next *ProviderSecret) error { return next.scheduleDeletion(now, days) }})
}

// ReplaySecret is Replay for an operation on a secret, which it returns as it is
// now.
func (s *Service) ReplaySecret(ctx context.Context, t *Ticket, op Op, id string) (secret *ProviderSecret, err error) {
	err = s.replayOther(ctx, t, op, reachesSecrets(op), func(t *Ticket) error {
		secret, err = s.secret(ctx, t, op, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// ReplaySecretGrants is Replay for SetSecretGrants: it returns the grants as
// they are now.
func (s *Service) ReplaySecretGrants(ctx context.Context, t *Ticket, id string) (list []SecretGrant, err error) {
	var secret *ProviderSecret
	err = s.replayOther(ctx, t, OpSetSecretGrants, nil, func(t *Ticket) error {
		secret, err = s.grantedSecret(ctx, t, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.grants(ctx, secret)
}

func (s *Service) foundSecret(ctx context.Context, e *Entry) string {
	id, err := uuid.Parse(e.Resource)
	if err != nil {
		return OutcomeFoundUnknown
	}
	secret, err := s.secrets.Secret(ctx, e.Tenant, id)
	switch {
	case err == nil:
		return since(e.Revision, secret.Revision)
	case KindOf(err) == KindNotFound && e.Op == OpKeeperDestroySecret:
		return OutcomeFoundDone // destroyed secrets are missing
	}
	return missing(err, e.Revision)
}

// SecretGrant says that a credential may read a secret, and by which scope.
type SecretGrant struct {
	Credential uuid.UUID
	Name       string
	Scope      string // the first that allows it
	// Exact tells whether it is the scope of this path alone, which
	// SetSecretGrants gives and takes.
	Exact bool
}

// grantOf is the scope that is a grant of one secret.
func grantOf(path string) string { return "secret:read:" + path }

// grantedSecret finds a secret for its grants, which are the tenant
// administrator's.
func (s *Service) grantedSecret(ctx context.Context, t *Ticket, ref string) (*ProviderSecret, error) {
	id, ok := parseRef(ref)
	if !ok {
		return nil, ErrNotFound
	}
	secret, err := s.secrets.Secret(ctx, t.By.Tenant.ID, id)
	if err == nil {
		t.Resource, t.Revision = secret.ID.String(), secret.Revision
	}
	return secret, err
}

// SecretGrants returns the live credentials of the tenant that may read a
// secret, ordered by name.
func (s *Service) SecretGrants(ctx context.Context, t *Ticket, ref string) (list []SecretGrant, err error) {
	err = s.run(ctx, t, &task{op: OpReadSecretGrants, store: func(ctx context.Context, t *Ticket) error {
		secret, err := s.grantedSecret(ctx, t, ref)
		if err == nil {
			list, err = s.grants(ctx, secret)
		}
		return err
	}})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (s *Service) grants(ctx context.Context, secret *ProviderSecret) (list []SecretGrant, err error) {
	err = s.eachCredential(ctx, secret.Tenant, func(c *Credential) error {
		if i := slices.IndexFunc(c.Scopes, func(text string) bool {
			scopes, err := ParseScopes([]string{text})
			return err == nil && scopes.allow(OpFetchSecrets.Info(), secret.Path)
		}); i >= 0 {
			list = append(list, SecretGrant{c.ID, c.Name, c.Scopes[i], slices.Contains(c.Scopes, grantOf(secret.Path))})
		}
		return nil
	})
	return list, err
}

// eachCredential calls f with the tenant's credentials that are live.
func (s *Service) eachCredential(ctx context.Context, tenant uuid.UUID, f func(*Credential) error) error {
	page := Page{Size: MaxPageSize}
	for {
		list, next, err := s.credentials.ListCredentials(ctx, tenant, page)
		if err != nil {
			return err
		}
		for _, c := range list {
			if !c.live(s.clock()) {
				continue
			}
			if err := f(c); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		page.Token = next
	}
}

// SetSecretGrants makes the given credentials of the tenant those that have the
// scope of the secret's path, and takes it from all others; wider scopes stay as
// they are. Each credential is changed by itself: after an error, some are.
func (s *Service) SetSecretGrants(ctx context.Context, t *Ticket, ref string, credentials []uuid.UUID) (list []SecretGrant, err error) {
	var secret *ProviderSecret
	err = s.run(ctx, t, &task{op: OpSetSecretGrants,
		prepare: func(t *Ticket) (err error) {
			if secret, err = s.grantedSecret(ctx, t, ref); err != nil {
				return err
			}
			if len(credentials) > MaxPageSize {
				return Errorf(KindInvalidArgument, "credentials: at most %d", MaxPageSize)
			}
			for i, id := range credentials {
				if _, err := s.credentials.Credential(ctx, t.By.Tenant.ID, id); err != nil {
					if KindOf(err) == KindNotFound {
						return Errorf(KindInvalidArgument, "credentials[%d]: there is no such credential", i)
					}
					return err
				}
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			if err = s.grantExactly(ctx, t, secret, credentials); err == nil {
				list, err = s.grants(ctx, secret)
			}
			return err
		}})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (s *Service) grantExactly(ctx context.Context, t *Ticket, secret *ProviderSecret, credentials []uuid.UUID) error {
	grant := grantOf(secret.Path)
	return s.eachCredential(ctx, secret.Tenant, func(c *Credential) error {
		has, wanted := slices.Contains(c.Scopes, grant), slices.Contains(credentials, c.ID)
		if has == wanted {
			return nil
		}
		op, scopes := OpTakeSecretGrant, without(c.Scopes, grant)
		if wanted {
			op, scopes = OpGiveSecretGrant, append(scopes, grant)
		}
		switch {
		case len(scopes) == 0:
			return Errorf(KindConflict, "a credential would be left without any scope; revoke it instead")
		case len(scopes) > MaxScopes:
			return Errorf(KindConflict, "a credential has %d scopes already; give it a wider one", MaxScopes)
		}
		return s.grantOne(ctx, t.following(s.clock()), op, secret, c, scopes)
	})
}

// grantOne changes the scopes of one credential, as a change with an entry of its
// own: SetSecretGrants' does not tell who has lost what.
func (s *Service) grantOne(ctx context.Context, t *Ticket, op Op, secret *ProviderSecret, c *Credential, scopes []string) error {
	return s.run(ctx, t, &task{op: op, free: true, allowed: always,
		prepare: func(t *Ticket) error {
			t.Resource, t.Revision, t.Items = c.ID.String(), c.Revision, []EntryItem{{Secret: secret.ID}}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			_, err := s.credentials.UpdateCredential(ctx, c.Tenant, c.ID, c.Revision, CredentialChange{Scopes: scopes})
			return concurrently(err)
		}})
}

func without(scopes []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return scope == one })
}
