package keystore

import (
	"context"
	"time"
)

// DefaultIdle is how long what nobody uses stays cached. It is long beside what
// reading an object again costs, a millisecond, and short beside the time for
// which memory is a concern.
const DefaultIdle = 10 * time.Minute

// sweep makes the caches forget what was not used for the idle time, until ctx
// ends. Everything that they hold can be read again.
func (s *Store) sweep(ctx context.Context, idle time.Duration) {
	tick := time.NewTicker(max(idle/idleSweeps, 1))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.sweepOnce()
		}
	}
}

func (s *Store) sweepOnce() {
	s.keyNames.sweep()
	s.keys.sweep()
	s.credentials.sweep()
	s.secretPaths.sweep()
	s.providerSecrets.sweep()
	s.tenantNames.sweep()
	s.tenants.sweep()
}
