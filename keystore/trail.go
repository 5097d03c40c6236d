package keystore

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// trailChunk is how many entries are read at a time while those that were
	// asked for are looked for.
	trailChunk = 500
	// trailScan bounds the entries that are looked at for one page: some 10 MB
	// and tens of milliseconds.
	trailScan = 20 * trailChunk
	// maxOfRequest bounds the entries of one request: an intent, an outcome,
	// and what is written about parts of it.
	maxOfRequest = kms.MaxPageSize
)

// Kinds of lists of the trail, in page tokens.
const (
	listNewest  = 'n'
	listArrived = 'a'
)

// Shipped implements kms.TrailWriter.
func (s *Store) Shipped(ctx context.Context, node string) (kms.ShippedNode, error) {
	row, err := s.driver.Shipped(ctx, ShippedParams{Node: node})
	switch err := translate(err); {
	case isMissing(err):
		return kms.ShippedNode{Node: node}, nil
	case err != nil:
		return kms.ShippedNode{}, err
	}
	return s.decodeShipped(row)
}

// ShippedNodes implements kms.Trail. A damaged row is an error: without it
// nobody could say up to when the trail is complete.
func (s *Store) ShippedNodes(ctx context.Context) ([]kms.ShippedNode, error) {
	rows, err := s.driver.ListShipped(ctx)
	if err != nil {
		return nil, translate(err)
	}
	nodes := make([]kms.ShippedNode, len(rows))
	for i, row := range rows {
		if nodes[i], err = s.decodeShipped(row); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func (s *Store) decodeShipped(row *ShippedRow) (kms.ShippedNode, error) {
	d := newDecoder(ObjectShipped, uuid.Nil(), uuid.Nil())
	n := kms.ShippedNode{
		Node:  d.text(row.Node, "node"),
		Head:  kms.TrailHead{Sequence: uint64(d.integer(row.Sequence, "sequence", 0, math.MaxInt64))},
		Until: d.time(row.Until, "until"), Ended: d.boolean(row.Ended, "ended"),
	}
	hash := d.bytes(row.Hash, "hash")
	d.require(len(hash) == len(n.Head.Hash), "hash", reasonFormat)
	copy(n.Head.Hash[:], hash)
	if err := d.result(); err != nil {
		return kms.ShippedNode{}, s.decoded(err)
	}
	return n, nil
}

// Ship implements kms.TrailWriter.
func (s *Store) Ship(ctx context.Context, b *kms.TrailBatch) error {
	p := ShipParams{
		Node: b.Node, AfterSequence: b.After.Sequence, AfterHash: b.After.Hash[:], Sequence: b.Head.Sequence, Hash: b.Head.Hash[:],
		Until: timestamp(b.Until), Ended: b.Ended, Entries: make([]AuditEntryRecord, len(b.Entries)),
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		p.Entries[i] = AuditEntryRecord{
			Sequence: e.Sequence, Tenant: e.Entry.Tenant, Time: timestamp(e.Entry.Time), Request: e.Entry.RequestID,
			Project: storable(e.Entry.Project), Component: storable(e.Entry.Component), Op: storable(string(e.Entry.Op)), Key: e.Entry.Key,
			Credential: e.Entry.Credential, Outcome: storable(e.Entry.Outcome), Payload: e.Payload,
		}
	}
	for _, g := range kms.Granularities() {
		for i := range b.Usage[g] {
			u := &b.Usage[g][i]
			p.Usage = append(p.Usage, UsageRecord{
				Granularity: string(g), Tenant: u.Tenant, Start: timestamp(u.Start), Project: storable(u.Project), Component: storable(u.Component),
				Key: u.Key, Algorithm: storable(u.Algorithm), Op: storable(string(u.Operation)), Reason: storable(u.Reason), Policy: u.Policy,
				Requests: u.Requests, Charged: int64(u.Charged), Bytes: u.Bytes, Slot: int64(u.SlotTime), Wait: int64(u.Wait),
			})
		}
	}
	slices.SortFunc(p.Usage, compareUsage)
	return translate(s.driver.Ship(ctx, p))
}

// compareUsage orders records by their key, so that they lie together.
func compareUsage(a, b UsageRecord) int {
	return cmp.Or(a.Tenant.Compare(b.Tenant), cmp.Compare(a.Granularity, b.Granularity), cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.Project, b.Project), cmp.Compare(a.Component, b.Component), a.Key.Compare(b.Key),
		cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Policy, b.Policy))
}

// storable replaces the one character that no database stores: an entry that is
// refused would hold up all that follow.
func storable(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }

// TrimTrail implements kms.TrailWriter.
func (s *Store) TrimTrail(ctx context.Context, before kms.TrailBounds, limit int) (more bool, err error) {
	removed, err := s.driver.DeleteAuditEntries(ctx, DeleteAuditEntriesParams{Before: timestamp(before.Entries), Limit: limit})
	if err != nil {
		return false, translate(err)
	}
	more = removed == limit
	for _, g := range kms.Granularities() {
		removed, err := s.driver.DeleteUsage(ctx, DeleteUsageParams{Granularity: string(g), Before: timestamp(before.Usage[g]), Limit: limit})
		if err != nil {
			return false, translate(err)
		}
		more = more || removed == limit
	}
	return more, nil
}

// trailPlace is a place in the trail: behind it are, by arrival, higher ordinals,
// and by time earlier ones.
type trailPlace struct {
	time    Timestamp
	ordinal int64
}

func (p trailPlace) position() position {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.time))
	return position{id: string(binary.BigEndian.AppendUint64(b, uint64(p.ordinal)))}
}

func placeOf(p position) (trailPlace, bool) {
	if len(p.id) != 16 || p.name != "" {
		return trailPlace{}, false
	}
	b := []byte(p.id)
	return trailPlace{Timestamp(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}, true
}

// trailReader reads one page of the trail.
type trailReader struct {
	store  *Store
	query  *kms.TrailQuery
	tenant *uuid.UUID
	scope  scope
	at     trailPlace
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
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	if q.Order == kms.ByArrival {
		r.page.Resume = r.scope.token(r.at.position())
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
		return r.find(r.store.driver.LastOrdinal(ctx))
	case q.After != nil:
		err := r.find(r.store.driver.AuditEntryOrdinal(ctx, AuditEntryOrdinalParams{Tenant: r.tenant, Node: q.After.Node, Sequence: q.After.Sequence}))
		if isMissing(err) {
			return kms.Errorf(kms.KindInvalidArgument, "after: there is no such entry, or it is no longer kept")
		}
		return err
	case q.Order == kms.NewestFirst:
		r.at = trailPlace{latest, math.MaxInt64}
		if !q.To.IsZero() {
			r.at = trailPlace{timestamp(q.To), math.MinInt64} // the end is not part of it
		}
	}
	return nil
}

func (r *trailReader) find(ordinal Integer, err error) error {
	if err != nil {
		return translate(err)
	}
	if !ordinal.Valid {
		return translate(&RowError{Object: ObjectAuditEntry, Column: "ordinal", Reason: reasonType})
	}
	r.at = trailPlace{ordinal: ordinal.Int64}
	return nil
}

// read reads on until the page is full, the trail ends, or enough was looked at.
func (r *trailReader) read(ctx context.Context) error {
	for looked := 0; ; {
		limit := min(trailChunk, trailScan-looked)
		if r.unfiltered() {
			limit = min(limit, r.query.Page.Size-len(r.page.Entries)+1)
		}
		rows, err := r.rows(ctx, limit)
		if err != nil {
			return translate(err)
		}
		for _, row := range rows {
			entry, wanted := r.take(row)
			if wanted && len(r.page.Entries) == r.query.Page.Size {
				r.page.Next = r.scope.token(r.at.position())
				return nil
			}
			if wanted {
				r.page.Entries = append(r.page.Entries, entry)
			}
			if !row.Time.Valid || !row.Ordinal.Valid {
				return r.store.decoded(&RowError{Object: ObjectAuditEntry, Column: "time", Reason: reasonType})
			}
			r.at = trailPlace{row.Time.Int64, row.Ordinal.Int64}
		}
		if looked += len(rows); len(rows) < limit {
			return nil
		}
		if looked >= trailScan {
			r.page.Next = r.scope.token(r.at.position())
			return nil
		}
	}
}

func (r *trailReader) rows(ctx context.Context, limit int) ([]*AuditEntryRow, error) {
	if r.query.Order == kms.ByArrival {
		return r.store.driver.ArrivedAuditEntries(ctx, ArrivedAuditEntriesParams{Tenant: r.tenant, AfterOrdinal: r.at.ordinal, Limit: limit})
	}
	from := earliest
	if !r.query.From.IsZero() {
		from = timestamp(r.query.From)
	}
	return r.store.driver.NewestAuditEntries(ctx, NewestAuditEntriesParams{
		Tenant: r.tenant, From: from, BeforeTime: r.at.time, BeforeOrdinal: r.at.ordinal, Limit: limit})
}

// ofRequest finds the entries of one request, which are few.
func (r *trailReader) ofRequest(ctx context.Context) (*kms.TrailPage, error) {
	rows, err := r.store.driver.AuditEntriesOfRequest(ctx, AuditEntriesOfRequestParams{Tenant: r.tenant, Request: r.query.Request, Limit: maxOfRequest})
	if err != nil {
		return nil, translate(err)
	}
	for _, row := range rows {
		if entry, wanted := r.take(row); wanted {
			r.page.Entries = append(r.page.Entries, entry)
		}
	}
	return &r.page, nil
}

// unfiltered tells whether every entry is wanted.
func (r *trailReader) unfiltered() bool {
	q := r.query
	return q.Op == "" && q.Key == uuid.Nil() && q.Credential == uuid.Nil() && q.Outcome == "" && q.Project == "" && q.Component == "" &&
		q.Node == "" && q.Request == uuid.Nil() && (q.Order == kms.NewestFirst || q.From.IsZero() && q.To.IsZero())
}

// take decodes a row and tells whether it is asked for; a damaged one is not.
func (r *trailReader) take(row *AuditEntryRow) (kms.TrailEntry, bool) {
	q := r.query
	d := newDecoder(ObjectAuditEntry, uuid.Nil(), uuid.Nil())
	d.integer(row.Ordinal, "ordinal", 1, math.MaxInt64)
	e := kms.TrailEntry{
		Node: d.text(row.Node, "node"), Sequence: uint64(d.integer(row.Sequence, "sequence", 1, math.MaxInt64)),
		Tenant: d.id(row.Tenant, "tenant"), Time: d.time(row.Time, "time"), Project: d.maybeBlank(row.Project, "project"),
		Payload: d.bytes(row.Payload, "payload"),
	}
	component, op, outcome := d.maybeBlank(row.Component, "component"), d.maybeBlank(row.Op, "op"), d.maybeBlank(row.Outcome, "outcome")
	key, credential := d.id(row.Key, "key_id"), d.id(row.Credential, "credential")
	if err := d.result(); err != nil {
		r.store.damaged(err)
		return e, false
	}
	wanted := (q.Op == "" || op == string(q.Op)) && (q.Outcome == "" || outcome == q.Outcome) &&
		(q.Key == uuid.Nil() || key == q.Key) && (q.Credential == uuid.Nil() || credential == q.Credential) &&
		(q.Project == "" || e.Project == q.Project) && (q.Component == "" || component == q.Component) &&
		(q.Node == "" || e.Node == q.Node) && (q.From.IsZero() || !e.Time.Before(q.From)) && (q.To.IsZero() || e.Time.Before(q.To))
	return e, wanted
}

// Usage implements kms.Trail.
func (s *Store) Usage(ctx context.Context, q *kms.UsageQuery) ([]kms.UsageRow, error) {
	p := UsageParams{Granularity: string(q.Granularity), From: timestamp(q.From), To: timestamp(q.To), Limit: kms.MaxUsageRows + 1}
	if q.Tenant != uuid.Nil() {
		p.Tenant = &q.Tenant
	}
	for _, by := range q.By {
		if column := p.By.of(by); column != nil {
			*column = true
		}
	}
	if err := p.where(q.Where); err != nil {
		return nil, err
	}
	rows, err := s.driver.Usage(ctx, p)
	switch {
	case err != nil:
		return nil, translate(err)
	case len(rows) > kms.MaxUsageRows:
		return nil, kms.Errorf(kms.KindInvalidArgument, "the answer has more than %d rows: ask for a shorter time, a larger granularity or fewer dimensions", kms.MaxUsageRows)
	}
	usage := make([]kms.UsageRow, len(rows))
	for i, row := range rows {
		if usage[i], err = p.decode(row); err != nil {
			return nil, s.decoded(err) // a sum without it would be wrong
		}
	}
	return usage, nil
}

// of is the field of a dimension.
func (c *UsageColumns[T]) of(d kms.Dimension) *T {
	switch d {
	case kms.DimensionTenant:
		return &c.Tenant
	case kms.DimensionProject:
		return &c.Project
	case kms.DimensionComponent:
		return &c.Component
	case kms.DimensionKey:
		return &c.Key
	case kms.DimensionAlgorithm:
		return &c.Algorithm
	case kms.DimensionOperation:
		return &c.Op
	case kms.DimensionReason:
		return &c.Reason
	case kms.DimensionPolicy:
		return &c.Policy
	}
	return nil
}

func (p *UsageParams) where(values map[kms.Dimension]string) error {
	for dimension, value := range values {
		switch dimension {
		case kms.DimensionProject:
			p.Project = &value
		case kms.DimensionComponent:
			p.Component = &value
		case kms.DimensionKey:
			id, err := uuid.Parse(value)
			if err != nil {
				return errArgument("key", "must be an id")
			}
			p.Key = &id
		case kms.DimensionAlgorithm:
			p.Algorithm = &value
		case kms.DimensionOperation:
			p.Op = &value
		case kms.DimensionReason:
			p.Reason = &value
		default:
			return errArgument(string(dimension), "cannot be chosen")
		}
		if !storableText(value) {
			return errArgument(string(dimension), "must be text")
		}
	}
	return nil
}

func (p *UsageParams) decode(row *UsageRow) (kms.UsageRow, error) {
	d := newDecoder(ObjectUsage, uuid.Nil(), uuid.Nil())
	u := kms.UsageRow{Start: d.time(row.Start, "start")}
	if p.By.Tenant {
		u.Tenant = d.id(row.Tenant, "tenant")
	}
	if p.By.Project {
		u.Project = d.maybeBlank(row.Project, "project")
	}
	if p.By.Component {
		u.Component = d.maybeBlank(row.Component, "component")
	}
	if p.By.Key {
		u.Key = d.id(row.Key, "key_id")
	}
	if p.By.Algorithm {
		u.Algorithm = d.maybeBlank(row.Algorithm, "algorithm")
	}
	if p.By.Op {
		u.Operation = kms.Op(d.maybeBlank(row.Op, "op"))
	}
	if p.By.Reason {
		u.Reason = d.maybeBlank(row.Reason, "reason")
	}
	if p.By.Policy {
		u.Policy = uint64(d.integer(row.Policy, "policy", 0, math.MaxInt64))
	}
	number := func(c Integer, column string) int64 { return d.integer(c, column, math.MinInt64, math.MaxInt64) }
	u.UsageSum = kms.UsageSum{
		Requests: number(row.Requests, "requests"), Charged: kms.Credits(number(row.Charged, "charged")), Bytes: number(row.Bytes, "bytes"),
		SlotTime: time.Duration(number(row.Slot, "slot")), Wait: time.Duration(number(row.Wait, "wait")),
	}
	return u, d.result()
}
