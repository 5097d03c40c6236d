package scheduler

import (
	"slices"
	"testing"
	"time"
)

// keyed is a pool whose nodes must load a key before they use it first.
type keyed struct {
	*world
	hot  map[string]map[int]bool // by node
	load time.Duration
	runs map[string]int
	home int // runs at home
	all  int
}

func newKeyed(t *testing.T, nodes int, load time.Duration) *keyed {
	o := off
	k := &keyed{world: newWorld(t, 1, o), hot: make(map[string]map[int]bool), load: load, runs: make(map[string]int)}
	for i := range nodes {
		id := string(rune('a' + i))
		k.hot[id] = make(map[int]bool)
		k.set(Node{ID: id, Slots: 4})
	}
	return k
}

// use is a request for a key: its home is the key's number modulo the nodes.
func (k *keyed) use(tenant, key int, size time.Duration) *job {
	nodes := make([]string, len(k.hot))
	for i := range nodes {
		nodes[i] = string(rune('a' + (key+i)%len(nodes)))
	}
	return &job{
		Flow: Flow{Tenant: tenantID(tenant), Nodes: nodes, Prior: size},
		sizeOn: func(node string) time.Duration {
			k.runs[node]++
			k.all++
			if node == nodes[0] {
				k.home++
			}
			if !k.hot[node][key] {
				k.hot[node][key] = true
				return size + k.load
			}
			return size
		},
	}
}

// When every key has been loaded on every node, so that running elsewhere costs
// nothing.
func TestWarmRequestsRunAtHome(t *testing.T) {
	const size, slots, load = time.Millisecond, 16, 0.8
	k := newKeyed(t, 4, 0)
	for id := range k.hot {
		k.set(Node{ID: id, Slots: slots})
	}
	for i := range 20 { // 4,000 keys in all
		k.open(load*4*slots/size.Seconds()/20, 6*time.Second, func() *job { return k.use(i, i*200+k.rnd.IntN(200), size) })
	}
	k.run(3 * time.Second)
	k.home, k.all = 0, 0
	k.run(6 * time.Second)
	share := float64(k.home) / float64(k.all)
	t.Logf("%.1f %% of %d requests ran at home", 100*share, k.all)
	if share < 0.9 {
		t.Errorf("%.1f %% of requests ran at home", 100*share)
	}
}

// All of one hot key: its home is not the limit of its tenant, and the other
// tenants keep their share.
func TestHotKeyIsSpreadWithoutBreakingFairness(t *testing.T) {
	k := newKeyed(t, 4, 2*time.Millisecond)
	const size = time.Millisecond
	var used [4]time.Duration
	k.ended = func(j *job) {
		if j.started > 2*time.Second {
			used[j.Tenant[0]] += j.ended - j.started
		}
	}
	k.backlogged(60, func() *job { return k.use(0, 0, size) })
	for i := 1; i < 4; i++ {
		k.backlogged(60, func() *job { return k.use(i, i*100+k.rnd.IntN(50), size) })
	}
	k.run(12 * time.Second)
	total := used[0] + used[1] + used[2] + used[3]
	for i, u := range used {
		if share := u.Seconds() / total.Seconds(); share < 0.2475 || share > 0.2525 {
			t.Errorf("tenant %d got %.2f %% of the slots", i, 100*share)
		}
	}
	for node, n := range k.runs {
		if share := float64(n) / float64(k.all); share < 0.2 || share > 0.3 {
			t.Errorf("node %s did %.1f %% of the work", node, 100*share)
		}
	}
	if idle := 1 - total.Seconds()/160; idle > 0.01 {
		t.Errorf("%.1f %% of slot time was idle beside a backlog", 100*idle)
	}
}

func TestNodeThreeTimesSlowerGetsAThirdOfTheWork(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 4}, Node{ID: "b", Slots: 4, Model: "slow"})
	runs := make(map[string]int)
	var waits [2][]time.Duration // by home
	home := 0
	w.open(0.9*(4+4.0/3)/0.001, 20*time.Second, func() *job {
		home = 1 - home
		at := home
		nodes := []string{"a", "b"}
		if at == 1 {
			nodes = []string{"b", "a"}
		}
		j := &job{Flow: Flow{Nodes: nodes, Tenant: tenantID(w.rnd.IntN(10)), Prior: time.Millisecond}}
		j.sizeOn = func(node string) time.Duration {
			runs[node]++
			if node == "b" {
				return 3 * time.Millisecond
			}
			return time.Millisecond
		}
		j.next = func() { waits[at] = append(waits[at], j.started-j.arrived) }
		return j
	})
	w.run(25 * time.Second)
	share := float64(runs["b"]) / float64(runs["a"])
	a, b := percentile(waits[0], 0.5), percentile(waits[1], 0.5)
	t.Logf("the slow node did %.2f of the other's work; median waits %v and %v", share, a, b)
	if share < 0.27 || share > 0.40 {
		t.Errorf("the slow node did %.2f of the other's work", share)
	}
	if b > a+5*time.Millisecond {
		t.Errorf("those at home on the slow node waited %v, the others %v", b, a)
	}
}

func TestNodeLossKeepsTheOrderOfArrival(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 1})
	for _, id := range []string{"a", "b"} {
		w.submit(&job{Flow: Flow{Nodes: []string{id}}, size: 50 * time.Millisecond})
	}
	var order []int
	for i := range 20 {
		nodes := []string{"a", "b"}
		if i%2 == 1 {
			slices.Reverse(nodes)
		}
		j := &job{Flow: Flow{Nodes: nodes}, size: time.Millisecond}
		j.next = func() { order = append(order, i) }
		w.submit(j)
	}
	w.run(10 * time.Millisecond)
	w.set(Node{ID: "a", Slots: 1, Down: true})
	w.run(time.Second)
	if len(order) != 20 || !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
}

// A hundred thousand slot seconds at weight 1 move the tags past their range;
// nobody notices.
func TestRebaseChangesNoOrder(t *testing.T) {
	starts := func(rebase bool) (order []byte) {
		w := newWorld(t, 3, off, Node{ID: "a", Slots: 3})
		w.ended = func(j *job) { order = append(order, j.Tenant[0]) }
		op := mix(w, false)
		for i := range 5 {
			w.backlogged(4, func() *job {
				j := op(i)
				j.Tenant, j.Weight = tenantID(i), uint32(1+i)
				return j
			})
		}
		for w.now < 3*time.Second {
			w.run(w.now + 10*time.Millisecond)
			if rebase {
				d := w.s.domains[0]
				d.rebase()
				if err := d.check(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return order
	}
	if plain, rebased := starts(false), starts(true); len(plain) < 1000 || !slices.Equal(plain, rebased) {
		t.Errorf("%d and %d ends, in another order", len(plain), len(rebased))
	}
	w := newWorld(t, 3, off, Node{ID: "a", Slots: 1})
	w.s.domains[0].clock = rebaseAt + 1
	w.submit(&job{})
	w.run(time.Second)
	if got := w.s.domains[0].clock; got > 1<<50 {
		t.Errorf("the clock is at %d after a rebase", got)
	}
}
