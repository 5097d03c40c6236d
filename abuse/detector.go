package abuse

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"uuid"
)

const (
	// MaxCredentials is how many credentials a Detector keeps at most: 200 MiB.
	MaxCredentials = 100_000

	// shards is the number of locks. A look holds one for as long as it judges
	// its 390 credentials, well below a millisecond.
	shards = 256
)

// Detector watches credentials. It is safe for concurrent use.
type Detector struct {
	perShard int
	crowd    atomic.Uint32 // bits of the float32: see profile.judge; as of the last look
	shards   [shards]shard
}

type shard struct {
	mu     sync.Mutex // guards the rest and its profiles
	all    map[uuid.UUID]*profile
	newest *profile // by their last calls
	oldest *profile

	_ [24]byte // keeps two locks off one 64-byte cache line
}

// NewDetector makes a Detector of up to a number of credentials, a little more
// for its shards.
func NewDetector(credentials int) *Detector {
	d := &Detector{perShard: max((credentials+shards-1)/shards, 1)}
	for i := range d.shards {
		d.shards[i].all = make(map[uuid.UUID]*profile)
	}
	return d
}

func (d *Detector) shard(id uuid.UUID) *shard { return &d.shards[id[15]] }

// Observe counts a call. Calls may come a little out of order.
func (d *Detector) Observe(o *Observation) {
	s := d.shard(o.Credential)
	s.mu.Lock()
	p := s.all[o.Credential]
	if p == nil {
		p = s.admit(o.Tenant, o.Credential, d.perShard)
	}
	s.touch(p)
	p.observe(o)
	s.mu.Unlock()
}

// admit makes a profile, in the place of the one that has not called for
// longest when there are enough.
func (s *shard) admit(tenant, credential uuid.UUID, most int) *profile {
	var p *profile
	if len(s.all) >= most {
		p = s.oldest
		s.unlink(p)
		delete(s.all, p.credential)
		*p = profile{}
	} else {
		p = new(profile)
	}
	p.tenant, p.credential = tenant, credential
	s.all[credential] = p
	s.link(p)
	return p
}

// touch makes a profile the newest.
func (s *shard) touch(p *profile) {
	if s.newest != p {
		s.unlink(p)
		s.link(p)
	}
}

func (s *shard) link(p *profile) {
	p.older, p.newer = s.newest, nil
	if s.newest != nil {
		s.newest.newer = p
	}
	s.newest = p
	if s.oldest == nil {
		s.oldest = p
	}
}

func (s *shard) unlink(p *profile) {
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		s.newest = p.older
	}
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		s.oldest = p.newer
	}
}

// Look judges every credential that called in the last minute and returns those
// that are suspicious, each once until it is cleared. A profile is not judged
// before what is stored of it was merged.
func (d *Detector) Look(now time.Time) (flags []Flag) {
	at := now.UnixNano()
	crowd := math.Float32frombits(d.crowd.Load())
	var all, early uint32
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		for p := s.newest; p != nil && p.last > at-2*half; p = p.older {
			all += p.now.all.n + p.before.all.n
			early += p.now.all.early + p.before.all.early
			if !p.loaded {
				continue
			}
			if f := p.judge(at, crowd); f != nil {
				flags = append(flags, *f)
			}
		}
		s.mu.Unlock()
	}
	d.crowd.Store(math.Float32bits(share(early, all)))
	return flags
}

// Credential names a credential and its tenant.
type Credential struct{ Tenant, Credential uuid.UUID }

// Unknown returns up to limit of the credentials that called, newest first by
// shard, of which what is stored was not merged yet.
func (d *Detector) Unknown(limit int) (list []Credential) {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		for p := s.newest; p != nil && len(list) < limit; p = p.older {
			if !p.loaded {
				list = append(list, Credential{p.tenant, p.credential})
			}
		}
		s.mu.Unlock()
	}
	return list
}

// Merge merges what is stored of a credential, nil for nothing, and lets it be
// judged from now on. It is for a credential that Unknown returned; one that
// was forgotten meanwhile stays so. An error says that the document is none; then
// nothing was merged, and it is judged by what this process has seen.
func (d *Detector) Merge(credential uuid.UUID, document []byte) error {
	var stored baseline
	var err error
	if document != nil {
		stored, err = parseBaseline(document)
	}
	s := d.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[credential]
	if p == nil {
		return err
	}
	p.loaded = true
	if document != nil && err == nil {
		p.base.merge(&stored)
		p.before, p.now = window{}, window{} // they took all for new
	}
	return err
}

// Forgive tells the detector that a flag of its own was not kept, because
// another API node's was or the credential is gone: it is judged again by what
// its record says.
func (d *Detector) Forgive(credential uuid.UUID) {
	s := d.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[credential]; p != nil {
		p.flagged = p.cleared
	}
}

// Stored is a baseline to store.
type Stored struct {
	Credential
	Document []byte
}

// Changed returns up to limit of the baselines that have changed since they were
// returned last, and counts them as unchanged. Those that were not merged with
// what is stored yet, or are of few calls, wait.
func (d *Detector) Changed(limit int) (list []Stored) {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		for p := s.oldest; p != nil && len(list) < limit; p = p.newer {
			if p.changed && p.loaded {
				p.changed = false
				list = append(list, Stored{Credential{p.tenant, p.credential}, p.base.document()})
			}
		}
		s.mu.Unlock()
	}
	return list
}

// Unstored makes a baseline changed again, as it could not be stored.
func (d *Detector) Unstored(credential uuid.UUID) {
	s := d.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[credential]; p != nil {
		p.changed = true
	}
}

// Len returns how many credentials are watched.
func (d *Detector) Len() (n int) {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		n += len(s.all)
		s.mu.Unlock()
	}
	return n
}
