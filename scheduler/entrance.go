package scheduler

import "time"

// milli is the unit of the entrance's rate: thousandths of a slot.
const milli = 1000

// entranceGap is the longest time, in ns, that one update counts. The bucket is
// full long before, and more would overflow at the highest rate.
const entranceGap = int64(100 * time.Second)

// entrance is a leaky bucket with capped release, counted in slot time. tail
// is what was let in, at its measured slot time once that is known; head is
// what may have been let in by now. Time moves head at the rate; completions
// move the ceiling above it, so when the nodes slow down, completions stop,
// the ceiling stops, and so does the leak.
type entrance struct {
	rate       int64 // thousandths of a slot; 0: the slots alone bound
	tail, head int64 // ns
	completed  int64 // ns
	at         int64
	carry      int64 // what rate × time left over, in ns/1000
}

// update brings head to now. largest is the slot time of a large operation:
// the bucket holds one for each slot of the rate and one more.
func (e *entrance) update(now, largest int64) {
	if e.rate == 0 {
		return
	}
	grown := min(now-e.at, entranceGap)*e.rate + e.carry
	e.at = now
	e.head, e.carry = e.head+grown/milli, grown%milli
	if ceiling := e.completed + e.depth(largest); e.head > ceiling {
		e.head, e.carry = ceiling, 0
	}
}

func (e *entrance) depth(largest int64) int64 { return (e.rate + milli) * largest / milli }

// start lets in work of an estimated slot time.
func (e *entrance) start(estimate int64) { e.tail += estimate }

// settle corrects the estimate and counts the completion.
func (e *entrance) settle(estimate, actual int64) {
	e.tail += actual - estimate
	e.completed += actual
}

// wait is the time until the bucket lets something in, if nothing completes.
func (e *entrance) wait() time.Duration {
	if e.rate == 0 || e.tail <= e.head {
		return 0
	}
	return time.Duration((e.tail-e.head)*milli/e.rate) + 1
}

func (d *domain) entranceEmpty() bool {
	return d.entrance.rate > 0 && d.entrance.tail > d.entrance.head
}
