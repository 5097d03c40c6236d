package kms

import (
	"fmt"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"
)

var day0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newTestSecret() *ProviderSecret {
	return &ProviderSecret{ID: uuid.NewV7(), Tenant: uuid.NewV7(), Path: "llm/openai", Provider: "openai", State: SecretInUse, Created: day0,
		Fresh: DefaultFresh, Lease: DefaultLease, Highest: 1, Revision: 1,
		Versions: []*SecretVersion{{Number: 1, State: SecretActive, Weight: 100, Created: day0, FingerprintVersion: 1, DataKey: []byte{1}, Value: []byte{1}}}}
}

func (s *ProviderSecret) stage() uint32 {
	s.Highest++
	s.Versions = append(s.Versions, &SecretVersion{Number: s.Highest, State: SecretStaged, FingerprintVersion: 1, DataKey: []byte{1}, Value: []byte{1}})
	return s.Highest
}

// TestWhateverIsDoneASecretIsSound does what people, gateways and the keeper do
// in any order.
func TestWhateverIsDoneASecretIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newTestSecret(), day0
		seen := map[uint32]SecretVersionState{}
		for range rapid.IntRange(1, 40).Draw(t, "acts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(4*24*time.Hour)).Draw(t, "pause")))
			running := s.running()
			next := s.Clone()
			n := uint32(rapid.IntRange(1, 6).Draw(t, "version"))
			var err error
			act := rapid.SampledFrom([]string{"stage", "activate", "steps", "rollback", "disable", "destroy", "restore", "delete", "advance", "due"}).Draw(t, "act")
			switch act {
			case "stage":
				if len(s.Versions) < 6 && s.State == SecretInUse {
					next.stage()
				}
			case "activate":
				err = next.activate(now, ActivateInput{Version: n})
			case "steps":
				err = next.activate(now, ActivateInput{Version: n, Steps: []uint32{10, 30, 100}})
			case "rollback":
				err = next.rollback(now)
			case "disable":
				err = next.disable(now, n)
			case "destroy":
				err = next.scheduleDestruction(now, n, 7)
			case "restore":
				err = next.restore(n)
			case "delete":
				err = next.scheduleDeletion(now, 7)
			case "advance":
				if s.running() {
					next.advance(now)
				}
			case "due":
				next.destroyDue(now)
			}
			if err != nil {
				continue
			}
			s = next
			if s.State == SecretGone {
				break
			}
			checkSound(t, s, act, running)
			for _, v := range s.Versions {
				if seen[v.Number] == SecretDestroyed && v.State != SecretDestroyed {
					t.Fatalf("%s: version %d came back", act, v.Number)
				}
				seen[v.Number] = v.State
			}
		}
	})
}

func checkSound(t *rapid.T, s *ProviderSecret, act string, wasRunning bool) {
	var active, weight uint32
	for _, v := range s.Versions {
		if v.State == SecretActive {
			active++
			weight += v.Weight
		} else if v.Weight != 0 {
			t.Fatalf("%s: version %d is %s with a weight", act, v.Number, v.State)
		}
		if (v.State == SecretDestroyed) != (v.Value == nil) {
			t.Fatalf("%s: version %d is %s with value %v", act, v.Number, v.State, v.Value)
		}
		if v.State == SecretRetired && v.DestroyAt.IsZero() {
			t.Fatalf("%s: version %d is retired for ever", act, v.Number)
		}
	}
	if want := map[bool]uint32{true: 2, false: 1}[s.running()]; active != 0 && (active != want || weight != 100) {
		t.Fatalf("%s: %d versions in use, weights %d, rollout running %v", act, active, weight, s.running())
	}
	if wasRunning && active == 0 && act != "disable" && act != "delete" {
		t.Fatalf("%s: a rollout left no version in use", act)
	}
	if s.running() && (s.Version(s.Rollout.From).State != SecretActive || s.Version(s.Rollout.To).State != SecretActive) {
		t.Fatalf("%s: a rollout runs without its versions", act)
	}
}

func TestARolloutGoesThroughItsStepsToItsEnd(t *testing.T) {
	s := newTestSecret()
	s.stage()
	if err := s.activate(day0, ActivateInput{Version: 2, Steps: []uint32{10, 30, 100}, Interval: time.Minute, Observe: time.Hour}); err != nil {
		t.Fatal(err)
	}
	now := day0
	for _, want := range []string{"90 10", "70 30", "0 100"} {
		if got := fmt.Sprint(s.Version(1).Weight, s.Version(2).Weight); got != want || !s.running() {
			t.Errorf("weights %s, want %s", got, want)
		}
		if due := s.Due(); !due.Equal(now.Add(time.Minute)) {
			t.Errorf("due at %v", due)
		}
		now = now.Add(time.Minute)
		s.advance(now)
	}
	old := s.Version(1)
	if s.running() || s.Rollout.State != RolloutDone || old.State != SecretRetired || !old.DestroyAt.Equal(now.Add(time.Hour)) {
		t.Errorf("at the end: %+v, %+v", s.Rollout, old)
	}
	if err := s.Clone().rollback(now.Add(59 * time.Minute)); err != nil {
		t.Errorf("rolling back in the window: %v", err)
	}
	if version, any := s.destroyDue(now.Add(time.Hour)); !any || version != old.Number || old.State != SecretDestroyed || old.Value != nil || old.DataKey != nil {
		t.Errorf("after the window: %+v", old)
	}
	if err := s.rollback(now.Add(time.Hour)); KindOf(err) != KindConflict {
		t.Errorf("rolling back after the window: %v", err)
	}
}

func TestAnEmergencyDisableAlwaysWorks(t *testing.T) {
	for name, prepare := range map[string]func(*ProviderSecret){
		"the last one": func(*ProviderSecret) {},
		"in a rollout": func(s *ProviderSecret) {
			s.stage()
			s.activate(day0, ActivateInput{Version: 2, Steps: []uint32{10, 100}})
		},
		"pending":  func(s *ProviderSecret) { s.scheduleDeletion(day0, 7) },
		"retired":  func(s *ProviderSecret) { s.stage(); s.activate(day0, ActivateInput{Version: 2}) },
		"disabled": func(s *ProviderSecret) { s.disable(day0, 1) },
	} {
		s := newTestSecret()
		prepare(s)
		if err := s.disable(day0, 1); err != nil || s.Version(1).State != SecretDisabled {
			t.Errorf("%s: %v, %+v", name, err, s.Version(1))
		}
		for _, v := range s.usable(day0) {
			if v.Number == 1 {
				t.Errorf("%s: it is handed out", name)
			}
		}
	}
}

func TestRolloutsAreJudgedByWhatTellsOfTheKey(t *testing.T) {
	r := &Rollout{State: RolloutRunning, From: 1, To: 2}
	for name, c := range map[string]struct {
		from, to SecretOutcome
		want     judgement
	}{
		"nothing reported":                  {want: rolloutGoesOn},
		"successes":                         {SecretOutcome{OK: 90}, SecretOutcome{OK: 10}, rolloutGoesOn},
		"two refusals of many":              {SecretOutcome{OK: 90}, SecretOutcome{OK: 8, Credential: 2}, rolloutGoesOn},
		"three refusals":                    {SecretOutcome{OK: 90}, SecretOutcome{OK: 7, Credential: 3}, rolloutFails},
		"nothing but refusals":              {SecretOutcome{OK: 90}, SecretOutcome{Credential: 3}, rolloutFails},
		"refusals, and nobody else calls":   {SecretOutcome{}, SecretOutcome{Credential: 3}, rolloutFails},
		"three refusals of very many":       {SecretOutcome{OK: 9000}, SecretOutcome{OK: 1000, Credential: 3}, rolloutGoesOn},
		"both are refused":                  {SecretOutcome{OK: 50, Credential: 50}, SecretOutcome{OK: 2, Credential: 8}, rolloutGoesOn},
		"both, but nothing else":            {SecretOutcome{Credential: 50}, SecretOutcome{Credential: 8}, rolloutHolds},
		"the provider is away":              {SecretOutcome{Transient: 500}, SecretOutcome{Transient: 50}, rolloutHolds},
		"the provider is away for the new":  {SecretOutcome{OK: 500}, SecretOutcome{Transient: 50}, rolloutHolds},
		"out of quota":                      {SecretOutcome{OK: 500}, SecretOutcome{Quota: 50, RateLimit: 50}, rolloutHolds},
		"the new one is not called":         {SecretOutcome{OK: 500}, SecretOutcome{}, rolloutHolds},
		"away, with a success":              {SecretOutcome{Transient: 500}, SecretOutcome{OK: 1, Transient: 50}, rolloutGoesOn},
		"a provider's outage and a refusal": {SecretOutcome{Transient: 500}, SecretOutcome{OK: 1, Transient: 50, Credential: 1}, rolloutGoesOn},
	} {
		c.from.Version, c.to.Version = 1, 2
		if got := r.judge([]SecretOutcome{c.from, c.to}); got != c.want {
			t.Errorf("%s: judged %d, want %d", name, got, c.want)
		}
	}
}

func TestActivationsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, in := range map[string]ActivateInput{
		"a missing version": {Version: 9},
		"one in use":        {Version: 1},
		"descending":        {Version: 2, Steps: []uint32{30, 10, 100}},
		"no end":            {Version: 2, Steps: []uint32{10, 30}},
		"beyond":            {Version: 2, Steps: []uint32{10, 101}},
		"zero":              {Version: 2, Steps: []uint32{0, 100}},
		"too many":          {Version: 2, Steps: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100}},
		"short":             {Version: 2, Interval: MinInterval - 1},
		"long":              {Version: 2, Observe: MaxObserve + 1},
	} {
		s := newTestSecret()
		s.stage()
		if err := s.activate(day0, in); err == nil {
			t.Errorf("%s: is done", name)
		}
	}
	s := newTestSecret()
	s.Version(s.stage()).NotAfter = day0
	if err := s.activate(day0, ActivateInput{Version: 2}); KindOf(err) != KindConflict {
		t.Errorf("an expired one: %v", err)
	}
}

func TestAVersionThatExpiresInARolloutLeavesTheOther(t *testing.T) {
	s := newTestSecret()
	s.Version(1).NotAfter = day0.Add(time.Hour)
	s.stage()
	if err := s.activate(day0, ActivateInput{Version: 2, Steps: []uint32{10, 100}}); err != nil {
		t.Fatal(err)
	}
	f := &Fetched{Secret: s}
	f.decide(day0.Add(time.Minute*30), s.Revision, nil)
	if f.Status != FetchUnchanged || !f.LeaseEnd.Equal(day0.Add(time.Hour)) {
		t.Errorf("before: %s until %v", f.Status, f.LeaseEnd)
	}
	f.decide(day0.Add(time.Hour), s.Revision, nil)
	if f.Status != FetchOK || len(f.usable) != 1 || f.usable[0].Number != 2 {
		t.Errorf("after: %s, %+v", f.Status, f.usable)
	}
}

func TestDataKeysAreHeldForAWhileAndWipedThen(t *testing.T) {
	c := newDataKeyCache()
	id := func(n uint32) dataKeyID { return dataKeyID{version: n} }
	var key, got [dataKeySize]byte
	key[0] = 7
	c.put(id(1), day0, &key)
	held := c.keys[id(1)]
	if !c.get(id(1), day0.Add(dataKeyTTL-1), &got) || got != key {
		t.Error("it is not held")
	}
	if c.get(id(1), day0.Add(dataKeyTTL), &got) {
		t.Error("it is held too long")
	}
	c.expire(day0.Add(dataKeyTTL))
	if held.key[0] != 0 || len(c.keys) != 0 || len(c.order) != 0 {
		t.Error("it is not wiped")
	}
	for n := range uint32(maxDataKeys + 10) {
		c.put(id(n), day0, &key)
	}
	if len(c.keys) != maxDataKeys || len(c.order) != maxDataKeys || c.get(id(0), day0, &got) {
		t.Errorf("%d keys are held", len(c.keys))
	}
	last := c.keys[id(maxDataKeys)]
	c.forget(id(maxDataKeys))
	c.clear()
	if last.key[0] != 0 || len(c.keys) != 0 {
		t.Error("they are not wiped")
	}
}
