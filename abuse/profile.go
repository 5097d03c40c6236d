package abuse

import (
	"math"
	"time"
	"uuid"
)

const (
	// half is the length of a half of what is judged.
	half = int64(30 * time.Second)

	// halfLife is that of what is usual: a week has all that comes by the day of
	// the week.
	halfLife = 7 * 24 * time.Hour

	// noveltyLife is the half-life of how much that is new is usual. A fleet that
	// grows every day keeps it up; a server that moved once is not expected to
	// move again.
	noveltyLife = 24 * time.Hour

	// decayStep is how often weights are decayed: what comes in between is counted
	// as at its beginning, which is wrong by less than a thousandth.
	decayStep = 10 * time.Minute

	// probation is for how long what is new is not known yet.
	probation = 6 * time.Hour

	// learnTime and learnCalls are how old a profile must be, and how many calls
	// it must have seen, to tell what is usual.
	learnTime  = 24 * time.Hour
	learnCalls = 500

	// warmUp is for how long at first everything is new and nothing is learnt
	// of that.
	warmUp = time.Hour

	// The sizes of a profile's tables. Those that were met least are forgotten.
	maxNetworks = 28
	maxClients  = 8
	// halfNetworks and halfClients are of half a minute; what does not fit counts
	// together.
	halfNetworks = 10
	halfClients  = 4
)

// profile is what is known of a credential. Its shard's lock guards it. A
// chunk of them is of a size class of 1,792 bytes each, so that with its place in
// the shard one is within 2 KiB. What each call reads and writes comes first, in four
// lines of 64 bytes, and has no pointers.
type profile struct {
	credential, tenant uuid.UUID

	flagged int64
	cleared int64 // that was acted on
	until   int64 // ns to which the last Retry-After lasts
	changed bool  // since it was last taken to be stored
	loaded  bool  // what is stored was merged

	now      window
	base     baseline
	before   window
	suspects measures // the highest under the open flag
	sample   sample
}

// baseline is what is usual, and what is stored of a profile. Weights are calls,
// decayed to At.
type baseline struct {
	born     int64 // ns of the first call
	at       int64 // ns to which the weights are decayed
	calls    float32
	size     float32 // sum of Size over calls
	kinds    [operations]float32
	networks [maxNetworks]seen
	clients  [maxClients]seen
	peaks    measures // the highest, decayed
	busiest  float32  // the most calls in a window, decayed
	windows  float32  // with enough calls that were learnt, one each half minute, decayed
	often    frequencies
}

// seen is a network or client that called.
type seen struct {
	hash   uint32 // 0: free
	weight float32
	mark   uint32 // see seenAt
}

// suspectMark is the bit of a mark that says that it came under an open flag.
const suspectMark = 1 << 31

// seenAt makes an entry of something that was first met at a minute since 1970,
// below 2^31; 0: before the profile was learnt.
func seenAt(hash uint32, weight float32, since uint32, suspect bool) seen {
	s := seen{hash, weight, since &^ suspectMark}
	if suspect {
		s.mark |= suspectMark
	}
	return s
}

func (s *seen) suspect() bool { return s.mark&suspectMark != 0 }

func (s *seen) since() uint32 { return s.mark &^ suspectMark }

// window is half a minute of calls.
type window struct {
	period    int64 // of half minutes since 1970; 0: none
	clients   [halfClients]counted
	all       calls
	networks  [halfNetworks]counted
	strangers calls
	away      uint32             // strangers' calls from networks that are not known
	odd       uint32             // calls of clients whose name is not known
	both      uint32             // of those, from networks that are not known
	oddKinds  [operations]uint16 // of odd, as far as they fit
	unknown   uint64             // a bit for a network that is not known: see distinct
	others    uint32             // calls of networks that have no place
	most      uint32             // calls that a window with this half was judged by
	measured  measures
}

// counted is a network or client of a window. Of count the upper two bits are
// what is known of it, and the others its calls.
type counted struct {
	hash  uint32 // 0: free
	count uint32
}

const stateBits = 30

func (c *counted) calls() uint32 { return c.count & (1<<stateBits - 1) }

func (c *counted) state() uint32 { return c.count >> stateBits }

// What is known of a network or client.
const (
	stateKnown   = iota
	stateVersion // the client's name is known and its version is not
	stateNew
)

// calls counts calls.
type calls struct {
	n     uint32
	size  uint32 // sum
	deny  uint32
	early uint32
	kinds [operations]uint32
}

func (c *calls) add(o *Observation, early uint32) {
	c.n++
	c.size += uint32(o.Size)
	c.kinds[o.Operation%operations]++
	c.early += early
	if o.Outcome == Denied {
		c.deny++
	}
}

func (c *calls) plus(d *calls) {
	c.n += d.n
	c.size += d.size
	c.deny += d.deny
	c.early += d.early
	for i := range c.kinds {
		c.kinds[i] += d.kinds[i]
	}
}

// sample gathers halves of fewer than fewCalls calls until they are as many, so
// that it is learnt how much a seldom caller's mix and size differ from time to
// time.
type sample struct {
	n     uint8 // below 2*fewCalls
	size  uint16
	kinds [operations]uint8
}

// add adds a half; it returns all that was gathered when that is enough.
func (s *sample) add(c *calls) (whole calls, ok bool) {
	s.n += uint8(c.n)
	s.size += uint16(c.size)
	for i, n := range c.kinds {
		s.kinds[i] += uint8(n)
	}
	if s.n < fewCalls {
		return whole, false
	}
	whole.n, whole.size = uint32(s.n), uint32(s.size)
	for i, n := range s.kinds {
		whole.kinds[i] = uint32(n)
	}
	*s = sample{}
	return whole, true
}

func minutesOf(ns int64) uint32 { return uint32(ns / int64(time.Minute)) }

// nonZero keeps a hash off the value that means none.
func nonZero(h uint32) uint32 {
	if h == 0 {
		return 1
	}
	return h
}

// learnt tells whether the baseline tells what is usual.
func (b *baseline) learnt(now int64) bool {
	return b.calls >= learnCalls && now-b.born >= int64(learnTime)
}

// known tells whether an entry is of something known.
func (s *seen) known(minute uint32) bool {
	return !s.suspect() && (s.since() == 0 || minute-s.since() >= uint32(probation/time.Minute))
}

// network tells what is known of a network.
func (b *baseline) network(hash, minute uint32) uint32 {
	for i := range b.networks {
		if s := &b.networks[i]; s.hash == hash {
			if s.known(minute) {
				return stateKnown
			}
			break
		}
	}
	return stateNew
}

// client tells what is known of a client.
func (b *baseline) client(c Client, minute uint32) uint32 {
	state := uint32(stateNew)
	for i := range b.clients {
		s := &b.clients[i]
		if s.hash == 0 || !s.known(minute) {
			continue
		}
		if s.hash == nonZero(uint32(c)) {
			return stateKnown
		}
		if Client(s.hash).name() == c.name() {
			state = stateVersion
		}
	}
	return state
}

// observe counts a call at a time in ns.
func (p *profile) observe(o *Observation, at int64) {
	if p.base.born == 0 {
		p.base.born, p.base.at = at, at
	}
	p.standing(o)
	p.turn(at)
	early := uint32(0)
	if at < p.until {
		early = 1
	}
	if o.RetryAfter > 0 && o.Outcome == Refused {
		p.until = max(p.until, at+int64(o.RetryAfter))
	}
	w := &p.now
	w.all.add(o, early)
	network := p.meetNetwork(w, nonZero(o.Network))
	client := p.meetClient(w, o.Client)
	if client == stateNew {
		w.odd++
		if n := &w.oddKinds[o.Operation%operations]; *n < math.MaxUint16 {
			*n++
		}
	}
	if network == stateNew {
		w.away++
		w.unknown |= 1 << (o.Network >> 26)
		if client == stateNew {
			w.both++
		}
	}
	if network == stateNew || client == stateNew {
		w.strangers.add(o, early)
	}
}

// standing follows what the credential's record says of flags.
func (p *profile) standing(o *Observation) {
	if !o.Flagged.IsZero() && o.Flagged.UnixNano() > max(p.flagged, p.cleared) {
		p.flagged = o.Flagged.UnixNano() // by another API node
	}
	if ends := o.Ends; !ends.IsZero() && !o.At.Before(ends) && p.open() && p.flagged <= ends.UnixNano() {
		// Nobody said that it is in order: suspects stay suspects.
		p.cleared = ends.UnixNano()
		p.forget()
	}
	if o.Cleared.IsZero() {
		return
	}
	if cleared := o.Cleared.UnixNano(); cleared > p.cleared {
		p.cleared = cleared
		p.adopt()
	}
}

// forget begins to look anew after a flag.
func (p *profile) forget() {
	p.suspects = measures{}
	p.before, p.now = window{}, window{}
	p.changed = true
}

// open tells whether a flag is open, under which nothing is learnt.
func (p *profile) open() bool { return p.flagged > p.cleared }

// adopt makes what was seen under a flag known, as somebody has found it to be
// in order.
func (p *profile) adopt() {
	b := &p.base
	for _, table := range [][]seen{b.networks[:], b.clients[:]} {
		for i := range table {
			if s := &table[i]; s.suspect() {
				s.mark = 0
			}
		}
	}
	for i, v := range p.suspects {
		b.peaks[i] = max(b.peaks[i], v)
	}
	p.forget()
}

// meetNetwork counts a call of a network in the window and tells what is known
// of it.
func (p *profile) meetNetwork(w *window, hash uint32) uint32 {
	for i := range w.networks {
		c := &w.networks[i]
		switch c.hash {
		case hash:
			c.count++
			return c.state()
		case 0:
			*c = counted{hash, 1 | p.base.network(hash, minutesOf(w.period*half))<<stateBits}
			return c.state()
		}
	}
	w.others++
	return p.base.network(hash, minutesOf(w.period*half))
}

func (p *profile) meetClient(w *window, client Client) uint32 {
	hash := nonZero(uint32(client))
	for i := range w.clients {
		c := &w.clients[i]
		switch c.hash {
		case hash:
			c.count++
			return c.state()
		case 0:
			*c = counted{hash, 1 | p.base.client(client, minutesOf(w.period*half))<<stateBits}
			return c.state()
		}
	}
	return p.base.client(client, minutesOf(w.period*half))
}

// turn begins a new half of a minute when it is time, and learns the one that
// leaves the window: what is judged is not learnt yet.
func (p *profile) turn(at int64) {
	period := at / half
	switch {
	case period <= p.now.period:
		return
	case p.now.period == 0:
	case period == p.now.period+1:
		p.learn(&p.before)
		p.before = p.now
	default:
		p.learn(&p.before)
		p.learn(&p.now)
		p.before = window{}
	}
	p.now = window{period: period}
}

// learn makes half a minute part of what is usual, or, under a flag, notes its
// strangers as suspects.
func (p *profile) learn(w *window) {
	if w.all.n == 0 {
		return
	}
	b := &p.base
	at := (w.period + 1) * half
	if at-b.at >= int64(decayStep) {
		b.decay(at)
	}
	p.changed = true
	suspect, since := p.open(), minutesOf(w.period*half)
	if !b.learnt(at) {
		since = 0
	}
	for i := range w.networks {
		if c := &w.networks[i]; c.hash != 0 {
			meet(b.networks[:], c, since, suspect)
		}
	}
	for i := range w.clients {
		if c := &w.clients[i]; c.hash != 0 {
			meet(b.clients[:], c, since, suspect)
		}
	}
	if suspect {
		return
	}
	b.calls += float32(w.all.n)
	b.size += float32(w.all.size)
	if w.all.n < fewCalls {
		if c, ok := p.sample.add(&w.all); ok && b.learnt(at) {
			w.measured[mixAll] = max(w.measured[mixAll], b.divergence(&c))
			w.measured[sizeAll] = max(w.measured[sizeAll], b.shift(&c))
			w.most = max(w.most, fewCalls)
		}
	}
	b.getUsedTo(w, at)
	b.often.learn(w, at-b.born)
	for i, n := range w.all.kinds {
		b.kinds[i] += float32(n)
	}
}

// meet adds the calls of a network or client to its entry. A new one takes a
// free place or that of the one that was met least; under a flag only a free
// one or that of another suspect.
func meet(table []seen, c *counted, since uint32, suspect bool) {
	least := -1
	for i := range table {
		s := &table[i]
		if s.hash == c.hash {
			if !suspect || s.suspect() {
				s.weight += float32(c.calls())
			}
			return
		}
		if suspect && s.hash != 0 && !s.suspect() {
			continue
		}
		if least < 0 || s.hash == 0 && table[least].hash != 0 || (s.hash == 0) == (table[least].hash == 0) && s.weight < table[least].weight {
			least = i
		}
	}
	if least >= 0 {
		table[least] = seenAt(c.hash, float32(c.calls()), since, suspect)
	}
}

// decay brings the weights to a later time.
func (b *baseline) decay(to int64) {
	if to <= b.at {
		return
	}
	f := float32(math.Exp2(-float64(to-b.at) / float64(halfLife)))
	b.at = to
	b.calls *= f
	b.size *= f
	b.busiest *= f
	b.windows *= f
	for i := range b.kinds {
		b.kinds[i] *= f
	}
	for i := range b.networks {
		b.networks[i].weight *= f
	}
	for i := range b.clients {
		b.clients[i].weight *= f
	}
	for i := range b.peaks {
		b.peaks[i] *= f
	}
	b.often.decay(f)
	novelty := float32(math.Pow(float64(f), float64(halfLife/noveltyLife)-1))
	b.peaks[newNetworks] *= novelty
	b.peaks[newClient] *= novelty
}
