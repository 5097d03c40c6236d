// Package notify takes events to the log and to webhooks.
//
// # How
//
// Publish logs an event and hands it to a goroutine, which finds the webhooks
// that want it, those of the tenant that it is about and those of the
// operators, and writes a delivery for each into the durable queue of the
// store. Until then the event is in memory, bounded, and lost with the process;
// from then on it is delivered at least once.
//
// Each API node claims what is due under a lease, so that no two send the same
// at once. A process that ends between sending and noting it leaves the lease
// to run out, and the delivery is made again with the same id, by which a
// receiver tells that it had it. What several API nodes notice of one happening
// (Event.Once) is queued once.
//
// A delivery is a POST of JSON in the manner of Standard Webhooks
// (github.com/standard-webhooks/standard-webhooks, version 1.0.0): webhook-id
// is the event's id, webhook-timestamp the seconds since 1970 of the attempt,
// and webhook-signature "v1," and the base64 of HMAC-SHA-256, keyed with the
// webhook's secret, over id, timestamp and body with dots between.
//
// A webhook whose URL is mailto: gets its events by mail (Mail), by the same
// queue; what its server took counts as taken. Nothing that clients chose is in
// a header line of a mail.
//
// A status of 200 to 299 ends it. Everything else is a failure, redirects
// included: it is tried again after a pause that doubles up to a day, and given
// up when the event is too old. A webhook that has failed without a break for
// too long is disabled, which is an event too.
//
// One receiver gets one delivery at a time from an API node, and one tenant has
// kms.MaxClaims under way there, so that receivers that hang keep nobody else's
// events waiting. An idle sender asks the queue once a second.
//
// # What it never does
//
// It decides no address: Config.Post does, see package egress, and Config.Mail, see notify/smtp. It logs no URL,
// no body and no secret, and reads no more of an answer than its status.
//
// # Locks
//
// The mutex of a Notifier is a leaf.
package notify
