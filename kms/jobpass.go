package kms

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

const (
	// jobWorkers is how many items of a chunk are under way at once: enough to
	// hide the way to an HSM, few enough that a job is not what a pool is full of.
	jobWorkers = 4
	// jobRest is for how many times as long as it worked a job rests, on a node that
	// has served somebody in jobQuiet: it works a tenth of the time then. Work that
	// goes on without a pause would hold a processor that others wait for.
	jobRest  = 9
	jobQuiet = time.Second
	// jobStretch is how many items are worked on, where that is more than to call an
	// HSM, before others have their turn.
	jobStretch = 16
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
	service *Service
	items   []BatchItem
	places  chan struct{} // of items of all jobs that are under way on the node

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
			for {
				p.places <- struct{}{}
				item := p.take(ctx)
				began := time.Now()
				if item != nil {
					p.do(ctx, item)
				}
				took := time.Since(began)
				<-p.places
				if item == nil {
					return
				}
				p.service.rest(ctx, took)
			}
		})
	}
	all.Wait()
}

// rest leaves the node to others after work that took a time, if there are any.
func (s *Service) rest(ctx context.Context, took time.Duration) {
	if s.clock().UnixNano()-s.served.Load() > int64(jobQuiet) {
		return
	}
	timer := time.NewTimer(jobRest * took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// polite lets others have their turn after every few of many items.
func polite(i int) {
	if i%jobStretch == jobStretch-1 {
		runtime.Gosched()
	}
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
	s, t := p.service, item.Ticket
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
		p.service.quota.Settle(t.reservation, Settlement{State: Cancelled, SlotTime: t.SlotTime})
	}
	t.ended = ended{}
}
