package kms

import (
	"context"
	"runtime"
	"time"
)

// A node that has served somebody in jobQuiet does one piece of the work of jobs
// at a time for each two of its processors, and rests after it: jobItemRest times
// as long as it took to run an item, jobStoreRest times as long as anything took
// that writes to a disk or works through a whole chunk. The one can hold a
// processor that others wait for, the other a disk as well, which every answer
// needs. What others have of it is not the sum of the pieces but how many of their
// calls meet one, so these are seldom rather than short, and take half a hundredth
// of the time: less than the hundredth of their calls that a P99 leaves out.
const (
	jobItemRest  = 9
	jobStoreRest = 199
	jobQuiet     = time.Second
	// jobMostRest bounds a rest, so that a slow disk does not end the work.
	jobMostRest = 5 * time.Second
	// jobStretch is how many items are worked on, where that is more than to call an
	// HSM, before others have their turn.
	jobStretch = 16
	// jobLane is how many processors there are for one piece of work at a time.
	jobLane = 2
)

// alone tells whether the node serves nobody but jobs.
func (s *Service) alone() bool {
	return s.clock().UnixNano()-s.served.Load() > int64(jobQuiet)
}

// turn does a piece of work, beside others that the node serves when it is its
// turn, with a rest of so many times its length. The end of ctx ends the rest.
func (r *JobRunner) turn(ctx context.Context, rest int, work func()) {
	if r.service.alone() {
		work()
		return
	}
	r.lanes <- struct{}{}
	defer func() { <-r.lanes }()
	began := time.Now()
	work()
	timer := time.NewTimer(min(time.Duration(rest)*time.Since(began), jobMostRest))
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
