package scheduler

import "math/bits"

// buckets is the number of heaps of a route: one for each rank, and apart
// from that for big operations, so that what may not start now is in heaps
// that are not looked at.
const buckets = ranks * 2

func bucketOf(r rank, big bool) int8 {
	k := int8(r) * 2
	if big {
		k++
	}
	return k
}

func rankOf(k int) rank    { return rank(k / 2) }
func isBig(k int) bool     { return k&1 == 1 }
func lowest(set uint8) int { return bits.TrailingZeros8(set) }

// maxEmptyRoutes is how many routes without waiters are kept for reuse.
const maxEmptyRoutes = 16

type routeKey struct {
	mask uint64 // of the nodes that can serve
	home int    // the node that the requests wait for
	lost bool   // the node they preferred is away
}

// route holds the tenants with requests for the same nodes and home, in heaps
// by the tenants' tags.
type route struct {
	routeKey
	heaps    [buckets]heap[*branch]
	filled   uint8 // bit k: heaps[k] is not empty
	accounts [buckets]account
	branches int
	queued   int
}

// branch is a tenant's part of a route. What most steps look at comes first, in
// one line of the processor's cache.
type branch struct {
	tenant *tenant
	route  *route
	pos    [buckets]int32 // in the route's heaps, -1 when not in
	queues [urgencies]queue
}

// routeOf returns the route that r waits on. There are a few for each node, so
// that a search is cheaper than a map.
func (d *domain) routeOf(r *request) *route {
	key := routeKey{mask: r.mask, home: r.home, lost: r.first == nobody || !d.nodes[r.first].serving()}
	for _, rt := range d.routes {
		if rt.routeKey == key {
			return rt
		}
	}
	d.dropEmptyRoutes()
	rt := &route{routeKey: key}
	for k := range rt.accounts {
		rt.accounts[k].since = d.now
	}
	d.routes = append(d.routes, rt)
	return rt
}

func (d *domain) dropEmptyRoutes() {
	if len(d.routes) < maxEmptyRoutes {
		return
	}
	kept := d.routes[:0]
	for _, rt := range d.routes {
		if rt.branches > 0 {
			kept = append(kept, rt)
		}
	}
	clear(d.routes[len(kept):])
	d.routes = kept
}

func (d *domain) branchOf(t *tenant, rt *route) *branch {
	for _, b := range t.branches {
		if b.route == rt {
			return b
		}
	}
	var b *branch
	switch n := len(d.spareBranches); {
	case t.own.tenant == nil:
		b = &t.own
	case n > 0:
		b, d.spareBranches = d.spareBranches[n-1], d.spareBranches[:n-1]
	default:
		b = &branch{}
	}
	*b = branch{tenant: t, route: rt}
	for u := range b.queues {
		b.queues[u] = queue{branch: b, bucket: parkedBucket, duePos: -1}
	}
	for k := range b.pos {
		b.pos[k] = -1
	}
	t.branches = append(t.branches, b)
	rt.branches++
	return b
}

// refile puts t's branches where they belong in the heaps, after its tag, its
// heads, its rank or its parking changed, and drops those with no requests.
func (d *domain) refile(t *tenant) {
	for i := len(t.branches) - 1; i >= 0; i-- {
		b := t.branches[i]
		d.refileBranch(b)
		if b.isEmpty() {
			last := len(t.branches) - 1
			t.branches[i] = t.branches[last]
			t.branches[last] = nil
			t.branches = t.branches[:last]
			b.route.branches--
			if b == &t.own {
				b.tenant = nil
			} else if len(d.spareBranches) < maxSpare {
				d.spareBranches = append(d.spareBranches, b)
			}
		}
	}
}

func (b *branch) isEmpty() bool {
	for u := range b.queues {
		if b.queues[u].head != nil {
			return false
		}
	}
	return true
}

func (d *domain) refileBranch(b *branch) {
	t, rt := b.tenant, b.route
	want := uint8(0)
	for u := range b.queues {
		q := &b.queues[u]
		k := int8(parkedBucket)
		if q.head != nil && !t.isParked {
			k = bucketOf(rankFor(t.class[u], t.over), q.head.big)
			want |= 1 << k
		}
		if k != q.bucket {
			d.move(q, k)
		}
	}
	have := uint8(0)
	for k, p := range b.pos {
		if p >= 0 {
			have |= 1 << k
		}
	}
	for set := want | have; set != 0; set &= set - 1 {
		k := lowest(set)
		h := &rt.heaps[k]
		switch bit := uint8(1) << k; {
		case want&bit == 0:
			h.remove(b.pos[k])
		case have&bit == 0:
			h.push(t.tag, t.turn, b, &b.pos[k])
		default:
			h.fix(b.pos[k], t.tag, t.turn)
		}
		if len(*h) == 0 {
			rt.filled &^= 1 << k
		} else {
			rt.filled |= 1 << k
		}
	}
}

// move counts q's head in another bucket.
func (d *domain) move(q *queue, k int8) {
	d.charge(q)
	q.bucket = k
	if k >= 0 {
		a := &q.branch.route.accounts[k]
		if q.branch.route.filled>>k&1 == 0 {
			a.turn(Share, d.now) // nobody was here: the last reason is over
		}
		a.advance(d.now)
		q.seen = a.sums
	}
	q.since = d.now
}
