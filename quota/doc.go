// Package quota prices operations and keeps count of what tenants use. It
// implements kms.Quota.
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
// # Reservations
//
// Admit reserves the price before the operation runs, and Settle ends the
// reservation with what is charged: all of it when the operation ran, a
// quarter but at least one credit when it ran and failed by the client's
// fault, nothing when it never ran or failed by ours. Settle is idempotent: it
// ends a reservation once and ignores it from then on, so that a request that
// two paths close is charged once. Never is more charged than was reserved.
//
// # Locks
//
// Tenants are spread over shards by their id, each with a lock of its own; no
// call takes more than one, none does I/O under it, and nothing is shared by
// all requests.
//
// # Limits
//
// The Gate refuses nothing yet: it prices, reserves and counts.
package quota
