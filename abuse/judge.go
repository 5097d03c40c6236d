package abuse

import (
	"math"
	"math/bits"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// measure is one of the measures of a window.
type measure int

// The measures, in the order in which signals are told.
const (
	newNetworks measure = iota
	addressEntropy
	newClient
	mixAll
	mixStrangers
	sizeAll
	sizeStrangers
	denials
	retries
	measureCount
)

type measures [measureCount]float32

// rule is when a measure is a signal, and when a gross one.
type rule struct {
	signal kms.AbuseSignal
	group  uint8
	// floor is what it must come to, and above which part of the highest usual
	// value, with margin more.
	floor, times, margin float32
	// gross and grossTimes are the same of a gross signal; 0: it is none.
	gross, grossTimes float32
}

// Groups of signals that are independent of each other.
const (
	groupWhere = iota
	groupWhat
	groupDoes
	groupEnds
	groupCount
)

// The least calls that tell something.
const (
	// fewCalls is how many calls a window, or its strangers, must have: with
	// fewer the divergence of a small sample is as large as that of a thief.
	fewCalls = 20
	// fewWindows is how many windows or samples with enough calls must have been
	// learnt to know how much the mix and the size differ from one to the next.
	fewWindows = 20
	// noticed is the part of a window's calls that networks and clients which are
	// not known must make to become usual: one call a minute of a thief does not
	// make way for more.
	noticed = 0.1
	// manyCalls is what the entropy of addresses and gross denials take.
	manyCalls = 100
	// bulkCalls and bulkTimes are when calls from new networks are a gross signal
	// by themselves: that many, and that much more than all calls ever were.
	// floodTimes is the same where new networks are usual.
	bulkCalls  = 300
	bulkTimes  = 3
	floodTimes = 5
	// unlearntNetworks are so many networks in a minute that they are gross for a
	// credential of which nothing is known: fleets begin with fewer.
	unlearntNetworks = 40
	// crowdTimes is how much more than all credentials together one has to come
	// too early.
	crowdTimes = 4
	// grossShare is the part of calls from new networks with which many new
	// networks are gross.
	grossShare = 0.3
)

// rules are the lines of the measures. They are set by the false positives of a
// week of usual traffic of many kinds and by the thefts of the tests: see
// docs/abuse.md.
var rules = [measureCount]rule{
	newNetworks:    {signal: kms.AbuseNetworks, group: groupWhere, floor: 1, times: 1.5, margin: 0.5, gross: 10, grossTimes: 3},
	addressEntropy: {signal: kms.AbuseAddresses, group: groupWhere, floor: 2.5, times: 1, margin: 1.5},
	newClient:      {signal: kms.AbuseClient, group: groupWhat, floor: 0.001, times: 1.5},
	mixAll:         {signal: kms.AbuseOperations, group: groupDoes, floor: 0.30, times: 1.25, margin: 0.05},
	mixStrangers:   {signal: kms.AbuseOperations, group: groupDoes, floor: 0.30, times: 1.25, margin: 0.05},
	sizeAll:        {signal: kms.AbuseSize, group: groupDoes, floor: 3, times: 1.25, margin: 0.5},
	sizeStrangers:  {signal: kms.AbuseSize, group: groupDoes, floor: 3, times: 1.25, margin: 0.5},
	denials:        {signal: kms.AbuseDenials, group: groupEnds, floor: 0.2, times: 2, gross: 0.8, grossTimes: 4},
	retries:        {signal: kms.AbuseRetries, group: groupEnds, floor: 0.3, times: 2},
}

// Flag says that a credential is suspicious.
type Flag struct {
	Tenant, Credential uuid.UUID
	At                 time.Time
	// Learnt tells whether it is known what is usual. Without, nothing should be
	// done beside telling.
	Learnt  bool
	Signals []kms.AbuseReading
}

// window adds up the two halves that are judged.
func (p *profile) window() window {
	w := p.now
	if p.before.period != w.period-1 || p.before.period == 0 {
		return w
	}
	b := &p.before
	w.all.plus(&b.all)
	w.strangers.plus(&b.strangers)
	w.away += b.away
	w.odd += b.odd
	w.both += b.both
	for i, n := range b.oddKinds {
		w.oddKinds[i] += min(n, math.MaxUint16-w.oddKinds[i])
	}
	w.unknown |= b.unknown
	return w
}

// distinct estimates how many networks that are not known called, by linear
// counting (Whang, Vander-Zanden, Taylor, 1990) in 64 bits; 64 is "64 or more".
func (w *window) distinct() float32 {
	n := bits.OnesCount64(w.unknown)
	if n == 64 {
		return 64
	}
	return float32(math.Min(64, math.Round(-64*math.Log(1-float64(n)/64))))
}

// entropy is that of the networks of the last half with enough calls, in bits.
// Networks that have no place count as one each call, up to as many as places.
func (p *profile) entropy() float32 {
	var most float32
	for _, w := range []*window{&p.now, &p.before} {
		if w.all.n < manyCalls/2 {
			continue
		}
		all := float64(w.all.n)
		var h float64
		for i := range w.networks {
			if n := float64(w.networks[i].calls()); n > 0 {
				h -= n / all * math.Log2(n/all)
			}
		}
		if w.others > 0 {
			each := float64(w.others) / halfNetworks
			h -= float64(w.others) / all * math.Log2(each/all)
		}
		most = max(most, float32(h))
	}
	return most
}

// divergence is the Jensen-Shannon divergence between a window's operations and
// the usual ones, 0 to 1.
func (b *baseline) divergence(c *calls) float32 {
	var usual float64
	for _, k := range b.kinds {
		usual += float64(k)
	}
	if usual == 0 || c.n == 0 {
		return 0
	}
	var sum float64
	for i := range b.kinds {
		p, q := float64(c.kinds[i])/float64(c.n), float64(b.kinds[i])/usual
		m := (p + q) / 2
		if p > 0 {
			sum += p * math.Log2(p/m)
		}
		if q > 0 {
			sum += q * math.Log2(q/m)
		}
	}
	return float32(sum / 2)
}

// shift is by how many doublings the mean size of calls differs from the usual.
func (b *baseline) shift(c *calls) float32 {
	if b.calls == 0 || c.n == 0 {
		return 0
	}
	return float32(math.Abs(float64(c.size)/float64(c.n) - float64(b.size)/float64(b.calls)))
}

func share(part, all uint32) float32 {
	if all == 0 {
		return 0
	}
	return float32(part) / float32(all)
}

// measure takes the measures of a window. Those that too few calls tell of are
// 0, and so are those for which a baseline is missing.
func (p *profile) measure(w *window, learnt bool) (m measures) {
	enough, strange := w.all.n >= fewCalls, w.strangers.n >= fewCalls
	m[newNetworks], m[newClient] = w.distinct(), share(w.odd, w.all.n)
	if w.all.n >= manyCalls/2 {
		m[addressEntropy] = p.entropy()
	}
	if enough {
		m[denials], m[retries] = share(w.all.deny, w.all.n), share(w.all.early, w.all.n)
	}
	if strange {
		m[denials] = max(m[denials], share(w.strangers.deny, w.strangers.n))
		m[retries] = max(m[retries], share(w.strangers.early, w.strangers.n))
	}
	if enough && learnt {
		m[mixAll], m[sizeAll] = p.base.divergence(&w.all), p.base.shift(&w.all)
	}
	if strange && learnt {
		m[mixStrangers], m[sizeStrangers] = p.base.divergence(&w.strangers), p.base.shift(&w.strangers)
	}
	return m
}

// judge measures the window; it returns a flag when that is suspicious, and
// otherwise notes the measures, which are usual once the half is over. crowd is
// the part of the calls of all credentials that came too early: when the service
// refuses many, careless clients retry, and nobody is a thief for it.
func (p *profile) judge(now int64, crowd float32) *Flag {
	p.turn(now)
	w := p.window()
	if w.all.n < fewStrange {
		return nil
	}
	learnt := p.base.learnt(now)
	m := p.measure(&w, learnt)
	if p.open() {
		for i, v := range m {
			p.suspects[i] = max(p.suspects[i], v)
		}
		return nil
	}
	if m[retries] <= crowdTimes*crowd {
		m[retries] = 0
	}
	signals, enough := p.signals(&w, &m, learnt)
	if e := p.weigh(&w, now); !enough && learnt && e.sum() >= enoughEvidence {
		signals, enough = e.readings(&w, &m, &p.base.peaks), true
	}
	if !enough {
		if w.all.n >= fewCalls {
			p.now.note(&w, &m)
		}
		return nil
	}
	// The node that cleared it last may be ahead in time.
	p.flagged, p.suspects, p.changed = max(now, p.cleared+1), m, true
	return &Flag{Tenant: p.tenant, Credential: p.credential, At: time.Unix(0, now), Learnt: learnt, Signals: signals}
}

// signals returns what is a signal, and whether that is enough for a flag.
func (p *profile) signals(w *window, m *measures, learnt bool) (list []kms.AbuseReading, enough bool) {
	var groups [groupCount]bool
	found := 0
	for i, v := range m {
		r, peak := &rules[i], p.base.peaks[i]
		gross := p.gross(measure(i), w, v, learnt)
		if !gross && (!learnt || v < r.floor || !p.tells(measure(i), w) || v <= peak*r.times+r.margin && !(measure(i) == newNetworks && w.elsewhere())) {
			continue
		}
		enough = enough || gross
		if !groups[r.group] {
			groups[r.group] = true
			found++
		}
		list = addReading(list, kms.AbuseReading{Signal: r.signal, Value: thousandths(v), Usual: thousandths(peak), Gross: gross})
	}
	return list, enough || found >= 2
}

// tells tells whether there are enough calls for a measure to be a signal, and
// enough like it before to know what is usual.
func (p *profile) tells(i measure, w *window) bool {
	switch i {
	case newNetworks:
		return w.away >= fewCalls && (w.elsewhere() || p.base.often.rare(p.base.often.networks) >= littleRare)
	case newClient:
		return w.odd >= fewCalls
	case mixAll, sizeAll:
		return p.base.windows >= fewWindows && !(w.odd < fewStrange && w.away > 0 && w.away < p.fewest(w, fewCalls))
	case mixStrangers, sizeStrangers:
		return p.base.windows >= fewWindows && w.strangers.n >= p.fewest(w, fewCalls)
	}
	return true
}

// elsewhere tells whether client software that is not known calls from nowhere
// but networks that are not known. New machines of a fleet have its software, and
// new software comes to machines that are there: both together are somebody
// else, however many networks are usual.
func (w *window) elsewhere() bool {
	return w.both >= fewCalls && share(w.both, w.odd) >= 0.9
}

// addReading keeps one reading of a signal, the higher one.
func addReading(list []kms.AbuseReading, r kms.AbuseReading) []kms.AbuseReading {
	for i := range list {
		if list[i].Signal == r.Signal {
			if r.Value > list[i].Value {
				list[i] = r
			}
			return list
		}
	}
	return append(list, r)
}

func thousandths(v float32) int64 { return int64(math.Round(float64(v) * 1000)) }

// gross tells whether a measure is a flag by itself.
func (p *profile) gross(i measure, w *window, v float32, learnt bool) bool {
	r, peak := &rules[i], p.base.peaks[i]
	switch i {
	case newNetworks:
		if !learnt {
			return v >= unlearntNetworks
		}
		bulk := float32(w.away)
		return v >= r.gross && v > peak*r.grossTimes && share(w.away, w.all.n) >= grossShare ||
			w.away >= bulkCalls && (bulk > floodTimes*p.base.busiest || bulk > bulkTimes*p.base.busiest && v > peak*r.times+r.margin)
	case denials:
		return w.all.n >= manyCalls && v >= r.gross && v > peak*r.grossTimes
	}
	return false
}

// note keeps the measures of a window that is not suspicious with its half, with
// which they are learnt. What is new counts only if there is enough of it.
func (w *window) note(whole *window, m *measures) {
	w.most = max(w.most, whole.all.n)
	for i, v := range m {
		if measure(i) == newNetworks && share(whole.away, whole.all.n) < noticed ||
			measure(i) == newClient && share(whole.odd, whole.all.n) < noticed {
			continue
		}
		w.measured[i] = max(w.measured[i], v)
	}
}

// getUsedTo raises the highest usual measures to those of a half.
func (b *baseline) getUsedTo(w *window, at int64) {
	for i, v := range w.measured {
		if at-b.born < int64(warmUp) && (measure(i) == newNetworks || measure(i) == newClient) {
			continue
		}
		b.peaks[i] = max(b.peaks[i], v)
	}
	// The mix of strangers is usual where that of all calls is.
	b.peaks[mixStrangers] = max(b.peaks[mixStrangers], b.peaks[mixAll])
	b.peaks[sizeStrangers] = max(b.peaks[sizeStrangers], b.peaks[sizeAll])
	b.busiest = max(b.busiest, float32(w.most))
	if w.most >= fewCalls && b.learnt(at) {
		b.windows++
	}
}
