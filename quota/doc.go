// Package quota prices operations, decides what tenants may use, and keeps
// count of it. Engine implements kms.Quota; docs/limits.md lists the limits.
//
// # Credits
//
// A credit is the unit of the contract with a tenant: an ordinary symmetric
// operation costs one. Credits follow a versioned table and never measured
// time, so a price changes only when an operator publishes a new table.
// Amounts are kms.Credits, whole micro-credits (1 credit = 1,000,000); there
// is no floating point, so sums are exact.
//
//	price = base(operation, spec) + max(0, ceil(bytes ÷ 4096) − 1) credits
//
// where bytes is the size of the plaintext, ciphertext or message given. The
// base is found in this order: the operation's own row, for those that cost
// the same whatever the key; the spec's row, in the column to which the
// operation belongs (private, public or generate) unless the row names the
// operation apart; and else the default of 8 credits, so that every operation
// has a price, one that the table has never heard of included.
//
// A price above MaxPrice is MaxPrice. Re-encryption is priced as an encryption
// with the one key and a decryption with the other.
//
// # Policy
//
// Every number is in one document, Policy, and none in code. It is decoded
// strictly, validated with the path of each mistake, and made into an immutable
// Snapshot; Policies swaps snapshots whole, and a bad document changes nothing.
// A reservation keeps the snapshot under which it was made.
//
// # Admission
//
// Engine.Admit takes the lock of the tenant's shard, asks every gate, and then
// commits to all of them or to none; a refusal has the reasons of all that
// refuse, with numbers. Nothing does I/O under the lock. The gates are:
//
//   - token buckets in credits and in requests, of the tenant, of each project
//     of the path that has limits, of the credential and of the key;
//   - the day's and the month's total with the elastic pool and burst packs, and
//     the day's bytes;
//   - concurrency, of the same scopes as the buckets;
//   - stored objects, as the store counted them at most ten seconds ago, and
//     anew for each creation from nine tenths of the limit on, so that nodes
//     exceed it by no more than what they create at the same moment;
//   - the key's breakers: one for calls in vain, one for failures;
//   - the cost breaker of the tenant and of its components.
//
// Ramps of new tenants and credentials, a lowered day and the pool's load
// change how fast buckets fill. The decisions (bucket, elastic, breaker,
// rateLease, totalLease, Share) are pure: they know the time from their
// arguments, so that tests own it.
//
// A bucket carries the remainder of every refill, so that looking at it often
// loses nothing; the overdraft keeps debt apart from the level, and a part of
// the refill repays it. The time of a tenant's bucket is that of its tier
// (loadClock), which runs slower above the safe line, so that no bucket need be
// touched when the load changes.
//
// # Cost breaker
//
// The cost breaker stops what would use up a day or a month long before its end:
//
//	risk = use of the last minute ÷ what the rest of the period allows a minute × factor
//
// A minute above the line enters the next of three stages: bulk work is refused,
// answers are marked, everything is refused. A minute below the lower line ends
// the incident. Use is demand: what was admitted and what the breaker itself
// refused. A request adds its price to the minute, and a tenant's risk is looked
// at once a second; only above the line are its components told apart, and is
// there a story of the incident, both of fixed size. WatchCosts, once a second,
// is the only place where stages change. It judges the component without which
// the rest would be at the line or below it, and else the tenant. What is decided
// is pure (minuteUse, allowance, costMachine, costState). docs/cost-breaker.md has
// the numbers and where the factors come from.
//
// # Retry-After
//
// A refusal by a bucket promises a part of its future refill: the next one is
// promised what comes after. Clients that obey therefore find what they were
// promised and come back spread over the time that it takes; the answer is
// rounded up to seconds and lengthened by a random part, never shortened.
//
// # Reservations
//
// Admit reserves the price before the operation runs, and Settle or Finish ends
// the reservation with what is charged: all of it when the operation ran, a
// quarter but at least one credit when it ran and failed by the client's
// fault, nothing when it never ran or failed by ours. It ends once, so that a
// request that two paths close is charged once. Never is more charged than was
// reserved. The rest goes back to where it was taken from and to the day on
// which it was taken; work that ran and failed gives back to the buckets no
// more than a tenth of the rate. Reap finds what nobody ended.
//
// # Several nodes
//
// A Backing lends nodes parts of the limits: rates by their part of the demand,
// chunks of totals, slots. Engine.Run exchanges claims for grants some ten times
// a second, all tenants in use at once, and no request waits for it. What a node
// uses without having been lent it is a loan, which its next claim declares:
// for the first request of a tenant, after a lease has ended unanswered, and at
// the tier's emergency rate while the store is away. A store that lost
// everything takes the nodes' word for totals, and half a bucket. A node never
// admits more than the whole limit, whatever it is told.
//
// What may be admitted too much is what is lent out: a period of the rate at
// each change, half a bucket after a loss, one request a node of a total, and
// the slots of emergency while a node waits for its first lease.
//
// # Capacity
//
// A baseline is kept only while all baselines together are less than the HSMs
// can do. Throughput measures the slot time of a credit from what they
// complete, and PlanCapacity decides how much of it can still be sold. Neither
// limits a request: they are for operators who make tenants and policies.
//
// # Locks
//
// Tenants are spread over shards by their id, each with a lock of its own; no
// call takes more than one, none does I/O under it, and nothing is written by
// all requests.
//
// # Restarts
//
// Buckets, breakers and concurrency begin anew. What does not come back by
// itself in seconds (totals, the elastic pool, packs) is a projection of the
// journal: Ledger.
package quota
