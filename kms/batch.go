package kms

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"uuid"
)

// MaxBatch is how many items a batch has at most: as many as one flush of the
// journal takes without a second one.
const MaxBatch = 500

const (
	// batchWorkers is how many items of a batch are under way at once: half of
	// the concurrency of the smallest tier, so that a batch leaves room for the
	// tenant's other calls. Each item waits for its slot like a single call.
	batchWorkers = 8
	// tenantWorkers is how many items of all batches of a tenant are under way at
	// once on an API node, one of each batch aside: as many keep any pool busy
	// that is as near as HSMs are, and more would only queue.
	tenantWorkers = 32
	// batchTime is how long a batch takes up new items where its caller has set
	// no deadline: the longest deadline that there is.
	batchTime = time.Minute
	// batchUnrecorded is how long the first of the items that are over waits for
	// the others before it is recorded: longer than an ordinary batch takes, and
	// little enough for what a crash may lose of work that nobody was told of.
	batchUnrecorded = 100 * time.Millisecond
)

// BatchItem is one operation of a batch.
type BatchItem struct {
	// Ticket is the item's own; Batch fills in its first part.
	Ticket *Ticket
	// Op is what the item is journalled as if it comes to no verb.
	Op Op
	// Do calls one verb with Ticket and returns its error, or returns why it
	// calls none.
	Do func(ctx context.Context) error
	// Err is how the item ended, set by Batch. If it is not nil the item's
	// answer must be withheld.
	Err error
}

// Batch runs items, each through the route as a call of its own: authorised,
// priced, scheduled, recorded and settled by itself. What one item does or
// suffers changes nothing for the others, and their order is kept. What is
// shared is the caller, the urgency, the deadline and the wait for the journal:
// the items become durable together, at the end.
//
// Items that have not begun when ctx ends, or the deadline passes, are refused.
// An error means that there is no answer at all. Afterwards t has the sums of
// the items.
func (s *Service) Batch(ctx context.Context, t *Ticket, items []BatchItem) error {
	if len(items) < 1 || len(items) > MaxBatch {
		return s.Refuse(ctx, t, OpBatch, Errorf(KindInvalidArgument, "items: must be 1 to %d", MaxBatch))
	}
	if err := s.checkGuard(ctx, t); err != nil { // once for all: its factor may be good once
		return s.Refuse(ctx, t, OpBatch, err)
	}
	t.Op, t.PolicyVersion = OpBatch, s.engine.PolicyVersion()
	t.Resource = fmt.Sprintf("%d items", len(items))
	b := &batch{service: s, ticket: t, items: items, until: t.Deadline}
	if b.until.IsZero() {
		b.until = t.Received.Add(batchTime)
	}
	for i := range items {
		b.open(i)
	}
	b.mu.Lock()
	b.startLocked(ctx, true)
	b.mu.Unlock()
	b.all.Wait()
	return b.close(ctx)
}

// batch is a batch under way.
type batch struct {
	service *Service
	ticket  *Ticket
	items   []BatchItem
	until   time.Time
	all     sync.WaitGroup // workers

	mu      sync.Mutex // guards the rest
	workers int
	next    int // the first item that was not taken up
	over    []*BatchItem
	overAt  time.Time // when the first of over was over
	entries []*Entry  // of over
}

// open fills in the ticket of an item.
func (b *batch) open(i int) {
	of, t := b.ticket, b.items[i].Ticket
	t.RequestID = ItemID(of.RequestID, i)
	t.ClientRequestID, t.TraceID = of.ClientRequestID, of.TraceID
	t.By, t.Received, t.Address, t.UserAgent = of.By, of.Received, of.Address, of.UserAgent
	t.Urgency, t.Deadline, t.DryRun = of.Urgency, b.until, of.DryRun
	t.Resource = of.RequestID.String()
	t.item = true
}

// ItemID is the request id of a batch's item: the batch's with index+1 added to
// its last 48 bits, which are random. So an auditor finds the items of a batch,
// and their places, by the batch's id.
func ItemID(batch uuid.UUID, index int) uuid.UUID {
	var last [8]byte
	copy(last[2:], batch[10:])
	binary.BigEndian.PutUint64(last[:], binary.BigEndian.Uint64(last[:])+uint64(index)+1)
	copy(batch[10:], last[2:])
	return batch
}

// startLocked starts a worker, the first whatever else the tenant has under way.
func (b *batch) startLocked(ctx context.Context, first bool) {
	if tenant := b.ticket.By.Tenant.ID; b.service.batches.join(tenant, first) {
		b.workers++
		b.all.Go(func() {
			defer b.service.batches.leave(tenant)
			b.work(ctx)
		})
	}
}

// work takes up items until there are no more.
func (b *batch) work(ctx context.Context) {
	for item := b.take(ctx); item != nil; item = b.take(ctx) {
		item.Err = b.run(ctx, item)
		if over, entries := b.add(item); over != nil {
			b.record(ctx, over, entries)
		}
	}
}

// take takes up an item, nil when there are no more, and has another worker
// started if there may be one.
func (b *batch) take(ctx context.Context) *BatchItem {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == len(b.items) {
		return nil
	}
	b.next++
	if b.workers < batchWorkers && b.next < len(b.items) {
		b.startLocked(ctx, false)
	}
	return &b.items[b.next-1]
}

var errBatchEnded = Errorf(KindWaitExceeded, "the batch ended before this item began")

// run runs an item up to the journal.
func (b *batch) run(ctx context.Context, item *BatchItem) error {
	err := error(errBatchEnded)
	if ctx.Err() == nil && b.service.clock().Before(b.until) {
		err = guard(func() error { return item.Do(ctx) })
	}
	if item.Ticket.Op == "" { // it came to no verb
		return b.service.Refuse(ctx, item.Ticket, item.Op, err)
	}
	return err
}

// add notes that an item is over. When the first of those that are has waited
// long enough, it returns all of them, to be recorded.
func (b *batch) add(item *BatchItem) ([]*BatchItem, []*Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.service.clock()
	if len(b.over) == 0 {
		b.overAt = now
	}
	b.over, b.entries = append(b.over, item), append(b.entries, item.Ticket.ended.entry)
	if now.Sub(b.overAt) < batchUnrecorded {
		return nil, nil
	}
	over, entries := b.over, b.entries
	b.over, b.entries = nil, nil
	return over, entries
}

// record makes entries durable and ends their items. Further entries may follow
// those of items. It returns the errors of all.
func (b *batch) record(ctx context.Context, over []*BatchItem, list []*Entry) []error {
	errs := b.service.journal.RecordAll(ctx, list)
	for i, item := range over {
		t := item.Ticket
		*list[i] = Entry{}
		entries.Put(list[i])
		if err := b.service.conclude(ctx, t, t.ended.err, errs[i]); errs[i] != nil {
			item.Err = err
		}
		t.ended = ended{}
	}
	return errs
}

// close records what is left, with the batch's own entry, and sums up.
func (b *batch) close(ctx context.Context) error {
	s, t := b.service, b.ticket
	own := &Entry{}
	s.fill(own, t, PhaseOutcome, nil)
	errs := b.record(ctx, b.over, append(b.entries, own))
	if err := s.conclude(ctx, t, nil, errs[len(errs)-1]); err != nil {
		return err
	}
	for i := range b.items {
		item := b.items[i].Ticket
		t.Cost += item.Cost
		t.Settled.Charged += item.Settled.Charged
		t.SlotTime += item.SlotTime
		if r, ok := item.Reserved(); ok {
			t.reservation, t.admitted = r, true
		}
	}
	t.reservation.Cost = t.Cost
	return nil
}

// ended is what is kept of a batch's item that only waits to be recorded.
type ended struct {
	entry *Entry
	err   error
}

// batchCrew counts the workers of tenants' batches. It is safe for concurrent use.
type batchCrew struct {
	mu      sync.Mutex // guards workers
	workers map[uuid.UUID]int
}

// join tells whether a tenant may have one worker more, which a first one always
// may.
func (c *batchCrew) join(tenant uuid.UUID, first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !first && c.workers[tenant] >= tenantWorkers {
		return false
	}
	c.workers[tenant]++
	return true
}

func (c *batchCrew) leave(tenant uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers[tenant]--; c.workers[tenant] == 0 {
		delete(c.workers, tenant)
	}
}
