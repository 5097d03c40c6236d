package kms

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
	"uuid"
)

// RequestRecord is what is kept of a request for a while, so that its caller
// can ask why it took as long as it did.
type RequestRecord struct {
	RequestID     uuid.UUID
	Tenant        uuid.UUID
	Project       string
	Time          time.Time // of the end
	Op            Op
	Key           uuid.UUID // zero: it acted on none
	Outcome       string    // "ok" or the kind of the error
	Reasons       []Reason  // never changed
	Class         Class
	Urgency       Urgency
	Estimate      time.Duration
	Aged, Away    bool
	ColdLoad      bool
	Attempts      int
	Node          NodeID
	Wait          time.Duration
	SlotTime      time.Duration
	Total         time.Duration
	Cost, Charged Credits
	PolicyVersion uint64
}

// RequestRecords keeps the records of requests that waited or were refused,
// for all API nodes. They are for looking at and decide nothing: what is lost
// is lost.
type RequestRecords interface {
	// StoreRecords stores records until RecordsKept after their time. Those of
	// unknown tenants are left out.
	StoreRecords(ctx context.Context, records []RequestRecord) error
	// RequestRecord: ErrNotFound when the tenant has no such record, or it has
	// expired.
	RequestRecord(ctx context.Context, tenant, request uuid.UUID) (*RequestRecord, error)
	// AnyRequestRecord is RequestRecord for operators, who name no tenant.
	AnyRequestRecord(ctx context.Context, request uuid.UUID) (*RequestRecord, error)
}

const (
	// RecordsKept is for how long a request can be asked about. It bounds the
	// rows as well.
	RecordsKept = 10 * time.Minute

	// recentShards and recentEach bound what an API node has in memory: the
	// last 32,768 requests, which is about 12 MiB with what they waited for.
	recentShards = 16
	recentEach   = 2048

	// recordInterval and recordBatch bound what a node stores: 256 records a
	// second, in four transactions, and with RecordsKept 153,600 rows. Those of
	// a flood of refusals are much alike, so a part of them tells enough.
	recordInterval = 250 * time.Millisecond
	recordBatch    = 64
)

// recentRequests is the records of the last requests of this API node. Noting
// one takes the lock of a shard and copies; looking one up reads a shard. It is
// safe for concurrent use.
type recentRequests [recentShards]recentShard

type recentShard struct {
	mu   sync.Mutex
	ring []RequestRecord // made with the first request
	next int
}

func (r *recentRequests) shard(id uuid.UUID) *recentShard { return &r[id[15]%recentShards] }

func (r *recentRequests) note(record *RequestRecord) {
	s := r.shard(record.RequestID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		s.ring = make([]RequestRecord, recentEach)
	}
	s.ring[s.next] = *record
	s.next = (s.next + 1) % len(s.ring)
}

// find returns the record of a request, nil when there is none since a time.
func (r *recentRequests) find(id uuid.UUID, since time.Time) *RequestRecord {
	s := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ring {
		if record := &s.ring[i]; record.RequestID == id && record.Time.After(since) {
			found := *record
			return &found
		}
	}
	return nil
}

// keep notes a request that has ended, and hands it to the recorder if there is
// something to explain. It never waits.
func (s *Service) keep(t *Ticket, err error, now time.Time) {
	if t.By == nil || t.Op == OpReadRequest {
		return // there is nobody to ask, or it was the asking
	}
	r := RequestRecord{
		RequestID: t.RequestID, Tenant: t.By.Tenant.ID, Project: t.By.Project, Time: now, Op: t.Op, Outcome: "ok",
		Reasons: t.Reasons, Class: t.Class, Urgency: t.Urgency, Estimate: t.Estimate, Aged: t.Aged, Away: t.Away,
		ColdLoad: t.ColdLoad, Attempts: t.Attempts, Node: t.Node, Wait: t.Wait, SlotTime: t.SlotTime, Total: t.Elapsed,
		Cost: t.Cost, Charged: t.Settled.Charged, PolicyVersion: t.PolicyVersion,
	}
	if t.Key != nil {
		r.Key = t.Key.ID
	}
	if err != nil {
		r.Outcome = KindOf(err).String()
	}
	s.recent.note(&r)
	if len(r.Reasons) == 0 {
		return
	}
	select {
	case s.toRecord <- r:
	default:
		s.unrecorded.Add(1)
	}
}

// Unrecorded returns how many requests that waited or were refused only this
// API node can tell of, because there were more than are stored.
func (s *Service) Unrecorded() uint64 { return s.unrecorded.Load() }

// Why reports what became of a request: one of the caller's tenant, or for an
// operator of any. This API node's memory is asked first, then the records of
// all nodes, of those that waited or were refused, then the audit trail, which
// has all seconds later and for longer, with less. A request of another tenant
// or project, an unknown one and one of too long ago are the same ErrNotFound.
func (s *Service) Why(ctx context.Context, t *Ticket, ref string) (record *RequestRecord, err error) {
	err = s.run(ctx, t, &task{op: OpReadRequest, allowed: readsRequests,
		prepare: func(t *Ticket) error {
			record, err = s.findRequest(ctx, t.By, ref)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return record, nil
}

// readsRequests: who may read the tenant's usage, and who may read its keys,
// may ask; and who may read tenants as an operator.
func readsRequests(t *Ticket) bool {
	info := OpReadRequest.Info()
	return t.By.Allowed(OpReadRequest, nil) || t.By.Scopes.allow(&OpInfo{Op: info.Op, Class: info.Class, Family: "key"}, "") ||
		readsAllRequests(t.By)
}

func readsAllRequests(by *Principal) bool {
	return by.Operator() && by.Scopes.allow(&OpInfo{Op: OpReadRequest, Class: ClassRead, Family: "operator"}, "")
}

func (s *Service) findRequest(ctx context.Context, by *Principal, ref string) (*RequestRecord, error) {
	id, err := uuid.Parse(ref)
	if err != nil {
		return nil, ErrNotFound
	}
	all := readsAllRequests(by)
	visible := func(r *RequestRecord) bool {
		return all || r.Tenant == by.Tenant.ID && by.Sees(r.Project)
	}
	found := s.recent.find(id, s.clock().Add(-RecordsKept))
	if found != nil && visible(found) {
		return found, nil
	}
	// For another tenant's the store is asked like for an unknown one.
	of := by.Tenant.ID
	if all {
		of = uuid.Nil()
		found, err = s.records.AnyRequestRecord(ctx, id)
	} else {
		found, err = s.records.RequestRecord(ctx, of, id)
	}
	if errors.Is(err, ErrNotFound) {
		found, err = s.recordOfTrail(ctx, of, id)
	}
	switch {
	case err != nil:
		return nil, err
	case !visible(found):
		return nil, ErrNotFound
	}
	return found, nil
}

// recordOfTrail makes the record of a request from its entry in the audit
// trail. tenant zero is any.
func (s *Service) recordOfTrail(ctx context.Context, tenant, request uuid.UUID) (*RequestRecord, error) {
	page, err := s.trail.TrailEntries(ctx, &TrailQuery{Tenant: tenant, Request: request, Page: Page{Size: MaxPageSize}})
	if err != nil {
		return nil, err
	}
	for i := range page.Entries {
		e, err := s.openEntry(&page.Entries[i])
		if err != nil {
			return nil, err
		}
		if e.RequestID != request || e.Phase != PhaseOutcome || e.Tenant == uuid.Nil() {
			continue // its outcome counts, and nobody's is nobody's to ask about
		}
		return &RequestRecord{
			RequestID: e.RequestID, Tenant: e.Tenant, Project: e.Project, Time: e.Time, Op: e.Op, Key: e.Key, Outcome: e.Outcome,
			Reasons: e.Reasons, Class: e.Class, Urgency: e.Urgency, Estimate: e.Estimate, Node: e.Node, Wait: e.Wait, SlotTime: e.SlotTime,
			Total: e.Total, Cost: e.Cost, Charged: e.Charged, PolicyVersion: e.PolicyVersion,
		}, nil
	}
	return nil, ErrNotFound
}

// Recorder stores the records of this API node. Each has one.
type Recorder struct {
	service *Service
	stop    chan struct{}
	ended   chan struct{}
}

// StartRecorder starts to store records; Close ends that.
func (s *Service) StartRecorder() *Recorder {
	r := &Recorder{service: s, stop: make(chan struct{}), ended: make(chan struct{})}
	go r.loop()
	return r
}

// Close stores a last batch, and ends.
func (r *Recorder) Close() error {
	close(r.stop)
	<-r.ended
	return nil
}

func (r *Recorder) loop() {
	defer close(r.ended)
	tick := time.NewTicker(recordInterval)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-r.stop:
			r.store(away)
			return
		case <-tick.C:
			away = r.store(away)
		}
	}
}

// store stores what has come, at most a batch, and tells whether the store is
// away. The log has that once; the records are lost.
func (r *Recorder) store(away bool) bool {
	s := r.service
	batch := s.takeRecords()
	if len(batch) == 0 {
		return away
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := s.records.StoreRecords(ctx, batch)
	if err != nil {
		s.unrecorded.Add(uint64(len(batch)))
		if !away {
			s.log.Warn("the records of requests cannot be stored", slog.Any("error", err))
		}
	}
	return err != nil
}

func (s *Service) takeRecords() []RequestRecord {
	var batch []RequestRecord
	for len(batch) < recordBatch {
		select {
		case record := <-s.toRecord:
			batch = append(batch, record)
		default:
			return batch
		}
	}
	return batch
}
