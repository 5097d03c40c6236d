package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world drives a Scheduler through simulated time without goroutines: events
// in order of time, then of their making.
type world struct {
	t      testing.TB
	s      *Scheduler
	now    time.Duration
	events eventHeap
	made   uint64
	jobs   map[*request]*job // that wait
	woken  []*request
	rnd    *rand.Rand
	send   func(*job) // makes a request; submit, unless a test compares
	ended  func(*job) // called with every job that has ended
}

// job is a request and its work.
type job struct {
	Flow
	size    time.Duration                   // the slot time that it really takes
	sizeOn  func(node string) time.Duration // in place of size
	arrived time.Duration
	started time.Duration
	ended   time.Duration
	node    string
	why     Explanation
	err     error
	next    func() // called when it has ended or failed
}

type event struct {
	do  func()
	pos int32
}

type eventHeap = heap[*event]

// underRace: the race detector is on. A world has one goroutine, which has
// nothing to race with, and would be slow for nothing.
var underRace bool

func newWorld(t testing.TB, seed uint64, o Options, nodes ...Node) *world {
	t.Helper()
	if underRace {
		t.Skip("a simulated world has one goroutine")
	}
	w := &world{t: t, jobs: make(map[*request]*job), rnd: rand.New(rand.NewPCG(seed, 7))}
	base := time.Unix(0, 0)
	o.Clock = func() time.Time { return base.Add(w.now) }
	s, err := New(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	timers := make(map[*domain]int) // how often each was set
	s.after = func(d *domain, wait time.Duration) {
		timers[d]++
		set := timers[d]
		w.in(wait, func() {
			if timers[d] == set {
				s.look(d)
				w.granted()
			}
		})
	}
	s.wake = func(r *request) { w.woken = append(w.woken, r) }
	w.s, w.send = s, w.submit
	for _, n := range nodes {
		w.set(n)
	}
	return w
}

func (w *world) set(n Node) {
	w.t.Helper()
	if err := w.s.SetNode(n); err != nil {
		w.t.Fatal(err)
	}
	w.granted()
}

// in does something after a time.
func (w *world) in(d time.Duration, do func()) {
	e := &event{do: do}
	w.events.push(int64(w.now+max(0, d)), w.made, e, &e.pos)
	w.made++
}

// backlogged keeps n requests of a tenant waiting or running.
func (w *world) backlogged(n int, make func() *job) {
	var again func()
	again = func() {
		j := make()
		j.next = func() {
			if j.node == "" { // refused: not at once again
				w.in(time.Millisecond, again)
				return
			}
			again()
		}
		w.send(j)
	}
	for range n {
		again()
	}
}

// open makes requests at random, at a mean rate per second, until a moment.
func (w *world) open(rate float64, until time.Duration, make func() *job) {
	var next func()
	next = func() {
		if w.now < until {
			w.send(make())
			w.in(time.Duration(w.rnd.ExpFloat64()/rate*float64(time.Second)), next)
		}
	}
	w.in(time.Duration(w.rnd.ExpFloat64()/rate*float64(time.Second)), next)
}

// percentile is the p-th part of the sorted times, 0 to 1.
func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(p*float64(len(all))))]
}

// run lets time pass until the given moment.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].key <= int64(until) {
		e := w.events[0]
		w.events.remove(0)
		w.now = time.Duration(e.key)
		e.item.do()
	}
	w.now = until
}

// submit makes a request now.
func (w *world) submit(j *job) {
	j.arrived = w.now
	if len(j.Nodes) == 0 {
		j.Nodes = []string{"a"}
	}
	if j.MaxWait == 0 {
		j.MaxWait = 1000 * time.Hour
	}
	j.Explain = &j.why
	r, err := w.s.enter(&j.Flow, &j.why)
	switch {
	case err != nil:
		j.err = err
		w.over(j)
	case r.enqueued:
		w.jobs[r] = j
		w.in(min(j.MaxWait, 1000*time.Hour), func() {
			if w.jobs[r] == j {
				w.giveUp(r)
			}
		})
	default:
		w.begin(r, j)
	}
	w.granted()
}

// giveUp ends a request's waiting.
func (w *world) giveUp(r *request) {
	w.s.lock()
	r.domain.refresh(w.s.now)
	r.domain.decide(r, nil, ErrWaitExceeded)
	r.domain.dispatch()
	w.s.unlock()
	w.granted()
}

func (w *world) over(j *job) {
	j.ended = w.now
	if w.ended != nil {
		w.ended(j)
	}
	if j.next != nil {
		j.next()
	}
}

// granted starts the work of those who waited and were granted a slot.
func (w *world) granted() {
	for len(w.woken) > 0 {
		r := w.woken[0]
		w.woken = w.woken[1:]
		j := w.jobs[r]
		delete(w.jobs, r)
		if r.err != nil {
			j.err, j.why = r.err, *r.why
			w.over(j)
			continue
		}
		w.begin(r, j)
	}
}

func (w *world) begin(r *request, j *job) {
	j.started, j.node = w.now, r.node.id
	size := j.size
	if j.sizeOn != nil {
		size = j.sizeOn(j.node)
	}
	w.in(size, func() {
		w.s.lock()
		r.domain.refresh(w.s.now)
		r.domain.finish(r)
		w.s.unlock()
		j.why = *r.why
		r.reset()
		w.over(j)
		w.granted()
	})
}
