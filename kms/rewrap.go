package kms

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"uuid"
)

// After a domain's roots were replaced, everything that is stored under the
// earlier ones opens still. Rewrapping moves it to the newest: first the
// tenants' sealing keys, each one change of one row, then the versions of keys,
// key by key. What is at the newest generation is passed over, so that
// rewrapping can be interrupted and repeated; a service may run beside it, as
// the material stays the same and both forms open. The journal gets an intent
// and an outcome for every tenant's sealing key, and for the keys of every
// tenant together, with the number of versions.

const (
	// DefaultRewrapBatch is how many keys are read at once.
	DefaultRewrapBatch = 100
	// rewrapWorkers is how many keys are under way at once: while the token
	// works on one, the database stores others.
	rewrapWorkers = 8
	// rewrapTimeout bounds the work on one row: a key can have some thousand
	// versions.
	rewrapTimeout = time.Minute
	// rewrapAttempts bounds the tries to change a row that others change at
	// the same time; each one lost means that another change got through.
	rewrapAttempts = 10
	// rootsComponent is who acts, in the journal.
	rootsComponent = "roots"
)

// Rewrap says what to rewrap and with what.
type Rewrap struct {
	Domain uuid.UUID
	Device RootDevice
	Store  RootStore
	// Batch is how many keys are read at once, 1 to MaxPageSize.
	Batch int
	// Progress is told after each row, one at a time; nil for nobody. It must
	// be fast.
	Progress func(RewrapProgress)
}

// RewrapProgress is how far rewrapping has come.
type RewrapProgress struct {
	Tenants, Versions int // rewrapped
	Failed            int // tenants and versions that could not be
	Total             RootUse
	Elapsed           time.Duration
}

// Rate is how many versions a second were rewrapped.
func (p RewrapProgress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Versions) / p.Elapsed.Seconds()
}

// Left is how long the rest takes at the present rate; 0 when that is not known.
func (p RewrapProgress) Left() time.Duration {
	rate := p.Rate()
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(max(p.Total.Versions-p.Versions-p.Failed, 0)) / rate * float64(time.Second))
}

// RootUse counts what is stored under the roots of one generation.
type RootUse struct {
	Tenants  int // by their sealing keys
	Versions int // of keys
}

// RootUses counts, by generation, the tenants and versions of a domain that
// need its roots. Deleted tenants need none: they have no sealing key.
func (s *Service) RootUses(ctx context.Context, domain uuid.UUID, device RootDevice) (map[uint32]RootUse, error) {
	uses := make(map[uint32]RootUse)
	err := s.eachTenant(ctx, domain, func(t *Tenant) error {
		u := uses[t.Sealing.RootGeneration]
		u.Tenants++
		uses[t.Sealing.RootGeneration] = u
		return s.eachPage(ctx, t, MaxPageSize, func(keys []*Key) error {
			for _, k := range keys {
				for _, v := range k.Versions {
					if root := device.BlobRoot(v.Blob); root != 0 {
						u := uses[root]
						u.Versions++
						uses[root] = u
					}
				}
			}
			return nil
		})
	})
	return uses, err
}

// eachTenant calls f with the domain's tenants that were not deleted.
func (s *Service) eachTenant(ctx context.Context, domain uuid.UUID, f func(*Tenant) error) error {
	page := Page{Size: MaxPageSize}
	for {
		tenants, next, err := s.tenants.ListTenants(ctx, page)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			if t.Deleted() || t.Sealing.Domain != domain {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(t); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		page.Token = next
	}
}

// eachPage calls f with a tenant's keys, some at a time.
func (s *Service) eachPage(ctx context.Context, t *Tenant, size int, f func([]*Key) error) error {
	page := Page{Size: size}
	for {
		keys, next, err := s.keys.ListKeys(ctx, t.ID, "", page)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(keys); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		page.Token = next
	}
}

// Rewrap brings all of a domain's material under its newest roots. A row that
// cannot be rewrapped is told to the log, counted, and keeps no other; with some
// of them the last error is returned at the end. When HSM, store or journal
// fail it ends at once. ctx ends it between two rows.
func (s *Service) Rewrap(ctx context.Context, r Rewrap) (RewrapProgress, error) {
	w := &rewrapping{service: s, Rewrap: r, newest: r.Device.Generation(r.Domain), began: s.clock()}
	uses, err := s.RootUses(ctx, r.Domain, r.Device)
	if err != nil {
		return w.done, err
	}
	for generation, u := range uses {
		if generation != w.newest {
			w.done.Total.Tenants += u.Tenants
			w.done.Total.Versions += u.Versions
		}
	}
	if err := s.eachTenant(ctx, r.Domain, func(t *Tenant) error { return w.sealingKey(ctx, t) }); err != nil {
		return w.done, err
	}
	if err := s.eachTenant(ctx, r.Domain, func(t *Tenant) error { return w.keysOf(ctx, t) }); err != nil {
		return w.done, err
	}
	w.tell()
	return w.done, w.failure
}

// rewrapping is a Rewrap under way.
type rewrapping struct {
	Rewrap
	service *Service
	newest  uint32
	began   time.Time

	mu      sync.Mutex // guards the rest, and the entry of the present tenant's keys
	done    RewrapProgress
	failure error // the last of a row
}

// tell tells the progress; mu is held, or nothing else runs.
func (w *rewrapping) tell() {
	w.done.Elapsed = w.service.clock().Sub(w.began)
	if w.Progress != nil {
		w.Progress(w.done)
	}
}

// sealingKey rewraps a tenant's sealing key.
func (w *rewrapping) sealingKey(ctx context.Context, t *Tenant) error {
	if t.Sealing.RootGeneration == w.newest {
		return nil
	}
	entry := w.entry(OpRewrapTenant, t)
	if err := w.record(ctx, entry, PhaseIntent, nil); err != nil {
		return err
	}
	err := retryRewrap(ctx, func(ctx context.Context) error {
		return w.Store.RewrapTenant(ctx, t.ID, func(t *Tenant) (*SealingKey, error) {
			if t.Deleted() || t.Sealing.RootGeneration == w.newest {
				return nil, nil
			}
			k, err := w.Device.RewrapSealingKey(ctx, t.Sealing)
			return &k, err
		})
	})
	if jerr := w.record(ctx, entry, PhaseOutcome, err); jerr != nil {
		return jerr
	}
	if err != nil {
		return w.failed(err, slog.String("tenant", t.ID.String()))
	}
	w.done.Tenants++
	w.tell()
	return nil
}

// keysOf rewraps the versions of a tenant's keys.
func (w *rewrapping) keysOf(ctx context.Context, t *Tenant) error {
	var entry *Entry // from the first key on
	err := w.service.eachPage(ctx, t, w.Batch, func(keys []*Key) error {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k *Key) bool { return len(w.outdated(k)) == 0 })
		if len(keys) == 0 {
			return nil
		}
		if entry == nil {
			entry = w.entry(OpRewrapKeys, t)
			if err := w.record(ctx, entry, PhaseIntent, nil); err != nil {
				return err
			}
		}
		return w.page(ctx, entry, keys)
	})
	if entry == nil {
		return err
	}
	outcome := err
	if ctx.Err() != nil {
		outcome = nil // it ended between two rows
	}
	return cmp.Or(w.record(ctx, entry, PhaseOutcome, outcome), err)
}

// page rewraps the versions of some keys, several at once. After an error none
// is begun any more.
func (w *rewrapping) page(ctx context.Context, entry *Entry, keys []*Key) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(rewrapWorkers, len(keys)) {
		workers.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(keys) {
					return
				}
				err := ctx.Err()
				if err == nil {
					err = w.key(ctx, entry, keys[i])
				}
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *rewrapping) outdated(k *Key) (versions []*Version) {
	for _, v := range k.Versions {
		if root := w.Device.BlobRoot(v.Blob); root != 0 && root != w.newest {
			versions = append(versions, v)
		}
	}
	return versions
}

// key rewraps the versions of one key. One that cannot be keeps the others of
// the key as they are.
func (w *rewrapping) key(ctx context.Context, entry *Entry, k *Key) error {
	moved := 0
	err := retryRewrap(ctx, func(ctx context.Context) error {
		return w.Store.RewrapKey(ctx, k.Tenant.ID, k.ID, func(k *Key) (map[uint32][]byte, error) {
			moved = 0
			if k.Tenant.Deleted() {
				return nil, nil
			}
			var blobs map[uint32][]byte
			for _, v := range w.outdated(k) {
				blob, err := w.Device.RewrapVersion(ctx, k, v)
				if err != nil {
					return nil, err
				}
				if blobs == nil {
					blobs = make(map[uint32][]byte)
				}
				blobs[v.Number] = blob
			}
			moved = len(blobs)
			return blobs, nil
		})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		entry.Count += uint32(moved)
		w.done.Versions += moved
		w.tell()
		return nil
	case KindOf(err) == KindNotFound:
		return nil // destroyed meanwhile
	}
	return w.failed(err, slog.String("tenant", k.Tenant.ID.String()), slog.String("key", k.ID.String()))
}

// retryRewrap tries again while others change the row at the same time. What is
// begun is finished: the end of ctx does not end it.
func retryRewrap(ctx context.Context, try func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rewrapTimeout)
	defer cancel()
	for range rewrapAttempts {
		if err = try(ctx); err == nil || KindOf(err) != KindPreconditionFailed {
			return err
		}
	}
	return err
}

// failed counts a row that could not be rewrapped; mu is held, or nothing else
// runs. It returns the errors after which the next row would fail as well.
func (w *rewrapping) failed(err error, row ...slog.Attr) error {
	switch KindOf(err) {
	case KindHSMUnavailable, KindStoreUnavailable:
		return err
	}
	w.done.Failed++
	w.failure = err
	w.service.log.LogAttrs(context.Background(), slog.LevelError, "not rewrapped", append(row, slog.Any("error", err))...)
	return nil
}

func (w *rewrapping) entry(op Op, t *Tenant) *Entry {
	e := rootsEntry(op, w.service.clock())
	e.Tenant, e.Project, e.Resource, e.Revision = t.ID, DefaultProject, t.ID.String(), t.Revision
	return e
}

func (w *rewrapping) record(ctx context.Context, e *Entry, phase Phase, err error) error {
	return w.service.recordOwn(ctx, e, phase, err)
}

func rootsEntry(op Op, now time.Time) *Entry {
	return &Entry{Time: now, RequestID: newID(), Op: op, Component: rootsComponent, Settlement: Cancelled}
}

// recordOwn records a phase of what the service does outside of any request.
func (s *Service) recordOwn(ctx context.Context, e *Entry, phase Phase, err error) error {
	now := s.clock()
	e.Phase, e.Total, e.Time, e.PolicyVersion = phase, now.Sub(e.Time), now, s.engine.PolicyVersion()
	if phase == PhaseOutcome {
		e.Revision, e.Outcome = 0, "ok"
		if err != nil {
			e.Outcome = KindOf(err).String()
		}
	}
	if err := s.journal.Record(ctx, e); err != nil {
		return Wrap(KindAuditUnavailable, err, "the journal cannot record the change")
	}
	return nil
}

// RetireRoots has the roots of an earlier generation destroyed, unless something
// is stored under them: KindConflict. Both ends are in the journal.
func (s *Service) RetireRoots(ctx context.Context, domain uuid.UUID, generation uint32, device RootDevice, destroy func() error) error {
	e := rootsEntry(OpRetireRoots, s.clock())
	e.Resource, e.Version = domain.String(), generation
	system, err := s.tenants.TenantByRef(ctx, SystemTenantName)
	if err != nil {
		return err
	}
	e.Tenant = system.ID
	if err := s.recordOwn(ctx, e, PhaseIntent, nil); err != nil {
		return err
	}
	err = s.retireRoots(ctx, domain, generation, device, destroy)
	return cmp.Or(s.recordOwn(ctx, e, PhaseOutcome, err), err)
}

func (s *Service) retireRoots(ctx context.Context, domain uuid.UUID, generation uint32, device RootDevice, destroy func() error) error {
	uses, err := s.RootUses(ctx, domain, device)
	if err != nil {
		return err
	}
	if u := uses[generation]; u != (RootUse{}) {
		return Errorf(KindConflict, "%d tenants and %d versions of keys are stored under the roots of generation %d; rewrap them first",
			u.Tenants, u.Versions, generation)
	}
	return destroy()
}
