// Package sqlite is the key store's driver for SQLite, for one machine.
//
// The database runs in WAL mode with full synchronisation: a commit that was
// acknowledged is on the disk (NORMAL may lose the last commits with the
// power). All writes go through one connection, because SQLite has one writer
// at a time and queueing in Go is fair where its busy handler is not; reads
// have connections of their own, which cannot write, and see the last commit
// while a write is under way.
//
// The driver contains no rules, see package keystore. Foreign keys, UNIQUE and
// CHECK constraints stand behind those rules as a second wall; errors.go
// translates what they say.
//
// After an fsync that failed the kernel may have dropped the pages it could
// not write and report the next fsync as a success. So the driver never
// writes again: see DB.Failed.
package sqlite
