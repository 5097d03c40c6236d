package abuse

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// stranger lets somebody make twelve calls a minute beside an owner for five
// minutes, and returns the flags.
func stranger(t *testing.T, network func(*actor) uint32, client func(*actor) Client, op Operation, outcome Outcome) []Flag {
	t.Helper()
	d, a, at := learnt(t)
	s := sender{d: d, rng: a.send.rng, o: Observation{Tenant: a.id.Tenant, Credential: a.id.Credential}}
	var flags []Flag
	for end := at.Add(5 * time.Minute); at.Before(end); at = at.Add(slot) {
		s.from, s.n = at, 0
		for range 2 {
			s.ends(network(a), client(a), op, 8, outcome, 0)
		}
		flags = append(flags, pass(d, []*actor{a}, at)...)
	}
	return flags
}

func ownNetwork(a *actor) uint32 { return a.home() }
func otherNetwork(*actor) uint32 { return 0xdeadbeef }
func ownClient(a *actor) Client  { return a.client }
func otherClient(*actor) Client  { return ClientOf("curl/8.5.0") }
func signalsOf(f *Flag) (list []kms.AbuseSignal) {
	for _, r := range f.Signals {
		list = append(list, r.Signal)
	}
	return list
}

func TestOneRareThingIsNeverEnoughAndTwoAre(t *testing.T) {
	for name, tt := range map[string]struct {
		network func(*actor) uint32
		client  func(*actor) Client
		op      Operation
		outcome Outcome
		want    []kms.AbuseSignal // nil: no flag
	}{
		"another network":             {otherNetwork, ownClient, opSign, Fine, nil},
		"another tool":                {ownNetwork, otherClient, opSign, Fine, nil},
		"another use":                 {ownNetwork, ownClient, opUnwrap, Fine, nil},
		"denials":                     {ownNetwork, ownClient, opSign, Denied, nil},
		"another network and tool":    {otherNetwork, otherClient, opSign, Fine, []kms.AbuseSignal{kms.AbuseNetworks, kms.AbuseClient, kms.AbuseTogether}},
		"another tool and use":        {ownNetwork, otherClient, opUnwrap, Fine, []kms.AbuseSignal{kms.AbuseClient, kms.AbuseRare, kms.AbuseTogether}},
		"another tool that is denied": {ownNetwork, otherClient, opSign, Denied, []kms.AbuseSignal{kms.AbuseClient, kms.AbuseDenials, kms.AbuseTogether}},
		"another network, tool and use": {otherNetwork, otherClient, opUnwrap, Fine,
			[]kms.AbuseSignal{kms.AbuseNetworks, kms.AbuseClient, kms.AbuseRare, kms.AbuseTogether}},
	} {
		t.Run(name, func(t *testing.T) {
			flags := stranger(t, tt.network, tt.client, tt.op, tt.outcome)
			if tt.want == nil {
				for i := range flags {
					t.Errorf("flagged: %s", names(&flags[i]))
				}
				return
			}
			if len(flags) != 1 || !slices.Equal(signalsOf(&flags[0]), tt.want) {
				t.Fatalf("%+v", flags)
			}
			for _, r := range flags[0].Signals {
				reason := r.Reason()
				text, _ := reason.Explain()
				t.Log(text)
				if r.Signal == kms.AbuseTogether && r.Value <= r.Usual {
					t.Errorf("%d is not above the line of %d", r.Value, r.Usual)
				}
			}
		})
	}
}

// However often something was had, it is the rarer the less of the halves had
// it, and nothing is rarer than the bound.
func TestWhatIsHadMoreOftenIsLessRare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := frequencies{halves: rapid.Float32Range(0, 1e6).Draw(t, "halves")}
		had := rapid.Float32Range(0, 1).Draw(t, "had") * f.halves
		more := had + rapid.Float32Range(0, 1).Draw(t, "more")*(f.halves-had)
		a, b := f.rare(had), f.rare(more)
		if math.IsNaN(a) || a < b || a > mostRare || b < 0 {
			t.Fatalf("%v of %v had it: %v; %v: %v", had, f.halves, a, more, b)
		}
	})
}

// A release before this one stored no frequencies: what it has learnt is kept.
func TestABaselineOfTheFormatBeforeIsRead(t *testing.T) {
	d, a, at := learnt(t)
	want := d.shard(a.id.Credential).find(a.id.Credential).base
	want.often = frequencies{}
	document := want.document()
	numbers := 4 * len(new(frequencies).numbers())
	begin := 17 + 4*len(want.numbers())
	old := slices.Delete(slices.Clone(document), begin, begin+numbers)
	old[0] = formatOne
	got, err := parseBaseline(old)
	if err != nil || got != want || !got.learnt(at.UnixNano()) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
}

func TestTimesOfTheWeekMakeAWhole(t *testing.T) {
	had := map[int]float64{}
	for h := range 7 * 24 {
		bin, part := hourBin(monday.Add(time.Duration(h) * time.Hour).UnixNano())
		if bin < 0 || bin >= hourBins {
			t.Fatalf("hour %d is of bin %d", h, bin)
		}
		had[bin] = part
	}
	var sum float64
	for _, part := range had {
		sum += part
	}
	if len(had) != hourBins || math.Abs(sum-1) > 1e-9 {
		t.Errorf("%d bins of %v", len(had), sum)
	}
}
