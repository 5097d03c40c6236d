package quota

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// gates lists the gates that a request meets with their numbers, as peek is
// about to find them. Have is what is left.
func (e *Engine) gates(h *hold, r *Request) []kms.Reason {
	var list []kms.Reason
	t, cost := h.tenant, int64(h.reservation.Cost)
	add := func(code string, limit, need, have int64) {
		list = append(list, kms.Reason{Code: code, Limit: limit, Need: need, Have: have})
	}
	for i := range h.parts {
		sc := h.parts[i].scope
		if full := sc.limits.credits; full.perSecond > 0 {
			add(rateReasons[sc.kind], sc.rate(sc.step(h.now.ns)).burst, cost, sc.credits.level-sc.credits.debt)
		}
		if full := sc.limits.requests; full.perSecond > 0 {
			add(requestReasons[sc.kind], full.burst, micro, sc.requests.level)
		}
		if limit := sc.limits.day; limit > 0 {
			add(dayReasons[sc.kind], limit, cost, limit-sc.day.used)
		}
		if limit := sc.limits.concurrency; limit > 0 {
			add(concurrencyReasons[sc.kind], limit, 1, limit-sc.inFlight)
		}
	}
	_, day := t.elastic.room(t.limits.days)
	add(ReasonDay, t.elastic.base(t.limits.days), cost, day)
	add(ReasonMonth, t.limits.month, cost, t.limits.month-t.month.used)
	add(ReasonBandwidth, t.limits.bandwidth, h.bytes, t.limits.bandwidth-t.bandwidth.used)
	if r.Creates != Nothing {
		add(ReasonStorage, t.limits.stored[r.Creates], 1, t.limits.stored[r.Creates]-int64(t.stored[r.Creates]))
	}
	add(GateOverdraft, t.limits.credits.overdraft, 0, t.limits.credits.overdraft-t.credits.debt)
	add(GateRamp, permille, 0, t.ramped(t.step(h.now.ns)))
	add(GateLoad, permille, 0, e.load.current.Load().tiers[t.limits.tier].share)
	allowed := t.allowanceOf(h.now)
	add(GateCost, h.snapshot.cost.line, 0, allowed.risk(t.minute.sum(h.now.ns)))
	if key := h.key; key != nil {
		hot, _ := key.hotSpot.wait(h.now.ns, &h.snapshot.hotSpot)
		failing, _ := key.failures.wait(h.now.ns, &h.snapshot.failures)
		list = append(list, kms.Reason{Code: ReasonHotKey, RetryIn: time.Duration(hot)},
			kms.Reason{Code: ReasonFailingKey, RetryIn: time.Duration(failing)})
	}
	return list
}

// The codes of what refuses nothing by itself but decides how far the buckets
// reach, or the cost breaker's stage. Ramp and load are in thousandths of the rate.
const (
	GateOverdraft = "OVERDRAFT" // micro-credits
	GateRamp      = "RAMP"
	GateLoad      = "LOAD"
	GateCost      = "COST_RISK" // thousandths; have is the risk
)
