package abuse

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

// theftSeed draws other owners and thieves.
var theftSeed = flag.Uint64("theft-seed", 3, "seed of the owners and the thieves")

// theft is what somebody does with a stolen credential in a slot, beside its
// owner.
type theft struct {
	name string
	rate float64 // calls a minute
	call func(t *thief)
	// of are the owners of whom it must be told; of the others the rate is
	// printed.
	of []string
}

// everyone is every kind of owner.
var everyone = []string{"server", "fleet", "batch", "gateway", "human", "mobile", "pipeline"}

var thefts = []theft{
	{"bulk decryption from another network, with the owner's software", 1200,
		func(t *thief) {
			t.call(t.network, t.owner.software(t.from), opDecrypt, 8)
		}, everyone},
	{"slow decryption from another network, with another tool", 40,
		func(t *thief) {
			t.call(t.network, t.client, opDecrypt, 8)
		}, everyone},
	{"another tool on the owner's machine", 40,
		func(t *thief) {
			t.call(t.owner.home(), t.client, weighted(t.rng, int(opList), 30, int(opUnwrap), 70), 5)
		}, everyone},
	{"many networks at once", 120,
		func(t *thief) {
			t.call(t.rng.Uint32(), t.client, opDecrypt, 8)
		}, everyone},
	{"trying out what it may do, from another network", 60,
		func(t *thief) {
			t.ends(t.network, t.owner.software(t.from), weighted(t.rng, int(opList), 40, int(opRead), 30, int(opFetch), 30), 0, Denied, 0)
		}, []string{"server", "fleet", "batch", "gateway"}},
}

// thief uses the credential of an actor from a time on, evenly.
type thief struct {
	sender
	owner   *actor
	begins  time.Time
	network uint32
	client  Client
	purpose Operation // that the owner has no use for
	calls   int
}

// foreign are operations that no owner of the kind has use for.
func foreign(kind string) []Operation {
	list := []Operation{opUnwrap, opAgree, opDestroy, opAudit, opWrap}
	if kind == "human" {
		return []Operation{opFetch, opAgree, opMAC, opDataKey}
	}
	return list
}

// act makes the calls that are due until a time.
func (t *thief) act(f *theft, until time.Time) {
	each := time.Duration(float64(time.Minute) / f.rate)
	for {
		at := t.begins.Add(time.Duration(t.calls) * each)
		if !at.Before(until) {
			return
		}
		t.from, t.n = at, 0
		f.call(t)
		t.calls++
	}
}

// owners are credentials of which it was learnt what is usual until a time.
type owners struct {
	actors []*actor
	saved  map[Credential][]byte
	start  time.Time
}

func ownersAt(t *testing.T, n int, seed uint64, start time.Time) *owners {
	t.Helper()
	d := NewDetector(MaxCredentials)
	o := &owners{actors: population(d, n, seed), saved: make(map[Credential][]byte), start: start}
	for _, a := range o.actors {
		if a.name == "server" {
			a.state = 1 // one that moved today hides a second network
		}
		a.upgrade = a.upgrade.Add(7 * 24 * time.Hour) // and so does what changed today
		a.changes = changes{deploys: a.changes.deploys, nat: a.changes.nat, roams: a.changes.roams, late: a.changes.late}
	}
	for at := monday; at.Before(start); at = at.Add(slot) {
		for _, f := range pass(d, o.actors, at) {
			t.Fatalf("before the theft: %s", names(&f))
		}
	}
	for _, s := range d.Changed(n) {
		o.saved[s.Credential] = s.Document
	}
	return o
}

// robbed is what came of the thefts, by kind of owner.
type robbed struct {
	stolen, young, flagged map[string]int
	slowest                time.Duration
}

// rob steals all credentials, each at another time of a half, and lets the thieves
// act for a minute beside the owners. What was learnt comes from where it is stored.
func (o *owners) rob(t *testing.T, f *theft, seed uint64) robbed {
	t.Helper()
	d := NewDetector(MaxCredentials)
	r := robbed{map[string]int{}, map[string]int{}, map[string]int{}, 0}
	rng := rand.New(rand.NewPCG(seed, 5))
	thieves := make(map[Credential]*thief)
	for i, a := range o.actors {
		a.send.d = d
		if b, err := parseBaseline(o.saved[a.id]); err == nil && b.learnt(o.start.UnixNano()) {
			r.stolen[a.name]++
		} else {
			r.young[a.name]++
		}
		th := &thief{owner: a, begins: o.start.Add(time.Duration(rng.Int64N(half))), network: rng.Uint32(), client: ClientOf("python-requests/2.31.0"), purpose: pick(rng, foreign(a.name))}
		th.sender = sender{d: d, rng: rand.New(rand.NewPCG(seed, uint64(i))), o: Observation{Tenant: a.id.Tenant, Credential: a.id.Credential}}
		thieves[a.id] = th
	}
	for at := o.start; at.Before(o.start.Add(100 * time.Second)); at = at.Add(slot) {
		for _, a := range o.actors {
			a.send.from, a.send.n = at, 0
			a.slot(a, &a.send, at)
		}
		for _, look := range []time.Time{at.Add(slot / 2), at.Add(slot)} {
			for _, th := range thieves {
				th.act(f, look)
			}
			for _, c := range d.Unknown(1000) {
				if err := d.Merge(c.Credential, o.saved[c]); err != nil {
					t.Fatal(err)
				}
			}
			for _, flag := range d.Look(look) {
				th := thieves[Credential{flag.Tenant, flag.Credential}]
				took := flag.At.Sub(th.begins)
				if !flag.Learnt || took > time.Minute || took < 0 {
					continue
				}
				r.flagged[th.owner.name]++
				r.slowest = max(r.slowest, took)
			}
		}
	}
	return r
}

// byDay and byNight are when the thefts begin.
var byDay, byNight = monday.Add(2*24*time.Hour + 10*time.Hour), monday.Add(3*24*time.Hour + 3*time.Hour)

func TestAStolenCredentialIsFlaggedWithinAMinute(t *testing.T) {
	for when, start := range map[string]time.Time{"by day": byDay, "by night": byNight} {
		o := ownersAt(t, 100, *theftSeed, start)
		for _, theft := range thefts {
			t.Run(theft.name+" "+when, func(t *testing.T) {
				r := o.rob(t, &theft, *theftSeed+2)
				t.Logf("%.0f calls a minute: flagged %v of %v, the slowest after %v; not learnt yet were %v", theft.rate, r.flagged, r.stolen, r.slowest, r.young)
				for _, kind := range theft.of {
					if r.flagged[kind] < r.stolen[kind] {
						t.Errorf("%s: %d of %d were flagged in a minute", kind, r.flagged[kind], r.stolen[kind])
					}
				}
			})
		}
	}
}

// The script of a thief who has everything of his own: another network, other
// software, and a use for the credential that its owner has not.
func TestAThiefWithHisOwnNetworkToolAndPurposeIsFlaggedFromTenCallsAMinute(t *testing.T) {
	for when, start := range map[string]time.Time{"by day": byDay, "by night": byNight} {
		o := ownersAt(t, 100, *theftSeed, start)
		for _, rate := range []float64{4, 6, 8, 10, 15, 40, 200} {
			r := o.rob(t, &theft{rate: rate, call: func(t *thief) {
				t.call(t.network, t.client, weighted(t.rng, int(t.purpose), 70, int(opList), 30), 5)
			}}, *theftSeed+3)
			t.Logf("%s, %.0f calls a minute: flagged %v of %v, the slowest after %v", when, rate, r.flagged, r.stolen, r.slowest)
			for kind, n := range r.stolen {
				if rate >= 10 && r.flagged[kind] < n {
					t.Errorf("%s at %.0f calls a minute: %d of %d %ss were flagged", when, rate, r.flagged[kind], n, kind)
				}
			}
		}
	}
}
