package sim

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/scheduler"
)

// w10 is clients who come again after a refusal, half of them when they were
// told to and half at once, beside victims who stay below what they bought.
func w10() workload {
	w := workload{name: "W10 clients who repeat what was refused, 2 tenants who wait as told and 2 who do not, beside 8 victims at 40 %", nodes: one, tenants: victims(8, 0.4)}
	for i := range 4 {
		w.tenants = append(w.tenants, tenant{kind: other, weight: 1000, class: scheduler.Mid, clients: 100, maxWait: 2 * time.Second, obeys: i < 2, size: only(3)})
	}
	w.servers = servers()
	for i := range w.servers {
		if s := &w.servers[i]; s.name == nameOurs {
			build := s.build
			s.build = func(w workload) server { return newMetered(w, build(w)) }
		}
	}
	return w
}

// metered is the product's quota before the scheduler. All tenants have bought
// the same part of the capacity, in credits of a unit of slot time.
type metered struct {
	server
	engine *quota.Engine
	next   atomic.Uint64
}

func newMetered(w workload, s server) *metered {
	p := quota.DefaultPolicy()
	tier := p.Tiers[kms.TierSilver]
	tier.CreditsPerSecond = int64(perSecond(1, unit)) / int64(len(w.tenants))
	tier.BurstCredits, tier.OverdraftCredits = tier.CreditsPerSecond, 0
	tier.RequestsPerSecond, tier.BurstRequests = 0, 0
	tier.Concurrency, tier.KeyPercent, tier.LoadPercent, tier.RampFromPercent = 65536, 100, 100, 100
	policies, err := quota.NewPolicies(time.Now, 1, p)
	if err != nil {
		panic(err)
	}
	return &metered{server: s, engine: quota.NewEngine(quota.Options{Policies: policies, Clock: time.Now})}
}

func (m *metered) Do(ctx context.Context, f scheduler.Flow, work func(string)) (time.Duration, error) {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], m.next.Add(1))
	reservation, err := m.engine.Admit(&kms.AdmitRequest{RequestID: id, Op: kms.OpEncrypt, Spec: kms.SpecSM4, Bytes: int(f.Prior/unit) * 4096,
		Principal: &kms.Principal{Tenant: &kms.Tenant{ID: f.Tenant, Tier: kms.TierSilver}, Project: kms.DefaultProject}})
	if err != nil {
		return 0, err
	}
	wait, err := m.server.Do(ctx, f, work)
	end := kms.Settlement{State: kms.Settled, Charged: reservation.Cost}
	if err != nil {
		end = kms.Settlement{State: kms.Cancelled}
	}
	m.engine.Settle(reservation, end)
	return wait, err
}
