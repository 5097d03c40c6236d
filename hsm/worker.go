package hsm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// worker is one slot: a goroutine that owns a session and runs one call at a
// time. A call into a module cannot be cancelled, so a call that takes longer
// than its limit is given up together with the worker: session and buffers
// stay with the call until it returns, and nobody hears of its result.
type worker struct {
	token   Token
	session Session
	clock   func() time.Time
	in      chan request
	out     chan answer   // holds one answer, so the loop never waits for a reader
	ended   chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex
	running   bool
	abandoned bool
	started   time.Time
	limit     time.Duration
}

// request is either a call for the session or a task on the token itself.
type request struct {
	call  *Call
	task  func() error
	limit time.Duration
}

type answer struct {
	elapsed time.Duration
	err     error
}

var errHung = errors.New("the call did not return within its time limit")

func newWorker(t Token, clock func() time.Time) (*worker, error) {
	s, err := t.NewSession()
	if err != nil {
		return nil, err
	}
	w := &worker{token: t, session: s, clock: clock,
		in: make(chan request), out: make(chan answer, 1), ended: make(chan struct{})}
	go w.loop()
	return w, nil
}

func (w *worker) loop() {
	defer close(w.ended)
	for r := range w.in {
		started := w.clock()
		w.mu.Lock()
		w.running, w.started, w.limit = true, started, r.limit
		w.mu.Unlock()

		err := w.run(r)
		elapsed := w.clock().Sub(started)

		w.mu.Lock()
		w.running = false
		abandoned := w.abandoned
		w.mu.Unlock()
		if abandoned {
			break // the answer was given by the watchdog; this one goes to nobody
		}
		if err != nil && ClassOf(err) == ClassSession {
			w.renew()
		}
		w.out <- answer{elapsed, err}
	}
	w.session.Close()
}

func (w *worker) run(r request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Class: ClassAmbiguous, Call: "worker", Err: panicked(p)}
		}
	}()
	if r.task != nil {
		return r.task()
	}
	return w.session.Do(r.call)
}

// renew replaces a bad session; when it cannot, the next call fails in the
// same way and tries again.
func (w *worker) renew() {
	if s, err := w.token.NewSession(); err == nil {
		w.session.Close()
		w.session = s
	}
}

// panicked describes a panic without its value, which could hold anything.
func panicked(p any) error {
	if e, ok := p.(interface{ RuntimeError() }); ok {
		return fmt.Errorf("panic: %v\n%s", e, debug.Stack())
	}
	return fmt.Errorf("panic of type %T\n%s", p, debug.Stack())
}

func (w *worker) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// do runs a request and waits for its answer or its limit. One caller at a
// time: who took the worker from its crew.
func (w *worker) do(r request) answer {
	w.in <- r
	return <-w.out
}

// abandonIfOverdue gives the worker up when its call has run past its limit,
// and tells whether it did; its goroutine ends when the call returns.
func (w *worker) abandonIfOverdue(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running || w.abandoned || now.Sub(w.started) < w.limit {
		return false
	}
	w.abandoned = true
	w.out <- answer{now.Sub(w.started), &Error{Class: ClassTokenDown, Call: "worker", Err: errHung}}
	return true
}

// crew is a fixed number of workers that take turns.
type crew struct {
	token Token
	clock func() time.Time
	idle  chan *worker
	dead  chan struct{} // closed when no worker is left that will come back

	mu      sync.Mutex
	workers []*worker // all that live, for the watchdog
	givenUp []*worker // whose calls have not returned yet
	lost    int       // given up and not replaced yet
	// replacement is closed when the replacement under way has ended; nil:
	// none is. It opens a session, which can hang like any other call.
	replacement chan struct{}
	closed      bool
}

// newCrew opens a worker for each of most sessions, or for as many, but at
// least least, as the token has room for.
func newCrew(t Token, least, most int, clock func() time.Time) (*crew, error) {
	c := &crew{token: t, clock: clock, dead: make(chan struct{})}
	for len(c.workers) < most {
		w, err := newWorker(t, clock)
		if err != nil && ClassOf(err) == ClassCapacity && len(c.workers) >= least {
			break
		}
		if err != nil {
			c.close()
			return nil, err
		}
		c.workers = append(c.workers, w)
	}
	c.idle = make(chan *worker, len(c.workers))
	for _, w := range c.workers {
		c.idle <- w
	}
	return c, nil
}

// size returns the number of workers.
func (c *crew) size() int { return cap(c.idle) }

// do runs a request on the next idle worker. The scheduler gives out no more
// slots than there are workers, so waiting here is short.
func (c *crew) do(r request) answer {
	var w *worker
	select {
	case w = <-c.idle:
	case <-c.dead:
		return answer{err: &Error{Class: ClassTokenDown, Call: "worker", Err: errHung}}
	}
	a := w.do(r)
	if !errors.Is(a.err, errHung) {
		c.idle <- w
	}
	return a
}

// busy returns how many workers run a call now, the lost ones included.
func (c *crew) busy() int {
	return cap(c.idle) - len(c.idle)
}

// watch gives up overdue workers, has them replaced unless the node is about to
// be, and returns how many calls hang in the module now. It calls nothing that
// could hang itself.
func (c *crew) watch(replace bool) (hanging int) {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.workers[:0]
	for _, w := range c.workers {
		if w.abandonIfOverdue(now) {
			c.lost++
			c.givenUp = append(c.givenUp, w)
			continue
		}
		kept = append(kept, w)
	}
	c.workers = kept
	c.givenUp = slices.DeleteFunc(c.givenUp, (*worker).hasEnded)
	// No more are replaced than the crew is large while their calls hang, so
	// a module that swallows every call ends up without workers, not with
	// ever more blocked threads.
	if replace && c.lost > 0 && len(c.givenUp) <= cap(c.idle) && c.replacement == nil && !c.closed {
		c.replacement = make(chan struct{})
		go c.replace(c.replacement)
	}
	if len(c.workers) == 0 && c.lost > 0 && c.replacement == nil {
		select {
		case <-c.dead:
		default:
			close(c.dead)
		}
	}
	return len(c.givenUp)
}

// replace makes one worker in place of a lost one; when the module refuses a
// session the next watch tries again.
func (c *crew) replace(done chan struct{}) {
	w, err := newWorker(c.token, c.clock)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replacement = nil
	close(done)
	switch {
	case err != nil:
	case c.closed:
		close(w.in)
	default:
		c.lost--
		c.workers = append(c.workers, w)
		c.idle <- w
	}
}

// hanging tells whether anything of the crew is in the module that the
// watchdog has given up, or whose end cannot be told.
func (c *crew) hanging() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.givenUp = slices.DeleteFunc(c.givenUp, (*worker).hasEnded)
	return len(c.givenUp) > 0 || c.replacement != nil
}

// close ends the workers and waits for those whose calls return; the given
// up ones are left to their module.
func (c *crew) close() {
	c.mu.Lock()
	workers := c.workers
	c.workers, c.closed = nil, true
	c.mu.Unlock()
	for _, w := range workers {
		close(w.in)
	}
	for _, w := range workers {
		<-w.ended
	}
}
