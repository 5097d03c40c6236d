package scheduler

import "time"

// Class says what the utilisation gate lets a request do. Callers derive it
// from what the tenant bought and the request's urgency.
type Class uint8

// The classes. The zero value is the one that the gate never refuses, so that
// a caller who knows no classes loses nothing by it.
const (
	High Class = iota
	Mid
	Low
	classes = 3
)

// Urgency shares out a tenant's own part between its requests. It takes
// nothing from other tenants.
type Urgency uint8

// The urgencies; the zero value is Normal.
const (
	Normal Urgency = iota
	Interactive
	Bulk
	urgencies = 3
)

// urgencyShares are the parts of a tenant's service in percent, by Urgency.
var urgencyShares = [urgencies]int64{Normal: 25, Interactive: 70, Bulk: 5}

// Op names a kind of operation, for the estimate of its slot time. The numbers
// are the caller's; the scheduler only compares them.
type Op struct {
	Algorithm uint16
	Operation uint8
	Size      uint8 // bucket of the input's size
}

const (
	// DefaultWeight is the weight of a tenant whose Flow has none. It is the
	// baseline of the silver tier in credits/s.
	DefaultWeight = 1000

	// DefaultPrior is the slot time assumed of an operation that was never
	// measured and has no prior of its own: the order of an RSA-2048 or
	// ML-DSA signature in software.
	DefaultPrior = time.Millisecond
)

// Flow is what the scheduler knows of a request. Nodes is not kept.
type Flow struct {
	Tenant [16]byte
	// Nodes that can serve the request, the preferred one first. Unknown
	// ones and those of another domain than the first known one are ignored,
	// and one that is first made known while the request waits does not serve
	// it.
	Nodes []string
	// MaxWait bounds the waiting; zero or less means that only a slot that is
	// free now will do.
	MaxWait time.Duration
	// Deadline is the time from now by which the work should have ended; 0
	// means none. It shortens MaxWait by the work's own estimated slot time.
	Deadline time.Duration
	// Waited is how long the request has been there already, which comes again
	// because the node that it ran on failed: of its tenant's requests of its
	// urgency, it stands before those that came later.
	Waited time.Duration
	// Aside says that the tenant is nobody's: the service works on its own
	// account. It is served by its weight like others, but others do not have to
	// share with it: it makes no cap apply and no share smaller. What a tenant's
	// first request says counts.
	Aside bool
	// Weight is what the tenant bought, in any unit that all tenants share
	// (credits/s); 0 means DefaultWeight. The newest one counts.
	Weight  uint32
	Class   Class
	Urgency Urgency
	Op      Op
	// Prior is the slot time to assume until Op has been measured; 0 means
	// DefaultPrior.
	Prior time.Duration
	// Explain, when not nil, is filled in before Do returns.
	Explain *Explanation
}
