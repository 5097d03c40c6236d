package hsm

import (
	"sync"
	"time"
)

const (
	// shrinkPause is how long one shrinking answers for the capacity errors
	// that come with it: calls that run at once meet the same shortage.
	shrinkPause = 100 * time.Millisecond
	// growPause is how long a node stays without a capacity error before it
	// tries one slot more.
	growPause = time.Second
)

// capacity is how many slots of a node are given out now: fewer than it has
// after the token said that it is out of something, and one more for each
// growPause in which it did not. Additive increase and multiplicative decrease
// find the token's limit without knowing what it is short of. It is safe for
// concurrent use.
type capacity struct {
	most int
	// tell is called with each new number, in order.
	tell func(slots int)

	mu      sync.Mutex
	now     int
	shrunk  time.Time // last
	changed time.Time // when the number changed or an error came, last
}

func newCapacity(most int, tell func(int)) *capacity {
	return &capacity{most: most, now: most, tell: tell}
}

// slots returns how many slots are given out now.
func (c *capacity) slots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// shrink takes a quarter of the slots away, one at least, and leaves one.
func (c *capacity) shrink(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = at
	if c.now == 1 || at.Sub(c.shrunk) < shrinkPause {
		return
	}
	c.now, c.shrunk = max(1, c.now-max(1, c.now/4)), at
	c.tell(c.now)
}

// grow gives one slot back when the token has had its pause.
func (c *capacity) grow(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == c.most || at.Sub(c.changed) < growPause {
		return
	}
	c.now, c.changed = c.now+1, at
	c.tell(c.now)
}
