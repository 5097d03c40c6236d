package kms

import (
	"context"
	"log/slog"
	"strconv"
	"time"
	"uuid"
)

// MaxReportItems bounds a report.
const MaxReportItems = 100

// maxOutcomes bounds a count of one report: more calls than a gateway makes in
// a day, and few enough that sums of them do not overflow.
const maxOutcomes = 1_000_000_000

// ReportSecrets takes what calls with versions came to. What is not of a running
// rollout of a secret that the caller may read decides nothing and is left out.
// A rollout whose new version fails is rolled back before it returns.
func (s *Service) ReportSecrets(ctx context.Context, t *Ticket, list []SecretOutcome) error {
	var failing []*ProviderSecret
	err := s.run(ctx, t, &task{op: OpReportSecrets,
		prepare: func(*Ticket) error {
			if len(list) == 0 || len(list) > MaxReportItems {
				return Errorf(KindInvalidArgument, "items: must be 1 to %d", MaxReportItems)
			}
			for i := range list {
				for _, n := range []int64{list[i].OK, list[i].Credential, list[i].Quota, list[i].RateLimit, list[i].Transient} {
					if n < 0 || n > maxOutcomes {
						return Errorf(KindInvalidArgument, "items[%d]: counts must be 0 to %d", i, maxOutcomes)
					}
				}
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			failing, err = s.countOutcomes(ctx, t, list)
			return err
		}})
	if err != nil {
		return err
	}
	for _, secret := range failing {
		s.guardRollout(ctx, t.By.Tenant, secret)
	}
	return nil
}

// countOutcomes counts what is about the versions of running rollouts of secrets
// that the caller may read, and returns those whose new version was refused.
func (s *Service) countOutcomes(ctx context.Context, t *Ticket, list []SecretOutcome) (failing []*ProviderSecret, err error) {
	var counted []SecretOutcome
	for _, o := range list {
		secret, err := s.secrets.Secret(ctx, t.By.Tenant.ID, o.Secret)
		switch {
		case err != nil && KindOf(err) == KindNotFound:
			continue
		case err != nil:
			return nil, err
		case !secret.running() || o.Version != secret.Rollout.From && o.Version != secret.Rollout.To ||
			!t.By.AllowedSecret(OpFetchSecrets, secret.Path):
			continue
		}
		counted = append(counted, o)
		if o.Version == secret.Rollout.To && o.Credential > 0 {
			failing = append(failing, secret)
		}
	}
	if len(counted) == 0 {
		return nil, nil
	}
	return failing, s.secrets.AddOutcomes(ctx, t.By.Tenant.ID, counted)
}

// guardRollout rolls a rollout back whose new version fails. What keeps it from
// that does not fail the report: the keeper looks again.
func (s *Service) guardRollout(ctx context.Context, tenant *Tenant, secret *ProviderSecret) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	outcomes, err := s.secrets.Outcomes(ctx, tenant.ID, secret.ID)
	if err == nil && secret.Rollout.judge(outcomes) == rolloutFails {
		err = s.failRollout(ctx, tenant, secret, outcomes)
	}
	if err != nil && KindOf(err) != KindPreconditionFailed { // another process was first
		s.log.Error("keeper: guarding a rollout", slog.String("secret", secret.ID.String()), slog.Any("error", err))
	}
}

// failRollout rolls a rollout back and tells the tenant, once: of several
// processes one can change the secret's revision.
func (s *Service) failRollout(ctx context.Context, tenant *Tenant, secret *ProviderSecret, outcomes []SecretOutcome) error {
	r := secret.Rollout
	next := secret.Clone()
	if err := next.rollback(s.clock()); err != nil {
		return err
	}
	if err := s.keepSecret(ctx, tenant, OpKeeperRollbackSecret, r.To, secret, next, SecretChanged); err != nil {
		return err
	}
	failed := SecretOutcome{}
	for _, o := range outcomes {
		if o.Version == r.To {
			failed = o
		}
	}
	s.events.Publish(Event{Type: EventSecretRolledBack, Tenant: tenant.ID,
		Once: "secret/" + secret.ID.String() + "/" + strconv.FormatUint(next.Revision, 10),
		Fields: []EventField{{"secret", secret.ID.String()}, {"path", secret.Path},
			{"version", strconv.FormatUint(uint64(r.To), 10)}, {"back_to", strconv.FormatUint(uint64(r.From), 10)},
			{"credential_errors", strconv.FormatInt(failed.Credential, 10)}, {"calls", strconv.FormatInt(failed.OK+failed.Credential, 10)}}})
	return nil
}

// keepSecret makes a change of the keeper's, of a version or, 0, of the secret:
// it is recorded like a request's.
func (s *Service) keepSecret(ctx context.Context, tenant *Tenant, op Op, version uint32, was, next *ProviderSecret, kind SecretChangeKind) error {
	return s.run(ctx, s.keeperTicket(tenant, DefaultProject), &task{op: op, allowed: always,
		prepare: func(t *Ticket) error {
			t.Resource, t.Revision, t.Version = was.ID.String(), was.Revision, version
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error { return s.secrets.UpdateSecret(ctx, was, next, kind) }})
}

// secretKeeperInterval is how often it is looked for what is due of secrets: the
// steps of rollouts can be a second.
const secretKeeperInterval = time.Second

// SecretKeeper takes rollouts on, destroys versions and secrets whose time is
// over, and wipes opened data keys. On several API nodes each has one; the
// revision of a secret lets one of them act.
type SecretKeeper struct {
	service *Service
	stop    context.CancelFunc
	ended   chan struct{}
}

// StartSecretKeeper starts the keeper of secrets; its Close stops it, waits, and
// ends the watches.
func (s *Service) StartSecretKeeper() *SecretKeeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &SecretKeeper{service: s, stop: stop, ended: make(chan struct{})}
	go k.loop(ctx)
	return k
}

// Close stops the keeper, waits for what it is doing, ends the watches and wipes
// what was opened.
func (k *SecretKeeper) Close() error {
	k.stop()
	<-k.ended
	k.service.watches.close()
	k.service.dataKeys.clear()
	return nil
}

func (k *SecretKeeper) loop(ctx context.Context) {
	defer close(k.ended)
	tick := time.NewTicker(secretKeeperInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.service.dataKeys.expire(k.service.clock())
			k.sweep(ctx)
		}
	}
}

// sweep does what is due, page by page; what fails or is held stays due.
func (k *SecretKeeper) sweep(ctx context.Context) {
	s := k.service
	var after DueSecret
	for {
		due, err := s.secrets.DueSecrets(ctx, s.clock(), after, keeperBatch)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("keeper: looking for secrets that are due", slog.Any("error", err))
			}
			return
		}
		for _, d := range due {
			if ctx.Err() != nil {
				return
			}
			err := s.actOnSecret(ctx, d.Tenant, d.Secret)
			switch KindOf(err) {
			case KindPreconditionFailed, KindNotFound: // another process was first
			default:
				if err != nil && ctx.Err() == nil {
					s.log.Error("keeper: acting on a secret", slog.String("secret", d.Secret.String()), slog.Any("error", err))
				}
			}
		}
		if len(due) < keeperBatch {
			return
		}
		after = due[len(due)-1]
	}
}

// actOnSecret does one thing that is due for a secret.
func (s *Service) actOnSecret(ctx context.Context, tenantID, id uuid.UUID) error {
	tenant, err := s.tenants.Tenant(ctx, tenantID)
	if err != nil || tenant.Deleted() {
		return err // a deleted tenant's secrets are erased
	}
	secret, err := s.secrets.Secret(ctx, tenantID, id)
	if err != nil {
		return err
	}
	now, next := s.clock(), secret.Clone()
	if version, any := next.destroyDue(now); any {
		return s.destroySecret(ctx, tenant, version, secret, next)
	}
	if !secret.running() || secret.Rollout.next().After(now) {
		return nil
	}
	outcomes, err := s.secrets.Outcomes(ctx, tenantID, id)
	if err != nil {
		return err
	}
	switch secret.Rollout.judge(outcomes) {
	case rolloutFails:
		return s.failRollout(ctx, tenant, secret, outcomes)
	case rolloutGoesOn:
		next.advance(now)
		return s.keepSecret(ctx, tenant, OpKeeperAdvanceSecret, secret.Rollout.To, secret, next, SecretChanged)
	}
	return nil
}

// destroySecret stores what was destroyed and forgets the data keys.
func (s *Service) destroySecret(ctx context.Context, tenant *Tenant, version uint32, was, next *ProviderSecret) error {
	if err := s.keepSecret(ctx, tenant, OpKeeperDestroySecret, version, was, next, SecretRevoked); err != nil {
		return err
	}
	s.forgetDestroyed(next)
	return nil
}

func (s *Service) forgetDestroyed(secret *ProviderSecret) {
	for _, v := range secret.Versions {
		if v.State == SecretDestroyed {
			s.dataKeys.forget(dataKeyID{secret.Tenant, secret.ID, v.Number})
		}
	}
}

// eraseSecrets destroys the secrets of a deleted tenant, whatever their state,
// and returns the first error.
func (k *Keeper) eraseSecrets(ctx context.Context, tenant *Tenant) (first error) {
	s := k.service
	page := Page{Size: eraseBatch}
	for {
		list, nextPage, err := s.secrets.ListSecrets(ctx, tenant.ID, "", page)
		if err != nil {
			return err
		}
		for _, listed := range list {
			if k.stopped() || ctx.Err() != nil {
				return first
			}
			secret, err := s.secrets.Secret(ctx, tenant.ID, listed.ID)
			if err == nil {
				next := secret.Clone()
				next.destroyAll(s.clock())
				err = s.destroySecret(ctx, tenant, 0, secret, next)
			}
			if err != nil && first == nil {
				first = err
			}
		}
		if nextPage == "" {
			return first
		}
		page.Token = nextPage
	}
}
