package api

import (
	"net/http"
	"strconv"

	"github.com/sluice-kms/sluice/kms"
)

func quotaRoutes(a administration) []Route {
	return []Route{
		define(Route{Name: a.name + "quota", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/quota", Op: kms.OpReadQuota,
			Errors: keyErrors, Summary: "Show what may be used and was used",
			Description: "Bucket, totals, elastic pool, packs, bandwidth, concurrency and storage of a tenant, with what is owed and when it resets."},
			func(c *call, _ *NoBody) (*QuotaResponse, error) {
				account, err := c.service.Quota(c.context, &c.ticket, a.tenant(c))
				if err != nil {
					return nil, err
				}
				out := quotaOf(account)
				out.Charge = c.charge()
				return out, nil
			}),
	}
}

func quotaOf(a *kms.QuotaAccount) *QuotaResponse {
	out := &QuotaResponse{
		Tier: a.Tier, PolicyVersion: a.PolicyVersion,
		PerSecond: Cost(a.PerSecond), Burst: Cost(a.Burst), Available: Cost(max(a.Available, 0)), Overdraft: Cost(a.Overdraft), Debt: Cost(a.Debt),
		Ramp: a.Ramp, LoadShare: a.LoadShare,
		Day: quotaTotal(a.Day), Month: quotaTotal(a.Month),
		Pool:        ElasticPool{Left: Cost(max(a.Pool, 0)), Size: Cost(a.PoolMax), Lowered: a.Lowered},
		Bandwidth:   QuotaUse{a.Bytes, a.BytesMax},
		Concurrency: QuotaUse{a.InFlight, a.InFlightMax},
		Storage:     make([]StoredQuota, len(a.Stored)),
		CostBreaker: costBreakerOf(&a.Cost),
		Admitted:    a.Admitted, Refused: a.Refused,
		Retries: RetryContract{Calls: a.Retries.Calls, Early: a.Retries.Early, Share: a.Retries.Share(), Spike: a.Retries.Spike, Note: a.Retries.Note()},
	}
	for _, p := range a.Packs {
		out.Packs = append(out.Packs, QuotaPack{p.ID, Cost(p.Left), p.Expires.UTC()})
	}
	for i, s := range a.Stored {
		out.Storage[i] = StoredQuota{s.Kind, s.Have, s.Max}
	}
	return out
}

func quotaTotal(t kms.QuotaTotal) QuotaTotal {
	return QuotaTotal{Used: Cost(t.Used), Limit: Cost(t.Max), Remaining: Cost(max(t.Max-t.Used, 0)), Soft: t.Soft, ResetsAt: t.Resets.UTC()}
}

// defaultStandings is the size of a list of standings that is asked for without
// one.
const defaultStandings = 50

func standingRoutes() []Route {
	return []Route{
		define(Route{Name: "list-quota-standings", Group: anyTenant.group, Method: http.MethodGet, Path: "/v1/quota/tenants", Op: kms.OpReadQuotas,
			Errors: keyErrors, Summary: "List the tenants near a limit, or beyond one",
			Query: []Parameter{{Name: "page_size", Max: kms.MaxQuotaStandings, Default: strconv.Itoa(defaultStandings),
				Doc: "How many to show at most"}},
			Description: "Tenants that owe credits, have drawn on their elastic pool, run one notch lower or have come to the soft part of a total, the nearest to its limit first. " +
				"It is what the API node that answers knows: what tenants do on others shows there."},
			listStandings),
	}
}

func listStandings(c *call, _ *NoBody) (*QuotaStandingsResponse, error) {
	limit := defaultStandings
	if n := c.number("page_size"); n > 0 {
		limit = int(n)
	}
	list, all, err := c.service.QuotaStandings(c.context, &c.ticket, limit)
	if err != nil {
		return nil, err
	}
	out := &QuotaStandingsResponse{Tenants: make([]QuotaStanding, len(list)), Total: all, Charge: c.charge()}
	for i := range list {
		s := &list[i]
		out.Tenants[i] = QuotaStanding{Tenant: s.Tenant, Tier: s.Tier, Near: s.Near, Debt: Cost(s.Debt), Drawn: Cost(s.Drawn), Lowered: s.Lowered,
			Admitted: s.Admitted, Refused: s.Refused, RetryShare: s.RetryShare()}
	}
	return out, nil
}
