package audit

import (
	"sync/atomic"
	"time"
)

// lag tells for how long the writing goroutine has been at work on entries
// that are not durable yet. Those that came meanwhile wait for less.
type lag struct{ since atomic.Int64 } // ns since 1970; 0: at work on none

// begin notes that a batch of n entries is written from now on.
func (l *lag) begin(n int, clock func() time.Time) {
	if n > 0 {
		l.since.Store(clock().UnixNano())
	}
}

// end notes that it is durable. After a failure it never is.
func (l *lag) end() { l.since.Store(0) }

// Lag returns for how long entries have waited for the disk, 0 while none
// wait. It grows without end once the log has stopped.
func (l *Log) Lag() time.Duration {
	since := l.lag.since.Load()
	if since == 0 {
		return 0
	}
	return max(l.config.Clock().Sub(time.Unix(0, since)), 0)
}
