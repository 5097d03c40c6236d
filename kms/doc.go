// Package kms holds the nouns of the key service and the route of a request.
//
// The nouns are the words of the product: Tenant, Key, Version, Principal,
// Credential, Op, Ticket, Reservation, Entry. The ports are the few interfaces
// through which the route reaches storage, quota, scheduling, HSMs and the
// journal; other packages implement them and this one imports none of them,
// nor anything outside the standard library, so it can hold no input or
// output of its own.
//
// Service.run is the only code that knows the order of the steps:
//
//	1 Keys.Lookup      authenticated metadata; 404 also for another tenant's key
//	2 Principal.Allowed
//	3 Quota.Admit      price and limits; spends nothing when it refuses
//	4 Scheduler.Do     hands the work to a slot of a node
//	5 Device.Do        one HSM call
//	6 Journal.Record   durable before the answer
//	7 Quota.Settle
//
// Provider secrets go the same route. What becomes of their versions is decided
// by pure functions (secretstate.go, rollout.go); their values are sealed and
// opened here, under data keys that the HSM seals (secretvalue.go).
//
// A step never calls an earlier step nor a sibling, and undo has one home:
// run's second half, which executes once whatever happened in the first,
// a panic included.
package kms
