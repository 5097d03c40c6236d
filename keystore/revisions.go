package keystore

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// rowName names an object that has a revision.
type rowName struct {
	object     Object
	tenant, id uuid.UUID
	name       string // of ObjectNodeSetting, ObjectKeyName and ObjectRoute
}

func rowOf(object Object, tenant, id uuid.UUID) rowName {
	return rowName{object: object, tenant: tenant, id: id}
}
func rowOfNode(node string) rowName { return rowName{object: ObjectNodeSetting, name: node} }

// rowOfAlias is of an alias: names that are none never change.
func rowOfAlias(tenant uuid.UUID, alias string) rowName {
	return rowName{object: ObjectKeyName, tenant: tenant, name: alias}
}

func rowOfRoute(tenant uuid.UUID, name string) rowName {
	return rowName{object: ObjectRoute, tenant: tenant, name: name}
}

// rowOfPolicy is of all versions: the newest one is its revision.
var rowOfPolicy = rowName{object: ObjectPolicy}

// rowObjects are the objects by what the journal calls them.
var rowObjects = map[kms.RowObject]Object{
	kms.RowOfTenant: ObjectTenant, kms.RowOfKey: ObjectKey, kms.RowOfCredential: ObjectCredential, kms.RowOfWebhook: ObjectWebhook,
	kms.RowOfApproval: ObjectApproval, kms.RowOfNode: ObjectNodeSetting, kms.RowOfPolicy: ObjectPolicy,
	kms.RowOfSecret: ObjectProviderSecret, kms.RowOfAlias: ObjectKeyName,
	kms.RowOfRoute: ObjectRoute,
}

func rowNameOf(r *kms.StoredRevision) (rowName, bool) {
	object, ok := rowObjects[r.Object]
	switch object {
	case ObjectNodeSetting:
		return rowOfNode(r.Name), ok
	case ObjectKeyName:
		return rowOfAlias(r.Tenant, r.Name), ok
	case ObjectRoute:
		return rowOfRoute(r.Tenant, r.Name), ok
	case ObjectPolicy:
		return rowOfPolicy, ok
	case ObjectApproval:
		return rowOf(object, uuid.Nil(), r.ID), ok
	}
	return rowOf(object, r.Tenant, r.ID), ok
}

func (n *rowName) revision(revision uint64) kms.StoredRevision {
	r := kms.StoredRevision{Tenant: n.tenant, ID: n.id, Name: n.name, Revision: revision}
	for name, object := range rowObjects {
		if object == n.object {
			r.Object = name
		}
	}
	return r
}

// knownRevision is a revision that a row has had, and the moment at which that
// became known.
type knownRevision struct{ revision, since uint64 }

// revisions knows which revisions rows have had, of objects that were changed:
// some 150 bytes each. The zero value knows nothing. Its mutex is a leaf.
type revisions struct {
	mu      sync.RWMutex // guards the rest
	moments uint64       // grows when something becomes known
	rows    map[rowName]knownRevision
	old     int           // rows of the last look that were too old or missing
	look    time.Duration // how long it took
}

// moment is now: what becomes known later has a higher one.
func (r *revisions) moment() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.moments
}

// first is the revision that rows of the kind begin with.
func (n *rowName) first() uint64 {
	switch n.object {
	case ObjectKeyName:
		return kms.FirstAliasRevision
	case ObjectRoute:
		return kms.RouteRevisions + 1
	}
	return 1
}

// raise notes that a row has had a revision. The first one tells nothing: no row
// has less.
func (r *revisions) raise(row rowName, revision uint64) {
	if revision <= row.first() || r.of(row).revision >= revision {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows[row].revision >= revision {
		return
	}
	if r.rows == nil {
		r.rows = make(map[rowName]knownRevision)
	}
	r.moments++
	r.rows[row] = knownRevision{revision, r.moments}
}

func (r *revisions) of(row rowName) knownRevision {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.rows[row]
}

func (r *revisions) all() []rowName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]rowName, 0, len(r.rows))
	for name := range r.rows {
		names = append(names, name)
	}
	return names
}

func (r *revisions) looked(old int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old, r.look = old, took
}

func (r *revisions) stats() (rows, old int, took time.Duration) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.rows), r.old, r.look
}

// reasonOld is why an authentic row is refused.
const reasonOld = "is lower than it was"

// current reports through d an authentic row that is older than known; a newer
// one is known from then on. A row can have been read before what became known
// meanwhile, so that is the measure of the next reading.
func (c *rowCoder) current(d *decoder, row rowName, revision uint64) {
	if c.known == nil || d.result() != nil {
		return
	}
	known := c.known.of(row)
	switch {
	case revision >= known.revision:
		c.known.raise(row, revision)
	case known.since <= c.asOf:
		d.fail("revision", reasonOld)
	}
}

// KnowRevisions implements kms.Revisions.
func (s *Store) KnowRevisions(list ...kms.StoredRevision) {
	for i := range list {
		row, ok := rowNameOf(&list[i])
		if !ok || s.known.of(row).revision >= list[i].Revision {
			continue
		}
		s.known.raise(row, list[i].Revision)
		s.forget(row) // what is cached may be older
	}
}

// forget forgets what is cached of an object.
func (s *Store) forget(row rowName) {
	if row.object == ObjectKeyName {
		s.InvalidateName(row.tenant, row.name)
		return
	}
	s.Invalidate(row.object, row.tenant, row.id)
}

// OldRows implements kms.Revisions. It reads one row after the other, past the
// cache.
func (s *Store) OldRows(ctx context.Context) ([]kms.OldRow, error) {
	began := time.Now()
	var old []kms.OldRow
	for _, row := range s.known.all() {
		known := s.known.of(row).revision
		found, err := s.storedRevision(ctx, row)
		switch {
		case err == nil && found >= known:
			continue
		case isMissing(err):
			// Approvals expire, and what was removed is gone.
			if row.object == ObjectApproval || known == kms.RowRemoved {
				continue
			}
		case err != nil && kms.KindOf(err) == kms.KindStoreUnavailable:
			return nil, err
		case err != nil:
			continue // damaged, and reported as that
		}
		s.forget(row)
		old = append(old, kms.OldRow{StoredRevision: row.revision(known), Found: found})
	}
	s.known.looked(len(old), time.Since(began))
	return old, nil
}

// storedRevision reads the revision of an object's row as it is now. An old row
// is reported like every one that is refused, and is no error here; missing ones
// are ErrNotFound.
func (s *Store) storedRevision(ctx context.Context, row rowName) (uint64, error) {
	c, err := s.coder()
	if err != nil {
		return 0, err
	}
	revision, err := s.readRevision(ctx, c, row)
	if damaged, ok := errors.AsType[*RowError](err); ok {
		s.damaged(err)
		if damaged.Old() {
			return revision, nil
		}
	}
	return revision, translate(err)
}

func (s *Store) readRevision(ctx context.Context, c *rowCoder, row rowName) (revision uint64, err error) {
	switch row.object {
	case ObjectTenant:
		r, err := s.driver.Tenant(ctx, TenantParams{ID: row.id})
		if err != nil {
			return 0, err
		}
		t, err := decodeTenant(c, r, &row.id)
		return t.Revision, err
	case ObjectKey:
		r, err := s.driver.Key(ctx, KeyParams{Tenant: row.tenant, ID: row.id})
		if err != nil {
			return 0, err
		}
		k, err := decodeKey(c, row.tenant, r, &row.id)
		return k.key.Revision, err
	case ObjectCredential:
		r, err := s.driver.Credential(ctx, CredentialParams{Tenant: row.tenant, ID: row.id})
		if err != nil {
			return 0, err
		}
		credential, err := decodeCredential(c, r, &row.tenant, &row.id)
		return credential.Revision, err
	case ObjectWebhook:
		r, err := s.driver.Webhook(ctx, WebhookParams{Tenant: row.tenant, ID: row.id})
		if err != nil {
			return 0, err
		}
		w, err := decodeWebhook(c, row.tenant, r, &row.id)
		return w.Revision, err
	case ObjectProviderSecret:
		r, err := s.driver.ProviderSecret(ctx, ProviderSecretParams{Tenant: row.tenant, ID: row.id})
		if err != nil {
			return 0, err
		}
		secret, err := decodeProviderSecret(c, row.tenant, r, &row.id, true)
		if secret == nil {
			return 0, err
		}
		return secret.Revision, err
	case ObjectApproval:
		r, err := s.driver.Approval(ctx, ApprovalParams{ID: row.id, Now: timestamp(s.now())})
		if err != nil {
			return 0, err
		}
		a, err := decodeApproval(c, r, &row.id)
		return a.revision, err
	case ObjectNodeSetting:
		r, err := s.driver.NodeSetting(ctx, NodeSettingParams{Node: row.name})
		if err != nil {
			return 0, err
		}
		node := kms.NodeID(row.name)
		n, err := decodeNodeSetting(c, r, &node)
		return n.Revision, err
	case ObjectKeyName:
		return s.readAlias(ctx, c, row.tenant, row.name)
	case ObjectRoute:
		return s.readRouteRevision(ctx, c, row.tenant, row.name)
	}
	return s.NewestPolicy(ctx)
}

// EntriesOf implements kms.Revisions.
func (s *Store) EntriesOf(ctx context.Context, op kms.Op, after int64) (payloads [][]byte, next int64, err error) {
	last, err := s.driver.LastOrdinal(ctx)
	if err != nil {
		return nil, after, translate(err)
	}
	d := newDecoder(ObjectAuditEntry, uuid.Nil(), uuid.Nil())
	end := d.integer(last, "ordinal", 0, math.MaxInt64)
	if err := d.result(); err != nil {
		return nil, after, s.decoded(err)
	}
	if after < 0 {
		return nil, end, nil
	}
	for ; after < end; after += trailScan {
		rows, err := s.driver.ArrivedOfOp(ctx, ArrivedOfOpParams{Op: string(op), AfterOrdinal: after, Limit: trailScan})
		if err != nil {
			return nil, after, translate(err)
		}
		for _, row := range rows {
			payloads = append(payloads, row.Payload.Bytes)
		}
	}
	return payloads, end, nil
}
