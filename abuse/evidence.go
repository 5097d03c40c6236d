package abuse

import (
	"math"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Evidence adds up what is rare of a credential in the few calls of a stranger.
//
// Each thing that can be told of a half minute is an event that the credential
// usually has in some part of its halves: calls from a network that is not known,
// from software that is not known, of a kind of operations, mostly denied, at a
// time of the week. How rare an event is, is the logarithm of one over that part,
// in nats. Of things that have nothing to do with each other the sum is how rare
// it is that they come together, and, as a thief brings nearly all of them, it is
// the logarithm of the likelihood ratio of thief and owner (A. Wald, "Sequential
// Tests of Statistical Hypotheses", 1945). One rare thing is never enough: what
// is counted by single halves says little of how often a month end comes.
const (
	// enoughEvidence is the sum that makes a flag: rarer than once in the 20,160
	// halves of a week.
	enoughEvidence = 10
	// mostRare bounds what one event adds: rarer than in one of 1,100 halves, it
	// is not chance that brings it but a change, and a change brings others.
	mostRare = 7
	// mostHour bounds what the time of the week adds. It is not an event of its
	// own: people who work late do not steal.
	mostHour = 3
	// littleRare is the least that counts as one of two events.
	littleRare = 3

	// fewStrange is how many calls of strangers an event takes, and fewRare how
	// many of a kind of operations, or denied, from software that is not known.
	fewStrange = 5
	fewRare    = 3
	// rarePart is the part of a stranger's calls that is of rare kinds. New
	// software of the owner does mostly what the old one did.
	rarePart = 0.5
	// deniedPart is the part of the calls that is denied in a half that is mostly
	// denied. A half with half of that counts as usual for it.
	deniedPart = 0.5
)

// hourBins is how many times of the week are told apart: each three hours of
// weekdays, and each six of the weekend.
const hourBins = 8 + 4

// hourBin returns the time of the week, of UTC, and the part that it is of a week.
func hourBin(at int64) (bin int, part float64) {
	t := time.Unix(0, at).UTC()
	if day := t.Weekday(); day == time.Saturday || day == time.Sunday {
		return 8 + t.Hour()/6, 2.0 * 6 / (7 * 24)
	}
	return t.Hour() / 3, 5.0 * 3 / (7 * 24)
}

// frequencies are in how many halves with calls what can be evidence was usual.
// All are decayed as the baseline's weights are.
type frequencies struct {
	halves   float32 // with calls
	networks float32 // with calls from networks that are not known
	clients  float32 // with calls of client software whose name is not known
	denied   float32 // with a good part denied
	kinds    [operations]float32
	hours    [hourBins]float32
}

// rare tells in nats how rare an event is that so many of the halves had, 0 to
// mostRare. The half that is added is the estimator of Krichevsky and Trofimov
// (1981), which is right for events that were never seen.
func (f *frequencies) rare(had float32) float64 {
	return min(mostRare, max(0, math.Log((float64(f.halves)+1)/(float64(had)+0.5))))
}

// hour tells in nats how much less of the credential's halves come at a time of
// the week than of a thief's, who comes at any.
func (f *frequencies) hour(at int64) (nats, part float64) {
	bin, even := hourBin(at)
	part = (float64(f.hours[bin]) + 0.5) / (float64(f.halves) + hourBins*0.5)
	return min(mostHour, max(0, math.Log(even/part))), part
}

// learn counts a half. At first everything is new and tells nothing.
func (f *frequencies) learn(w *window, age int64) {
	if age < int64(warmUp) {
		return
	}
	f.halves++
	if share(w.away, w.all.n) >= noticed {
		f.networks++
	}
	if share(w.odd, w.all.n) >= noticed {
		f.clients++
	}
	if w.all.deny >= fewRare-1 && share(w.all.deny, w.all.n) >= deniedPart/2 {
		f.denied++
	}
	for i, n := range w.all.kinds {
		if n > 0 {
			f.kinds[i]++
		}
	}
	bin, _ := hourBin(w.period * half)
	f.hours[bin]++
}

// decay brings the frequencies to a later time.
func (f *frequencies) decay(by float32) {
	for _, n := range f.numbers() {
		*n *= by
	}
}

// numbers are what is stored, one after the other.
func (f *frequencies) numbers() []*float32 {
	list := []*float32{&f.halves, &f.networks, &f.clients, &f.denied}
	for i := range f.kinds {
		list = append(list, &f.kinds[i])
	}
	for i := range f.hours {
		list = append(list, &f.hours[i])
	}
	return list
}

// evidence is what is rare of the strangers of a window, in nats.
type evidence struct {
	network, client, kind, denied, hour float64
	part                                float64 // of the halves that come at this time of the week
}

// sum is all of it, 0 where it is not two events at least.
func (e *evidence) sum() float64 {
	events := 0
	for _, nats := range []float64{e.network, e.client, e.kind, e.denied} {
		if nats >= littleRare {
			events++
		}
	}
	if events < 2 {
		return 0
	}
	return e.network + e.client + e.kind + e.denied + e.hour
}

// weigh takes the evidence of a window.
func (p *profile) weigh(w *window, at int64) (e evidence) {
	s, f := &w.strangers, &p.base.often
	if s.n < fewStrange {
		return e
	}
	if w.away >= fewStrange {
		e.network = f.rare(f.networks)
	}
	if w.odd >= fewStrange {
		e.client = f.rare(f.clients)
	}
	// Both are evidence together only if the same calls have both.
	if w.both < fewStrange {
		if e.network < e.client {
			e.network = 0
		} else {
			e.client = 0
		}
	}
	stranger := w.away
	if w.odd >= fewStrange {
		stranger = w.odd
	}
	least, rare := p.fewest(w, fewRare), uint32(0)
	for i, n := range s.kinds {
		if w.odd >= fewStrange {
			n = uint32(w.oddKinds[i])
		}
		if nats := f.rare(f.kinds[i]); nats >= littleRare {
			rare += n
			if n >= least {
				e.kind = max(e.kind, nats)
			}
		}
	}
	if share(rare, stranger) < rarePart {
		e.kind = 0
	}
	if s.deny >= least && share(s.deny, stranger) >= deniedPart {
		e.denied = f.rare(f.denied)
	}
	e.hour, e.part = f.hour(at)
	return e
}

// fewest is how many calls of strangers tell what they do. What starts on a new
// machine asks for things that nobody asks for otherwise: of software that is known
// it takes fewCalls for each network that is new beyond the usual number.
func (p *profile) fewest(w *window, of uint32) uint32 {
	more := w.distinct() - p.base.peaks[newNetworks]
	if w.odd >= fewStrange || more <= 0 {
		return of
	}
	return max(of, uint32(fewCalls*more))
}

// readings tells what the evidence consists of.
func (e *evidence) readings(w *window, m, peaks *measures) (list []kms.AbuseReading) {
	add := func(s kms.AbuseSignal, value, usual float64) {
		list = append(list, kms.AbuseReading{Signal: s, Value: int64(math.Round(value * 1000)), Usual: int64(math.Round(usual * 1000))})
	}
	if e.network >= littleRare {
		add(kms.AbuseNetworks, float64(m[newNetworks]), float64(peaks[newNetworks]))
	}
	if e.client >= littleRare {
		add(kms.AbuseClient, float64(m[newClient]), float64(peaks[newClient]))
	}
	if e.kind >= littleRare {
		add(kms.AbuseRare, e.kind/math.Ln2, 0)
	}
	if e.denied >= littleRare {
		add(kms.AbuseDenials, float64(share(w.strangers.deny, w.strangers.n)), float64(peaks[denials]))
	}
	if e.hour > 1 {
		_, even := hourBin(w.period * half)
		add(kms.AbuseHour, e.part, even)
	}
	add(kms.AbuseTogether, e.sum()/math.Ln2, enoughEvidence/math.Ln2)
	return list
}
