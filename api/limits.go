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
	// One text for the three, since every answer makes it.
	b := make([]byte, 0, 256)
	b = append(b, `"tenant";q=`...)
	b = appendCredits(b, r.PerSecond)
	b = append(b, unit+";w=1"...)
	if r.DayLimit > 0 {
		b = append(b, `, "day";q=`...)
		b = appendCredits(b, r.DayLimit)
		b = append(b, unit+";w=86400"...)
	}
	policy := len(b)
	b = append(b, `"tenant";r=`...)
	b = appendCredits(b, r.Left)
	if r.DayLimit > 0 {
		b = append(b, `, "day";r=`...)
		b = appendCredits(b, r.DayLeft)
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, int64(max(r.DayEnd.Sub(s.clock()), 0)/time.Second), 10)
	}
	limit := len(b)
	b = append(b, "cost="...)
	b = Cost(r.Cost).append(b)
	b = append(b, "; remaining="...)
	b = appendCredits(b, r.Left)
	b = append(b, "; burst="...)
	b = appendCredits(b, r.Burst)
	text, h := string(b), x.Header()
	x.set(h, headerPolicy, text[:policy])
	x.set(h, headerLimit, text[policy:limit])
	x.set(h, headerWeighted, text[limit:])
}

// appendCredits appends whole credits, rounded down; of a debt, nothing is
// left.
func appendCredits(b []byte, c kms.Credits) []byte {
	return strconv.AppendInt(b, int64(max(c, 0)/kms.Credit), 10)
}
