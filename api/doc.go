// Package api is the REST interface of the key service: JSON over HTTP.
//
// # A route is a value
//
// Everything that can be called stands in one table, Routes. The router, the
// OpenAPI document at /openapi.json and the matrices of the tests are made
// from it, so that none of them can know a route that another lacks: a route
// without an entry does not exist.
//
// # The way of a request
//
//  1. A ticket is opened: our request id, the client's address, trace and
//     user agent. From here on every answer carries X-Request-Id.
//  2. The path must be in its one canonical spelling (see canonicalPath), or
//     there is no such route.
//  3. The router finds the route: 404 and 405 end here.
//  4. The credential is verified, before a byte of the body is read.
//  5. Headers, query and body are decoded strictly. What is refused from here
//     on has cost no HSM call.
//  6. The handler calls one verb of kms.Service.
//  7. The answer, or the one problem that the table of kinds gives for the
//     error, is written.
//
// A request that a route matched and that reached no verb is journalled by
// Service.Refuse, so that the journal has an entry for it too, and an answer
// whose entry cannot be written is withheld. Requests that match no route
// name neither an operation nor a caller; they are only counted.
//
// # How objects are addressed
//
// {key} is a key's id, name or alias, {version} the number of one of its
// versions, {alias} an alias, {tenant} a tenant's id or name, {credential} a
// credential's id, {secret} a secret's, {route} a
// route's name. A "/" in a name is written %2F:
//
//	POST /v1/keys/payments%2Forders/sign
//
// The router works on the escaped path and a segment is unescaped exactly
// once, after it was matched. %2F is the only escape that a path may hold:
// names consist of letters, digits and "-_./", none of which but the slash
// needs one, so that an object has one address and no spelling of a path can
// reach another route than the one it shows.
//
// # Clients of Vault
//
// The routes of vaultRoutes speak another language: they are for clients of
// HashiCorp Vault, whose KV engine they show provider secrets as. They have a
// router (see matchVault), errors and an envelope of their own, take the
// credential, or the token of a login, from X-Vault-Token, and tolerate what
// those clients send. Tickets, verbs, journal and limits are the same.
//
// # What it never does
//
// It never repeats anything that a client sent in an error, never takes a
// tenant from anywhere but the credential, never believes a header about the
// client's address unless the peer is a configured proxy, and has no
// middleware that forwards requests.
package api
