package api_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// asked counts what a runner asks the store for.
type asked struct {
	*memory
	due, computed atomic.Int64
}

func (m *asked) DueJobs(ctx context.Context, now time.Time, after uuid.UUID, busy []uuid.UUID, limit int) ([]kms.JobID, error) {
	m.due.Add(1)
	return m.memory.DueJobs(ctx, now, after, busy, limit)
}

func (m *asked) ComputedChunks(ctx context.Context, node string, limit int) ([]kms.JobChunk, error) {
	m.computed.Add(1)
	return m.memory.ComputedChunks(ctx, node, limit)
}

// Without jobs a node asks every few seconds what is due, and not at all what it has
// to finish.
func TestAnIdleNodeAsksSeldom(t *testing.T) {
	w := newWorkers(t)
	synctest.Test(t, func(t *testing.T) {
		m := &asked{memory: w.memory}
		service := w.serviceWith(func(c *kms.Config) { c.Jobs = m })
		r := service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4})
		defer r.Close()
		time.Sleep(time.Minute)
		due, computed := m.due.Load(), m.computed.Load()
		time.Sleep(time.Minute)
		if n := m.due.Load() - due; n < 6 || n > 13 {
			t.Errorf("in a minute it asked %d times what is due", n)
		}
		if n := m.computed.Load() - computed; n > 0 {
			t.Errorf("in a minute it asked %d times what it has to finish", n)
		}
	})
}

// A job that a node takes in does not wait until it asks again.
func TestAnIdleNodeIsWokenByASubmit(t *testing.T) {
	m := &asked{}
	w := newWorkers(t, func(c *kms.Config) { m.memory = c.Jobs.(*memory); c.Jobs = m })
	w.start()
	for m.due.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	began := time.Now()
	w.await(w.submit(encryptLines(3)), "DONE")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it was done after %v, as if nobody had been woken", took)
	}
}
