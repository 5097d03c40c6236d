package abuse

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// shelf stores baselines in memory.
type shelf struct {
	mu      sync.Mutex // guards the rest
	all     map[uuid.UUID][]byte
	puts    int
	largest int
	failing bool
}

var errAway = errors.New("away")

func (s *shelf) Baseline(_ context.Context, _, credential uuid.UUID) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing {
		return nil, errAway
	}
	return s.all[credential], nil
}

func (s *shelf) PutBaselines(_ context.Context, list []kms.StoredBaseline) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing {
		return errAway
	}
	s.puts++
	for _, b := range list {
		s.all[b.Credential] = b.Document
		s.largest = max(s.largest, len(b.Document))
	}
	return nil
}

func watcherOf(d *Detector, s *shelf, flag func(uuid.UUID, bool) error) WatcherConfig {
	return WatcherConfig{Detector: d, Baselines: s, Log: slog.New(slog.DiscardHandler), Clock: time.Now, Registerer: prometheus.NewRegistry(),
		Flag: func(_ context.Context, _, credential uuid.UUID, _ []kms.AbuseReading, learnt bool) error {
			return flag(credential, learnt)
		}}
}

// The watcher's clock is the bubble's: it looks by itself.
func TestWhatWasLearntSurvivesARestartAndATheftIsActedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(monday.Add(27 * time.Hour))) // after what was learnt
		known, a, _ := learnt(t)
		store := &shelf{all: map[uuid.UUID][]byte{}}
		fine := func(uuid.UUID, bool) error { t.Error("a flag before the theft"); return nil }
		first := Start(watcherOf(known, store, fine))
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if len(store.all) != 1 || store.largest > kms.MaxBaseline {
			t.Fatalf("%d baselines, the largest of %d bytes", len(store.all), store.largest)
		}

		d := NewDetector(MaxCredentials)
		var mu sync.Mutex
		flagged := map[bool]int{}
		second := Start(watcherOf(d, store, func(_ uuid.UUID, learnt bool) error {
			mu.Lock()
			defer mu.Unlock()
			flagged[learnt]++
			return nil
		}))
		thief := a.send
		thief.d = d
		for range 12 {
			thief.from, thief.n = time.Now(), 0
			for range 10 {
				thief.call(0xdeadbeef, ClientOf("curl/8.5.0"), opDecrypt, 9)
			}
			time.Sleep(slot / 2)
		}
		mu.Lock()
		if flagged[true] != 1 || len(flagged) != 1 {
			t.Errorf("flags %v in a minute", flagged)
		}
		mu.Unlock()
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhileTheStoreIsAwayNothingIsLostAndNothingIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(monday))
		d := NewDetector(MaxCredentials)
		store := &shelf{all: map[uuid.UUID][]byte{}, failing: true}
		w := Start(watcherOf(d, store, func(uuid.UUID, bool) error { t.Error("judged"); return nil }))
		a := population(d, 1, 11)[0]
		call := func() {
			a.send.from, a.send.n = time.Now(), 0
			for range 100 {
				a.send.call(a.send.rng.Uint32(), a.client, opSign, 8)
			}
		}
		for range 60 {
			call()
			time.Sleep(slot)
		}
		if n := len(d.Unknown(10)); n != 1 {
			t.Errorf("%d are unknown", n)
		}
		time.Sleep(2 * time.Minute) // nobody calls, so nothing is to be judged
		store.mu.Lock()
		store.failing = false
		store.mu.Unlock()
		time.Sleep(time.Minute)
		if n := len(d.Unknown(10)); n != 0 {
			t.Errorf("%d are unknown when the store is back", n)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if len(store.all) != 1 {
			t.Errorf("%d baselines were stored", len(store.all))
		}
	})
}

func TestAFlagThatAnotherNodeHasTakenIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, at := learnt(t)
		time.Sleep(time.Until(at))
		tried := 0
		w := Start(watcherOf(d, &shelf{all: map[uuid.UUID][]byte{}}, func(uuid.UUID, bool) error {
			tried++
			return kms.Errorf(kms.KindConflict, "a flag is open already")
		}))
		thief := a.send
		time.Sleep(time.Second) // he never calls at the instant of a look
		var flagged time.Time
		for range 24 {
			thief.o.Flagged = flagged
			thief.from, thief.n = time.Now(), 0
			for range 10 {
				thief.call(0xdeadbeef, ClientOf("curl/8.5.0"), opDecrypt, 9)
			}
			time.Sleep(slot / 2)
			if tried > 0 && flagged.IsZero() {
				flagged = time.Now() // as its record says from now on
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if tried < 1 || tried > 2 {
			t.Errorf("%d flags", tried)
		}
	})
}
