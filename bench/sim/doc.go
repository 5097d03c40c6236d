// Package sim runs the product's scheduler, and what others do in its place,
// on the same workloads in simulated time, and prints what the tenants get.
// `make sim` does it at length; the tests do it shortly and check the order.
//
// The scheduler is not a copy: requests are goroutines that call its Do, and
// work is a sleep, in a bubble of testing/synctest, whose clock jumps to the
// next event. That is why the simulator is a test.
//
// One slot-millisecond is one of the node's; nothing here is measured time, so
// that the results say which design is better and by how much, not how fast a
// machine is. Load is open where it stands for clients who come by themselves
// (victims, floods), and latency counts from the intended arrival; it is
// closed where it stands for a queue that is never empty (abusers, shares).
package sim
