package quota

import (
	"cmp"
	"encoding/json/v2"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The measurement of what HSMs can do.
const (
	// throughputMinutes is the window: long enough for the mix of a service's
	// load, short enough that a pool that became slow shows while it matters.
	throughputMinutes = 10
	// enoughOperations and enoughSlotTime are what a window must have before
	// its figure is believed. The mean of 1,000 operations whose times spread
	// as wide as the mean is within 3 % of it (1/√1000). Five seconds of slot
	// time are a fiftieth of a percent of what a hundred slots have in the
	// window, and more than a start's cold loads and somebody's tries take:
	// those say little about a load that is sold.
	enoughOperations = 1000
	enoughSlotTime   = 5 * time.Second
	// loadPercent is the part of the slot time whose operations count: a rare
	// one that is slow for its price shall not decide for all.
	loadPercent = 95
	// maxPriced bounds the operations that are told apart, and with it the
	// memory, at some 250 bytes each. There are fewer pairs of operations with
	// specs that they can be for.
	maxPriced = 1024
)

// Throughput measures how much slot time of the HSMs a credit takes, from the
// operations that they completed. It is safe for concurrent use.
//
// Each API node measures the operations that it served itself. Slot time per
// credit is a ratio, so what one node finds holds for all that use the same
// HSMs; what they take from each other is in the slot time of both.
type Throughput struct {
	minute atomic.Int64 // since 1970; the newest that was noted
	priced atomic.Pointer[map[pricedOperation]*operationTime]
	last   atomic.Pointer[Measurement]
	mu     sync.Mutex // held to change priced, minute and last
}

// pricedOperation is what has a price of its own.
type pricedOperation struct {
	op   kms.Op
	spec kms.Spec // of the key; "" for none
}

// operationTime is an operation's part of the window, by the minute.
type operationTime [throughputMinutes]struct {
	slot       atomic.Int64 // ns
	credits    atomic.Int64 // micro-credits
	operations atomic.Int64
}

// Measurement is what a window has shown. It can be kept as JSON.
type Measurement struct {
	// SlotNsPerCredit is that of Op with keys of Spec, in nanoseconds: the
	// highest among the operations that make up 95 % of the slot time.
	SlotNsPerCredit int64     `json:"slot_ns_per_credit"`
	Op              kms.Op    `json:"op"`
	Spec            kms.Spec  `json:"spec"`
	Operations      int64     `json:"operations"` // in the window
	At              time.Time `json:"at"`
}

// ParseMeasurement reads a measurement that was kept.
func ParseMeasurement(content []byte) (*Measurement, error) {
	m := new(Measurement)
	if err := json.Unmarshal(content, m); err != nil {
		return nil, err
	}
	if m.SlotNsPerCredit <= 0 {
		return nil, errors.New("the slot time of a credit is not positive")
	}
	return m, nil
}

// NewThroughput begins with an earlier measurement, nil for none.
func NewThroughput(earlier *Measurement) *Throughput {
	t := &Throughput{}
	t.priced.Store(&map[pricedOperation]*operationTime{})
	t.last.Store(earlier)
	return t
}

// Note takes in an operation that ended at now, took slot of a slot's time and
// cost credits. What cost nothing says nothing. It allocates only for the first
// operation of its kind.
func (t *Throughput) Note(op kms.Op, spec kms.Spec, credits kms.Credits, slot time.Duration, now time.Time) {
	if credits <= 0 || slot <= 0 {
		return
	}
	minute := now.Unix() / 60
	if minute > t.minute.Load() {
		t.turn(minute)
	}
	o := (*t.priced.Load())[pricedOperation{op, spec}]
	if o == nil {
		if o = t.add(pricedOperation{op, spec}); o == nil {
			return
		}
	}
	// One that ends as the minute turns is counted in the new one.
	part := &o[t.minute.Load()%throughputMinutes]
	part.slot.Add(int64(slot))
	part.credits.Add(int64(credits))
	part.operations.Add(1)
}

// add makes room for an operation; nil when there is none left.
func (t *Throughput) add(p pricedOperation) *operationTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := *t.priced.Load()
	if o := was[p]; o != nil || len(was) >= maxPriced {
		return o
	}
	now := make(map[pricedOperation]*operationTime, len(was)+1)
	for key, o := range was {
		now[key] = o
	}
	now[p] = new(operationTime)
	t.priced.Store(&now)
	return now[p]
}

// turn forgets what has left the window when a minute begins, after it has
// measured what was in it.
func (t *Throughput) turn(minute int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.minute.Load()
	if minute <= was {
		return
	}
	if m := t.window(time.Unix((was+1)*60, 0)); m != nil {
		t.last.Store(m)
	}
	gone := min(minute-was, throughputMinutes)
	for _, o := range *t.priced.Load() {
		for i := range gone {
			part := &o[(minute-i)%throughputMinutes]
			part.slot.Store(0)
			part.credits.Store(0)
			part.operations.Store(0)
		}
	}
	t.minute.Store(minute)
}

// Measured returns the newest measurement: that of the window that ends now,
// or, while it has seen too little, the last one that had seen enough. nil:
// none has.
func (t *Throughput) Measured(now time.Time) *Measurement {
	if minute := now.Unix() / 60; minute > t.minute.Load() {
		t.turn(minute)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.window(now); m != nil {
		t.last.Store(m)
	}
	return t.last.Load()
}

// spent is an operation's part of a window.
type spent struct {
	of                        pricedOperation
	slot, credits, operations int64
}

// window measures what the window holds; nil when that is too little.
func (t *Throughput) window(now time.Time) *Measurement {
	var all []spent
	for p, o := range *t.priced.Load() {
		s := spent{of: p}
		for i := range o {
			s.slot += o[i].slot.Load()
			s.credits += o[i].credits.Load()
			s.operations += o[i].operations.Load()
		}
		if s.operations > 0 && s.credits > 0 {
			all = append(all, s)
		}
	}
	return measure(all, now)
}

// measure finds the dearest operation among those that make up the load.
func measure(all []spent, now time.Time) *Measurement {
	var slot, operations int64
	for _, s := range all {
		slot, operations = slot+s.slot, operations+s.operations
	}
	if operations < enoughOperations || slot < int64(enoughSlotTime) {
		return nil
	}
	slices.SortFunc(all, func(a, b spent) int {
		return cmp.Or(cmp.Compare(b.slot, a.slot), cmp.Compare(a.of.op, b.of.op), cmp.Compare(a.of.spec, b.of.spec))
	})
	load, _ := mulDiv(slot, loadPercent, 100)
	m := &Measurement{Operations: operations, At: now}
	for seen, i := int64(0), 0; seen < load; i++ {
		s := all[i]
		seen += s.slot
		if per := mulDivUp(s.slot, micro, s.credits); per > m.SlotNsPerCredit {
			m.SlotNsPerCredit, m.Op, m.Spec = per, s.of.op, s.of.spec
		}
	}
	return m
}
