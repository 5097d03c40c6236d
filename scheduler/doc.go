// Package scheduler hands work to the bounded slots of nodes, so that each
// tenant gets the part of the slot time that it bought and no tenant makes
// another wait. It knows what a node, a slot and a tenant's identity are, and
// nothing of keys, HSMs, prices or what the work does; it imports the standard
// library alone.
//
// A node has slots; each runs one piece of work at a time. Nodes of one domain
// share their work. A request lists the nodes that can serve it, the preferred
// one first; it starts at once or waits, and ends by one decision, written
// once under the lock: granted a slot, given up by the caller (its longest
// wait or its context ended), or failed because the last of its nodes left.
//
// # The fair queue
//
// The order of service is hierarchical start-time fair queueing over D slots,
// H-SFQ(D) (Goyal, Vin, Cheng 1996; Jin, Chase, Kaur 2004). It needs no fluid
// model and stays fair when the slots' speed varies. By hand:
//
//   - Each tenant has a tag. When work of slot time s starts, the tag grows by
//     s ÷ weight. A free slot goes to the tenant with the least tag among
//     those that wait: the one that has had the least for its weight.
//   - The domain has a clock: the least tag at the last start. A tenant that
//     comes back is raised to it, so that nobody saves up by staying away.
//   - s is an estimate. When the work ends, the tag is corrected by the
//     difference to what it took. So a wrong table of costs costs nothing in
//     the long run.
//   - Inside a tenant the same rule serves its urgencies, interactive, normal
//     and bulk, at 70 : 25 : 5. A tenant's urgency takes nothing from others.
//
// Example, two slots, weights 2 and 1, all operations 10 ms, both always
// waiting: tags (0, 0) start A, (5, 0) start B, (5, 10); at 10 ms both end: A,
// (10, 10); then A or B by who was served longer ago. A gets two starts of
// three.
//
// Two tenants f and g that both wait all the time differ in service by at most
// (D+1) × (s_f/w_f + s_g/w_g) per weight, with s their largest slot times. The
// head of a flow waits at most for its own tag's turn, which is one operation
// of its tenant at its tenant's rate, one largest operation of each waiting
// tenant on all slots, and one largest operation:
// s/r + Σ s_max/C + s_max, where r is what the tenant bought of the capacity C.
//
// # Why this is weighted round robin with aging, made exact
//
// Weighted round robin gives each tenant its weight's number of turns in a
// round. That is fair if all turns take the same time; here one takes a
// hundred times another. Counting slot time in place of turns, the tag is the
// number of the round that a tenant is in, and the least tag is the next turn
// of that round; for equal operations the order of service is that of weighted
// round robin. And the tag ages: while a tenant waits, the others' tags grow
// and its own does not, so it comes to the front without any promotion.
// "Promote whoever waits too long", taken literally, is another thing: under
// overload everybody has waited too long, the one who sends most has most that
// is old, and the queue is first come, first served (bench/sim shows it). What
// is left of it here is the aging lane: the heads of flows that have waited
// half of their longest wait may go first, each flow at most once per longest
// wait, with a tenth of capacity in all. Its heap is in the order of due time;
// priority plus waiting times a factor orders in the same way.
//
// # What bounds the starts
//
// In the order of the checks, and each a reason of waiting of its own:
//
//   - Entrance: a leaky bucket over the domain in slot time. It leaks at the
//     configured rate and not faster than the nodes complete.
//   - Tenant cap: in flight at most max(1, 40 % of the slots), and as much of
//     a ten-second window. A capped tenant is taken out of the heaps and comes
//     back by its own completions, or when the window moves. Work that has
//     run for half a second is taken for stuck and no longer counted.
//   - Gate: utilisation is busy ÷ slots, integrated exactly, the larger of a
//     fast (0.2 s) and a slow (2 s) average. A tenant above its fair share
//     of the last second counts one class lower. By class and utilisation:
//     High and Mid run below the hard line; Low runs there while its tenant is
//     below its share, else it stands in the queue. From the hard line on,
//     all stand, but for what is above its share and Mid or Low, which is
//     refused on arrival. What stands starts only while fewer slots are busy
//     than the line in slots: the safe line for what is above its share, the
//     hard line for the rest. So the gate leaves slots free instead of
//     stopping everybody for a while. Below seven slots the lines are all
//     slots but one, and all slots. A line falls back 3 points later.
//   - Reserve: on a node with four slots or more the other classes than High
//     hold all but one.
//   - Big operations, of more than four times the mean, hold at most three
//     quarters of the slots.
//
// A slot that none of these keeps free is never idle while a request that may
// use it waits, but for affinity:
//
// # Nodes
//
// All nodes of a domain pull from one queue with one clock, first the one with
// the largest part of its slots free. A request waits
// for its home, the first node it lists, or for the second if the home is
// further behind than 1.25 times the mean and 5 ms. A node serves those at
// home with it first, as long as no other tenant's turn was earlier by more
// than two large operations (the tie window); with nothing at home it takes
// what waits elsewhere, if that node is further behind than loading a key
// costs. The cost of a load is measured, and charged to the tenant like all
// slot time. When a node goes, what waited for it waits elsewhere, in its
// order of arrival and with its tenant's tag.
//
// # Data structures
//
// What waits is in queues by tenant, urgency and route (the nodes that can
// serve it and the one it waits for). A route has a heap of tenants by tag for
// each rank of the gate and for big operations apart, so that what may not
// start now is in heaps that are not looked at. No step looks at all tenants
// but the coming and going of a node, a rebase of the tags and Snapshot.
//
// # Explaining
//
// At every moment a waiting request has one reason. All heads of a heap wait
// for the same thing, so each heap integrates its time by reason, and a head
// takes the difference between its coming and going; a request that is not
// head waits for its own queue. The sum of the parts is the wait, exactly.
//
// # Bounds
//
// The queue is bounded in all, per tenant and per urgency of a tenant. A
// request beyond a bound is refused at once, and so is one whose expected wait
// is longer than it may wait, if it would be so even should nobody else come.
// There is no goroutine per request and none of the scheduler's own: it needs
// no Close. A timer runs only while a request waits beside a free slot.
//
// # What it is not
//
// It does not preempt: work that has started ends. It keeps no quota and no
// bill. Several processes that share nodes each schedule what they hold.
package scheduler
