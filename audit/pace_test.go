package audit

import (
	"testing"
	"time"
)

func TestLoneWriterIsNotHeldUp(t *testing.T) {
	var p pace
	if d := p.delay(); d != 0 {
		t.Errorf("the first commit waits %v", d)
	}
	for range 100 {
		p.committed(1, 200*time.Microsecond)
		if d := p.delay(); d != 0 {
			t.Fatalf("a lone writer waits %v", d)
		}
	}
}

func TestBusyLogWaitsLongerTheBusierWithinItsBound(t *testing.T) {
	var last time.Duration
	for _, n := range []int{1, 2, 5, 9, 100, 10_000} {
		p := pace{took: 200 * time.Microsecond}
		p.last = n
		d := p.delay()
		if d < last || d > maxGather || d > gatherTimes*p.took {
			t.Errorf("after a commit of %d the next one waits %v, after a smaller one %v", n, d, last)
		}
		last = d
	}
	slow := pace{last: 100, took: time.Second}
	if d := slow.delay(); d != maxGather {
		t.Errorf("on a slow disk a commit waits %v, want %v", d, maxGather)
	}
}

func TestEmptyCommitsDoNotCount(t *testing.T) {
	p := pace{last: 9, took: time.Millisecond}
	p.committed(0, 0)
	if p.last != 9 || p.took != time.Millisecond {
		t.Errorf("pace is %+v", p)
	}
}

func TestWaitForMoreEndsWhenAsManyAreBackAsWereServed(t *testing.T) {
	l := &Log{wake: make(chan struct{}, 1), enough: make(chan struct{}, 1)}
	enqueue := func() {
		t.Helper()
		if err := l.enqueue(&waiter{}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.expect(2) {
		t.Fatal("nothing is pending, and that is enough")
	}
	enqueue()
	if len(l.enough) != 0 {
		t.Error("one of two is enough")
	}
	enqueue()
	if len(l.enough) != 1 {
		t.Error("two of two are not enough")
	}
	if l.expect(2) {
		t.Error("two are pending, and more are waited for")
	}
	if len(l.enough) != 0 {
		t.Error("the signal of this wait would end the next")
	}
}
