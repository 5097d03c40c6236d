package kms

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"uuid"
)

// Selling capacity: a tenant's baseline is kept only while all baselines
// together are less than the pool can do, so an act that sells more is refused
// with KindConflict, unless the operator forces it.
//
// What was sold is counted in the store at each such act, and an API node does
// one at a time, so on one node it is exact. Two nodes can both count before
// either has sold: each other node can then oversell by the one act that it has
// under way. That shows in Capacity at once, and CapacityWatch warns of it.
//
// The counts are of columns that are not authenticated, since reading and
// checking every tenant's row would take minutes with many of them. Who can
// change them can have an operator's act refused, or let pass what should have
// been; he can give nobody more than the tenant's own row says, which is
// authenticated where it is used.

// ReasonCapacity is why an act that sells more than the pool can do is refused,
// and what an entry says of one that was forced. Its unit is credits per
// second: Limit is what may be sold, Have what was left of it, Need what the
// act adds.
const ReasonCapacity = "capacity"

// Capacity reports what the pool can do and what was sold of it.
func (s *Service) Capacity(ctx context.Context, t *Ticket) (c *Capacity, err error) {
	err = s.run(ctx, t, &task{op: OpReadCapacity, store: func(ctx context.Context, _ *Ticket) (err error) {
		c, err = s.capacityNow(ctx)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Service) capacityNow(ctx context.Context) (*Capacity, error) {
	b, err := s.planner.Baselines(nil)
	if err != nil {
		return nil, err
	}
	return s.capacityUnder(ctx, b)
}

func (s *Service) capacityUnder(ctx context.Context, b *Baselines) (*Capacity, error) {
	tenants, err := s.tenants.CountTenants(ctx)
	if err != nil {
		return nil, err
	}
	sold, err := s.sold(ctx, b, tenants)
	if err != nil {
		return nil, err
	}
	return s.planner.Plan(b, s.servingSlots(), sold), nil
}

// sold sums up what the baselines promise: the counted tenants have their
// tier's rate, but for those that the policy sets apart. The system tenant
// bought nothing.
func (s *Service) sold(ctx context.Context, b *Baselines, tenants map[Tier]int64) (Sold, error) {
	sold := Sold{Tenants: tenants}
	for tier, n := range tenants {
		sold.Committed += n * b.Tiers[tier]
	}
	for id, rate := range b.Tenants {
		tenant, err := s.tenants.Tenant(ctx, id)
		switch {
		case err != nil && KindOf(err) == KindNotFound:
		case err != nil && KindOf(err) == KindStoreUnavailable:
			return Sold{}, err
		case err != nil:
			// Its row is not to be believed, and may be counted: both at most.
			sold.Committed += rate
		case tenant.Deleted() || tenant.Name == SystemTenantName:
		default:
			sold.Committed += rate - b.Tiers[tenant.Tier]
		}
	}
	return sold, nil
}

// servingSlots counts the slots of active HSM nodes that serve: standby nodes
// are there for their loss. The engine in the process is no HSM: its domain is
// none.
func (s *Service) servingSlots() int {
	slots := 0
	for _, n := range s.device.Status() {
		if n.Domain != uuid.Nil() && n.Mode == NodeActive && n.State == NodeUp {
			slots += n.SlotsNow
		}
	}
	return slots
}

// saleCheck finds out whether an act sells more than there is; nil: it does not.
type saleCheck func(ctx context.Context) (*oversale, error)

// tenantSale checks an act on a tenant; raise is by how much it raises what is
// committed under the policy in force.
func (s *Service) tenantSale(raise func(*Baselines) int64) saleCheck {
	return func(ctx context.Context) (*oversale, error) {
		b, err := s.planner.Baselines(nil)
		if err != nil {
			return nil, err
		}
		need := raise(b)
		if need <= 0 {
			return nil, nil
		}
		c, err := s.capacityUnder(ctx, b)
		if err != nil {
			return nil, err
		}
		return overselling(c, need), nil
	}
}

// policySale checks a policy that is to come into force: what is committed now
// and what it adds are judged by its own rules.
func (s *Service) policySale(document []byte) saleCheck {
	return func(ctx context.Context) (*oversale, error) {
		before, err := s.planner.Baselines(nil)
		if err != nil {
			return nil, err
		}
		after, err := s.planner.Baselines(document)
		if err != nil {
			return nil, err
		}
		tenants, err := s.tenants.CountTenants(ctx)
		if err != nil {
			return nil, err
		}
		sold, err := s.sold(ctx, before, tenants)
		if err != nil {
			return nil, err
		}
		then, err := s.sold(ctx, after, tenants)
		if err != nil {
			return nil, err
		}
		need := then.Committed - sold.Committed
		if need <= 0 {
			return nil, nil
		}
		return overselling(s.planner.Plan(after, s.servingSlots(), sold), need), nil
	}
}

// oversale is an act that sells more than there is.
type oversale struct {
	before *Capacity
	need   int64 // credits per second that it adds
}

func overselling(c *Capacity, need int64) *oversale {
	if c.Source == CapacityUnknown || c.Available() >= need {
		return nil
	}
	return &oversale{c, need}
}

func (o *oversale) reason() Reason {
	return Reason{Code: ReasonCapacity, Limit: o.before.Sellable, Need: o.need, Have: max(o.before.Available(), 0)}
}

// refusal says what there is and what still fits.
func (o *oversale) refusal() *Error {
	var fits []string
	for _, tier := range o.before.Tiers {
		fits = append(fits, fmt.Sprintf("%d %s", tier.Fits, tier.Tier))
	}
	e := Errorf(KindConflict, "the HSMs can keep no more promises: %d of %d credits/s are left to sell and this adds %d; there still fit %s tenants; force sells more",
		max(o.before.Available(), 0), o.before.Sellable, o.need, strings.Join(fits, " or "))
	e.Reasons = []Reason{o.reason()}
	return e
}

// refuseSale refuses an act before anything is done; sell decides.
func (s *Service) refuseSale(ctx context.Context, force bool, check saleCheck) error {
	if force {
		return nil
	}
	over, err := check(ctx)
	if err == nil && over != nil {
		return over.refusal()
	}
	return err
}

// sell checks an act and commits it, one act at a time, so that two of them do
// not both sell what is left. One that is forced is told in the log and in its
// entry.
func (s *Service) sell(ctx context.Context, t *Ticket, force bool, check saleCheck, commit func() error) error {
	s.selling.Lock()
	defer s.selling.Unlock()
	over, err := check(ctx)
	switch {
	case err != nil:
		return err
	case over == nil:
		return commit()
	}
	if !force {
		return over.refusal()
	}
	t.Reasons = append(t.Reasons, over.reason())
	if err := commit(); err != nil {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "capacity: more was sold than the HSMs can do, by force",
		slog.String("op", string(t.Op)), slog.String("resource", t.Resource), slog.String("credential", t.By.Credential.String()),
		slog.Int64("sellable", over.before.Sellable), slog.Int64("committed", over.before.Committed+over.need), slog.Int64("added", over.need))
	return nil
}
