package keystore

import (
	"encoding/binary"
	"math"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Most entries of the trail are uses of keys. Each in a row of its own would
// cost a busy node a fifth of its processors, so uses of one tenant that come
// together are stored together, in one row: a chunk. A row names the first and
// the last time, sequence and request of what it holds. Everything else has a
// row of its own: changes of state, what the service found, and what was recorded
// long after its request arrived.

const (
	// chunkBytes bounds the payload of a row.
	chunkBytes = 60 << 10
	// chunkSpan bounds the time between a row's first entry and its last. Who
	// reads on from a time reads the rows of this span that lie across it.
	chunkSpan = 10 * time.Second
	// chunkSequences bounds the sequence numbers that a row spans.
	chunkSequences = 2000
	// chunkAge bounds the time from the arrival of a request, which its id
	// tells (RFC 9562, 5.7), to its entry in a chunk: so the entries of a
	// request are found by its id.
	chunkAge = 5 * time.Second

	chunkFormat = 1
)

// chunked tells whether an entry is stored with others.
func chunked(e *kms.TrailEntry) bool {
	if len(e.Payload) == 0 || len(e.Payload) > chunkBytes || e.Entry.Phase != kms.PhaseOutcome {
		return false
	}
	if info := e.Entry.Op.Info(); info == nil || info.Changes || info.Family == "keeper" {
		return false
	}
	arrived, ok := requestTime(e.Entry.RequestID)
	age := e.Entry.Time.Sub(arrived)
	return ok && age >= -time.Millisecond && age < chunkAge
}

// requestTime is when a request arrived, to the millisecond.
func requestTime(id uuid.UUID) (time.Time, bool) {
	if id[6]>>4 != 7 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)), true
}

// chunkKey is what is looked for of an entry; few differ in a chunk.
type chunkKey struct {
	project, component, op, outcome string
	key, credential                 uuid.UUID
}

// chunk is a row in the making.
type chunk struct {
	row     AuditEntryRecord // without payload, project and what else is of each entry
	keys    map[chunkKey]uint64
	table   []byte // of the keys
	entries []byte
	// Of the last entry.
	sequence uint64
	time     Timestamp
	key      chunkKey
	place    uint64 // of key
}

// chunks keeps the memory of chunks for the next ones.
var chunks = sync.Pool{New: func() any { return &chunk{keys: make(map[chunkKey]uint64)} }}

func newChunk() *chunk { return chunks.Get().(*chunk) }

// free gives c back; nothing that it returned is part of it.
func (c *chunk) free() {
	clear(c.keys)
	*c = chunk{keys: c.keys, table: c.table[:0], entries: c.entries[:0]}
	chunks.Put(c)
}

// add adds an entry, unless it does not fit.
func (c *chunk) add(e *AuditEntryRecord) bool {
	if c.row.Entries > 0 {
		since, until := min(c.row.Since, e.Time), max(c.row.Time, e.Time)
		if until-since > chunkSpan.Microseconds() || e.Sequence-c.row.Sequence >= chunkSequences ||
			len(c.table)+len(c.entries)+len(e.Payload)+chunkOverhead(e) > chunkBytes {
			return false
		}
		c.row.Since, c.row.Time = since, until
	} else {
		c.row = *e
		c.row.Entries = 0
		c.sequence, c.time = e.Sequence, 0
	}
	c.row.Entries++
	c.row.LastSequence = e.Sequence
	if e.Request.Compare(c.row.Request) < 0 {
		c.row.Request = e.Request
	}
	if e.Request.Compare(c.row.LastRequest) > 0 {
		c.row.LastRequest = e.Request
	}
	c.entries = binary.AppendUvarint(c.entries, e.Sequence-c.sequence)
	c.entries = binary.AppendVarint(c.entries, e.Time-c.time)
	c.entries = binary.AppendUvarint(c.entries, c.placeOf(e))
	c.entries = append(c.entries, e.Request[:]...)
	c.entries = binary.AppendUvarint(c.entries, uint64(len(e.Payload)))
	c.entries = append(c.entries, e.Payload...)
	c.sequence, c.time = e.Sequence, e.Time
	return true
}

// chunkOverhead is more than an entry takes beside its payload.
func chunkOverhead(e *AuditEntryRecord) int {
	return 2*binary.MaxVarintLen64 + 128 + len(e.Project) + len(e.Component) + len(e.Op) + len(e.Outcome)
}

// placeOf is where in the table an entry's key stands: most often where that of the
// entry before it does.
func (c *chunk) placeOf(e *AuditEntryRecord) uint64 {
	k := chunkKey{e.Project, e.Component, e.Op, e.Outcome, e.Key, e.Credential}
	if len(c.keys) > 0 && k == c.key {
		return c.place
	}
	n, ok := c.keys[k]
	if !ok {
		n = uint64(len(c.keys))
		c.keys[k] = n
		for _, s := range []string{k.project, k.component, k.op, k.outcome} {
			c.table = binary.AppendUvarint(c.table, uint64(len(s)))
			c.table = append(c.table, s...)
		}
		c.table = append(append(c.table, k.key[:]...), k.credential[:]...)
	}
	c.key, c.place = k, n
	return n
}

// record is the finished row. What is alone stands in it as it is.
func (c *chunk) record() AuditEntryRecord {
	if c.row.Entries == 1 {
		return c.row
	}
	payload := append(make([]byte, 0, 16+len(c.table)+len(c.entries)), chunkFormat)
	payload = binary.AppendUvarint(payload, uint64(len(c.keys)))
	payload = append(append(payload, c.table...), c.entries...)
	r := c.row
	r.Payload, r.Project, r.Component, r.Op, r.Outcome, r.Key, r.Credential = payload, "", "", "", "", uuid.Nil(), uuid.Nil()
	return r
}

// auditRows are the rows of a batch. The entries of a tenant keep their order.
func auditRows(entries []kms.TrailEntry) []AuditEntryRecord {
	var rows []AuditEntryRecord
	open := make(map[uuid.UUID]*chunk)
	end := func(tenant uuid.UUID) {
		if c := open[tenant]; c != nil {
			rows = append(rows, c.record())
			c.free()
			delete(open, tenant)
		}
	}
	for i := range entries {
		e := &entries[i]
		r := auditRecord(e)
		if !chunked(e) {
			end(r.Tenant)
			rows = append(rows, r)
			continue
		}
		c := open[r.Tenant]
		if c == nil || !c.add(&r) {
			end(r.Tenant)
			c = newChunk()
			c.add(&r)
			open[r.Tenant] = c
		}
	}
	// By the order of the journal, not the map's.
	for i := range entries {
		end(entries[i].Entry.Tenant)
	}
	return rows
}

// auditRecord is the row of one entry.
func auditRecord(e *kms.TrailEntry) AuditEntryRecord {
	r := AuditEntryRecord{
		Sequence: e.Sequence, Tenant: e.Entry.Tenant, Time: timestamp(e.Entry.Time), Request: e.Entry.RequestID,
		Project: storable(e.Entry.Project), Component: storable(e.Entry.Component), Op: storable(string(e.Entry.Op)), Key: e.Entry.Key,
		Credential: e.Entry.Credential, Outcome: storable(e.Entry.Outcome), Payload: e.Payload,
	}
	r.Entries, r.Since, r.LastSequence, r.LastRequest = 1, r.Time, r.Sequence, r.Request
	return r
}

// storedEntry is an entry as it was found, with what is looked for.
type storedEntry struct {
	place   trailPlace
	entry   kms.TrailEntry
	key     chunkKey
	request uuid.UUID
}

// chunkReader reads a chunk's payload from its front. After a failure it reads
// nothing more.
type chunkReader struct {
	rest   []byte
	failed bool
}

func (r *chunkReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *chunkReader) difference() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *chunkReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *chunkReader) text() string { return string(r.take(r.number())) }

func (r *chunkReader) id() (id uuid.UUID) {
	copy(id[:], r.take(uint64(len(id))))
	return id
}

// readChunk reads the entries of a row that holds several. ok is false for what
// no chunk can have come to.
func readChunk(payload []byte, first uint64, count int64) (entries []storedEntry, ok bool) {
	r := chunkReader{rest: payload}
	if format := r.take(1); r.failed || format[0] != chunkFormat {
		return nil, false
	}
	n := r.number()
	if r.failed || n > uint64(len(r.rest)) || count > int64(len(r.rest)) {
		return nil, false
	}
	keys := make([]chunkKey, n)
	for i := range keys {
		keys[i] = chunkKey{project: r.text(), component: r.text(), op: r.text(), outcome: r.text(), key: r.id(), credential: r.id()}
	}
	entries = make([]storedEntry, 0, count)
	sequence, at := first, Timestamp(0)
	for len(r.rest) > 0 {
		sequence += r.number()
		at += r.difference()
		k := r.number()
		request := r.id()
		body := r.take(r.number())
		if r.failed || k >= n || len(body) == 0 || sequence < first || sequence > math.MaxInt64 || at < earliest || at > latest {
			return nil, false
		}
		entries = append(entries, storedEntry{
			entry: kms.TrailEntry{Sequence: sequence, Time: time.UnixMicro(at).UTC(), Project: keys[k].project, Payload: body},
			key:   keys[k], request: request,
		})
	}
	return entries, int64(len(entries)) == count && !r.failed
}
