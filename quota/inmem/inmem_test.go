package inmem_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
	"github.com/sluice-kms/sluice/quota/quotatest"
)

func TestSuite(t *testing.T) {
	var mu sync.Mutex
	at := time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	quotatest.Suite{
		Open: func(*testing.T) quota.Backing { return inmem.New(clock) },
		Pass: func(_ *testing.T, _ quota.Backing, ms int64) {
			mu.Lock()
			defer mu.Unlock()
			at = at.Add(time.Duration(ms) * time.Millisecond)
		},
		Flush: func(_ *testing.T, b quota.Backing) { b.(*inmem.Store).Flush() },
	}.Run(t)
}
