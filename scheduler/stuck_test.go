package scheduler

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A node on which everything hangs keeps nobody waiting while another of the
// domain has free slots, however short its work was expected to be.
func TestNodeThatHangsKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New([]Node{{ID: "a", Slots: 4}, {ID: "b", Slots: 4}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		tenants := [][16]byte{{1}, {2}, {3}, {4}}
		run := func(i int, nodes []string, work func(node string)) (time.Duration, error) {
			return s.Do(context.Background(), Flow{Tenant: tenants[i%len(tenants)], Nodes: nodes, MaxWait: 2 * time.Second}, work)
		}
		// Work takes a millisecond, and fifty where its key is not loaded yet.
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 50 {
					_, err := run(i, []string{"a", "b"}, func(node string) {
						time.Sleep(time.Millisecond)
						if node == "b" {
							time.Sleep(50 * time.Millisecond)
						}
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		release := make(chan struct{})
		hung := make(chan error, 4)
		for i := range 4 {
			go func() {
				_, err := run(i, []string{"a"}, func(string) { <-release })
				hung <- err
			}()
		}
		synctest.Wait()
		var longest time.Duration
		for i := range 100 {
			wait, err := run(i, []string{"a", "b"}, func(node string) {
				if node != "b" {
					t.Errorf("work is given to %s", node)
				}
				time.Sleep(time.Millisecond)
			})
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			longest = max(longest, wait)
		}
		if longest > 100*time.Millisecond {
			t.Errorf("a request waited %v for a node that hangs", longest)
		}
		t.Logf("the longest wait was %v", longest)
		close(release)
		for range 4 {
			if err := <-hung; err != nil {
				t.Error(err)
			}
		}
	})
}

// What hangs on a node does not use up the cap of the tenant whose work it is:
// on the other nodes the tenant is served as before.
func TestWorkThatHangsDoesNotUseUpItsTenantsCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New([]Node{{ID: "a", Slots: 4}, {ID: "b", Slots: 4}}, Options{CapMode: CapHard})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		hung := make(chan error, 3)
		for range 3 { // the cap of eight slots
			tenant := [16]byte{1}
			go func() {
				_, err := s.Do(context.Background(), Flow{Tenant: tenant, Nodes: []string{"a"}, MaxWait: time.Minute}, func(string) { <-release })
				hung <- err
			}()
		}
		synctest.Wait()
		for i := range 20 {
			wait, err := s.Do(context.Background(), Flow{Tenant: [16]byte{1}, Nodes: []string{"a", "b"}, MaxWait: 2 * time.Second}, func(string) { time.Sleep(time.Millisecond) })
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			if wait > 2*stuckAfter {
				t.Errorf("request %d waited %v", i, wait)
			}
		}
		close(release)
		for range 3 {
			if err := <-hung; err != nil {
				t.Error(err)
			}
		}
		// What ended is counted as before.
		for _, tenant := range []byte{1} {
			if got := s.domains[0].tenants[[16]byte{tenant}]; got != nil && (got.running != 0 || got.stuck != 0) {
				t.Errorf("tenant %d: %d running, %d stuck", tenant, got.running, got.stuck)
			}
		}
	})
}
