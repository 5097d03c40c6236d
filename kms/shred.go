package kms

import (
	"cmp"
	"context"
	"log/slog"
	"time"
	"uuid"
)

// A tenant is deleted in three steps. The request stops its credentials and
// erases its sealing key, without which no row of its keys can be opened; it is
// one change of one row. The keeper then erases the rows' material, key by key,
// each with its intent and its outcome in the journal, so that a crash loses
// nothing and the next look goes on. What is left are copies in backups and
// replicas, which the sealing root opens that wrapped the sealing key: once
// that root is replaced and the backups of its time are gone, the keeper notes
// that the tenant is shredded.

const (
	// eraseBatch is how many of a tenant's keys or credentials are read at
	// once.
	eraseBatch = 100
	// eraseTimeout bounds what one look of the keeper spends on deletions, so
	// that what is due by date has the rest of its interval.
	eraseTimeout = keeperInterval / 2
	// eraseSettle is how long after the request an erasure ends at the
	// earliest: requests that were under way then, here or on a node that had
	// not heard of it yet, have stored what they made.
	eraseSettle = 5 * time.Minute
	// overdueReminder is how often the log is told of copies that should be
	// void and are not.
	overdueReminder = 24 * time.Hour
)

// DeleteTenant deletes a suspended tenant, for good: its credentials end and
// its sealing key is erased before it returns; its keys are erased by the
// keeper. The name stays taken, so that the journal's entries cannot be taken
// for those of another. The system tenant cannot be deleted.
func (s *Service) DeleteTenant(ctx context.Context, t *Ticket, ref string) (*Tenant, error) {
	var tenant *Tenant
	err := s.run(ctx, t, &task{op: OpDeleteTenant,
		prepare: func(t *Ticket) (err error) {
			if tenant, err = s.tenants.TenantByRef(ctx, ref); err != nil {
				return err
			}
			t.onTenant(tenant)
			switch {
			case tenant.Name == SystemTenantName:
				return Errorf(KindConflict, "the system tenant cannot be deleted")
			case tenant.Deleted():
				return errTenantDeleted
			case tenant.State != TenantSuspended:
				return Errorf(KindConflict, "the tenant is in use; suspend it first")
			}
			return nil
		},
		act: func(context.Context, *Ticket) (*act, error) {
			return &act{resource: "tenant " + tenant.Name, arguments: [][]byte{tenant.ID[:]}}, nil
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			now := s.clock()
			tenant, err = s.deletions.DeleteTenant(ctx, tenant.ID, tenant.Revision, now, now.Add(s.copiesLive))
			return concurrently(err)
		}})
	if err != nil {
		return nil, err
	}
	return tenant, nil
}

// errTenantDeleted answers to changes of a deleted tenant.
var errTenantDeleted = &Error{Kind: KindConflict, Detail: "the tenant was deleted"}

// advanceDeletions goes on with every deletion that is not complete. A look that
// ran out of time is gone on with by the next one, behind the tenant at which it
// ended, so that one whose erasure fails or hangs does not keep others waiting.
func (k *Keeper) advanceDeletions() {
	ctx, cancel := context.WithTimeout(context.Background(), eraseTimeout)
	defer cancel()
	s := k.service
	overdue := 0
	for {
		due, err := s.deletions.DueDeletions(ctx, s.clock(), k.deletion, keeperBatch)
		if err != nil {
			s.log.Error("keeper: looking for deletions", slog.Any("error", err))
			return
		}
		for _, id := range due {
			if k.stopped() || ctx.Err() != nil {
				return
			}
			k.deletion = id
			open, err := k.advanceDeletion(ctx, id)
			if err != nil {
				s.log.Error("keeper: deleting a tenant", slog.String("tenant", id.String()), slog.Any("error", err))
			}
			if open {
				overdue++
			}
		}
		if len(due) < keeperBatch {
			k.deletion = uuid.Nil()
			break
		}
	}
	if now := s.clock(); overdue > 0 && now.Sub(k.reminded) >= overdueReminder {
		k.reminded = now
		s.log.Warn("copies of deleted tenants should be void, but the sealing root that opens them is in use still",
			slog.Int("tenants", overdue))
	}
}

// advanceDeletion takes a deletion as far as it goes now. It tells whether the
// tenant's copies should be void and are not.
func (k *Keeper) advanceDeletion(ctx context.Context, id uuid.UUID) (overdue bool, err error) {
	s := k.service
	tenant, err := s.tenants.Tenant(ctx, id)
	if err != nil {
		return false, err
	}
	switch tenant.State {
	case TenantDeleting:
		if err := k.eraseKeys(ctx, tenant); err != nil {
			return false, err
		}
		if err := k.eraseSecrets(ctx, tenant); err != nil {
			return false, err
		}
		if err := s.eraseRoutes(ctx, tenant); err != nil {
			return false, err
		}
		if err := s.eraseJobs(ctx, tenant); err != nil {
			return false, err
		}
		if err := k.revokeCredentials(ctx, tenant); err != nil {
			return false, err
		}
		// The end is reached when a look finds nothing left.
		left, _, err := s.keys.ListKeys(ctx, tenant.ID, "", Page{Size: 1})
		if err != nil || len(left) > 0 {
			return false, err
		}
		secrets, _, err := s.secrets.ListSecrets(ctx, tenant.ID, "", Page{Size: 1})
		if err != nil || len(secrets) > 0 || k.stopped() || s.clock().Before(tenant.Deletion.Requested.Add(eraseSettle)) {
			return false, err // found again at the next look
		}
		return false, s.endDeletion(ctx, tenant, OpKeeperErase, TenantDeleted)
	case TenantDeleted:
		if s.opens(tenant.Sealing) {
			return true, nil
		}
		return false, s.endDeletion(ctx, tenant, OpKeeperShred, TenantShredded)
	}
	return false, nil
}

func (k *Keeper) stopped() bool {
	select {
	case <-k.stop:
		return true
	default:
		return false
	}
}

// opens tells whether a sealing root may exist that opens the key, or an older
// copy of it: one of its generation or an earlier one, or one of a domain that is
// not known here.
func (s *Service) opens(sealing SealingKey) bool {
	replaced := false
	for _, n := range s.device.Status() {
		if n.Domain != sealing.Domain {
			continue
		}
		if n.OldestGeneration <= sealing.RootGeneration {
			return true
		}
		replaced = true
	}
	return !replaced
}

// eraseKeys erases the material of a tenant's keys and returns the first error.
// A key that cannot be erased keeps no other; it is tried again at the next
// look.
func (k *Keeper) eraseKeys(ctx context.Context, tenant *Tenant) (first error) {
	page := Page{Size: eraseBatch}
	for {
		keys, next, err := k.service.keys.ListKeys(ctx, tenant.ID, "", page)
		if err != nil {
			return cmp.Or(first, err)
		}
		for _, key := range keys {
			if k.stopped() {
				return first
			}
			if err := k.service.eraseKey(ctx, key); err != nil {
				first = cmp.Or(first, err)
			}
			if ctx.Err() != nil {
				return cmp.Or(first, ctx.Err())
			}
		}
		if next == "" {
			return first
		}
		page.Token = next
	}
}

// eraseKey destroys a key of a deleted tenant, whatever its state.
func (s *Service) eraseKey(ctx context.Context, key *Key) error {
	return s.run(ctx, s.keeperTicket(key.Tenant, key.Project), &task{op: OpKeeperDestroy, ref: key.ID.String(), allowed: always,
		prepare: func(t *Ticket) error {
			if !t.Key.Tenant.Deleted() {
				return Errorf(KindConflict, "the key's tenant is not deleted")
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			return s.lifecycle.DestroyKey(ctx, t.Key.Tenant.ID, t.Key.ID, t.Key.Revision)
		}})
}

// revokeCredentials revokes a deleted tenant's credentials, which nobody can
// use any more, so that an old row of the tenant, put back, brings none to
// life.
func (k *Keeper) revokeCredentials(ctx context.Context, tenant *Tenant) (first error) {
	page := Page{Size: eraseBatch}
	for {
		list, next, err := k.service.credentials.ListCredentials(ctx, tenant.ID, page)
		if err != nil {
			return cmp.Or(first, err)
		}
		for _, c := range list {
			if k.stopped() {
				return first
			}
			if !c.Revoked.IsZero() {
				continue
			}
			if err := k.service.revokeDeleted(ctx, tenant, c); err != nil {
				first = cmp.Or(first, err)
			}
			if ctx.Err() != nil {
				return cmp.Or(first, ctx.Err())
			}
		}
		if next == "" {
			return first
		}
		page.Token = next
	}
}

func (s *Service) revokeDeleted(ctx context.Context, tenant *Tenant, c *Credential) error {
	return s.run(ctx, s.keeperTicket(tenant, c.Project), &task{op: OpKeeperRevoke, allowed: always,
		prepare: func(t *Ticket) error {
			t.onCredential(c)
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			now := s.clock()
			_, err := s.credentials.UpdateCredential(ctx, c.Tenant, c.ID, c.Revision, CredentialChange{Revoked: &now})
			return err
		}})
}

// endDeletion records the end of a step of a deletion.
func (s *Service) endDeletion(ctx context.Context, tenant *Tenant, op Op, to TenantState) error {
	return s.run(ctx, s.keeperTicket(tenant, DefaultProject), &task{op: op, allowed: always,
		prepare: func(t *Ticket) error {
			t.onTenant(tenant)
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			_, err := s.deletions.AdvanceDeletion(ctx, tenant.ID, tenant.Revision, to, s.clock())
			return err
		}})
}
