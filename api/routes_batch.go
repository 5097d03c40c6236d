package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// maxBatchBody bounds the body of a batch in bytes: what one operation takes
	// at most, without its base64.
	maxBatchBody = 1 << 20
	// maxBatchAnswer bounds the bytes of the results that a batch holds: a batch
	// of the longest data keys fits. Items that were under way come on top,
	// eight at most, of less than 100 kB each.
	maxBatchAnswer = 4 << 20
)

func batchRoutes() []Route {
	r := complete[BatchRequest, BatchResponse](Route{
		Name: "batch", Group: "Operations", Method: http.MethodPost, Path: "/v1/batch", Op: kms.OpBatch,
		Summary: "Run many operations in one call",
		Description: "Each item is authorised, priced, scheduled and recorded like a call of its own, and its result or problem stands " +
			"in its place; no item changes what becomes of another. An item's op is what its own route's path ends in. Items run in " +
			"parallel, in no order among them. Urgency, deadline and dry_run hold for all; items that have not begun at the " +
			"deadline, within a minute at most, are refused. A batch that is malformed as a whole does nothing. It needs no " +
			"scope of its own, and costs the sum of its items.",
	})
	r.MaxBody = maxBatchBody
	r.serve = serveBatch
	return []Route{r}
}

// itemRoutes are the routes whose requests can be items of a batch.
func itemRoutes() []Route {
	return slices.Concat(operationRoutes(), exchangeRoutes(), csrRoutes(), keylessRoutes())
}

// itemOp is the op under which a route's requests are items.
func itemOp(r *Route) string {
	op, keyed := strings.CutPrefix(r.Path, "/v1/keys/{key}/")
	if !keyed {
		op = strings.TrimPrefix(r.Path, "/v1/")
	}
	return op
}

// batch is a batch under way.
type batch struct {
	*call
	body  *buffer
	items []batchItem
	// answered counts the bytes of the answers so far.
	answered atomic.Int64
}

// batchItem is an item with its answer.
type batchItem struct {
	itemText
	exchange exchange // of a request of its own
	call     call     // of its own route
	answer   *buffer
}

func serveBatch(c *call) (*buffer, error) {
	body, err := c.server.readBody(c.exchange, c.request)
	if err != nil {
		return nil, err
	}
	defer body.release()
	texts, err := c.readItems(body)
	if err != nil {
		return nil, err
	}
	b := &batch{call: c, body: body, items: make([]batchItem, len(texts))}
	run := make([]kms.BatchItem, len(texts))
	for i := range run {
		b.open(&b.items[i], texts[i], &run[i])
	}
	err = c.service.Batch(c.context, &c.ticket, run)
	defer b.release()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(run, func(i kms.BatchItem) bool { return i.Err != nil && refusedForNow(ProblemStatus(kms.KindOf(i.Err))) }) {
		c.Header().Set("Link", jobLink)
	}
	return b.write(run), nil
}

// noRequest is the request of an item: one without headers.
var noRequest = &http.Request{}

// open makes an item the call of its own route.
func (b *batch) open(item *batchItem, text itemText, run *kms.BatchItem) {
	b.server.openItem(b.context, item, text, run)
	run.Do = func(ctx context.Context) error {
		return b.server.runItem(ctx, item, b.body.bytes, &b.answered, maxBatchAnswer)
	}
}

// openItem makes an item the call of its own route, all but what is to be done.
func (s *Server) openItem(ctx context.Context, item *batchItem, text itemText, run *kms.BatchItem) {
	item.itemText = text
	x := &item.exchange
	x.context, x.route = ctx, s.items[text.op]
	item.call = call{exchange: x, service: s.service, server: s, request: noRequest, media: contentJSON}
	run.Ticket, run.Op = &x.ticket, kms.OpBatch
	if x.route != nil {
		run.Op = x.route.Op
	}
}

// runItem runs an item, which stands in text, through its route, unless more than
// most bytes were answered before.
func (s *Server) runItem(ctx context.Context, item *batchItem, text []byte, answered *atomic.Int64, most int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	if err := item.check(s); err != nil {
		return err
	}
	if answered.Load() > most {
		return kms.Errorf(kms.KindTooLarge, "the results of the batch are longer than %d bytes before this item", most)
	}
	c := &item.call
	c.context, c.itemKey = ctx, item.key
	if item.answer, err = c.route.item(c, item.body(text)); err != nil {
		return err
	}
	answered.Add(int64(len(item.answer.bytes)))
	return nil
}

// release wipes the answers.
func (b *batch) release() {
	for i := range b.items {
		b.items[i].answer.release()
	}
}

// resultRoom is what a result takes beside its answer.
const resultRoom = 64

// write writes the results.
func (b *batch) write(run []kms.BatchItem) *buffer {
	w := &writer{newBuffer(int(b.answered.Load()) + resultRoom*len(run) + memberRoom)}
	w.raw(`{"results":[`)
	for i := range run {
		if i > 0 {
			w.raw(",")
		}
		w.raw("{")
		if err := run[i].Err; err != nil {
			b.items[i].call.problemTo(w, err)
		} else {
			w.number("status", http.StatusOK)
			w.member("result", b.items[i].answer.bytes)
		}
		w.raw("}")
	}
	w.raw("]")
	charge := b.charge()
	if b.ticket.DryRun {
		w.truth("dry_run", true)
		charge.Cost = Cost(b.ticket.Cost)
	}
	w.charge(&charge)
	w.raw("}")
	return w.b
}

// problemTo writes the problem of an item.
func (c *call) problemTo(w *writer, err error) {
	p, retryAfter := c.server.problem(c.exchange, err)
	w.number("status", uint32(p.Status))
	w.member("problem", p.encode())
	if retryAfter > 0 {
		w.number("retry_after", wholeSeconds(retryAfter))
	}
}
