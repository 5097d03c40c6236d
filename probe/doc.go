// Package probe asks the endpoints of providers whether they answer, so that a
// route knows of an outage before its calls meet it.
//
// # How
//
// Which endpoints are probed stands in the store: those of routes that calls
// were reported of within the hour, each once for all tenants. A Prober takes
// those that are due, by which no other API node gets them, asks each for its
// list of models, and stores what came of it with the time of the next probe: 30
// seconds, give or take a fifth, so that endpoints are not asked in step. Three
// misses in a row make an endpoint one that is down.
//
// A probe has no key: any answer but a failure of the endpoint's own shows that
// it works, 401 and 403 first of all. So probes cost tenants nothing, and there
// is nothing in them to lose.
//
// When all of several endpoints miss at once it is this node's network that is
// down, and nothing is counted.
//
// # What it never does
//
// It follows no redirect, connects to nothing that package egress would not, and
// logs no address: they are tenants'.
package probe
