package abuse

import (
	"math"
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
	limit  int64
	kept   atomic.Int64
	crowd  atomic.Uint32 // bits of the float32: see profile.judge; as of the last look
	stored atomic.Uint32 // the shard with which Changed goes on
	shards [shards]shard
}

// NewDetector makes a Detector of up to a number of credentials, and one for each
// shard.
func NewDetector(credentials int) *Detector {
	return &Detector{limit: int64(credentials)}
}

func (d *Detector) shard(id uuid.UUID) *shard { return &d.shards[id[15]] }

// Observe counts a call. Calls may come a little out of order.
func (d *Detector) Observe(o *Observation) {
	s := d.shard(o.Credential)
	s.mu.Lock()
	i := s.place(o.Credential)
	if i < 0 {
		i = s.admit(o.Tenant, o.Credential, d.more(s))
	}
	at := o.At.UnixNano()
	s.last[i] = max(s.last[i], at)
	s.at(i).observe(o, at)
	s.mu.Unlock()
}

// more tells whether a shard may keep one more, and counts it. There is one limit
// for all of them: with a part of it for each, those that have more credentials
// than others would forget some with each round of calls and learn none of them.
func (d *Detector) more(s *shard) bool {
	if d.kept.Add(1) <= d.limit || len(s.last) == 0 {
		return true
	}
	d.kept.Add(-1)
	return false
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
		for j, p := range s.all() {
			if s.last[j] <= at-2*half {
				continue
			}
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

// Unknown returns up to limit of the credentials that called of which what is
// stored was not merged yet.
func (d *Detector) Unknown(limit int) (list []Credential) {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		for _, p := range s.all() {
			if !p.loaded && len(list) < limit {
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
	p := s.find(credential)
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
	if p := s.find(credential); p != nil {
		p.flagged = p.cleared
	}
}

// Stored is a baseline to store.
type Stored struct {
	Credential
	Document []byte
}

// Changed returns up to limit of the baselines that have changed since they were
// returned last, and counts them as unchanged. It goes on with the shard at which
// it stopped, so that each has its turn, however many change all the time. Those
// that were not merged with what is stored yet, or are of few calls, wait.
func (d *Detector) Changed(limit int) (list []Stored) {
	first := d.stored.Load()
	for i := range uint32(shards) {
		d.stored.Store((first + i) % shards)
		s := &d.shards[(first+i)%shards]
		s.mu.Lock()
		for _, p := range s.all() {
			if p.changed && p.loaded && len(list) < limit {
				p.changed = false
				list = append(list, Stored{Credential{p.tenant, p.credential}, p.base.document()})
			}
		}
		s.mu.Unlock()
		if len(list) >= limit {
			break
		}
	}
	return list
}

// Unstored makes a baseline changed again, as it could not be stored.
func (d *Detector) Unstored(credential uuid.UUID) {
	s := d.shard(credential)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.find(credential); p != nil {
		p.changed = true
	}
}

// Len returns how many credentials are watched.
func (d *Detector) Len() int { return int(d.kept.Load()) }
