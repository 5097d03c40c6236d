// Command soak runs a real server for as long as it is told, with tenants of
// several tiers that use keys of every family of algorithms, on tokens that fail,
// and looks for what only time shows: memory, goroutines and file handles that
// grow, requests that fail, and a ledger that is not what the journal says.
//
//	go run ./bench/soak -sluice bin/sluice -time 10m
//
// The server is `sluice server` on two SoftHSM tokens behind fault modules. One
// of them at a time becomes slow, fails now and then, dies, or loses its
// sessions; the other one stays well, so that no request may fail. Calls that
// hang are not among the faults: a caller of one is answered 504 by design, which
// says nothing about the time that a soak is about.
//
// Resident memory, live heap, goroutines and file handles are read at intervals
// from /proc and /metrics, each time after a garbage collection. The first third is the warm-up. After it, the growth that the
// median slope of the rest (Theil–Sen, which single values cannot bend) comes to
// must stay within what noise can explain.
//
// At the end each tenant's usage must be what the journal sums up to, and `sluice
// audit verify` must find no fault. It fails with all that was wrong.
package main
