package scheduler

import (
	"fmt"
	"time"
)

const (
	// DefaultMaxQueue is the number of requests that may wait when Options
	// does not say. At 2,000 requests/s, the rate the design sizes a pool of
	// four nodes for, it is two seconds of arrivals, which is the longest
	// that a request of normal urgency waits.
	DefaultMaxQueue = 4096

	// tenantParts bounds what one tenant may hold of the queue: one part in
	// four, so that it takes four tenants at their bound to refuse a fifth.
	tenantParts = 4

	// flowShare is what one urgency may hold of its tenant's part, so that
	// bulk work leaves room for the rest.
	flowShare = 0.75

	// MaxSlots bounds the slots of one node; a PKCS#11 token has tens to a
	// few hundred sessions worth using, so a larger number is a mistake.
	MaxSlots = 1 << 16

	// DefaultSafeLine and DefaultHardLine are the gate's lines, DefaultCap
	// the tenant cap, as parts of the slots.
	DefaultSafeLine = 0.85
	DefaultHardLine = 0.95
	DefaultCap      = 0.40

	// DefaultBigShare is the part of the slots that big operations may hold.
	DefaultBigShare = 0.75
)

// Options configures a Scheduler; the zero value is usable. All numbers hold
// for each domain, but MaxQueue for all together.
type Options struct {
	// MaxQueue is the number of requests that may wait in all; 0 means
	// DefaultMaxQueue. A tenant may have a quarter of it waiting in a domain,
	// and one urgency of a tenant three quarters of that.
	MaxQueue int
	// Clock measures time; nil means time.Now. It is called with the lock
	// held: it must return at once and must not call the Scheduler.
	Clock func() time.Time

	// SafeLine and HardLine are the gate's lines, above 0 and at most 1, the
	// safe one not above the hard one; 0 means the default. GateOff lets
	// every class run at any utilisation, and no slot is kept for High.
	SafeLine, HardLine float64
	GateOff            bool

	// EntranceRate is the rate at which the entrance bucket leaks, in slots:
	// slot time per time. 0 means that the slots alone bound the rate.
	EntranceRate float64

	// Cap is the part of the slots that a tenant may hold, above 0 and at
	// most 1; 0 means DefaultCap. CapMode says when.
	Cap     float64
	CapMode CapMode

	// BigShare is the part of the slots that big operations may hold, above
	// 0 and at most 1; 0 means DefaultBigShare.
	BigShare float64
	// AgingOff closes the lane of those who have waited long.
	AgingOff bool
	// NoAffinity says that nodes keep nothing between two requests, so that
	// any listed one is as good as the first.
	NoAffinity bool
}

// config is Options as the domains use them.
type config struct {
	bounds       struct{ all, tenant, flow int }
	safe, hard   float64
	gateOff      bool
	entranceRate int64 // thousandths of a slot
	capShare     float64
	bigShare     float64
	capMode      CapMode
	agingOff     bool
	noAffinity   bool
}

func orDefault(x, d float64) float64 {
	if x == 0 {
		return d
	}
	return x
}

func (o *Options) config() (c config, err error) {
	c.bounds.all = o.MaxQueue
	if o.MaxQueue == 0 {
		c.bounds.all = DefaultMaxQueue
	}
	c.bounds.tenant = max(1, c.bounds.all/tenantParts)
	c.bounds.flow = max(1, int(flowShare*float64(c.bounds.tenant)+0.5))
	c.safe, c.hard = orDefault(o.SafeLine, DefaultSafeLine), orDefault(o.HardLine, DefaultHardLine)
	c.capShare, c.capMode = orDefault(o.Cap, DefaultCap), o.CapMode
	c.bigShare = orDefault(o.BigShare, DefaultBigShare)
	c.entranceRate = int64(o.EntranceRate*milli + 0.5)
	c.gateOff, c.agingOff, c.noAffinity = o.GateOff, o.AgingOff, o.NoAffinity
	switch {
	case o.MaxQueue < 0:
		err = fmt.Errorf("scheduler: MaxQueue is %d; give 0 for the default or a positive number", o.MaxQueue)
	case !(c.safe > 0 && c.safe <= c.hard && c.hard <= 1):
		err = fmt.Errorf("scheduler: the lines are %v and %v; give 0 < safe ≤ hard ≤ 1", c.safe, c.hard)
	case !(c.capShare > 0 && c.capShare <= 1) || c.capMode > CapOff:
		err = fmt.Errorf("scheduler: the cap is %v in mode %d; give 0 < cap ≤ 1 and a known mode", c.capShare, c.capMode)
	case !(c.bigShare > 0 && c.bigShare <= 1):
		err = fmt.Errorf("scheduler: the share of big operations is %v; give 0 < share ≤ 1", c.bigShare)
	case !(o.EntranceRate >= 0 && o.EntranceRate <= MaxSlots) || o.EntranceRate > 0 && c.entranceRate == 0:
		err = fmt.Errorf("scheduler: the entrance rate is %v slots; give 0 for none, or 0.001 to %d", o.EntranceRate, MaxSlots)
	}
	return c, err
}
