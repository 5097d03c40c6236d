// Package watch is what the service notices of itself while it runs: which
// tenants use the HSMs most, how unlike their waiting is, which keys fail to
// decrypt, which credentials are denied what they ask for, and which of that
// people should hear of.
//
// Everything here is bounded, whatever clients send. Tenants, keys and credentials are kept
// in sketches of fixed size after Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams" (2005,
// space-saving): one that is not watched yet takes the place of the one that
// used least and inherits its use, so that who uses much cannot be pushed out
// by many who use little. Metrics have the label tenant for the few that use
// most, and lose it when they no longer do.
//
// Alarms turns conditions that last into events, each told once when it begins
// and once when it is over.
//
// What a request pays is Tenants.Note: one lock of a sixteenth of the tenants, a
// search of 32 ids, no allocation.
package watch
