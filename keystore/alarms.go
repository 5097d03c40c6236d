package keystore

import (
	"sync"
	"time"
)

const (
	// AlarmInterval is how long an alarm for one stored row keeps further ones
	// for the same row out of the log: whoever uses a refused object in a loop
	// would fill it. The counters count every time.
	AlarmInterval = time.Minute
	// maxAlarms bounds the rows whose alarms are remembered, 100 bytes or so
	// each. When more are refused within an interval, those alarms are
	// forgotten, and such rows come up in the log once more.
	maxAlarms = 4096
)

// alarms remembers which rows the log was told of.
type alarms struct {
	mu    sync.Mutex
	until map[RowError]time.Time // guarded by mu
}

// due tells whether the log is to be told of a row now.
func (a *alarms) due(row RowError, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.until[row]) {
		return false
	}
	if a.until == nil || len(a.until) >= maxAlarms {
		a.until = make(map[RowError]time.Time)
	}
	a.until[row] = now.Add(AlarmInterval)
	return true
}
