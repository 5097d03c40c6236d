package provider

import "time"

// Beside the rules, which are the policy's: see kms.RouteRules.

// The sliding window in which calls are counted: long enough for a rate of few
// calls, short enough that a recovery shows.
const (
	windowBuckets = 10
	bucketTime    = 6 * time.Second
)

// What makes an endpoint suspect or opens its breaker.
const (
	minCalls    = 20
	suspectRate = 0.10
	clearRate   = 0.05 // below it a suspect is healthy again: half of what made it one
	brokenRate  = 0.50
	// suspectTime is for how long a suspect stays one at least, so that it does
	// not go to and fro with each report.
	suspectTime = time.Minute
)

// The breaker's times.
const (
	// openJitter is the part by which they vary, so that breakers that opened
	// together are not tried together.
	openJitter = 0.20
	// leaseTime is how long a lease lasts: longer than a long call takes.
	leaseTime = time.Minute
	// forgetAfter is how long a target is healthy before the breaker's time
	// begins at OpenFirst again.
	forgetAfter = 10 * time.Minute
)

// How calls move.
const (
	// slowFactor is how much longer than usual the P99 of a returning target
	// may be, and slowFloor what is never called slow: noise of short calls.
	slowFactor = 2
	slowFloor  = 200 * time.Millisecond
	// maxSteps bounds the steps of the rules: whole parts of 100 that ascend.
	maxSteps = 100
	// learning is how many reports it takes for the usual P99 to follow most of
	// the way.
	learning = 16
)

// What is known of keys.
const (
	// keyRefusals in a row make a key invalid: one or two can be a provider's
	// hiccup or a misdirected call.
	keyRefusals = 3
	// invalidTime is after how long an invalid key is tried again, so that none
	// is lost for ever; exhaustedTime the same for one out of money.
	invalidTime   = 15 * time.Minute
	exhaustedTime = 10 * time.Minute
	maxExhausted  = 24 * time.Hour
	minCool       = time.Second
	maxCool       = time.Minute
	coolTime      = 30 * time.Second // when the provider does not say
	// Bounds of what is kept of one target.
	maxKeys  = 32
	maxCools = 256
	// limitConnections is how many connection errors beside a rate limit make a
	// fail-over: one can be anything.
	limitConnections = 2
)

// The retry budget.
const (
	retryShare = 0.10 // of first attempts
	retryFloor = 1.0  // a second
	retryBurst = 10.0 // what can be saved of both
)
