// Package keystore keeps tenants, projects, keys with their versions and
// aliases, credentials, approvals, provider secrets, webhooks with the queue of
// what is on its way to them, the service's own sealed secrets and idempotency
// records.
//
// Store is what the rest of the program uses: it implements the ports
// kms.Keys, kms.KeyLifecycle, kms.Aliases, kms.Tenants, kms.Credentials,
// kms.CredentialUses, kms.Approvals, kms.ProviderSecrets, kms.Webhooks,
// kms.Deliveries, kms.Jobs, kms.SystemSecrets and kms.Idempotency.
// A Driver runs the SQL of one dialect and nothing else; what
// must be the same on every database (which values are valid, which change is
// allowed, what an error means to a caller, what is cached) is in this package
// once. Package storetest holds the suite that every driver passes.
//
// # Reading rows
//
// The database is not trusted to hold what was written. A driver hands over
// columns as it finds them (Text, Integer, Bytes never fail to scan), and this
// package decides whether they make an object. A row that does not is a
// RowError: it takes down the object it belongs to and nothing else, so that
// no row can stop the start or a listing. A key and its versions, and a
// credential and its secrets, are one object each.
//
// # Authenticating rows
//
// Every row of a tenant, project, key, key version, name, credential,
// approval, webhook or delivery carries a code: HMAC-SHA-256 (kms.RowKey) over the name of its table
// and all columns on which something depends, its tenant, ids and revision
// among them. The code of a key covers the numbers, ids, states and dates of all
// its versions, and that of a credential its secrets, so that no part can be
// left out, put back or moved. A row without the right code is refused like a
// damaged one, and counted and logged as an alarm. Nonces have a code of their
// own, because they change without the version. What is not covered (last uses,
// idempotency records) is listed with reasons in package storetest.
//
// The key is sealed under the system tenant's key, whose row must therefore be
// read first: until Authenticate a Store only leads to its key. The system
// tenant is believed without a code until then, which is harmless, because the
// key opens under the right sealing key only; Authenticate checks it.
//
// # Old rows
//
// A row that was authentic once stays so. The Store therefore remembers the
// revision of every object that was changed, and refuses a row with a lower one:
// an object as it was before it was disabled, revoked, destroyed or removed. It
// learns revisions from what it reads and writes, from the journal of its own
// API node since the start, and from what other nodes found (KnowRevisions).
// OldRows looks at the rows of all those objects, so that old and missing ones
// are found though nobody uses them: one after the other, in 40 µs each on SQLite
// and 160 on PostgreSQL, so a quarter of a million within a minute; of more, some
// are found later (sluice_keystore_row_look_seconds). What became known while a row was being
// read is no measure for it: the row may be from before.
//
// The revision of an alias is apart from it, with the key that the alias stands
// for, so that neither goes with an old row of the other. It stays when the alias
// is taken away, and the next one goes on from there. An alias without one was not
// changed since there are revisions, and has the first. The last end of a route
// has a row, from which its revision goes on when it is made anew.
//
// What this cannot notice:
//
//   - a change that no journal has any more: segments that were archived before
//     the start, or the journal of a node that is gone;
//   - the last of two changes that one request made, after a restart: the journal
//     has the revision before the first;
//   - a count of nonces set back, which has no revision, and a policy whose row
//     was removed, which is told and otherwise stays out of force;
//   - an object that was never changed and is missing;
//   - who changes an alias that has a revision and leaves that as it is: a program
//     from before there were any, too. The alias is refused until it is set anew,
//     and so is a route that such a program makes anew;
//   - on a database from before there were codes, whatever was done to it
//     before its first start with them. Those rows are believed once, with a
//     warning in the log. Who can write to a database can make it look like
//     such a one, by removing every code and the mark that there are codes, at
//     the cost of that warning.
//
// # Changing rows
//
// A change reads the object, computes its next state in memory and writes the
// whole state under the condition that the revision is still the one read. The
// dialects therefore contain no rules, and of concurrent changes of one
// revision exactly one is made.
//
// # Provider secrets
//
// What is said of a secret and its versions is one document under one code; the
// sealed values are rows of their own, with codes of their own, and go when their
// version is destroyed. The document says which there must be, so that none can
// be missing or come back.
//
// Every change takes the tenant's next revision, in a row that the transaction
// holds until it ends: so the changes of a tenant are made one after the other,
// and who sees a revision sees all before it. A change whose revision another
// one took meanwhile is tried again with the next. What changed is kept, one row
// for each revision, for who follows; a row that is missing or not ours is a gap,
// which followers are told of.
//
// The Store knows of a tenant's revision only after what it changed was dropped
// from the cache, and caches a secret only after the revision was read: what is
// cached is never older than the revision that it tells.
//
// # Last uses and nonces
//
// When and for what something was last used is stored in batches and is no
// state: it has no revision, nothing is decided by it, and what is cached keeps
// what it knew. Nonces are counted per version by compare-and-set, so that no
// two leases overlap, whichever process takes them.
//
// # Tombstones
//
// A destroyed version keeps its number, dates and public half; a destroyed key
// keeps its id and its versions. Both are rows without material. The key is
// missing from every look-up and list, and its id is refused for a new one; its
// name and aliases are free.
//
// # The cache
//
// Tenants, keys and credentials are cached by id; names of tenants, and names
// and aliases of keys, are cached as the ids that they stand for. A warm
// look-up reads one or two of these caches and calls nothing. The rules:
//
//   - Loads fill the cache, changes only empty it. A change drops its object
//     before it returns, and what was being loaded at that moment is not kept
//     but loaded again. So what is cached is never older than the last
//     acknowledged change, and nobody sees an object go back in time: there are
//     no revisions to compare.
//   - Concurrent look-ups of one missing entry share one load. It runs in the
//     first one's goroutine and ends with that one's context; the others then
//     elect the next.
//   - That an object is missing or damaged is remembered too, for
//     AbsenceTTL. What is remembered is bounded, and one tenant can have only
//     a few loads in the database at a time, so guessing names costs the
//     guesser time and nobody else memory.
//   - A cached key is bound to its tenant when it is looked up: Key.Tenant is
//     the tenant as of that moment. A change of any tenant begins an epoch, in
//     which every key checks its tenant once.
//   - Objects of one kind are spread over shards by a seeded hash; a hit takes
//     one shard's read lock, and no lock is common to all tenants.
//   - Entries and approximate bytes are bounded per kind; the CLOCK algorithm
//     (Corbató, "A Paging Experiment with the Multics System", 1968) chooses
//     what goes, and an entry used once is the first to go, so that a scan
//     does not push out what others use.
//   - What nobody uses for Options.Idle goes too, and the memory with it: a
//     sweep ten times in that time counts how many of them an entry was not used
//     between. An idle tenant so holds nothing here, and everything that is
//     forgotten can be read again exactly.
//   - A shard keeps its entries in one array, found by a hash index of eight
//     bytes a slot: fewer objects for the garbage collector, and fewer places
//     in memory for a hit to touch, which is what a hit among many costs.
//
// # Several processes
//
// Changes of other processes reach the cache by a ChangeDriver: the Store reads
// the changes since it last did, every second and whenever some are announced,
// and forgets what they concern. So a change takes effect everywhere within
// milliseconds while announcements come through, within about a second while
// they do not, and the cache is never older than Options.Staleness: when the
// database could not be asked for so long, everything that the cache would
// answer is refused with KindStoreUnavailable, until it can. After another run
// of the server, and after too many changes or too long a silence to know of
// each, everything is forgotten.
//
// A driver that is none, as the one for SQLite, has its database for itself.
//
// # What it never does
//
// It sees no key material and no secret in the clear: blobs are sealed by the
// device, credentials are hashes. It decides no permission.
//
// # Locks
//
// A shard's mutex and the mutex of the load gate are leaves: neither is held
// while another lock is taken, nor during a call of the driver.
package keystore
