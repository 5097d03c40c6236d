package kms

import (
	"context"
	"log/slog"
	"time"
	"uuid"
)

// The keeper's pace.
const (
	// keeperInterval is how often the keeper looks for what is due. Dates are
	// in days; a minute late is on time.
	keeperInterval = time.Minute
	// keeperBatch bounds what one look takes on; the rest follows at once.
	keeperBatch = 100
	// keeperQueue bounds rotations asked for between two looks; what does not
	// fit is asked for again by the next use.
	keeperQueue = 256
)

// keeperComponent is who acts, in the journal.
const keeperComponent = "keeper"

// Keeper does what is due by date or by use: it rotates keys, destroys keys and
// versions whose window is over, and erases what belongs to deleted tenants. On several API nodes each has one;
// the revision of a key lets one of them act.
type Keeper struct {
	service *Service
	wanted  chan DueKey // rotations by use
	// due is what is left to do of the page that was read last, after is its
	// last key, zero at the beginning of the list; both are the loop's. They
	// outlive a look: one that ran out of time goes on where it ended, so that
	// keys on which acts fail or hang do not keep the others waiting.
	due   []DueKey
	after DueKey
	stop  chan struct{}
	ended chan struct{}
	// deletion is the tenant whose deletion was last gone on with, zero at the
	// beginning of the list; the loop's.
	deletion uuid.UUID
	// reminded is when the log was last told of overdue shredding; the loop's.
	reminded time.Time
}

// StartKeeper starts the service's keeper; its Close stops it and waits.
func (s *Service) StartKeeper() *Keeper {
	k := &Keeper{service: s, wanted: s.rotations, stop: make(chan struct{}), ended: make(chan struct{})}
	go k.loop()
	return k
}

// Close stops the keeper and waits for what it is doing.
func (k *Keeper) Close() error {
	close(k.stop)
	<-k.ended
	return nil
}

func (k *Keeper) loop() {
	defer close(k.ended)
	tick := time.NewTicker(keeperInterval)
	defer tick.Stop()
	for {
		k.sweep()
		select {
		case <-k.stop:
			k.storeUses()
			return
		case due := <-k.wanted:
			k.rotate(due)
		case <-tick.C:
		}
	}
}

// storeUses stores last uses.
func (k *Keeper) storeUses() {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := k.service.storeUses(ctx); err != nil {
		k.service.log.Error("keeper: storing last uses", slog.Any("error", err))
	}
}

// sweep stores last uses, goes on with deletions and does what is due by date.
func (k *Keeper) sweep() {
	k.storeUses()
	// First: a key of a deleted tenant can be due for a rotation.
	k.advanceDeletions()
	ctx, cancel := context.WithTimeout(context.Background(), keeperInterval)
	defer cancel()
	for {
		for len(k.due) > 0 {
			if k.stopped() || ctx.Err() != nil {
				return
			}
			d := k.due[0]
			k.due = k.due[1:]
			k.act(ctx, d)
		}
		due, err := k.service.lifecycle.DueKeys(ctx, k.service.clock(), k.after, keeperBatch)
		if err != nil {
			k.service.log.Error("keeper: looking for what is due", slog.Any("error", err))
			return
		}
		if len(due) == 0 {
			// The end of the list; what failed is still on it for the next look.
			k.after = DueKey{}
			return
		}
		k.due, k.after = due, due[len(due)-1]
	}
}

// act does what is due for one key. What fails stays due.
func (k *Keeper) act(ctx context.Context, d DueKey) {
	s := k.service
	key, err := s.keys.Lookup(ctx, d.Tenant, d.Key.String())
	if err != nil {
		s.log.Error("keeper: reading a key", slog.String("key", d.Key.String()), slog.Any("error", err))
		return
	}
	if key.Tenant.Deleted() {
		return // advanceDeletions erases it
	}
	now := s.clock()
	switch {
	case key.State == KeyPendingDeletion && !key.DeletionDate.After(now):
		err = s.destroyKey(ctx, key)
	case key.State == KeyEnabled && key.RotationPeriod > 0 && !key.NextRotation.After(now):
		err = s.rotateDue(ctx, key)
	default:
		err = s.destroyDueVersions(ctx, key, now)
	}
	if err != nil {
		s.log.Error("keeper: acting on a key", slog.String("key", d.Key.String()), slog.Any("error", err))
	}
}

// rotate does a rotation that use has made due.
func (k *Keeper) rotate(d DueKey) {
	ctx, cancel := context.WithTimeout(context.Background(), keeperInterval)
	defer cancel()
	s := k.service
	key, err := s.keys.Lookup(ctx, d.Tenant, d.Key.String())
	if err == nil && key.State == KeyEnabled {
		err = s.rotateDue(ctx, key)
	}
	if err != nil {
		s.log.Error("keeper: rotating a key", slog.String("key", d.Key.String()), slog.Any("error", err))
	}
}

// wantRotation asks the keeper to rotate a key whose version has used half of
// its nonces.
func (s *Service) wantRotation(key *Key) {
	select {
	case s.rotations <- DueKey{Tenant: key.Tenant.ID, Key: key.ID}:
	default:
	}
}

// keeperTicket is the ticket of an act of the keeper in a tenant: it goes the
// way of every request, so it is recorded like one.
func (s *Service) keeperTicket(tenant *Tenant, project string) *Ticket {
	return &Ticket{
		RequestID: newID(), Received: s.clock(), Urgency: UrgencyBulk,
		By: &Principal{Tenant: tenant, Project: project, Component: keeperComponent},
	}
}

func always(*Ticket) bool { return true }

// rotateDue rotates a key and sets its next date.
func (s *Service) rotateDue(ctx context.Context, key *Key) error {
	t := s.keeperTicket(key.Tenant, key.Project)
	rotated, err := s.rotate(ctx, t, OpKeeperRotate, key.ID.String(), always)
	if err != nil || rotated.RotationPeriod == 0 {
		return err
	}
	_, err = s.lifecycle.SetRotation(ctx, key.Tenant.ID, key.ID, rotated.Revision, rotated.RotationPeriod, s.clock().Add(rotated.RotationPeriod))
	return err
}

func (s *Service) destroyKey(ctx context.Context, key *Key) error {
	return s.run(ctx, s.keeperTicket(key.Tenant, key.Project), &task{op: OpKeeperDestroy, ref: key.ID.String(), allowed: always,
		prepare: func(t *Ticket) error {
			// Looked up again: a cancelled deletion must win.
			if t.Key.State != KeyPendingDeletion || t.Key.DeletionDate.After(s.clock()) {
				return Errorf(KindConflict, "the deletion was cancelled")
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			return s.lifecycle.DestroyKey(ctx, t.Key.Tenant.ID, t.Key.ID, t.Key.Revision)
		}})
}

func (s *Service) destroyDueVersions(ctx context.Context, key *Key, now time.Time) error {
	for _, v := range key.Versions {
		if v.State != VersionPendingDestruction || v.DestroyAt.After(now) {
			continue
		}
		if err := s.destroyVersion(ctx, key, v.Number); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) destroyVersion(ctx context.Context, key *Key, number uint32) error {
	return s.run(ctx, s.keeperTicket(key.Tenant, key.Project), &task{op: OpKeeperDestroy, ref: key.ID.String(), allowed: always,
		prepare: func(t *Ticket) error {
			v := t.Key.Version(number)
			if v == nil || v.State != VersionPendingDestruction || v.DestroyAt.After(s.clock()) {
				return Errorf(KindConflict, "the destruction was cancelled")
			}
			t.Version = number
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			_, err := s.lifecycle.DestroyVersion(ctx, t.Key.Tenant.ID, t.Key.ID, t.Key.Revision, number)
			return err
		}})
}
