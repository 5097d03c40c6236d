package scheduler

import (
	"testing"
	"time"
)

// Each cause is staged so that a request waits for it alone for 100 ms, and
// must say so, with the numbers.
func TestEachCauseYieldsItsReason(t *testing.T) {
	const hold = 100 * time.Millisecond
	plain := func(tenant int) Flow { return Flow{Tenant: tenantID(tenant)} }
	none := Options{GateOff: true, CapMode: CapOff, BigShare: 1, AgingOff: true}
	tests := []struct {
		want        Reason
		have, limit int64
		options     Options
		nodes       []Node
		stage       func(w *world) *job // returns the request
	}{
		{Share, 0, 500, none, []Node{{ID: "a", Slots: 1}}, func(w *world) *job {
			w.submit(&job{Flow: plain(1), size: hold})
			return &job{Flow: plain(2)}
		}},
		{OwnQueue, 1, 768, none, []Node{{ID: "a", Slots: 1}}, func(w *world) *job {
			w.submit(&job{Flow: plain(2), size: hold})
			w.submit(&job{Flow: plain(2)})
			return &job{Flow: plain(2)}
		}},
		{NodeDown, 1, 2, none, []Node{{ID: "a", Slots: 1, Down: true}, {ID: "b", Slots: 1}}, func(w *world) *job {
			w.submit(&job{Flow: Flow{Tenant: tenantID(1), Nodes: []string{"b"}}, size: hold})
			return &job{Flow: Flow{Tenant: tenantID(2), Nodes: []string{"a", "b"}}}
		}},
		{HomeBusy, int64(time.Millisecond / 2), int64(time.Second), none, []Node{{ID: "a", Slots: 1}, {ID: "b", Slots: 1}}, func(w *world) *job {
			w.submit(&job{Flow: plain(1), size: hold})
			w.s.domains[0].loadCost = 1 << 40
			return &job{Flow: Flow{Tenant: tenantID(2), Nodes: []string{"a", "b"}}}
		}},
		{Gate, 0, 950, Options{CapMode: CapOff, BigShare: 1, AgingOff: true}, []Node{{ID: "a", Slots: 20}}, func(w *world) *job {
			for i := range 19 {
				w.submit(&job{Flow: plain(10 + i), size: hold})
			}
			w.s.domains[0].gate.slow = 0.99
			return &job{Flow: plain(2)}
		}},
		{Reserve, 3, 3, Options{CapMode: CapOff, BigShare: 1, AgingOff: true}, []Node{{ID: "a", Slots: 4}}, func(w *world) *job {
			for i := range 3 {
				w.submit(&job{Flow: Flow{Tenant: tenantID(10 + i), Class: Mid}, size: hold})
			}
			return &job{Flow: Flow{Tenant: tenantID(2), Class: Mid}}
		}},
		{BigLimit, 1, 1, Options{GateOff: true, CapMode: CapOff, AgingOff: true}, []Node{{ID: "a", Slots: 2}}, func(w *world) *job {
			w.s.domains[0].mean = int64(time.Microsecond)
			w.submit(&job{Flow: plain(1), size: hold})
			return &job{Flow: plain(2)}
		}},
		{Entrance, 0, 1e9, Options{GateOff: true, CapMode: CapOff, BigShare: 1, AgingOff: true, EntranceRate: 1}, []Node{{ID: "a", Slots: 9}}, func(w *world) *job {
			e := &w.s.domains[0].entrance
			e.tail = e.head + int64(hold)
			w.s.domains[0].largest = int64(time.Second)
			return &job{Flow: plain(2)}
		}},
		{Cap, 1, 1, Options{GateOff: true, BigShare: 1, AgingOff: true, CapMode: CapHard}, []Node{{ID: "a", Slots: 3}}, func(w *world) *job {
			w.submit(&job{Flow: Flow{Tenant: tenantID(2), Urgency: Bulk}, size: hold})
			return &job{Flow: plain(2)}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.want.String(), func(t *testing.T) {
			w := newWorld(t, 1, tt.options, tt.nodes...)
			j := tt.stage(w)
			w.submit(j)
			w.run(time.Minute)
			wait, sum := j.started-j.arrived, time.Duration(0)
			for r, part := range j.why.Waits {
				sum += part.For
				if Reason(r) != tt.want && part.For > 0 {
					t.Errorf("%v of %v are put down to %v", part.For, wait, Reason(r))
				}
			}
			if sum != wait || wait < hold*9/10 {
				t.Errorf("the reasons make %v of a wait of %v", sum, wait)
			}
			got := j.why.Waits[tt.want]
			if tt.want != HomeBusy && tt.want != Gate && tt.want != Entrance && got.Have != tt.have || tt.want != HomeBusy && got.Limit != tt.limit {
				t.Errorf("numbers %d of %d, want %d of %d", got.Have, got.Limit, tt.have, tt.limit)
			}
		})
	}
}

// One wait of several causes in turn is divided where the cause changed.
func TestAWaitIsDividedWhereItsCauseChanges(t *testing.T) {
	w := newWorld(t, 1, Options{GateOff: true, CapMode: CapHard, BigShare: 1, AgingOff: true}, Node{ID: "a", Slots: 3})
	flow := Flow{Tenant: tenantID(2)}
	w.submit(&job{Flow: flow, size: 30 * time.Millisecond}) // holds the cap's one slot
	w.submit(&job{Flow: flow, size: 20 * time.Millisecond}) // is before j in its queue
	for i := range 2 {
		w.submit(&job{Flow: Flow{Tenant: tenantID(3 + i)}, size: 90 * time.Millisecond})
	}
	j := &job{Flow: flow}
	w.submit(j)
	w.run(40 * time.Millisecond)
	w.set(Node{ID: "a", Slots: 2}) // at 50 ms the tenant is below its cap, but no slot is free
	w.run(time.Second)
	got := [...]time.Duration{j.why.Waits[OwnQueue].For, j.why.Waits[Cap].For, j.why.Waits[Share].For}
	want := [...]time.Duration{30 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}
	if got != want {
		t.Errorf("own queue, cap and share %v, want %v", got, want)
	}
}

func TestSnapshotCountsWaitingByClassAndReason(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 1})
	w.submit(&job{Flow: Flow{Tenant: tenantID(1), Class: Mid}, size: time.Second})
	w.submit(&job{Flow: Flow{Tenant: tenantID(2), Class: Low}, size: time.Second})
	w.run(400 * time.Millisecond)
	d := w.s.Snapshot().Domains[0]
	if d.Queued != 1 || d.Busy != 1 || len(d.Tenants) != 2 || d.MaxInFlight != 1 {
		t.Errorf("snapshot %+v", d)
	}
	if d.Tenants[0].Tenant != tenantID(1) || d.Tenants[0].Lag >= d.Tenants[1].Lag {
		t.Errorf("the tenants' lags are %+v", d.Tenants)
	}
	w.run(time.Second)
	if got := w.s.Snapshot().Domains[0].Waited; got[Low][Share] != time.Second || got[Mid] != [Reasons]time.Duration{} {
		t.Errorf("waited %v", got)
	}
}
