// Package provider decides which of the providers of a route get its calls. It
// is pure: state machines under a clock that is an argument, without I/O and
// without randomness, so that every API node decides alike.
//
// # Scopes
//
// What calls came to is kept in three scopes, as client/outcome judges it:
//
//	key          401, 402, 403: the version of the key is refused, invalid or
//	             out of money. Never a fault of the endpoint.
//	key + model  429: this version leaves this model alone for as long as the
//	             provider says. Neutral for the breaker: it neither counts as a
//	             failure nor clears those that were counted, and it gives a
//	             half-open breaker's lease back.
//	endpoint     5xx, time-outs, connections, errors in streams.
//
// # States of a target
//
//	healthy ─10 % of 20 calls fail─► suspect ─below 5 %─► healthy
//	   │                                │
//	   └─ 5 failures in a row, half of 20 calls, 3 missed probes,
//	      2 minutes of 429, 429 with connection errors, no usable key
//	                                    ▼
//	   ┌────────────────────────────► unhealthy: its calls move away in steps,
//	   │                                │        10, 30 and 100 % per 60 s
//	   │ failure: the breaker           │ open for 120 s, doubling to 15 min;
//	   │ opens for twice as long        │ then one call at a time under a lease
//	   │                                ▼ one success
//	   └─ errors, P99, billing ── recovering: 20, 50 and 100 % of its calls,
//	                                    │     5 minutes each
//	                                    ▼
//	                                 healthy; after 10 minutes of it the breaker
//	                                 has forgotten how often it opened
//
// A lease has a deadline, after which another caller gets one. While calls move
// away, the part that has not moved yet still goes to the failing target, so
// that no back-up meets all of them at once. What fails there may be tried on
// another target, as many as the policy says for one call, as long as the retry
// budget lasts: a tenth of the first attempts and one a second.
//
// When no target is good an order has all of them, marked as a panic, and they
// are tried one at a time under leases. An order is never empty.
//
// # Generations
//
// Every transition begins a new generation. Reports name the generation of the
// order that they followed; what is older than a target's last transition is
// left out of what its endpoint is judged by, because it tells of the time
// before.
//
// The numbers are those of the design; where it has none they are our own, and
// each says why.
package provider
