package scheduler

const (
	// tagShift and tagUnit scale tags: one ns of slot time at weight 1 is
	// tagUnit. With a weight of a million a microsecond still is 65 units.
	tagShift = 16
	tagUnit  = 1 << tagShift

	// rebaseAt is the clock from which all tags are moved back, long before
	// they overflow: at weight 1 a slot moves them by 2^46 in a second.
	rebaseAt = 1 << 61

	// maxLag bounds forfeit's lag, in ns of slot time, so that it is a tag.
	maxLag = 1 << 46
)

// enterTag is the least start tag of a request that joins now: the clock, or,
// if its nodes are behind the clock, the tag that they serve. Without that, a
// newcomer on a slow node would wait for those who were there before to catch
// up with the fast ones.
func (d *domain) enterTag(mask uint64) int64 {
	v := int64(-1)
	for _, n := range d.members(mask) {
		if n.free() > 0 {
			return d.clock
		}
		if n.serving() && (v < 0 || n.clock < v) {
			v = n.clock
		}
	}
	if v < 0 {
		return d.clock
	}
	return v
}

// advance moves the clocks to the least start tag that n could serve.
func (d *domain) advance(n *node, tag int64) {
	n.clock = max(n.clock, tag)
	d.clock = max(d.clock, tag)
}

// forfeit bounds how far t is behind n's clock when n serves it. Who waits for
// its turn is behind by no more than what was charged too much for as many
// operations as there are slots. More comes from the gate, the reserve or the
// limit on big operations: what a tenant could not use because of them is not
// owed to it, or it would take all slots for a while once they let it go.
func (d *domain) forfeit(t *tenant, n *node) {
	most := min(int64(d.slots+1)*d.largest, maxLag)
	t.tag = max(t.tag, n.clock-most<<tagShift/t.weight)
}

// spend charges t for slot time: cost ÷ weight on its tag, with the remainder
// carried, so that small operations of heavy tenants are not rounded away.
// A negative cost gives back.
func (d *domain) spend(t *tenant, u Urgency, cost int64) {
	x := cost<<tagShift + t.rest
	t.tag += x / t.weight
	if t.rest = x % t.weight; t.rest < 0 {
		t.rest += t.weight
		t.tag--
	}
	t.inner[u] += cost << tagShift / urgencyShares[u]
	d.lastTag = max(d.lastTag, t.tag)
}

// settle corrects what work was charged by what it took. What a tenant has
// waiting is then ordered by the corrected tag. An idle tenant needs no bound
// from below: its tag is raised to the clock when it comes back.
func (d *domain) settle(t *tenant, u Urgency, estimate, actual int64) {
	d.spend(t, u, actual-estimate)
	if t.queued > 0 {
		d.refile(t)
	}
}

// urge picks which of b's urgencies in bucket k is served: the one with the
// least inner tag. Ties go to the one named first.
func (b *branch) urge(k int) *queue {
	var best *queue
	for u := range b.queues {
		q := &b.queues[u]
		if q.head != nil && int(q.bucket) == k && (best == nil || b.tenant.inner[u] < b.tenant.inner[best.head.urgency]) {
			best = q
		}
	}
	return best
}

// restart sets the clock to the last tag when nothing waits or runs: whoever
// comes next competes with nobody who was served before.
func (d *domain) restart() {
	if d.queued > 0 || d.busy > 0 {
		return
	}
	d.clock = max(d.clock, d.lastTag)
}

// rebase moves all tags back by the least clock. The order stays, because all
// tags that matter are above it; those below become 0.
func (d *domain) rebase() {
	base := d.clock
	for _, n := range d.members(^uint64(0)) {
		if n.serving() && n.free() == 0 {
			base = min(base, n.clock)
		}
	}
	if d.queued > 0 {
		for _, rt := range d.routes {
			for k := range rt.heaps {
				if h := rt.heaps[k]; len(h) > 0 {
					base = min(base, h[0].key)
				}
			}
		}
	}
	d.clock -= base
	d.lastTag -= base
	for _, n := range d.members(^uint64(0)) {
		n.clock = max(0, n.clock-base)
	}
	for _, t := range d.tenants {
		t.tag = max(0, t.tag-base)
		low := min(t.innerClock, t.inner[0], t.inner[1], t.inner[2])
		t.innerClock -= low
		for u := range t.inner {
			t.inner[u] -= low
		}
	}
	for _, rt := range d.routes {
		for k := range rt.heaps {
			for i := range rt.heaps[k] {
				rt.heaps[k][i].key = rt.heaps[k][i].item.tenant.tag
			}
		}
	}
}
