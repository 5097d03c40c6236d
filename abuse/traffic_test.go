package abuse

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
	"uuid"
)

// Usual traffic of credentials of many kinds, made from a seed. Time goes in
// slots of 10 seconds.

const slot = 10 * time.Second

// monday is when the traffic begins.
var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// sender takes the calls of a slot; it puts them at increasing times.
type sender struct {
	d    *Detector
	o    Observation
	rng  *rand.Rand
	from time.Time
	n    int // calls so far in the slot
	all  int
	of   *actor // whose changes its calls follow; nil: nobody's
}

// call makes a call.
func (s *sender) call(network uint32, client Client, op Operation, size uint8) {
	s.ends(network, client, op, size, Fine, 0)
}

func (s *sender) ends(network uint32, client Client, op Operation, size uint8, outcome Outcome, retry time.Duration) {
	s.o.At = s.from.Add(time.Duration(s.n) * time.Millisecond)
	if s.of != nil {
		network, client, op = s.of.changes.apply(s, network, client, op)
	}
	s.o.Network, s.o.Client, s.o.Operation, s.o.Size, s.o.Outcome, s.o.RetryAfter = network, client, op, size, outcome, retry
	s.d.Observe(&s.o)
	s.n++
	s.all++
}

// actor is a credential with its usual behaviour.
type actor struct {
	name string
	id   Credential
	send sender
	slot func(a *actor, s *sender, at time.Time)
	// networks are its own, client and next its software before and after the
	// upgrade of the week.
	networks     []uint32
	client, next Client
	upgrade      time.Time
	rate         float64 // calls a slot
	state        int
	changes      changes
}

func (a *actor) software(at time.Time) Client {
	if at.Before(a.upgrade) {
		return a.client
	}
	return a.next
}

func testID(n uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], n)
	binary.BigEndian.PutUint64(id[8:], mix(n))
	return id
}

// poisson draws a number of events of a small mean, after Knuth.
func poisson(rng *rand.Rand, mean float64) (n int) {
	if mean <= 0 {
		return 0
	}
	for p := rng.ExpFloat64(); p < mean; p += rng.ExpFloat64() {
		n++
	}
	return n
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// weighted draws an operation from pairs of operation and weight.
func weighted(rng *rand.Rand, list ...int) Operation {
	sum := 0
	for i := 1; i < len(list); i += 2 {
		sum += list[i]
	}
	n := rng.IntN(sum)
	for i := 0; ; i += 2 {
		if n -= list[i+1]; n < 0 {
			return Operation(list[i])
		}
	}
}

// day is how busy an hour is: a fifth at night.
func day(at time.Time) float64 {
	switch h := at.Hour(); {
	case h >= 8 && h < 20:
		return 1
	case h >= 6 && h < 23:
		return 0.6
	}
	return 0.2
}

func weekday(at time.Time) bool { return at.Weekday() != time.Saturday && at.Weekday() != time.Sunday }

// incident tells whether the service refuses much: 25 minutes on Thursday.
func incident(at time.Time) bool {
	begin := monday.Add(3*24*time.Hour + 14*time.Hour)
	return !at.Before(begin) && at.Before(begin.Add(25*time.Minute))
}

// through makes a call that an incident may refuse, and retries it at once, as
// careless clients do, or not in this slot.
func (a *actor) through(s *sender, at time.Time, network uint32, op Operation, size uint8, careless float64) {
	client := a.software(at)
	if !incident(at) || s.rng.Float64() < 0.5 {
		s.call(network, client, op, size)
		return
	}
	s.ends(network, client, op, size, Refused, 2*time.Second)
	for s.rng.Float64() < careless {
		s.ends(network, client, op, size, Refused, 2*time.Second)
	}
}

// server is one process on one machine: it signs and verifies. One of ten moves to
// another network in the week.
func server(a *actor, s *sender, at time.Time) {
	network := a.networks[0]
	if a.state == 0 && at.After(a.upgrade.Add(13*time.Hour)) {
		network = a.networks[1]
	}
	for range poisson(s.rng, a.rate*day(at)) {
		a.through(s, at, network, weighted(s.rng, int(opSign), 85, int(opVerify), 12, int(opRead), 3), uint8(6+s.rng.IntN(5)), 0.5)
	}
}

// fleet grows and shrinks by day over a pool of networks; when it is rolled it
// moves on in the pool.
func fleet(a *actor, s *sender, at time.Time) {
	machines := 2 + int(day(at)*4)
	if incident(at) {
		machines += 4
	}
	first := int(at.Sub(monday)/(8*time.Hour)) * 3
	for range poisson(s.rng, a.rate*day(at)) {
		network := a.networks[(first+s.rng.IntN(machines))%len(a.networks)]
		a.through(s, at, network, weighted(s.rng, int(opDataKey), 30, int(opDecrypt), 65, int(opRead), 5), uint8(7+s.rng.IntN(3)), 0.3)
	}
}

// batch encrypts much every night, asks little by day, and checks all keys on
// Sundays.
func batch(a *actor, s *sender, at time.Time) {
	minute := at.Hour()*60 + at.Minute()
	switch {
	case a.changes.monthEnd && at.Day() == 7 && minute >= 100 && minute < 240:
		for range poisson(s.rng, a.rate*6) {
			s.call(a.networks[0], a.software(at), weighted(s.rng, int(opReencrypt), 80, int(opManage), 10, int(opReport), 10), uint8(8+s.rng.IntN(8)))
		}
	case minute >= 60 && minute < 100:
		for range poisson(s.rng, a.rate*6) {
			a.through(s, at, a.networks[0], weighted(s.rng, int(opEncrypt), 95, int(opDataKey), 5), uint8(14+s.rng.IntN(6)), 0.2)
		}
	case at.Weekday() == time.Sunday && minute >= 600 && minute < 610:
		for range poisson(s.rng, 10) {
			s.call(a.networks[0], a.software(at), weighted(s.rng, int(opList), 10, int(opRead), 90), 0)
		}
	case at.Minute()%10 == 0 && at.Second() == 0:
		s.call(a.networks[0], a.software(at), opRead, 0)
	}
}

// human works in sessions on weekdays, from the office, from home and, some days,
// from the way; what he does differs by the session.
func human(a *actor, s *sender, at time.Time) {
	late := a.changes.late && at.Hour() < 4
	if !weekday(at) || (at.Hour() < 8 || at.Hour() >= 19) && !late {
		a.state = 0
		return
	}
	if a.state == 0 {
		if s.rng.Float64() < 1.0/500 { // a session
			work := s.rng.IntN(4)
			if s.rng.IntN(20) == 0 { // what is done once in two weeks
				work = 4 + s.rng.IntN(3)
			}
			a.state = 1<<8 + s.rng.IntN(12)<<4 + work
		}
		return
	}
	if s.rng.Float64() < 1.0/40 {
		a.state = 0
		return
	}
	place := a.networks[at.Weekday()%2]
	if a.state>>4&15 == 0 || a.changes.roams { // on the way
		place = uint32(mix(uint64(at.YearDay())<<32 ^ uint64(a.networks[0])))
	}
	works := [][]int{
		{int(opRead), 60, int(opList), 40},
		{int(opSign), 70, int(opRead), 30},
		{int(opCreate), 20, int(opManage), 40, int(opRead), 40},
		{int(opEncrypt), 45, int(opDecrypt), 45, int(opRead), 10},
		{int(opAudit), 80, int(opRead), 20},
		{int(opDestroy), 30, int(opManage), 30, int(opList), 40},
		{int(opWrap), 40, int(opUnwrap), 20, int(opCreate), 40},
	}
	n := poisson(s.rng, 0.8)
	if s.rng.Float64() < 0.01 { // a loop in a shell
		n += 30
	}
	for range n {
		outcome := Fine
		if s.rng.Float64() < 0.05 {
			outcome = Denied
		}
		s.ends(place, a.software(at), weighted(s.rng, works[a.state&7]...), uint8(5+s.rng.IntN(8)), outcome, 0)
	}
}

// gateway fetches provider secrets from two networks; its software is upgraded one
// after the other within an hour.
func gateway(a *actor, s *sender, at time.Time) {
	for range poisson(s.rng, a.rate*day(at)) {
		i := s.rng.IntN(2)
		client := a.software(at.Add(-time.Duration(i) * time.Hour))
		op := weighted(s.rng, int(opFetch), 80, int(opReport), 18, int(opList), 2)
		s.call(a.networks[i], client, op, uint8(s.rng.IntN(4)))
	}
}

// mobile sends through a carrier's addresses, which change with every call.
func mobile(a *actor, s *sender, at time.Time) {
	for range poisson(s.rng, a.rate*day(at)) {
		network := uint32(mix(uint64(a.networks[0]) + uint64(s.rng.IntN(80))))
		a.through(s, at, network, weighted(s.rng, int(opSign), 50, int(opVerify), 50), uint8(8+s.rng.IntN(2)), 0.5)
	}
}

// pipeline runs jobs of a few minutes on machines that are new each time.
func pipeline(a *actor, s *sender, at time.Time) {
	if a.state == 0 {
		if weekday(at) && at.Hour() >= 7 && at.Hour() < 20 && s.rng.Float64() < 1.0/400 {
			a.state = 1 + s.rng.IntN(1<<20)
		}
		return
	}
	if s.rng.Float64() < 1.0/18 {
		a.state = 0
		return
	}
	network := uint32(mix(uint64(a.state)<<20 ^ uint64(a.networks[0])))
	for range poisson(s.rng, a.rate) {
		s.call(network, a.software(at), weighted(s.rng, int(opSign), 60, int(opRead), 25, int(opList), 15), uint8(6+s.rng.IntN(6)))
	}
}

// population makes a number of actors, so many of each kind as services have.
func population(d *Detector, n int, seed uint64) []*actor {
	rng := rand.New(rand.NewPCG(seed, 1))
	shares := []struct {
		name  string
		of100 int
		slot  func(*actor, *sender, time.Time)
		rate  float64 // calls a minute, half to half as much again
		nets  int
	}{
		{"server", 28, server, 16, 2}, {"fleet", 16, fleet, 60, 20}, {"batch", 12, batch, 8, 1}, {"human", 14, human, 5, 2},
		{"gateway", 14, gateway, 40, 2}, {"mobile", 6, mobile, 24, 1}, {"pipeline", 10, pipeline, 20, 1},
	}
	agents := []string{"sluice-go/1.%d.0", "sluice-python/2.%d.1", "acme-signer/0.%d", "Vault/1.%d.3", "Java/2%d.0.1"}
	var list []*actor
	for len(list) < n {
		for _, k := range shares {
			for i := 0; i < max(k.of100*n/100, 1) && len(list) < n; i++ {
				a := &actor{name: k.name, slot: k.slot, rate: k.rate / 6 * (0.5 + rng.Float64())}
				a.id = Credential{testID(seed<<32 + uint64(len(list)/10)), testID(seed<<40 + 1<<20 + uint64(len(list)))}
				for range k.nets {
					a.networks = append(a.networks, rng.Uint32())
				}
				agent := pick(rng, agents)
				minor := rng.IntN(5)
				a.client, a.next = ClientOf(replace(agent, minor)), ClientOf(replace(agent, minor+rng.IntN(2)))
				if rng.IntN(50) == 0 { // other software altogether, once a year
					a.next = ClientOf(replace(pick(rng, agents), 9) + " rewritten")
				}
				replaced := a.next.name() != a.client.name()
				a.upgrade = monday.Add(24*time.Hour + time.Duration(rng.IntN(6*24*60))*time.Minute)
				if k.name == "server" && rng.IntN(10) > 0 {
					a.state = 1 // does not move
				}
				a.change(rand.New(rand.NewPCG(seed, 1<<32+uint64(len(list)))), replaced)
				a.send = sender{d: d, of: a, rng: rand.New(rand.NewPCG(seed, uint64(len(list)))), o: Observation{Tenant: a.id.Tenant, Credential: a.id.Credential}}
				list = append(list, a)
			}
		}
	}
	return list
}

func replace(agent string, minor int) string {
	var out []byte
	for i := 0; i < len(agent); i++ {
		if agent[i] == '%' {
			out = append(out, byte('0'+minor))
			i++
			continue
		}
		out = append(out, agent[i])
	}
	return string(out)
}

// pass lets the actors do what is usual in a slot, and looks.
func pass(d *Detector, actors []*actor, at time.Time) []Flag {
	for _, a := range actors {
		a.send.from, a.send.n = at, 0
		a.starts(&a.send, at)
		a.slot(a, &a.send, at)
	}
	for {
		unknown := d.Unknown(1000)
		for _, c := range unknown {
			if err := d.Merge(c.Credential, nil); err != nil {
				panic(err)
			}
		}
		if len(unknown) == 0 {
			break
		}
	}
	return d.Look(at.Add(slot))
}
