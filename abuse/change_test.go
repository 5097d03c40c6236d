package abuse

import (
	"math/rand/v2"
	"time"
)

// What changes in the usual traffic of a week: nothing of it is a theft.

// changes are what happens to one credential.
type changes struct {
	// rollout is how long it takes until all of its processes have the version of
	// the upgrade; deploys, how often it is started anew otherwise, 0: not.
	rollout, deploys time.Duration
	// feature is a kind of operations that it begins to use at a time, with a part
	// of its calls.
	feature Operation
	part    float64
	from    time.Time
	// nat are the networks of a pool of addresses behind which its calls leave.
	nat []uint32
	// drill is when it runs elsewhere for an hour, and region when half of it
	// begins to run in a new region for good.
	drill, region time.Time
	elsewhere     []uint32
	monthEnd      bool      // a nightly job has one
	roams, late   bool      // somebody travels, or works by night too
	tries         time.Time // when somebody tries another tool for an hour
	other         Client    // that tool
}

// change draws the changes of an actor. Software that is replaced is used for
// other things too in one of three.
func (a *actor) change(rng *rand.Rand, replaced bool) {
	c := &a.changes
	one := func(of int) bool { return rng.IntN(of) == 0 }
	sometime := func() time.Time {
		return monday.Add(24*time.Hour + time.Duration(rng.IntN(7*24*60))*time.Minute)
	}
	machines := a.name == "server" || a.name == "fleet" || a.name == "gateway"
	if a.name == "fleet" || a.name == "gateway" || a.name == "mobile" {
		c.rollout = time.Duration(1+rng.IntN(24)) * time.Hour
	}
	if machines {
		c.deploys = time.Duration(12+rng.IntN(120)) * time.Hour
	}
	if replaced && one(3) {
		c.feature, c.part, c.from = Operation(rng.IntN(operations)), 0.02+0.3*rng.Float64(), a.upgrade
	} else if a.name != "human" && one(25) {
		c.feature, c.part, c.from = Operation(rng.IntN(operations)), 0.02+0.3*rng.Float64(), sometime()
		if one(2) {
			c.from = a.upgrade
		}
	}
	if machines && one(8) {
		for range 2 + rng.IntN(7) {
			c.nat = append(c.nat, rng.Uint32())
		}
	}
	if a.name != "human" && a.name != "pipeline" && one(50) {
		c.drill = sometime().Truncate(time.Hour)
	}
	if a.name == "fleet" && one(10) || a.name == "gateway" && one(20) {
		c.region = sometime()
	}
	for range 8 {
		c.elsewhere = append(c.elsewhere, rng.Uint32())
	}
	c.monthEnd = one(3)
	if a.name == "human" {
		c.roams, c.late = one(10), one(4)
		if one(10) {
			c.tries = monday.Add(time.Duration(1+rng.IntN(4))*24*time.Hour + time.Duration(8*60+rng.IntN(10*60))*time.Minute)
			c.other = ClientOf("curl/8.5.0")
		}
	}
}

func during(at, from time.Time) bool {
	return !from.IsZero() && !at.Before(from) && at.Before(from.Add(time.Hour))
}

// apply changes a call.
func (c *changes) apply(s *sender, network uint32, client Client, op Operation) (uint32, Client, Operation) {
	at := s.o.At
	if !c.from.IsZero() && at.After(c.from) && s.rng.Float64() < c.part {
		op = c.feature
	}
	if c.rollout > 0 && client == s.of.next && at.Sub(s.of.upgrade) < time.Duration(s.rng.Float64()*float64(c.rollout)) {
		client = s.of.client
	}
	if during(at, c.tries) {
		client = c.other
	}
	switch {
	case during(at, c.drill):
		network = c.elsewhere[0]
	case !c.region.IsZero() && at.After(c.region) && s.rng.IntN(2) == 0:
		network = c.elsewhere[s.rng.IntN(len(c.elsewhere))]
	case len(c.nat) > 0:
		network = c.nat[s.rng.IntN(len(c.nat))]
	}
	return network, client, op
}

// home is a network that the actor calls from.
func (a *actor) home() uint32 {
	if len(a.changes.nat) > 0 {
		return a.changes.nat[0]
	}
	return a.networks[0]
}

// starts makes the calls of processes that start: they look up what they use.
func (a *actor) starts(s *sender, at time.Time) {
	c := &a.changes
	started := 0
	age := at.Sub(monday)
	begins := func(t time.Time) bool { return !at.Before(t) && at.Before(t.Add(slot)) }
	switch {
	case c.deploys > 0 && age%c.deploys < slot, begins(a.upgrade):
		started = 1
	case a.name == "fleet" && age%(8*time.Hour) < slot:
		started = 3
	case begins(c.drill):
		started = 2
	case begins(c.region):
		started = 16
	}
	if a.name == "batch" || a.name == "human" || a.name == "pipeline" {
		return
	}
	for range started {
		network := a.networks[0]
		if a.name == "fleet" {
			network = a.networks[s.rng.IntN(len(a.networks))]
		}
		if begins(c.region) {
			network = c.elsewhere[s.rng.IntN(len(c.elsewhere))]
		}
		client := a.software(at)
		s.call(network, client, opList, 0)
		s.call(network, client, opRead, 0)
		s.call(network, client, opRead, 0)
	}
}
