package api

import (
	"strconv"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// unit is that of the limits: credits of the cost table.
const unit = `;qu="hsm-credits"`

// describeLimits tells what of its limits a request has left: the fields of
// "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers-10),
// for the bucket, whose window is the second in which its rate refills it, and
// for the day; and ours, with the request's own cost.
func (s *Server) describeLimits(x *exchange, r *kms.Reservation) {
	h := x.Header()
	policy := make([]byte, 0, 96)
	policy = append(policy, `"tenant";q=`...)
	policy = appendCredits(policy, r.PerSecond)
	policy = append(policy, unit+";w=1"...)
	limit := make([]byte, 0, 64)
	limit = append(limit, `"tenant";r=`...)
	limit = appendCredits(limit, r.Left)
	if r.DayLimit > 0 {
		policy = append(policy, `, "day";q=`...)
		policy = appendCredits(policy, r.DayLimit)
		policy = append(policy, unit+";w=86400"...)
		limit = append(limit, `, "day";r=`...)
		limit = appendCredits(limit, r.DayLeft)
		limit = append(limit, ";t="...)
		limit = strconv.AppendInt(limit, int64(max(r.DayEnd.Sub(s.clock()), 0)/time.Second), 10)
	}
	x.set(h, headerPolicy, string(policy))
	x.set(h, headerLimit, string(limit))
	weighted := make([]byte, 0, 64)
	weighted = append(weighted, "cost="...)
	weighted = Cost(r.Cost).append(weighted)
	weighted = append(weighted, "; remaining="...)
	weighted = appendCredits(weighted, r.Left)
	weighted = append(weighted, "; burst="...)
	weighted = appendCredits(weighted, r.Burst)
	x.set(h, headerWeighted, string(weighted))
}

// appendCredits appends whole credits, rounded down; of a debt, nothing is
// left.
func appendCredits(b []byte, c kms.Credits) []byte {
	return strconv.AppendInt(b, int64(max(c, 0)/kms.Credit), 10)
}
