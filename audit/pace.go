package audit

import "time"

// pace decides how long a commit waits for more entries. A sync costs the
// processor some 50 µs however many entries it covers, so a busy log that
// syncs as often as it can spends more on syncing than on all else; and who
// came while the last sync ran would wait for this one anyway. A log with one
// writer at a time does not wait at all. PostgreSQL's commit_delay and
// commit_siblings are the same idea with fixed numbers.
type pace struct {
	last int           // requests that waited for the last commit
	took time.Duration // of a commit, averaged
}

const (
	// maxGather bounds the wait: two milliseconds are little beside the time
	// that requests of a log that busy spend waiting for a slot.
	maxGather = 2 * time.Millisecond
	// gatherShare is how many entries beyond the first make a commit wait for
	// as long as a commit takes; gatherTimes is how many such times at most.
	gatherShare = 4
	gatherTimes = 4
	// paceWeight is the weight of the newest commit in the average, 1/8.
	paceWeight = 8
)

// delay returns how long the next commit waits.
func (p *pace) delay() time.Duration {
	if p.last <= 1 {
		return 0
	}
	quarters := min(p.last-1, gatherShare*gatherTimes)
	return min(p.took*time.Duration(quarters)/gatherShare, maxGather)
}

// committed notes a commit that n requests waited for.
func (p *pace) committed(n int, took time.Duration) {
	if n == 0 {
		return
	}
	p.last = n
	p.took += (took - p.took) / paceWeight
}

func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
