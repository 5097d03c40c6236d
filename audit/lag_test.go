package audit

import (
	"context"
	"sync"
	"testing"
	"time"
)

// While the disk does not take entries the lag grows, and when it has taken
// them there is none.
func TestLagIsTheTimeThatTheDiskTakes(t *testing.T) {
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := testConfig(t)
	c.Clock = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	var hang bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	l, _ := openFault(t, c, func(op string) error {
		mu.Lock()
		stuck := hang && op == opSync
		hang = hang && !stuck
		mu.Unlock()
		if stuck {
			close(reached)
			<-goOn
		}
		return nil
	})
	record := func() error { return l.Record(context.Background(), testEntry(1)) }
	if err := record(); err != nil || l.Lag() != 0 {
		t.Fatalf("a disk that works lags by %v: %v", l.Lag(), err)
	}
	mu.Lock()
	hang = true
	mu.Unlock()
	ended := make(chan error)
	go func() { ended <- record() }()
	<-reached
	if lag := l.Lag(); lag != 0 {
		t.Errorf("at the start the lag is %v", lag)
	}
	mu.Lock()
	now = now.Add(11 * time.Second)
	mu.Unlock()
	if lag := l.Lag(); lag != 11*time.Second {
		t.Errorf("after 11 seconds the lag is %v", lag)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	mustClose(t, l)
	now = now.Add(time.Hour)
	if lag := l.Lag(); lag != 0 {
		t.Errorf("afterwards the lag is %v", lag)
	}
}
