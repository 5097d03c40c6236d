package kms

import (
	"context"
	"log/slog"
	"time"
)

// capacityInterval is how often an API node looks whether the pool is oversold:
// a pool that became slow, or lost nodes, sells nothing by itself, so a minute
// is soon enough, and cheap enough for a count of all tenants.
const capacityInterval = time.Minute

// CapacityWatch tells in the log when the pool becomes oversold, and when it no
// longer is, and keeps what it saw for metrics. Each API node has one.
type CapacityWatch struct {
	service *Service
	after   func() // called after each look
	stop    chan struct{}
	ended   chan struct{}
}

// StartCapacityWatch looks at once and goes on every minute; after is called
// after each look, nil for nothing. Close ends it.
func (s *Service) StartCapacityWatch(after func()) *CapacityWatch {
	w := &CapacityWatch{service: s, after: after, stop: make(chan struct{}), ended: make(chan struct{})}
	go w.loop()
	return w
}

// Close ends the watch and waits for a look under way.
func (w *CapacityWatch) Close() error {
	close(w.stop)
	<-w.ended
	return nil
}

func (w *CapacityWatch) loop() {
	defer close(w.ended)
	tick := time.NewTicker(capacityInterval)
	defer tick.Stop()
	failed := false
	for {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err := w.service.lookAtCapacity(ctx)
		cancel()
		// What a database that is away does to requests is told elsewhere;
		// once is enough here.
		if err != nil && !failed {
			w.service.log.Error("capacity: counting what was sold", slog.Any("error", err))
		}
		failed = err != nil
		if w.after != nil {
			w.after()
		}
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
	}
}

func (s *Service) lookAtCapacity(ctx context.Context) error {
	c, err := s.capacityNow(ctx)
	if err != nil {
		return err
	}
	before := s.capacitySeen.Swap(c)
	was := before != nil && before.Oversold()
	if was == c.Oversold() {
		return nil
	}
	attrs := []slog.Attr{slog.String("source", string(c.Source)), slog.Int64("sellable", c.Sellable), slog.Int64("committed", c.Committed)}
	if was {
		s.log.LogAttrs(ctx, slog.LevelInfo, "capacity: no more is sold than the HSMs can do", attrs...)
		return nil
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "capacity: more is sold than the HSMs can do", attrs...)
	return nil
}

// CapacitySeen returns what CapacityWatch saw last, nil before its first look.
func (s *Service) CapacitySeen() *Capacity { return s.capacitySeen.Load() }
