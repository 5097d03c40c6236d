// Package postgres is the key store's driver for PostgreSQL 15 and later, which
// any number of processes may share.
//
// The driver contains no rules, see package keystore. Foreign keys, UNIQUE and
// CHECK constraints stand behind those rules as a second wall, row-level
// security as a third; errors.go translates what they say.
//
// # Roles
//
// One role owns the schema and migrates it (Config.OwnerURL). The service
// connects as another one (Config.URL), which is a member of the role
// sluice_service and owns nothing. Open refuses a service that is a superuser,
// may bypass row-level security or is a member of the owner.
//
// # Tenants
//
// Every transaction that is for a tenant sets app.tenant for itself alone, and
// the policies of the tables show it that tenant's rows, whatever its statements
// say. This is a wall against a statement that forgets its condition, not
// against who controls the process. What is for all tenants goes through
// functions of the owner, one for each purpose: to find the tenant of a
// credential or of a name, to list tenants, to find what is due, to remove what
// expired. See migration 4.
//
// A read is one round trip: the setting and the statement are sent together,
// and the server runs what is sent together as one transaction.
//
// # Changes
//
// Triggers record every change of a cached object in the table changes, in the
// change's own transaction, and announce it. DB.Changes reads those that a
// snapshot did not show yet; see keystore.ChangeDriver.
//
// # Durability
//
// Open refuses a server that does not sync its commits (fsync,
// synchronous_commit). After a failed fsync PostgreSQL stops by itself.
package postgres
