package keystore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
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
		Until: timestamp(b.Until), Ended: b.Ended, Entries: auditRows(b.Entries),
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
