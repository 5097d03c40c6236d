package kms

import (
	"context"
	"slices"
	"time"
	"uuid"
)

// failedReasons are the reasons of usage for which the service, and not who
// asked or their own limits, is the cause: the same outcomes as those of the
// alert for the level of service, and the reasons at the HSMs' entrance that
// usage has in place of reduced_capacity and wait_exceeded.
var failedReasons = []string{KindInternal.String(), KindReducedCapacity.String(), KindHSMUnavailable.String(), KindAuditUnavailable.String(),
	KindStoreUnavailable.String(), KindWaitExceeded.String(),
	ReasonNodeDown, ReasonGate, ReasonQueueFull, ReasonOwnQueueFull, ReasonWaitTooLong, ReasonWaitExceeded}

// ServiceLevel is what share of a month's requests the service did not fail.
type ServiceLevel struct {
	Month time.Time // its beginning, UTC
	// Line is the promised share, in ten-thousandths, by the policy in force.
	Line  int64
	Tiers []TierLevel // all tiers, the highest first
	Nodes []ShippedNode
}

// TierLevel is the share of a tier, by the tiers that tenants have now.
type TierLevel struct {
	Tier     Tier
	Tenants  int64 // that asked for something
	Requests int64
	Failed   int64 // by the service's fault
	Below    int64 // tenants of which less than the line succeeded
}

// Success is the share of requests that the service did not fail, in
// ten-thousandths, rounded down: a line that is reached is kept.
func (l *TierLevel) Success() int64 { return successOf(l.Requests, l.Failed) }

func successOf(requests, failed int64) int64 {
	if requests == 0 {
		return 10_000
	}
	return (requests - failed) * 10_000 / requests
}

// End is the end of the month.
func (l *ServiceLevel) End() time.Time { return l.Month.AddDate(0, 1, 0) }

// ServiceLevel reports the level of service of the month of UTC that a time lies
// in, by tier. It is for operators and their auditors. KindInvalidArgument when
// a day has more than MaxUsageRows of tenants and reasons.
func (s *Service) ServiceLevel(ctx context.Context, t *Ticket, month time.Time) (level *ServiceLevel, err error) {
	month = month.UTC()
	level = &ServiceLevel{Month: time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC), Line: s.successLine()}
	err = s.run(ctx, t, &task{op: OpReadUsage, allowed: func(t *Ticket) bool { return readsAllTrails(t, OpReadUsage) },
		prepare: func(*Ticket) error {
			if level.Month.After(s.clock()) {
				return Errorf(KindInvalidArgument, "month: has not begun")
			}
			return nil
		},
		store: func(ctx context.Context, _ *Ticket) error { return s.serviceLevel(ctx, level) }})
	if err != nil {
		return nil, err
	}
	return level, nil
}

func (s *Service) serviceLevel(ctx context.Context, level *ServiceLevel) (err error) {
	if level.Nodes, err = s.trail.ShippedNodes(ctx); err != nil {
		return err
	}
	type sum struct{ requests, failed int64 }
	tenants := make(map[uuid.UUID]sum)
	// Day by day, so that a month's answer is not bounded as one.
	now := s.clock()
	for day := level.Month; day.Before(level.End()) && !day.After(now); day = day.AddDate(0, 0, 1) {
		rows, err := s.trail.Usage(ctx, &UsageQuery{Granularity: ByDay, From: day, To: day.AddDate(0, 0, 1), By: []Dimension{DimensionTenant, DimensionReason}})
		if err != nil {
			return err
		}
		for i := range rows {
			u := tenants[rows[i].Tenant]
			u.requests += rows[i].Requests
			if slices.Contains(failedReasons, rows[i].Reason) {
				u.failed += rows[i].Requests
			}
			tenants[rows[i].Tenant] = u
		}
	}
	tiers := make(map[Tier]*TierLevel)
	for _, tier := range Tiers() {
		level.Tiers = append(level.Tiers, TierLevel{Tier: tier})
	}
	for i := range level.Tiers {
		tiers[level.Tiers[i].Tier] = &level.Tiers[i]
	}
	for id, u := range tenants {
		tenant, err := s.tenants.Tenant(ctx, id)
		switch {
		case err != nil && KindOf(err) == KindStoreUnavailable:
			return err
		case err != nil || tenant.Name == SystemTenantName:
			continue // nobody was authenticated, the row is damaged, or it is an operator
		}
		l := tiers[tenant.Tier]
		l.Tenants++
		l.Requests += u.requests
		l.Failed += u.failed
		if successOf(u.requests, u.failed) < level.Line {
			l.Below++
		}
	}
	return nil
}
