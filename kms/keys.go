package kms

import (
	"context"
	"maps"
	"time"
	"unicode"
	"unicode/utf8"
	"uuid"
)

// Bounds of a key's metadata: what an operator's list can show and a row can
// hold without growing the metadata cache beyond its budget per key.
const (
	MaxDescription = 1024 // bytes
	MaxTags        = 50
	MaxTagKey      = 128 // bytes
	MaxTagValue    = 256 // bytes
)

// Bounds of the window before a scheduled deletion, in days.
const (
	MinDeletionDays     = 7
	MaxDeletionDays     = 30
	DefaultDeletionDays = 30
)

// CreateKeyInput is the input of Service.CreateKey.
type CreateKeyInput struct {
	Name               string // "": "key-" and the id
	Spec               Spec
	Usage              Usage      // "": the spec's default
	Project            string     // "": the credential's
	Protection         Protection // "": the strongest, SEALED only by the tenant's consent
	Description        string
	Tags               map[string]string
	DeletionProtection bool
	RotationPeriod     time.Duration // 0: none; MinRotation to MaxRotation
}

// Bounds of the time between scheduled rotations.
const (
	MinRotation = 24 * time.Hour
	MaxRotation = 10 * 365 * 24 * time.Hour
)

func checkRotation(period time.Duration) error {
	if period != 0 && (period < MinRotation || period > MaxRotation) {
		return Errorf(KindInvalidArgument, "rotation_period: must be 0 for none, or 1 day to 10 years")
	}
	return nil
}

// CreateKey makes a key with its first version.
func (s *Service) CreateKey(ctx context.Context, t *Ticket, in CreateKeyInput) (*Key, error) {
	var key *Key
	version := &Version{ID: newID(), Number: 1, State: VersionEnabled}
	err := s.run(ctx, t, &task{
		op: OpCreateKey, spec: in.Spec,
		prepare: func(t *Ticket) (err error) {
			key, err = s.newKey(ctx, t, in)
			t.Key, t.Version = key, 1
			return err
		},
		nodes: func(t *Ticket) ([]NodeID, error) {
			return s.device.CreatorNodes(key.Tenant.Sealing.Domain, key.Spec, key.Protection)
		},
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return s.device.Generate(ctx, node, key, version)
		},
		store: func(ctx context.Context, t *Ticket) error { return s.storeKey(ctx, key, version) },
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// storeKey stores a new key with its first version.
func (s *Service) storeKey(ctx context.Context, key *Key, version *Version) error {
	key.Created = s.clock()
	version.Created = key.Created
	if key.RotationPeriod > 0 {
		key.NextRotation = key.Created.Add(key.RotationPeriod)
	}
	key.Versions = []*Version{version}
	return s.keys.CreateKey(ctx, key)
}

func (s *Service) newKey(ctx context.Context, t *Ticket, in CreateKeyInput) (*Key, error) {
	info := in.Spec.Info()
	if info == nil {
		return nil, Errorf(KindInvalidArgument, "spec: is unknown")
	}
	if in.Usage == "" {
		in.Usage = info.Usages[0].Usage
	}
	if info.Algorithms(in.Usage) == nil {
		return nil, Errorf(KindInvalidArgument, "usage: keys of spec %s can be made for %v", in.Spec, usages(info))
	}
	if in.Name != "" && !ValidName(in.Name) {
		return nil, errName("name")
	}
	if !t.By.mayName(in.Name) {
		return nil, ErrPermissionDenied
	}
	if err := checkMetadata(&in.Description, in.Tags); err != nil {
		return nil, err
	}
	if err := checkRotation(in.RotationPeriod); err != nil {
		return nil, err
	}
	project, err := s.project(ctx, t.By, in.Project)
	if err != nil {
		return nil, err
	}
	protection, err := s.protection(t.By.Tenant, in.Spec, in.Protection)
	if err != nil {
		return nil, err
	}
	key := &Key{
		ID: newID(), Tenant: t.By.Tenant, Project: project, Name: in.Name,
		Spec: in.Spec, Usage: in.Usage, Protection: protection, State: KeyEnabled,
		Description: in.Description, Tags: maps.Clone(in.Tags),
		DeletionProtection: in.DeletionProtection, RotationPeriod: in.RotationPeriod,
		Origin: OriginGenerated, Primary: 1, Revision: 1,
	}
	if key.Name == "" {
		key.Name = "key-" + key.ID.String()
	}
	// The scope's glob holds for names to be made too: a credential limited to
	// "orders-*" cannot take the name of another's key.
	if !t.By.Scopes.allow(&OpInfo{Op: OpCreateKey, Class: ClassCreate, Family: "key", PerKey: true}, key.Name) {
		return nil, ErrPermissionDenied
	}
	return key, nil
}

func usages(info *SpecInfo) []Usage {
	list := make([]Usage, len(info.Usages))
	for i, u := range info.Usages {
		list[i] = u.Usage
	}
	return list
}

func errName(field string) error {
	return Errorf(KindInvalidArgument, "%s: must be 1 to %d letters, digits and -_./, begin and end with a letter or digit, and not look like a UUID", field, MaxNameLength)
}

// checkMetadata checks what is shown to people: no control characters, so
// that a description cannot forge a line of a terminal or a log.
func checkMetadata(description *string, tags map[string]string) error {
	if description != nil && (len(*description) > MaxDescription || !printable(*description)) {
		return Errorf(KindInvalidArgument, "description: must be printable UTF-8 of at most %d bytes", MaxDescription)
	}
	if len(tags) > MaxTags {
		return Errorf(KindInvalidArgument, "tags: a key has at most %d", MaxTags)
	}
	for k, v := range tags {
		if len(k) == 0 || len(k) > MaxTagKey || len(v) > MaxTagValue || !printable(k) || !printable(v) {
			return Errorf(KindInvalidArgument, "tags: names are printable UTF-8 of 1 to %d bytes, values of at most %d", MaxTagKey, MaxTagValue)
		}
	}
	return nil
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// project returns the project that a new object goes to.
func (s *Service) project(ctx context.Context, by *Principal, asked string) (string, error) {
	if asked == "" || asked == by.Project {
		return by.Project, nil
	}
	if !ValidName(asked) {
		return "", errName("project")
	}
	if !by.Sees(asked) {
		return "", ErrNotFound
	}
	if _, err := s.tenants.Project(ctx, by.Tenant.ID, asked); err != nil {
		return "", err
	}
	return asked, nil
}

// protection decides where a new key lives. A token that offers the mechanism
// gets the key; SEALED needs the caller's word or the tenant's consent.
func (s *Service) protection(tenant *Tenant, spec Spec, asked Protection) (Protection, error) {
	offered, err := s.device.ProtectionFor(tenant.Sealing.Domain, spec)
	if err != nil {
		return "", err
	}
	switch {
	case asked == offered, asked == "" && offered == ProtectionHSM:
		return offered, nil
	case asked == "" && tenant.AllowSealed:
		return ProtectionSealed, nil
	case asked == "":
		return "", Errorf(KindInvalidArgument,
			"protection: no HSM of the tenant's domain offers %s; name SEALED to have the key sealed by the HSM and used in process memory", spec)
	case asked == ProtectionHSM:
		return "", Errorf(KindInvalidArgument, "protection: no HSM of the tenant's domain offers %s; only SEALED is possible", spec)
	case asked == ProtectionSealed:
		return "", Errorf(KindInvalidArgument, "protection: the HSMs offer %s, so its keys are HSM keys", spec)
	}
	return "", Errorf(KindInvalidArgument, "protection: must be HSM or SEALED")
}

// RotateKey gives a key a new version, which becomes the primary one.
func (s *Service) RotateKey(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	return s.rotate(ctx, t, OpRotateKey, ref, nil)
}

func (s *Service) rotate(ctx context.Context, t *Ticket, op Op, ref string, allowed func(*Ticket) bool) (*Key, error) {
	var version *Version
	var rotated *Key
	err := s.run(ctx, t, &task{
		op: op, ref: ref, allowed: allowed,
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, op); err != nil {
				return err
			}
			last := t.Key.Versions[len(t.Key.Versions)-1]
			version = &Version{ID: newID(), Number: last.Number + 1, State: VersionEnabled}
			t.Version = version.Number
			return nil
		},
		nodes: func(t *Ticket) ([]NodeID, error) {
			return s.device.CreatorNodes(t.Key.Tenant.Sealing.Domain, t.Key.Spec, t.Key.Protection)
		},
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return s.device.Generate(ctx, node, t.Key, version)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			version.Created = s.clock()
			rotated, err = s.keys.AddVersion(ctx, t.By.Tenant.ID, t.Key.ID, t.Key.Revision, version)
			return concurrently(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return rotated, nil
}

// concurrently turns a lost race for a revision that the caller did not name
// into a conflict.
func concurrently(err error) error {
	if KindOf(err) == KindPreconditionFailed {
		return Wrap(KindConflict, err, "the object was changed at the same time; try again")
	}
	return err
}

// DescribeKey returns a key's metadata.
func (s *Service) DescribeKey(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	return s.readKey(ctx, t, OpDescribeKey, ref)
}

// PublicKey returns a key for its public half: the version of the number, or
// the primary one for 0. It works on disabled keys: a public key verifies
// what was signed before.
func (s *Service) PublicKey(ctx context.Context, t *Ticket, ref string, number uint32) (*Key, *Version, error) {
	var v *Version
	err := s.run(ctx, t, &task{op: OpPublic, ref: ref, prepare: func(t *Ticket) error {
		if t.Key.Spec.Info().Symmetric() {
			return Errorf(KindInvalidArgument, "%s keys have no public half", t.Key.Spec)
		}
		if number == 0 {
			number = t.Key.Primary
		}
		if v = t.Key.Version(number); v == nil {
			return Errorf(KindInvalidArgument, "version: the key has no such version")
		}
		t.Version = v.Number
		return nil
	}})
	if err != nil {
		return nil, nil, err
	}
	return t.Key, v, nil
}

func (s *Service) readKey(ctx context.Context, t *Ticket, op Op, ref string) (*Key, error) {
	if err := s.run(ctx, t, &task{op: op, ref: ref}); err != nil {
		return nil, err
	}
	return t.Key, nil
}

// ListKeys returns a page of the keys that the principal may see, ordered by
// name, and the token of the next page.
func (s *Service) ListKeys(ctx context.Context, t *Ticket, project string, page Page) ([]*Key, string, error) {
	var keys []*Key
	var next string
	err := s.run(ctx, t, &task{op: OpListKeys,
		prepare: func(t *Ticket) error {
			if project == "" && !t.By.Sees("") {
				project = t.By.Project
			}
			if project != "" && !t.By.Sees(project) {
				return ErrNotFound
			}
			return checkPage(page)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			keys, next, err = s.keys.ListKeys(ctx, t.By.Tenant.ID, project, page)
			return err
		},
	})
	if err != nil {
		return nil, "", err
	}
	return keys, next, nil
}

func checkPage(p Page) error {
	if p.Size < 1 || p.Size > MaxPageSize {
		return Errorf(KindInvalidArgument, "page_size: must be 1 to %d", MaxPageSize)
	}
	return nil
}

// UpdateKeyInput is the input of Service.UpdateKey; nil fields stay.
type UpdateKeyInput struct {
	Description        *string
	Tags               map[string]string // replaces all when not nil
	DeletionProtection *bool
}

// UpdateKey changes a key's descriptive metadata.
func (s *Service) UpdateKey(ctx context.Context, t *Ticket, ref string, in UpdateKeyInput) (*Key, error) {
	return s.changeKey(ctx, t, OpUpdateKey, ref, func(t *Ticket) (KeyChange, error) {
		if err := checkMetadata(in.Description, in.Tags); err != nil {
			return KeyChange{}, err
		}
		return KeyChange{Description: in.Description, Tags: maps.Clone(in.Tags), DeletionProtection: in.DeletionProtection}, nil
	})
}

// SetRotation schedules a key's rotations, the first one a period from now; 0
// ends them.
func (s *Service) SetRotation(ctx context.Context, t *Ticket, ref string, period time.Duration) (*Key, error) {
	var changed *Key
	err := s.run(ctx, t, &task{op: OpUpdateKey, ref: ref,
		prepare: func(*Ticket) error { return checkRotation(period) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			var next time.Time
			if period > 0 {
				next = s.clock().Add(period)
			}
			changed, err = s.lifecycle.SetRotation(ctx, t.By.Tenant.ID, t.Key.ID, t.Key.Revision, period, next)
			return concurrently(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}

// EnableKey and DisableKey switch a key on and off; both are idempotent.
func (s *Service) EnableKey(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	return s.switchKey(ctx, t, OpEnableKey, ref, KeyEnabled)
}

// DisableKey switches a key off. See EnableKey.
func (s *Service) DisableKey(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	return s.switchKey(ctx, t, OpDisableKey, ref, KeyDisabled)
}

func (s *Service) switchKey(ctx context.Context, t *Ticket, op Op, ref string, state KeyState) (*Key, error) {
	return s.changeKey(ctx, t, op, ref, func(t *Ticket) (KeyChange, error) {
		if t.Key.State == KeyPendingDeletion {
			return KeyChange{}, Errorf(KindPendingDeletion, "the key is scheduled for deletion; cancel that first")
		}
		return KeyChange{State: &state}, nil
	})
}

// ScheduleKeyDeletion disables a key and sets the date of its destruction.
func (s *Service) ScheduleKeyDeletion(ctx context.Context, t *Ticket, ref string, days int) (*Key, error) {
	return s.changeKey(ctx, t, OpDeleteKey, ref, func(t *Ticket) (KeyChange, error) {
		if days < MinDeletionDays || days > MaxDeletionDays {
			return KeyChange{}, Errorf(KindInvalidArgument, "days: must be %d to %d", MinDeletionDays, MaxDeletionDays)
		}
		if t.Key.DeletionProtection {
			return KeyChange{}, Errorf(KindConflict, "the key is protected from deletion; switch that off first")
		}
		if t.Key.State == KeyPendingDeletion {
			return KeyChange{}, Errorf(KindPendingDeletion, "the key is scheduled for deletion already")
		}
		state, date := KeyPendingDeletion, s.clock().Add(time.Duration(days)*24*time.Hour)
		return KeyChange{State: &state, DeletionDate: &date}, nil
	})
}

// CancelKeyDeletion takes a scheduled deletion back; the key stays disabled
// until it is enabled, so that a mistaken deletion is noticed twice.
func (s *Service) CancelKeyDeletion(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	return s.changeKey(ctx, t, OpCancelDel, ref, func(t *Ticket) (KeyChange, error) {
		if t.Key.State != KeyPendingDeletion {
			return KeyChange{}, Errorf(KindConflict, "the key is not scheduled for deletion")
		}
		state, never := KeyDisabled, time.Time{}
		return KeyChange{State: &state, DeletionDate: &never}, nil
	})
}

func (s *Service) changeKey(ctx context.Context, t *Ticket, op Op, ref string, plan func(*Ticket) (KeyChange, error)) (*Key, error) {
	var change KeyChange
	var changed *Key
	err := s.run(ctx, t, &task{op: op, ref: ref,
		prepare: func(t *Ticket) (err error) {
			change, err = plan(t)
			return err
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			changed, err = s.keys.UpdateKey(ctx, t.By.Tenant.ID, t.Key.ID, t.Key.Revision, change)
			return concurrently(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}

// parseRef tells whether a reference is an id.
func parseRef(ref string) (uuid.UUID, bool) {
	id, err := uuid.Parse(ref)
	return id, err == nil
}
