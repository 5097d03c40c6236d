// Package target makes the requests of a scenario for the servers that can be
// measured: Sluice, the thin wrapper (bench/thin), and whatever speaks the API of
// HashiCorp Vault's Transit engine, such as OpenBao.
//
// A target makes the keys that a scenario needs, named bench-…, and uses them
// again when they exist; it never deletes one. What a server cannot be asked for
// is an error before any load is played.
//
// Only loopback is driven unless the options say otherwise: a load generator that
// is pointed at somebody else's server by mistake is an attack.
package target
