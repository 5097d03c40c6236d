package scheduler

import (
	"math"
	"time"
)

const (
	// gateFast and gateSlow are the time constants of the two averages: the
	// fast one sees a burst within a fifth of a second, the slow one keeps
	// the gate from opening in the gap between two bursts.
	gateFast = 200 * time.Millisecond
	gateSlow = 2 * time.Second

	// gateHysteresis is how far utilisation must fall below a line before it
	// counts as below: 3 points.
	gateHysteresis = 0.03

	// smallPool is the number of slots below which 85 % and 95 % are the same
	// slot, so that the lines are given in slots instead.
	smallPool = 7

	// reserveFrom is the number of slots from which a node keeps one for
	// class High.
	reserveFrom = 4
)

// Band is where utilisation stands against the gate's two lines.
type Band uint8

// The bands.
const (
	BelowSafe Band = iota
	BelowHard
	FromHard
	bands = 3
)

// rank is a class after the tenant's use was looked at: a tenant above its
// fair share is treated one class lower.
type rank uint8

const (
	rankHigh rank = iota
	rankMid       // Mid, or High above its share
	rankLow       // Low below its share
	rankOver      // Low above its share, or Mid above its share
	ranks    = 4
)

func rankFor(c Class, over bool) rank {
	switch {
	case c == High && !over:
		return rankHigh
	case c == High, c == Mid && !over:
		return rankMid
	case c == Low && !over:
		return rankLow
	}
	return rankOver
}

// cell is what the gate says to a request.
type cell uint8

const (
	run    cell = iota // may take any slot
	stand              // may wait, and take slots under the line only
	refuse             // may not join; if it waits already, as stand
)

var gateTable = [bands][ranks]cell{
	BelowSafe: {run, run, run, run},
	BelowHard: {run, run, run, stand},
	FromHard:  {stand, stand, stand, refuse},
}

// gate is the utilisation gate of a domain. Its averages are first-order
// filters of busy ÷ slots, which is constant between two events, so the
// filters are exact and sample nothing.
type gate struct {
	off        bool
	safe, hard float64
	fast, slow float64
	at         int64
	band       Band
	trips      uint64 // times that it came to the hard line
}

// update brings the averages to now, given what was busy since the last call.
func (g *gate) update(now int64, busy, slots int) {
	dt := float64(now - g.at)
	g.at = now
	if dt > 0 && slots > 0 {
		u := min(1, float64(busy)/float64(slots))
		g.fast += (u - g.fast) * -math.Expm1(-dt/float64(gateFast))
		g.slow += (u - g.slow) * -math.Expm1(-dt/float64(gateSlow))
	}
	level := g.level()
	if g.band == FromHard && level < g.hard-gateHysteresis {
		g.band = BelowHard
	}
	if g.band == BelowHard && level < g.safe-gateHysteresis {
		g.band = BelowSafe
	}
	switch {
	case level >= g.hard:
		if g.band != FromHard {
			g.trips++
		}
		g.band = FromHard
	case level >= g.safe:
		g.band = max(g.band, BelowHard)
	}
}

// level is the utilisation that counts, 0 to 1.
func (g *gate) level() float64 { return max(g.fast, g.slow) }

// line is the line that the present band has reached, or else the next one.
func (g *gate) line() float64 {
	if g.band == FromHard {
		return g.hard
	}
	return g.safe
}

func (g *gate) cell(r rank) cell {
	if g.off {
		return run
	}
	return gateTable[g.band][r]
}

// lineSlots is a line in slots: what may be busy, including what starts.
func lineSlots(line float64, slots int) int { return max(1, int(line*float64(slots)+1e-9)) }

// drawLines finds, for each rank, the number of busy slots of the domain from
// which it does not start. It runs when the band or the slots have changed.
func (d *domain) drawLines() {
	d.linesFor.band, d.linesFor.slots = d.gate.band, d.slots
	safe, hard := lineSlots(d.gate.safe, d.slots), lineSlots(d.gate.hard, d.slots)
	if d.slots < smallPool {
		safe, hard = max(1, d.slots-1), d.slots
	}
	for r := range rank(ranks) {
		switch {
		case d.gate.cell(r) == run:
			d.lines[r] = math.MaxInt
		case d.gate.band == FromHard && r != rankOver:
			d.lines[r] = hard
		default:
			d.lines[r] = safe
		}
	}
}

// openSlots is the number of n's slots that others than class High may hold.
// What is kept is counted in slots held, not in slots free: if the last free
// slot were for High alone, a flood of High that is itself below its share
// would take every slot that frees, and the rest would wait for the flood.
func (n *node) openSlots() int {
	if n.slots >= reserveFrom && !n.domain.gateOff {
		return n.slots - 1
	}
	return n.slots
}
