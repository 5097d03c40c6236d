package kms

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// jobWorkers is how many items of a chunk are under way at once: enough to
	// hide the way to an HSM, few enough that a job is not what a pool is full of.
	jobWorkers = 4
	// jobRetry is when items are run again that were refused without a time.
	jobRetry = 5 * time.Second
	// A job leaves the tenant's other calls half of what its bucket of credits
	// holds: below that it waits until three quarters are there, a quarter of the
	// bucket at a time.
	jobPaceBelow, jobPaceUntil = 2, 4
)

// ReasonJobPace is what a job waits for that leaves credits to the tenant's
// other calls.
const ReasonJobPace = "JOB_PACE"

// passing tells whether a refusal passes, so that it is no result of a job.
func passing(err error) bool {
	switch KindOf(err) {
	case KindQuotaExceeded, KindQuotaExhausted, KindReducedCapacity, KindHSMUnavailable, KindAuditUnavailable, KindStoreUnavailable, KindWaitExceeded:
		return true
	}
	return false
}

// jobPass is one run of items of a chunk, up to the journal.
type jobPass struct {
	runner *JobRunner
	items  []BatchItem

	mu    sync.Mutex // guards the rest
	next  int        // the first item that was not taken up
	delay time.Duration
	why   string // no more items are taken up; "": they are
}

// open fills in the ticket of an item.
func (p *jobPass) open(of *Ticket, j *Job, place int, item *BatchItem) {
	t := item.Ticket
	t.RequestID, t.TraceID = ItemID(of.RequestID, place), of.TraceID
	t.By, t.Received = of.By, of.Received
	t.Urgency = UrgencyBulk
	t.Resource = j.ID.String()
	t.item = true
}

// run runs items until there are no more, one was refused for now, the tenant's
// credits are to be left to others, or ctx ends.
func (p *jobPass) run(ctx context.Context) {
	var all sync.WaitGroup
	for range min(jobWorkers, len(p.items)) {
		all.Go(func() {
			for more := true; more; {
				p.runner.places <- struct{}{}
				p.runner.turn(ctx, jobItemRest, func() {
					item := p.take(ctx)
					if more = item != nil; more {
						p.do(ctx, item)
					}
				})
				<-p.runner.places
			}
		})
	}
	all.Wait()
}

func (p *jobPass) take(ctx context.Context) *BatchItem {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.items) || p.why != "" || ctx.Err() != nil {
		return nil
	}
	p.next++
	return &p.items[p.next-1]
}

func (p *jobPass) do(ctx context.Context, item *BatchItem) {
	s, t := p.runner.service, item.Ticket
	t.Received = s.clock()
	// What was taken up is finished: the end of ctx only ends the taking.
	ctx = context.WithoutCancel(ctx)
	item.Err = guard(func() error { return item.Do(ctx) })
	if t.Op == "" { // it came to no verb
		item.Err = s.Refuse(ctx, t, item.Op, item.Err)
	}
	switch r, ok := t.Reserved(); {
	case passing(item.Err):
		p.halt(refusedFor(item.Err))
	case ok && r.PerSecond > 0 && r.Left < r.Burst/jobPaceBelow:
		lack := r.Burst - r.Burst/jobPaceUntil - r.Left
		p.halt(time.Duration(float64(lack)/float64(r.PerSecond)*float64(time.Second)), ReasonJobPace)
	}
}

// refusedFor is how long a refusal lasts, and its first reason.
func refusedFor(err error) (time.Duration, string) {
	delay, why := jobRetry, KindOf(err).String()
	if e, ok := errors.AsType[*Error](err); ok {
		if e.RetryAfter > 0 {
			delay = e.RetryAfter
		}
		if len(e.Reasons) > 0 {
			why = e.Reasons[0].Code
		}
	}
	return delay, why
}

func (p *jobPass) halt(delay time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = max(p.delay, delay)
	if p.why == "" || p.why == ReasonJobPace {
		p.why = why
	}
}

// over returns the items that have a result, with their entries, and lets go of
// those that were refused for now: nothing is recorded or charged of them.
func (p *jobPass) over() (places []int, entries []*Entry) {
	for i := range p.items[:p.next] {
		if t := p.items[i].Ticket; passing(p.items[i].Err) {
			p.letGo(t)
		} else {
			places, entries = append(places, i), append(entries, t.ended.entry)
		}
	}
	return places, entries
}

// letGo ends a request of which nothing is recorded.
func (p *jobPass) letGo(t *Ticket) {
	if t.admitted {
		p.runner.service.quota.Settle(t.reservation, Settlement{State: Cancelled, SlotTime: t.SlotTime})
	}
	t.ended = ended{}
}
