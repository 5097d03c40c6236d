// Package scheduler hands work to the bounded slots of nodes. It knows what a
// node, a slot and a tenant's identity are, and nothing of keys, HSMs, prices
// or what the work does; it imports the standard library alone.
//
// # How it works
//
// A node has slots; each runs one piece of work at a time. A request lists the
// nodes that can serve it, the preferred one first. It takes a free slot of
// the first listed node that has one. When none has, it joins the waiting list
// of every node it listed, and the first slot that frees on any of them is its
// own. Lists are in order of arrival, so each node serves first come, first
// served, and since a slot is handed over by the one who frees it, nobody can
// overtake between freeing and taking.
//
// Three things hold at every moment:
//
//   - A node that serves has either no free slot or no waiters.
//   - busy ≤ slots on every node, except after a node was shrunk, until enough
//     of its running work has ended.
//   - Each waiting request ends by one decision, written once under the lock:
//     granted, given up by the caller (its longest wait or its context ended),
//     or failed because the last of its nodes left. Giving up after a grant is
//     void and the work runs; a grant never meets a request that gave up,
//     because giving up took it off the lists.
//
// # Bounds
//
// The queue is bounded in all (Options.MaxQueue) and per tenant (a quarter of
// it), so that no tenant can fill it alone. A request beyond a bound is refused
// at once. There is no goroutine per request and none of the scheduler's own:
// it needs no Close.
//
// # What it is not
//
// First come, first served gives a tenant with many requests many slots. Fair
// shares, utilisation gates and deadlines belong to the fair queue, which
// replaces this one behind the same Do.
package scheduler
