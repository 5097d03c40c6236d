package scheduler

import (
	"testing"
	"time"
)

// capped is the options with nothing but the cap.
func capped(mode CapMode) Options {
	return Options{CapMode: mode, GateOff: true, AgingOff: true, BigShare: 1, MaxQueue: 1 << 16}
}

// flood keeps a tenant with more waiting than all slots can run.
func (w *world) flood(tenant, n int, size time.Duration) {
	w.backlogged(n, func() *job { return &job{Flow: Flow{Tenant: tenantID(tenant), Prior: size}, size: size} })
}

func (w *world) runningOf(tenant int) int {
	if t := w.s.domains[0].tenants[tenantID(tenant)]; t != nil {
		return t.running
	}
	return 0
}

func TestCapIsExactInSlots(t *testing.T) {
	for slots, want := range map[int]int{1: 1, 2: 1, 4: 1, 5: 2, 10: 4, 16: 6, 20: 8} {
		w := newWorld(t, 1, capped(CapHard), Node{ID: "a", Slots: slots})
		w.flood(1, 50, 3*time.Millisecond)
		most := 0
		for w.now < time.Second {
			w.run(w.now + time.Millisecond)
			most = max(most, w.runningOf(1))
		}
		if most != want || w.runningOf(1) != want {
			t.Errorf("of %d slots a tenant held %d at most and %d now, want %d", slots, most, w.runningOf(1), want)
		}
	}
}

// The service signs its journal's head once a second, on the same slots. A tenant
// who is alone beside that has all of the others.
func TestWorkSetAsideMakesNobodyShare(t *testing.T) {
	w := newWorld(t, 1, capped(CapAuto), Node{ID: "a", Slots: 10})
	served := 0
	var sign func()
	sign = func() {
		w.submit(&job{Flow: Flow{Tenant: tenantID(9), Weight: 20_000, Aside: true}, size: time.Millisecond, next: func() { served++ }})
		w.in(time.Second, sign)
	}
	sign()
	w.flood(1, 30, 3*time.Millisecond)
	for w.now < 5*time.Second {
		w.run(w.now + 100*time.Millisecond)
		snap := w.s.Snapshot().Domains[0]
		for _, tenant := range snap.Tenants {
			if tenant.Tenant == tenantID(1) && (tenant.Running < 9 || tenant.Over || tenant.Share < 9.9) || snap.Capped {
				t.Fatalf("after %v: %+v, capped %v", w.now, tenant, snap.Capped)
			}
		}
	}
	if served < 5 {
		t.Errorf("the service's own work was served %d times in five seconds", served)
	}
}

func TestCapModes(t *testing.T) {
	tests := []struct {
		name  string
		mode  CapMode
		other bool
		want  int
	}{
		{"auto, alone", CapAuto, false, 10},
		{"auto, with another", CapAuto, true, 4},
		{"hard, alone", CapHard, false, 4},
		{"off, with another", CapOff, true, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, capped(tt.mode), Node{ID: "a", Slots: 10})
			if tt.other {
				w.submit(&job{Flow: Flow{Tenant: tenantID(2)}, size: time.Millisecond})
			}
			w.run(10 * time.Millisecond)
			w.flood(1, 30, 3*time.Millisecond)
			w.run(time.Second)
			if got := w.runningOf(1); got != tt.want {
				t.Errorf("it holds %d of 10 slots, want %d", got, tt.want)
			}
		})
	}
}

// In mode auto the cap ends ten seconds after the other tenant's last work,
// without any event but time.
func TestAutoCapEndsWhenTheOthersAreGone(t *testing.T) {
	w := newWorld(t, 1, capped(CapAuto), Node{ID: "a", Slots: 10})
	w.submit(&job{Flow: Flow{Tenant: tenantID(2)}, size: time.Millisecond})
	w.flood(1, 30, time.Millisecond)
	for _, at := range []struct {
		when time.Duration
		want int
	}{{9900 * time.Millisecond, 4}, {10050 * time.Millisecond, 10}} {
		w.run(at.when)
		if got := w.runningOf(1); got != at.want {
			t.Errorf("after %v it holds %d slots, want %d", at.when, got, at.want)
		}
	}
}

// What was used while the pool was larger counts: with ten slots a tenant may
// use four for ten seconds; when only five are left, the window stops it until
// it has moved on.
func TestCapWindowIsKeptWhenThePoolShrinks(t *testing.T) {
	w := newWorld(t, 1, capped(CapHard), Node{ID: "a", Slots: 5}, Node{ID: "b", Slots: 5})
	w.backlogged(30, func() *job {
		return &job{Flow: Flow{Tenant: tenantID(1), Nodes: []string{"a", "b"}, Prior: time.Millisecond}, size: time.Millisecond}
	})
	w.run(8 * time.Second) // 32 slot seconds, of 40 that it may use
	w.s.RemoveNode("b")
	w.granted()
	var again time.Duration
	for again == 0 && w.now < 20*time.Second {
		w.run(w.now + 50*time.Millisecond)
		if w.runningOf(1) > 0 && w.now > 8100*time.Millisecond {
			again = w.now
		}
	}
	// 20 may be used now; the first 12 have left the window after 3 s of use,
	// and the window counts a part more than its length.
	if again < 13*time.Second || again > 14200*time.Millisecond {
		t.Errorf("it was served again after %v, want 13 to 14.2 s", again)
	}
	w.run(again + 30*time.Second)
	if got := w.runningOf(1); got != 2 {
		t.Errorf("later it holds %d of 5 slots, want 2", got)
	}
}

func TestBigOperationsLeaveAQuarterOfTheSlots(t *testing.T) {
	w := newWorld(t, 1, Options{CapMode: CapOff, GateOff: true, AgingOff: true}, Node{ID: "a", Slots: 16})
	// The mean is known first: many small ones.
	w.backlogged(4, func() *job { return &job{Flow: Flow{Op: Op{Algorithm: 1}, Prior: unit}, size: unit} })
	w.run(time.Second)
	w.backlogged(40, func() *job {
		return &job{Flow: Flow{Tenant: tenantID(7), Op: Op{Algorithm: 2}, Prior: 57 * unit}, size: 57 * unit}
	})
	d := w.s.domains[0]
	most := 0
	for w.now < 1500*time.Millisecond {
		w.run(w.now + unit)
		most = max(most, d.bigBusy)
	}
	if most != 12 {
		t.Errorf("big operations held %d of 16 slots, want 12", most)
	}
}
