// Package client calls the Sluice key service from Go: keys and what is done
// with them, and, for administrators, tenants, projects, credentials and the
// HSM pool. It uses the standard library only.
//
//	c, err := client.New(client.Options{
//		Address:    "https://kms.example.com:8440",
//		Credential: client.NewToken(os.Getenv("SLUICE_CREDENTIAL")),
//	})
//	signed, err := c.Sign(ctx, "payments/orders", client.SignInput{Message: order})
//
// # Calls
//
// One Client serves a whole program: it is safe for concurrent use and keeps
// its connections. A key is named by its id or its name. Inputs are structs
// of which most fields may stay zero; outputs hold what the call cost and its
// request id, by which the service can explain it. Every method takes a
// context whose end is the budget of the whole call, repetitions included.
// The service is told of that end and does not queue the call for longer.
//
// # Errors
//
// A refusal is an *Error. Decide by its Code:
//
//	if errors.Is(err, client.ErrKeyDisabled) { … }
//
// Anything that kept the service from answering matches ErrNoAnswer and wraps
// the error of net/http, or the context's. An invalid signature or MAC is not
// an error but an answer.
//
// # Repetition
//
// After 429, 502, 503 and a broken connection, a call is sent again, up to
// Options.MaxAttempts times in all, as long as the context allows. The pauses
// double from 0.1 s, with a random part, or follow the answer's Retry-After;
// one of more than 30 s is not waited for but returned as Error.RetryAfter.
//
// Repetition is safe. Operations with keys change nothing, so a repeated one
// costs its credits again and nothing more. A call that changes something
// carries a random Idempotency-Key, the same in all its attempts, by which the
// service carries it out once and answers a repetition with the object as it
// is then. One that was to show a secret cannot be answered twice: where the
// first answer was lost on the way, the repetition gives ErrConflict and names
// the id. What comes of two calls of a method is for the caller to see to:
// each has a key of its own.
//
// # Trying
//
// A Client from WithDryRun asks what its calls would cost, and whether they
// are allowed, without having them done.
//
// # Provider secrets
//
// Secrets, from Client.Secrets, holds the keys of LLM providers that gateways
// need at every request:
//
//	secrets, err := c.Secrets(client.SecretsOptions{})
//	llm := &http.Client{Transport: secrets.Handle("llm/openai").Transport(client.TransportOptions{})}
//
// They are in memory only. Each has two times, which the service gives and
// options can shorten: it is fetched again, behind the requests, at half of its
// freshness, and it is used for as long as its lease when the service does not
// answer. A fetch is for 100 secrets; one is under way for a secret at a time;
// one at a time is made while the service does not answer.
//
// Only the service's own word changes what is held, and only as of a revision
// no older than what is known: an answer that was under way for long, or of a
// node that lags, is dropped, and a time-out, a proxy's page or an answer that
// cannot be read is an outage, in which a good value stays. What the service
// says is missing, disabled or denied is wiped at once and does not come back by
// an outage. A watch tells of changes as they are made. An event has the secret
// fetched as of its revision; what an event says is revoked is given out no more
// before that fetch. When the watch is silent for three heartbeats, values are
// fresh for 10 s only; when it ends or has a gap, everything is asked for again.
//
// Times are counted by the monotonic clock, from when a fetch was sent. While
// the machine is suspended that clock of Linux stands still: leases go on after
// it, until the watch, silent for 45 s at most, is made anew.
//
// A secret may have several versions with weights. A request's routing key
// decides which one it gets: the same in all processes and in all its attempts.
//
// # What it never does
//
// It never logs, and no error holds what was sent: no plaintext, no key name,
// no credential, no URL. It never follows a redirect, never reads an answer
// without bound, and keeps no key material. The memory of plaintexts belongs
// to the garbage collector: a program that must wipe its own copies wipes the
// slices that it gave and got, and knows that encodings of them went through
// buffers of net/http.
package client
