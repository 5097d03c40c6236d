// Package audit keeps the journal: one entry per request, in files that only
// grow, in which every change, loss or reordering of entries shows. It
// implements kms.Journal.
//
// # Promise
//
// Record returns nil only when the entry is on stable storage (fdatasync), so
// an answer that waits for it never outruns its entry; but for the successes of
// operations that are configured to be grouped, which a crash can lose for
// 50 ms (grouped.go). A failed fsync stops
// the log for good, since the kernel may have dropped the data and would
// report success the next time (see Done); a failed write is taken back and
// refused, and the log goes on when writing works again. ReserveBytes stay
// allocated beyond the end of the file for the entries of state changes, so a
// disk that traffic filled still records the administrator's act that frees
// it.
//
// One goroutine writes. It takes all entries that wait, writes them at once,
// syncs once and wakes their requests, so the more wait, the cheaper each
// becomes. The backlog is bounded; beyond it Record refuses at once.
//
// Refusals that cost an attacker next to nothing, whatever the reason, are written
// one by one up to 10 a second per credential or, without one, client network;
// beyond that they are counted and written each second as one entry with a
// Count (flood.go).
//
// # Format
//
// The folder holds segments named journal-<first sequence, 20 digits>.slj.
// All integers are big-endian. A segment is a header and then records.
//
// Header, 128 bytes:
//
//	  0   8  magic "SLUICEJL"
//	  8   2  format version, 1
//	 10   1  hash function H of the chain: 1 SHA-256, 2 SM3
//	 11   1  length of the node's name
//	 12  64  name of the node that writes the journal, padded with zeros
//	 76   8  sequence of the segment's first record
//	 84  32  chain hash of the record before it; zeros if it is record 1
//	116   8  time of creation, Unix nanoseconds
//	124   4  CRC-32C of the bytes before
//
// Record:
//
//	u32 payload length | u32 CRC-32C of length and payload | payload | chain hash, 32 bytes
//
// Records are numbered from 1 without gaps, through all segments. Their chain
// hash is
//
//	chain(n) = H("sluice-journal-1" ‖ previous ‖ u64 n ‖ payload)
//
// where previous is chain(n-1), and for a segment's first record
//
//	H("sluice-segment-1" ‖ header)
//
// of that segment's whole header, which holds chain(n-1) itself: so the header
// cannot be changed either. A chain shows what was changed inside it; a tail
// cut off or a chain computed anew shows only against a head (sequence and
// hash) that was noted elsewhere, which Verify takes.
//
// The payload is one line of JSON in printable ASCII without white space;
// every other character of a text is escaped as \uXXXX, and invalid UTF-8 is
// U+FFFD, so no text can forge a line, move a terminal's cursor or end its own
// quotes. Texts are cut at the number of characters given below. Fields stand
// in this order, and all but t are left out when zero or empty, so an entry
// has exactly one encoding:
//
//	t     time, RFC 3339 with nanoseconds, UTC      p     phase (16)
//	id    request id                                cid   client's request id (128)
//	tr    trace id (64)                             tn    tenant id
//	pr    project (128)                             cr    credential id
//	sub   subject (256)                             cmp   component (128)
//	op    operation (64)                            key   key id
//	kn    key name (128)                            ver   key version
//	spec  spec (64)                                 alg   algorithm (64)
//	prot  protection (16)                           res   resource (256)
//	len   bytes of input                            node  node (128)
//	cost  micro-credits reserved                    chg   micro-credits charged
//	set   settlement (16)                           wait  ns of waiting
//	slot  ns of slot time                           tot   ns in all
//	out   outcome (64)                              why   reasons, at most 16
//	ip    client address, without zone              ua    user agent (256)
//	n     requests that the entry stands for, if more than 1
//	dry   true: a dry run                           rep   true: the answer to a repetition
//	apr   approval id                               tgt   tenant acted on, if another than tn
//	rev   in an intent: the object's revision before the change; of found-old:
//	      the revision that the row has had
//	pol   version of the policy that decided; left out: the one that Sluice
//	      comes with
//	cls   class at the pool's gate (16)             urg   urgency (16)
//	est   ns of waiting that were expected; all three only with why
//	grp   true: the answer did not wait for the entry (grouped.go)
//
// and a reason's are c code (64), l limit, n need, h have, r nanoseconds until
// a retry helps, w nanoseconds waited for it; all but c are left out when zero.
//
// # Signed heads
//
// A Signer has the head signed every second in which it changed, by a key that
// who can write the folder does not have, and appends it to
// heads-<first sequence, 20 digits>.slh beside the segment that holds the
// record: a line of JSON each, with the fields
//
//	node  name of the node         hash  chain hash, hexadecimal
//	seq   sequence                 t     time of signing, RFC 3339, UTC
//	alg   algorithm of the key     ver   version of the key
//	sig   signature of HeadMessage, base64
//
// A head stands for its record and all before it. Verify takes the public keys,
// which the auditor keeps elsewhere, and finds every change before the last
// signed head, a chain computed anew included: it lies after the last head that
// fits and not after the first that does not. What comes after the last signed
// head, a second's worth in service, is reported as unsigned. A tail that was
// cut off together with its heads shows against an anchor: a signed head that
// was kept where the attacker was not. heads-keys.pem holds the public keys for
// whoever sets the auditor up; Verify does not read it.
//
// Nothing waits for a signature. While the HSM is away the journal goes on; the
// next signature stands for what was recorded meanwhile, and Verify reports the
// gap.
//
// # Crashes
//
// While a log runs, zeros stand ahead of the records of its last segment, half a
// mebibyte at most (blank.go); they go when the segment ends and when the log
// closes. A crash leaves them, and can leave a last write incomplete. Open cuts
// both off: none of that write's entries was acknowledged. Whatever else does
// not verify is no trace of a crash, and Open refuses it, naming the place. Of a
// file of heads the next append cuts off an incomplete last line.
//
// # Shipping
//
// A Shipper copies the journal into the audit trail in the database (kms.Trail),
// up to Head and so nothing that a crash could take back. A batch names the
// record, by sequence and chain hash, behind which it continues what is there,
// and the database takes it only then, together with the usage that its entries
// add up to: a batch of which nobody learned whether it was stored is not stored
// twice. Where the trail ends the next start goes on; if the journal has another
// record there, or none, nothing is shipped. The trail is for searching and
// summing up. What verifies is the journal.
//
// # Locks
//
// Log.mu before nothing, flood.mu before nothing: no call holds both. The
// segment belongs to the writer alone.
package audit
