package main

import (
	"time"

	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// nodes is how many tokens the pool has.
const nodes = 4

// times are the service times: of a small and of a large operation, within 5 %
// of that at random, and of loading a key.
type times struct{ small, large, load time.Duration }

// hsms are the modules before a server's tokens.
type hsms struct{ servers.HSMs }

// setTimes gives the modules their engines and service times.
func (h hsms) setTimes(engines int, t times) {
	for _, m := range h.HSMs {
		m.SetEngines(engines)
		m.SetService(fault.Encrypt, t.small-t.small/20, t.small/10)
		m.SetService(fault.Sign, t.large-t.large/20, t.large/10)
		m.SetService(fault.UnwrapKey, t.load, 0)
	}
}

// work is the slot time of what the modules were asked to do so far, at the
// mean service time.
func (h hsms) work(t times) (total time.Duration) {
	for _, m := range h.HSMs {
		total += time.Duration(m.Calls(fault.Encrypt))*t.small + time.Duration(m.Calls(fault.Sign))*t.large
	}
	return total
}
