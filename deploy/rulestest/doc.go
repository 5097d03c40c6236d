// Package rulestest tests the alert rules with the parser and the engine of
// Prometheus itself. It is a module of its own, so that the service does not
// depend on Prometheus' server.
package rulestest
