package kms

import (
	"context"
	"time"
	"uuid"
)

// Why jobs are stopped, beside the names of kinds of errors.
const (
	stoppedRevoked   = "credential_revoked"
	stoppedExpired   = "credential_expired"
	stoppedSuspended = "tenant_suspended"
	stoppedDeleted   = "tenant_deleted"
	stoppedRestored  = "restored"
)

// jobPrincipal returns whose calls the items of a job are, as of now: a
// credential that was revoked meanwhile does nothing more. why tells why the job
// is to be stopped.
func (s *Service) jobPrincipal(ctx context.Context, j *Job) (by *Principal, why string, err error) {
	tenant, err := s.tenants.Tenant(ctx, j.Tenant)
	if err != nil {
		return nil, "", err
	}
	c, err := s.credentials.Credential(ctx, j.Tenant, j.Credential)
	switch {
	case tenant.Deleted():
		return nil, stoppedDeleted, nil
	case tenant.State != TenantActive:
		return nil, stoppedSuspended, nil
	case err != nil && KindOf(err) == KindNotFound, err == nil && !c.Revoked.IsZero():
		return nil, stoppedRevoked, nil
	case err != nil:
		return nil, "", err
	case !c.live(s.clock()):
		return nil, stoppedExpired, nil
	}
	scopes, err := ParseScopes(c.Scopes)
	if err != nil {
		return nil, KindInternal.String(), nil // see Authenticator.principal
	}
	return &Principal{Tenant: tenant, Project: c.Project, Credential: c.ID, Component: c.Component, Scopes: scopes}, "", nil
}

// work runs a chunk that this node has.
func (r *JobRunner) work(ctx context.Context, j *Job, c *JobChunk) {
	s := r.service
	by, why, err := s.jobPrincipal(ctx, j)
	if why != "" {
		r.putBack(ctx, c)
		r.went(ctx, "stopping a job", s.endJob(ctx, j, JobStopped, why))
		return
	}
	if err == nil {
		err = r.runChunk(ctx, j, c, by)
	}
	if err == nil {
		return
	}
	r.went(ctx, "running a chunk", err)
	if c.State == ChunkRunning {
		r.putBack(ctx, c)
	} else {
		r.leave(true)
	}
	r.delay(ctx, j, jobRetry, KindOf(err).String())
}

// putBack gives a chunk up that was not run, or of which nothing was stored.
func (r *JobRunner) putBack(ctx context.Context, c *JobChunk) {
	c.State, c.Due = ChunkQueued, r.service.clock()
	r.went(ctx, "putting a chunk back", r.update(ctx, c, &ChunkUpdate{}))
}

// renew renews the lease of a chunk until stop is called, and ends ctx when it is
// lost.
func (r *JobRunner) renew(ctx context.Context, c *JobChunk) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	mine := *c
	go func() {
		defer close(ended)
		tick := time.NewTicker(jobLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := r.service.jobs.RenewChunk(ctx, &mine, r.service.clock().Add(jobLease))
			if err != nil && KindOf(err) == KindPreconditionFailed {
				cancel()
				return
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// runChunk runs what is left of a chunk, and stores, records and shows what comes
// of it.
func (r *JobRunner) runChunk(ctx context.Context, j *Job, c *JobChunk, by *Principal) error {
	s := r.service
	box, err := s.openJobBox(ctx, by.Tenant, j)
	if err != nil {
		return err
	}
	defer box.close()
	input, err := box.open(c, jobInput, 0, c.Input)
	if err != nil {
		return err
	}
	defer clear(input)
	items, results := splitLines(input), make([][]byte, c.Items)
	if c.Pass > 0 {
		output, err := box.open(c, jobOutput, c.Pass, c.Output)
		if err != nil {
			return err
		}
		defer clear(output)
		results = splitLines(output)
	}
	if len(items) != c.Items || len(results) != c.Items {
		return errJobContent
	}
	var places []int // of those that have no result yet
	var open [][]byte
	for i := range items {
		if len(results[i]) == 0 {
			places, open = append(places, i), append(open, items[i])
		}
	}
	t := &Ticket{RequestID: c.ID, By: by, Received: s.clock(), Urgency: UrgencyBulk}
	var calls JobCalls
	r.turn(ctx, jobStoreRest, func() { calls = r.config.Items.JobCalls(ctx, t, open) })
	defer calls.Release()
	p := &jobPass{runner: r, items: calls.Items()}
	for i := range p.items {
		p.open(t, j, places[i], &p.items[i])
	}
	running, stop := r.renew(ctx, c)
	p.run(running)
	stop()
	done, entries := p.over()
	if len(done) > 0 {
		r.turn(ctx, jobStoreRest, func() {
			for _, i := range done {
				place := places[i]
				results[place] = calls.Result(i, c.First+int64(place))
				c.Pending--
				c.Charged += p.items[i].Ticket.Settled.Charged
				if p.items[i].Err != nil {
					c.Failed++
				}
				polite(place)
			}
		})
		if err := r.settle(ctx, box, c, p, done, entries, results); err != nil {
			return err
		}
	} else {
		r.putBack(ctx, c)
	}
	if p.why != "" {
		r.delay(ctx, j, p.delay, p.why)
	}
	return nil
}

// settle stores the results of a pass with its entries, records these, and shows
// the results. Where it fails before the entries may be in the journal, nothing
// was charged; after that the chunk is finished by recover.
func (r *JobRunner) settle(ctx context.Context, box *jobBox, c *JobChunk, p *jobPass, done []int, entries []*Entry, results [][]byte) (err error) {
	r.storing.Lock()
	defer r.storing.Unlock()
	for _, e := range entries {
		e.Durable = true
	}
	r.turn(ctx, jobStoreRest, func() { err = r.computed(ctx, box, c, entries, results) })
	if err != nil {
		for _, i := range done {
			p.letGo(p.items[i].Ticket)
		}
		return err
	}
	r.turn(ctx, jobStoreRest, func() { err = r.record(ctx, p, done, entries) })
	if err != nil {
		return err
	}
	r.turn(ctx, jobStoreRest, func() { err = r.finish(ctx, c) })
	return err
}

// computed stores the results of a pass with the entries that it is to have.
func (r *JobRunner) computed(ctx context.Context, box *jobBox, c *JobChunk, entries []*Entry, results [][]byte) error {
	c.State, c.Pass, c.Position, c.Due = ChunkComputed, c.Pass+1, r.config.Journal.Position(), time.Time{}
	u := &ChunkUpdate{SetOutput: true, SetEntries: true}
	lines, err := encodeEntries(entries)
	if err == nil {
		u.Entries, err = box.seal(c, jobEntries, c.Pass, lines)
	}
	if err == nil {
		u.Output, err = box.seal(c, jobOutput, c.Pass, joinLines(results))
	}
	if err == nil {
		err = r.update(ctx, c, u)
	}
	return err
}

// record records entries of a pass and ends their items, and returns why one of
// them may not be recorded.
func (r *JobRunner) record(ctx context.Context, p *jobPass, done []int, entries []*Entry) (failed error) {
	errs := r.service.journal.RecordAll(ctx, entries)
	for n, i := range done {
		t := p.items[i].Ticket
		// The answer is in the chunk; what is not recorded yet will be.
		_ = r.service.conclude(ctx, t, t.ended.err, errs[n])
		t.ended = ended{}
		if errs[n] != nil {
			failed = errs[n]
		}
		polite(n)
	}
	return failed
}

// finish shows the results of a chunk whose entries are in the journal, or has
// the rest of its items run.
func (r *JobRunner) finish(ctx context.Context, c *JobChunk) error {
	u := &ChunkUpdate{SetEntries: true}
	c.State, c.Due = ChunkDone, time.Time{}
	if c.Pending > 0 {
		c.State, c.Due = ChunkQueued, r.service.clock()
	} else {
		u.SetInput = true // nobody needs it any more
	}
	return r.update(ctx, c, u)
}

// recoverBatch is how many chunks one look finishes: as many as a crash leaves.
const recoverBatch = 4 * maxJobChunks

// recover finishes chunks whose results this node has stored and of whose entries
// it does not know whether they are recorded: its journal does.
func (r *JobRunner) recover(ctx context.Context) {
	r.leave(false) // unless it turns out
	list, err := r.service.jobs.ComputedChunks(ctx, r.config.Node, recoverBatch)
	if !r.went(ctx, "looking for chunks to finish", err) || len(list) > 0 {
		r.leave(true)
	}
	for i := range list {
		c := &list[i]
		if ctx.Err() != nil || !r.keep(c) {
			continue
		}
		r.went(ctx, "finishing a chunk", r.witness(ctx, c.Tenant, c.Job, c.Number))
		r.drop(c)
	}
}

// witness records the entries of a chunk that the journal does not have.
func (r *JobRunner) witness(ctx context.Context, tenant, job uuid.UUID, number int) error {
	s := r.service
	c, err := s.jobs.Chunk(ctx, tenant, job, number)
	if err != nil || c.State != ChunkComputed || c.Owner != r.config.Node {
		return err // it was finished meanwhile
	}
	j, err := s.jobs.Job(ctx, tenant, job)
	if err != nil {
		return err
	}
	if r.config.Journal.Position() < c.Position {
		// It would be recorded a second time.
		return Errorf(KindInternal, "the journal of this node is not the one that knows of the chunk")
	}
	owner, err := s.tenants.Tenant(ctx, tenant)
	if err != nil {
		return err
	}
	box, err := s.openJobBox(ctx, owner, j)
	if err != nil {
		return err
	}
	defer box.close()
	text, err := box.open(c, jobEntries, c.Pass, c.Entries)
	if err != nil {
		return err
	}
	entries, err := decodeEntries(text)
	if err != nil {
		return err
	}
	lacking := make(map[uuid.UUID]*Entry, len(entries))
	for _, e := range entries {
		lacking[e.RequestID] = e
	}
	if err := r.config.Journal.Since(ctx, c.Position, func(request uuid.UUID) error {
		delete(lacking, request)
		return nil
	}); err != nil {
		return err
	}
	var rest []*Entry // in their order
	for _, e := range entries {
		if lacking[e.RequestID] != nil {
			rest = append(rest, e)
		}
	}
	record := func() []error { return s.journal.RecordAll(ctx, rest) }
	for _, err := range s.quota.Book(owner, rest, record) {
		if err != nil {
			return err
		}
	}
	return r.finish(ctx, c)
}
