// Package outcome says what the answer of an LLM provider means for the key
// that was used, for the model that was asked, and for the endpoint that
// answered. Gateways report by it, routes are healed by it, and both must
// agree, so that it is one table.
//
// # Classes and scopes
//
// Three scopes are kept apart, because mixing them is how gateways throw good
// keys away and keep bad endpoints: a key that is wrong or without money says
// nothing of the endpoint; a rate limit says nothing of either, only that this
// key must leave this model alone for a while; an overloaded endpoint says
// nothing of the key; and what the caller did wrong says nothing of anything.
//
//	class       scope          what to do
//	ok          –              count it
//	credential  key            use this version no more; never touches the endpoint's health
//	quota       key            out of money or of a day's units: leave the key alone for long
//	rate_limit  key+model      wait for Cool; neutral for circuit breakers
//	transient   endpoint       counts against the endpoint
//	caller      –              return it as it is, count nothing
//
// A refusal that is about one model of a key (no access to it, a day's units of
// it) has the scope key+model.
//
// # How
//
// Of and Stream find the first row of the table that fits the provider, the
// HTTP status, and what the body says: its error codes and types, and, where a
// provider has no code for a case, words of its message. Rows of a provider
// come before rows of all, codes before statuses. Verdict.Row names the row
// that decided. The table is data (see Table); outcometest has an answer for
// each row and a provider that gives it.
//
// How long to wait is read from where providers say it: Retry-After in seconds
// or as a date, retry-after-ms, x-ms-retry-after-ms, google.rpc.RetryInfo,
// words such as "try again in 1.2s", and the headers that tell when a limit
// resets.
//
// # What it never does
//
// It never does I/O, and keeps nothing of what it reads: a Verdict holds no
// text of the provider, which may quote the key. Nothing here panics, whatever
// a provider sends.
package outcome
