package keystore

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"math"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// trailRows and maxTrailRows are how many rows are read at a time: few at
	// first, since each can hold hundreds of entries, and more while they do
	// not.
	trailRows    = 8
	maxTrailRows = 500
	// trailBytes is what is read at a time, about.
	trailBytes = 512 << 10
	// trailScan bounds the entries that are looked at for one page: some 10 MB
	// and tens of milliseconds.
	trailScan = 10_000
	// maxOfRequest bounds the rows that are looked at for one request's
	// entries: an intent, an outcome, what is written about parts of it, and
	// rows which hold others of the same seconds.
	maxOfRequest = 200
)

// Kinds of lists of the trail, in page tokens.
const (
	listNewest  = 'n'
	listArrived = 'a'
)

// trailPlace is a place in the trail: behind it are, by arrival, higher
// ordinals, and by time earlier ones. index is the place in a row.
type trailPlace struct {
	time    Timestamp
	ordinal int64
	index   uint32
}

func (p trailPlace) position() position {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.time))
	b = binary.BigEndian.AppendUint64(b, uint64(p.ordinal))
	return position{id: string(binary.BigEndian.AppendUint32(b, p.index))}
}

func placeOf(p position) (trailPlace, bool) {
	if len(p.id) != 20 || p.name != "" {
		return trailPlace{}, false
	}
	b := []byte(p.id)
	return trailPlace{Timestamp(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])), binary.BigEndian.Uint32(b[16:])}, true
}

// byTime orders places by time.
func (p trailPlace) byTime(q trailPlace) int {
	return cmp.Or(cmp.Compare(p.time, q.time), cmp.Compare(p.ordinal, q.ordinal), cmp.Compare(p.index, q.index))
}

// byArrival orders places by arrival.
func (p trailPlace) byArrival(q trailPlace) int {
	return cmp.Or(cmp.Compare(p.ordinal, q.ordinal), cmp.Compare(p.index, q.index))
}

// latestFirst is a heap of entries, the latest on top.
type latestFirst []storedEntry

func (h latestFirst) Len() int           { return len(h) }
func (h latestFirst) Less(i, j int) bool { return h[i].place.byTime(h[j].place) > 0 }
func (h latestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *latestFirst) Push(e any)        { *h = append(*h, e.(storedEntry)) }
func (h *latestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// trailReader reads one page of the trail.
type trailReader struct {
	store  *Store
	query  *kms.TrailQuery
	tenant *uuid.UUID
	scope  scope
	at     trailPlace // of the last entry that was looked at
	looked int
	page   kms.TrailPage
}

// TrailEntries implements kms.Trail.
func (s *Store) TrailEntries(ctx context.Context, q *kms.TrailQuery) (*kms.TrailPage, error) {
	if q.Page.Size < 1 || q.Page.Size > kms.MaxPageSize {
		return nil, kms.Errorf(kms.KindInvalidArgument, "page size: must be 1 to %d", kms.MaxPageSize)
	}
	r := trailReader{store: s, query: q, scope: scope{kind: listNewest, tenant: q.Tenant}}
	if q.Order == kms.ByArrival {
		r.scope.kind = listArrived
	}
	if q.Tenant != uuid.Nil() {
		r.tenant = &q.Tenant
	}
	if q.Request != uuid.Nil() && q.Order == kms.NewestFirst {
		return r.ofRequest(ctx)
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	if q.Order == kms.ByArrival {
		if err := r.arrived(ctx); err != nil {
			return nil, err
		}
		r.page.Resume = r.scope.token(r.at.position())
		return &r.page, nil
	}
	if err := r.newest(ctx); err != nil {
		return nil, err
	}
	return &r.page, nil
}

// begin finds the place at which the page begins.
func (r *trailReader) begin(ctx context.Context) error {
	q := r.query
	switch {
	case q.Page.Token != "":
		p, ok := r.scope.parseToken(q.Page.Token)
		if ok {
			r.at, ok = placeOf(p)
		}
		if !ok {
			return kms.Errorf(kms.KindInvalidArgument, "page token: not one that this list returned")
		}
	case q.AtEnd:
		ordinal, err := r.store.driver.LastOrdinal(ctx)
		if err != nil {
			return translate(err)
		}
		if !ordinal.Valid {
			return translate(&RowError{Object: ObjectAuditEntry, Column: "ordinal", Reason: reasonType})
		}
		r.at = trailPlace{ordinal: ordinal.Int64, index: math.MaxUint32}
	case q.After != nil:
		return r.find(ctx, q.After)
	case q.Order == kms.NewestFirst:
		r.at = trailPlace{latest, math.MaxInt64, math.MaxUint32}
		if !q.To.IsZero() {
			r.at = trailPlace{timestamp(q.To), math.MinInt64, 0} // the end is not part of it
		}
	default:
		r.at = trailPlace{index: math.MaxUint32}
	}
	return nil
}

// find goes to an entry by its place in a journal.
func (r *trailReader) find(ctx context.Context, after *kms.TrailPosition) error {
	p := AuditEntriesAtParams{Tenant: r.tenant, Node: after.Node, Sequence: after.Sequence}
	if after.Sequence > chunkSequences {
		p.After = after.Sequence - chunkSequences
	}
	rows, err := r.store.driver.AuditEntriesAt(ctx, p)
	if err != nil {
		return translate(err)
	}
	for _, row := range rows {
		for _, e := range r.store.storedEntries(row) {
			if e.entry.Sequence == after.Sequence {
				r.at = e.place
				return nil
			}
		}
	}
	return kms.Errorf(kms.KindInvalidArgument, "after: there is no such entry, or it is no longer kept")
}

// newest reads on by time, until the page is full, the trail ends, or enough was
// looked at. Rows come by the time of their last entries, and lie across each
// other: an entry is next when all rows that are still to come are earlier.
func (r *trailReader) newest(ctx context.Context) error {
	q := r.query
	p := NewestAuditEntriesParams{Tenant: r.tenant, From: earliest, Until: r.at.time, BeforeOrdinal: math.MaxInt64,
		BeforeTime: min(r.at.time, latest-chunkSpan.Microseconds()-1) + chunkSpan.Microseconds() + 1}
	if !q.From.IsZero() {
		p.From = timestamp(q.From)
	}
	var waiting latestFirst
	for limit := trailRows; ; {
		p.Limit = limit
		rows, err := r.store.driver.NewestAuditEntries(ctx, p)
		if err != nil {
			return translate(err)
		}
		size := 0
		for _, row := range rows {
			if !row.Time.Valid || !row.Ordinal.Valid {
				return r.store.decoded(&RowError{Object: ObjectAuditEntry, Column: "time", Reason: reasonType})
			}
			size += len(row.Payload.Bytes)
			p.BeforeTime, p.BeforeOrdinal = row.Time.Int64, row.Ordinal.Int64
			for _, e := range r.store.storedEntries(row) {
				if e.place.byTime(r.at) < 0 && e.place.time >= p.From {
					heap.Push(&waiting, e)
				}
			}
			next := trailPlace{p.BeforeTime, p.BeforeOrdinal, 0}
			for len(waiting) > 0 && waiting[0].place.byTime(next) >= 0 {
				if full := r.take(heap.Pop(&waiting).(storedEntry)); full {
					return nil
				}
			}
		}
		if len(rows) < limit {
			break
		}
		limit = moreRows(limit, size)
	}
	for len(waiting) > 0 {
		if full := r.take(heap.Pop(&waiting).(storedEntry)); full {
			return nil
		}
	}
	return nil
}

// moreRows is how many rows to read after as many had a size.
func moreRows(n, size int) int {
	return max(min(trailBytes/max(size/n, 1), 4*n, maxTrailRows), trailRows)
}

// arrived reads on by arrival, in the same way.
func (r *trailReader) arrived(ctx context.Context) error {
	for limit, size := trailRows, 0; ; limit = moreRows(limit, size) {
		after := r.at.ordinal
		if r.at.index != math.MaxUint32 {
			after-- // its row may hold more
		}
		rows, err := r.store.driver.ArrivedAuditEntries(ctx, ArrivedAuditEntriesParams{Tenant: r.tenant, AfterOrdinal: after, Limit: limit})
		if err != nil {
			return translate(err)
		}
		size = 0
		for _, row := range rows {
			if !row.Ordinal.Valid {
				return r.store.decoded(&RowError{Object: ObjectAuditEntry, Column: "ordinal", Reason: reasonType})
			}
			size += len(row.Payload.Bytes)
			for _, e := range r.store.storedEntries(row) {
				if e.place.byArrival(r.at) > 0 {
					if full := r.take(e); full {
						return nil
					}
				}
			}
			r.at = trailPlace{ordinal: row.Ordinal.Int64, index: math.MaxUint32}
		}
		if len(rows) < limit {
			return nil
		}
	}
}

// take looks at the next entry. It returns true when the page ends there.
func (r *trailReader) take(e storedEntry) (full bool) {
	wanted := r.wants(&e)
	if wanted && len(r.page.Entries) == r.query.Page.Size {
		r.page.Next = r.scope.token(r.at.position())
		return true
	}
	if wanted {
		r.page.Entries = append(r.page.Entries, e.entry)
	}
	r.at = e.place
	if r.looked++; r.looked >= trailScan {
		r.page.Next = r.scope.token(r.at.position())
		return true
	}
	return false
}

// ofRequest finds the entries of one request, which are few.
func (r *trailReader) ofRequest(ctx context.Context) (*kms.TrailPage, error) {
	p := AuditEntriesOfRequestParams{Tenant: r.tenant, Request: r.query.Request, From: earliest, Until: earliest, Limit: maxOfRequest}
	if arrived, ok := requestTime(r.query.Request); ok {
		p.From, p.Until = timestamp(arrived)-1000, timestamp(arrived.Add(chunkAge))
	}
	rows, err := r.store.driver.AuditEntriesOfRequest(ctx, p)
	if err != nil {
		return nil, translate(err)
	}
	var found latestFirst
	for _, row := range rows {
		for _, e := range r.store.storedEntries(row) {
			if e.request == r.query.Request && r.wants(&e) {
				heap.Push(&found, e)
			}
		}
	}
	for len(found) > 0 {
		r.page.Entries = append(r.page.Entries, heap.Pop(&found).(storedEntry).entry)
	}
	return &r.page, nil
}

// wants tells whether an entry is asked for.
func (r *trailReader) wants(e *storedEntry) bool {
	q := r.query
	return (q.Op == "" || e.key.op == string(q.Op)) && (q.Outcome == "" || e.key.outcome == q.Outcome) &&
		(q.Key == uuid.Nil() || e.key.key == q.Key) && (q.Credential == uuid.Nil() || e.key.credential == q.Credential) &&
		(q.Project == "" || e.key.project == q.Project) && (q.Component == "" || e.key.component == q.Component) &&
		(q.Node == "" || e.entry.Node == q.Node) && (q.Request == uuid.Nil() || e.request == q.Request) &&
		(q.From.IsZero() || !e.entry.Time.Before(q.From)) && (q.To.IsZero() || e.entry.Time.Before(q.To))
}

// storedEntries decodes a row. A damaged one is reported, and has none.
func (s *Store) storedEntries(row *AuditEntryRow) []storedEntry {
	d := newDecoder(ObjectAuditEntry, uuid.Nil(), uuid.Nil())
	place := trailPlace{ordinal: d.integer(row.Ordinal, "ordinal", 1, math.MaxInt64)}
	one := kms.TrailEntry{
		Node: d.text(row.Node, "node"), Sequence: uint64(d.integer(row.Sequence, "sequence", 1, math.MaxInt64)),
		Tenant: d.id(row.Tenant, "tenant"), Time: d.time(row.Time, "time"), Project: d.maybeBlank(row.Project, "project"),
		Payload: d.bytes(row.Payload, "payload"),
	}
	key := chunkKey{
		project: one.Project, component: d.maybeBlank(row.Component, "component"), op: d.maybeBlank(row.Op, "op"),
		outcome: d.maybeBlank(row.Outcome, "outcome"), key: d.id(row.Key, "key_id"), credential: d.id(row.Credential, "credential"),
	}
	request, count := d.id(row.Request, "request"), int64(1)
	if !row.Entries.Null {
		count = d.integer(row.Entries, "entries", 1, chunkBytes)
	}
	entries := []storedEntry{{entry: one, key: key, request: request}}
	if d.result() == nil && count > 1 {
		var ok bool
		entries, ok = readChunk(one.Payload, one.Sequence, count)
		d.require(ok, "payload", reasonFormat)
	}
	if err := d.result(); err != nil {
		s.damaged(err)
		return nil
	}
	for i := range entries {
		e := &entries[i]
		e.entry.Node, e.entry.Tenant = one.Node, one.Tenant
		e.place = trailPlace{timestamp(e.entry.Time), place.ordinal, uint32(i)}
	}
	return entries
}
