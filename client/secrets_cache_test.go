package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/client"
)

func isError(err, want error) bool { return errors.Is(err, want) }

func preload(t *testing.T, s *client.Secrets, paths ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Preload(ctx, paths...); err != nil {
		t.Fatal(err)
	}
}

// Where a plain cache lets a value run out, the next request pays for it.
func TestAValueIsRefreshedBehindTheRequestsAtHalfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		time.Sleep(134 * time.Second) // nine tenths of the half of 5 min
		if n := len(f.fetches()); n != 1 {
			t.Errorf("%d fetches before half its life, want 1", n)
		}
		time.Sleep(31 * time.Second)
		if n := len(f.fetches()); n != 2 {
			t.Errorf("%d fetches after half its life, want 2", n)
		}
		if got := f.fetches()[1].Items[0].HaveRevision; got != 2 {
			t.Errorf("it asked with revision %d, want that which it has", got)
		}
		for range 100 {
			time.Sleep(time.Minute)
			expect(t, h, 1, nil)
		}
	})
}

func TestAHandleFollowsARotationWithoutBeingAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		old, _ := h.Get("request")
		f.set("a", 2)
		synctest.Wait()
		expect(t, h, 2, nil)
		if old.Reveal() != valueOf("a", 1) {
			t.Error("a rotation took the value from a request that is under way")
		}
	})
}

// A rotation's event may come before the node that is asked knows of it.
func TestAnEventThatOutrunsTheReplicaIsFollowedUntilTheReplicaHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		// The event is told by a node that knows; the fetch meets one that does not.
		behind := time.Now().Add(700 * time.Millisecond)
		f.do(func() {
			f.fault = func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "fetch") && time.Now().Before(behind) {
					return problem(412, client.ErrStaleReplica, nil), nil
				}
				return nil, nil
			}
		})
		r := f.set("a", 2)
		synctest.Wait()
		expect(t, h, 1, nil)
		time.Sleep(2 * time.Second)
		expect(t, h, 2, nil)
		if last := f.fetches()[len(f.fetches())-1]; last.MinRevision < r {
			t.Errorf("it fetched as of revision %d, the event's is %d", last.MinRevision, r)
		}
	})
}

func TestAnOlderAnswerUnderWayDoesNotBringBackWhatWasRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		f.do(func() { f.delay = 5 * time.Second })
		f.set("a", 2) // its fetch is answered in 5 s
		time.Sleep(time.Second)
		f.do(func() { f.delay = 0 })
		f.put("a", "revoked", "disabled")
		synctest.Wait()
		expect(t, h, 0, client.ErrRevoked)
		for range 20 {
			time.Sleep(time.Second)
			expect(t, h, 0, client.ErrRevoked)
		}
	})
}

// outages are all the ways in which something other than the service's word
// comes back.
var outages = map[string]func(*http.Request) (*http.Response, error){
	"broken connection": func(*http.Request) (*http.Response, error) { return nil, errBroken },
	"no connection":     func(*http.Request) (*http.Response, error) { return nil, errRefused },
	"500":               func(*http.Request) (*http.Response, error) { return problem(500, client.ErrInternal, nil), nil },
	"502 of a proxy":    page(502),
	"503, store":        func(*http.Request) (*http.Response, error) { return problem(503, client.ErrStoreUnavailable, nil), nil },
	"503, HSMs":         func(*http.Request) (*http.Response, error) { return problem(503, client.ErrHSMUnavailable, nil), nil },
	"429": func(*http.Request) (*http.Response, error) {
		return problem(429, client.ErrQuotaExceeded, retryAfter("7")), nil
	},
	"404 of a proxy":  page(404),
	"403 of a proxy":  page(403),
	"401 of a proxy":  page(401),
	"200 of a portal": page(200),
	"half an answer":  func(*http.Request) (*http.Response, error) { return ok(`{"revision":9,"items":[`), nil },
	"an answer of others": func(*http.Request) (*http.Response, error) {
		return ok(`{"revision":99,"items":[{"path":"b","status":"not_found"}]}`), nil
	},
	"no versions": func(*http.Request) (*http.Response, error) {
		return ok(`{"revision":99,"items":[{"path":"a","status":"ok","revision":99,"fresh_until":"2100-01-01T00:00:00Z","lease_end":"2100-01-01T00:00:00Z","versions":[]}]}`), nil
	},
	"a lease that is over": func(*http.Request) (*http.Response, error) {
		return ok(`{"revision":99,"items":[{"path":"a","status":"ok","revision":99,"versions":[{"version":9,"weight":1,"value":"x"}]}]}`), nil
	},
	"unknown status": func(*http.Request) (*http.Response, error) {
		return ok(`{"revision":99,"items":[{"path":"a","status":"elsewhere"}]}`), nil
	},
	"never answered": func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	},
}

func page(status int) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return answer(status, nil, "text/html", "<p>"), nil }
}

func TestAnOutageNeverTakesAGoodValueAndItsHardExpiryAlwaysDoes(t *testing.T) {
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", 1)
				s := newSecrets(t, f, client.SecretsOptions{})
				h := s.Handle("a")
				preload(t, s, "a")
				start := time.Now()
				f.do(func() { f.fault = fault })
				f.cut()
				for time.Since(start) < time.Hour-2*time.Second {
					expect(t, h, 1, nil)
					time.Sleep(10 * time.Second)
				}
				time.Sleep(time.Until(start.Add(time.Hour + time.Millisecond)))
				v, err := h.Get("request")
				if err == nil || !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("after its hard expiry: a value: %v, error %v", !v.IsZero(), err)
				}
				f.do(func() { f.fault = nil })
				time.Sleep(2 * maxPause)
				expect(t, h, 1, nil)
			})
		})
	}
}

// maxPause is the longest pause between fetches: 30 s and a tenth, behind one
// that lasts 10 s.
const maxPause = 43 * time.Second

func TestTheServicesRefusalEndsAValueAtOnceAndItStaysEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		status string
		want   error
	}{
		"not found": {"not_found", client.ErrNotFound}, "disabled": {"disabled", client.ErrRevoked}, "denied": {"denied", client.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", 1)
				s := newSecrets(t, f, client.SecretsOptions{})
				h := s.Handle("a")
				preload(t, s, "a")
				synctest.Wait()
				held, _ := h.Get("request")
				f.put("a", "changed", tc.status)
				synctest.Wait()
				expect(t, h, 0, tc.want)
				if !held.IsZero() {
					t.Error("the value outlives the refusal in the hands of those who took it")
				}
				// An outage after it is no reason to go back.
				f.do(func() { f.fault = outages["no connection"] })
				for range 30 {
					time.Sleep(time.Minute)
					if v, err := h.Get("request"); err == nil {
						t.Fatalf("it came back: %q", v.Reveal())
					}
				}
			})
		})
	}
}

func TestARefusedCredentialEndsWhatItHeld(t *testing.T) {
	for status, code := range map[int]client.Code{401: client.ErrUnauthenticated, 403: client.ErrPermissionDenied} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.set("a", 1)
			s := newSecrets(t, f, client.SecretsOptions{})
			h := s.Handle("a")
			preload(t, s, "a")
			f.do(func() {
				f.fault = func(*http.Request) (*http.Response, error) { return problem(status, code, nil), nil }
			})
			time.Sleep(166 * time.Second) // the refresh comes before
			expect(t, h, 0, client.ErrDenied)
			f.do(func() { f.fault = nil })
			time.Sleep(5 * time.Second)
			if v, err := h.Await(t.Context(), "r"); err != nil || v.IsZero() {
				t.Errorf("after the credential was put right: %v", err)
			}
		})
	}
}

func TestAMissingSecretIsAskedForAgainAfterSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		for range 100 {
			if _, err := h.Await(t.Context(), "r"); !errors.Is(err, client.ErrNotFound) {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Millisecond)
		}
		if n := len(f.fetches()); n != 1 {
			t.Errorf("%d fetches in 1.5 s, want 1", n)
		}
		time.Sleep(2 * time.Second)
		h.Await(t.Context(), "r")
		if n := len(f.fetches()); n != 2 {
			t.Errorf("%d fetches after 2 s, want 2", n)
		}
		// The watch tells at once when it is there.
		f.set("a", 1)
		synctest.Wait()
		expect(t, h, 1, nil)
	})
}

func TestAGapInTheWatchHasEverythingFetchedAgain(t *testing.T) {
	for name, lose := range map[string]func(*fakeService){
		"resync": func(f *fakeService) { f.events = append(f.events, fakeEvent{kind: "resync", Revision: f.revision}) },
		"nonsense": func(f *fakeService) {
			f.events = append(f.events, fakeEvent{kind: "changed\ndata: {", Revision: f.revision})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", 1)
				f.set("b", 1)
				s := newSecrets(t, f, client.SecretsOptions{})
				a, b := s.Handle("a"), s.Handle("b")
				preload(t, s, "a", "b")
				synctest.Wait()
				f.do(func() { f.mute = true })
				f.put("a", "revoked", "disabled")
				f.do(func() {
					f.events = nil // nobody will tell
					lose(f)
					f.mute = false
				})
				f.cut()
				time.Sleep(6 * time.Second)
				expect(t, a, 0, client.ErrRevoked)
				expect(t, b, 1, nil)
				unchanged := false
				for _, fetch := range f.fetches() {
					for _, i := range fetch.Items {
						unchanged = unchanged || i.Path == "b" && i.HaveRevision != 0
					}
				}
				if !unchanged {
					t.Error("what is held was not asked for by its revision")
				}
			})
		})
	}
}

// Whose credential loses a secret is not told of it by an event of the secret:
// the stream ends.
func TestAWatchThatEndsHasWhatIsHeldAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		f.set("b", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		a, b := s.Handle("a"), s.Handle("b")
		preload(t, s, "a", "b")
		synctest.Wait()
		f.do(func() { f.history["a"] = append(f.history["a"], fakeSecret{f.revision, "denied", nil}) })
		f.cut()
		synctest.Wait()
		expect(t, a, 0, client.ErrDenied)
		expect(t, b, 1, nil)
	})
}

func TestASilentWatchIsReplacedByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		f.do(func() { f.mute = true })
		time.Sleep(46 * time.Second)
		if !s.Stats().Polling {
			t.Fatal("the watch is silent for more than three heartbeats, and it does not poll")
		}
		f.set("a", 2)
		time.Sleep(10 * time.Second)
		expect(t, h, 2, nil)
		f.do(func() { f.mute = false })
		time.Sleep(2 * time.Minute)
		n := len(f.fetches())
		if s.Stats().Polling {
			t.Error("it polls although the watch speaks")
		}
		time.Sleep(2 * time.Minute)
		if more := len(f.fetches()) - n; more > 1 {
			t.Errorf("%d fetches in 2 min with the watch, want at most 1", more)
		}
	})
}

// Clocks here and there may be wrong by any amount.
func TestWrongClocksNeitherEndNorLengthenALease(t *testing.T) {
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.skew = skew
			f.set("a", 1)
			s := newSecrets(t, f, client.SecretsOptions{})
			h := s.Handle("a")
			preload(t, s, "a")
			start := time.Now()
			f.do(func() { f.fault = outages["no connection"] })
			f.cut()
			time.Sleep(time.Hour - 2*time.Second)
			expect(t, h, 1, nil)
			time.Sleep(time.Until(start.Add(time.Hour + time.Millisecond)))
			expect(t, h, 0, client.ErrUnavailable)
		})
	}
}

func TestAnsweredOutOfOrderTheNewestRevisionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		for v := uint32(2); v < 12; v++ { // each answer comes before the one that was asked for first
			f.do(func() { f.delay = time.Duration(12-v) * time.Second / 2 })
			f.set("a", v)
			time.Sleep(10 * time.Millisecond)
		}
		last := uint32(1)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			v, err := h.Get("r")
			if err != nil {
				t.Fatal(err)
			}
			for n := last; ; n++ {
				if n > 11 {
					t.Fatalf("%q after version %d", v.Reveal(), last)
				}
				if v.Reveal() == valueOf("a", n) {
					last = n
					break
				}
			}
		}
		if last != 11 {
			t.Errorf("version %d in the end, want 11", last)
		}
	})
}

func TestManyMissesShareFewFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var paths []string
		for i := range 1000 {
			paths = append(paths, "p/"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
			f.set(paths[i], 1)
		}
		f.do(func() { f.delay = 10 * time.Millisecond })
		s := newSecrets(t, f, client.SecretsOptions{})
		for range 20 { // twenty programs' parts ask for the same
			go s.Preload(t.Context(), paths...)
		}
		preload(t, s, paths...)
		if n := len(f.fetches()); n > 14 {
			t.Errorf("%d fetches for 1000 secrets, want about 10", n)
		}
	})
}

// Paths may come from a gateway's own callers.
func TestAPathThatTheServiceRefusesIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var paths []string
		for i := range 50 {
			paths = append(paths, fmt.Sprintf("p/%d", i))
			f.set(paths[i], 1)
		}
		f.do(func() {
			f.fault = func(r *http.Request) (*http.Response, error) {
				if body, err := r.GetBody(); err == nil && strings.Contains(readAll(t, body), `"refused"`) {
					return problem(400, client.ErrInvalidArgument, nil), nil
				}
				return nil, nil
			}
		})
		s := newSecrets(t, f, client.SecretsOptions{MaxFetches: 1})
		s.Handle("first") // occupies the fetch, so that the others go together
		refused := s.Handle("refused")
		preload(t, s, paths...)
		if _, err := refused.Await(t.Context(), "r"); !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("the refused one: %v", err)
		}
		n := len(f.fetches())
		time.Sleep(10 * time.Minute)
		if more := len(f.fetches()) - n; more > 130 { // one by one it would be 200
			t.Errorf("%d fetches in 10 min: the secrets do not go together again", more)
		}
	})
	s := newSecrets(t, newFake(), client.SecretsOptions{})
	for _, path := range []string{"", "/", "a//b", "a/", "../a", "a/.", "a b", "a*", "ä", "a\n", "a:b", strings.Repeat("a", 241)} {
		if _, err := s.Handle(path).Await(t.Context(), "r"); !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestAnOutageIsProbedByOneFetchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var paths []string
		for i := range 1000 {
			paths = append(paths, "p/"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
			f.set(paths[i], 1)
		}
		s := newSecrets(t, f, client.SecretsOptions{})
		preload(t, s, paths...)
		attempts := 0
		f.do(func() {
			f.fault = func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "fetch") {
					attempts++
				}
				return nil, errRefused
			}
		})
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if attempts > 30*60/2 {
			t.Errorf("%d attempts in 30 min of outage", attempts)
		}
	})
}

func TestTheNumberOfSecretsIsBoundedAndAHandleOutlivesEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := newSecrets(t, f, client.SecretsOptions{MaxSecrets: 10})
		var handles []*client.Handle
		for i := range 50 {
			path := "p/" + strings.Repeat("x", i+1)
			f.set(path, 1)
			handles = append(handles, s.Handle(path))
			preload(t, s, path)
			if held := s.Stats().Held; held > 10 {
				t.Fatalf("%d secrets are held, want at most 10", held)
			}
		}
		for _, h := range handles {
			if v, err := h.Await(t.Context(), "r"); err != nil || v.Reveal() != valueOf(h.Path(), 1) {
				t.Errorf("%s: %v", h.Path(), err)
			}
		}
	})
}

func TestAnOutageWithEverNewSecretsTakesBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.fault = outages["no connection"]
		s := newSecrets(t, f, client.SecretsOptions{MaxSecrets: 10})
		for i := range 1000 {
			s.Handle(fmt.Sprintf("p/%d", i))
			synctest.Wait()
			if now := s.Stats(); now.Held > 10 || now.Waiting > 20 {
				t.Fatalf("%d secrets are held and %d wait, of at most 10", now.Held, now.Waiting)
			}
		}
	})
}

func TestWhatWasRevokedDoesNotComeBackByWayOfEviction(t *testing.T) {
	for _, careless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.careless = careless
			f.set("a", 1)
			s := newSecrets(t, f, client.SecretsOptions{MaxSecrets: 1})
			preload(t, s, "a")
			synctest.Wait()
			f.put("a", "revoked", "disabled")
			synctest.Wait()
			f.set("b", 1)
			preload(t, s, "b") // takes the room
			f.do(func() { f.lag, f.lagSince = 2, time.Now() })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if v, err := s.Handle("a").Await(ctx, "r"); err == nil {
				t.Errorf("a node that lags brought it back: %q", v.Reveal())
			}
		})
	}
}

func TestAWipeReachesValuesThatWereTakenBeforeARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		synctest.Wait()
		taken, _ := h.Get("r")
		f.put("a", "changed", "ok", fakeVersion{1, 50, valueOf("a", 1)}, fakeVersion{2, 50, valueOf("a", 2)})
		synctest.Wait()
		if taken.IsZero() {
			t.Error("a change of weights wiped the value")
		}
		f.put("a", "revoked", "ok", fakeVersion{2, 100, valueOf("a", 2)})
		synctest.Wait()
		if !taken.IsZero() {
			t.Error("the revoked version is left with who took it")
		}
		expect(t, h, 2, nil)
	})
}

func TestAServiceThatWasRestoredIsBelievedWhenNothingIsLeftOfWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.do(func() { f.revision = 100 })
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		f.do(func() {
			f.revision, f.events = 10, nil
			f.history = map[string][]fakeSecret{"a": {{9, "ok", []fakeVersion{{7, 1, valueOf("a", 7)}}}}}
		})
		f.cut()
		for range 58 {
			expect(t, h, 1, nil)
			time.Sleep(time.Minute)
		}
		time.Sleep(5 * time.Minute)
		expect(t, h, 7, nil)
	})
}

func TestCloseWipesWhatIsHeldAndEndsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", 1)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		v, _ := h.Get("r")
		f.do(func() { f.fault = outages["never answered"] })
		waited := make(chan error, 1)
		go func() {
			_, err := s.Handle("b").Await(t.Context(), "r")
			waited <- err
		}()
		synctest.Wait()
		s.Close()
		if err := <-waited; !errors.Is(err, client.ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		if !v.IsZero() || v.Reveal() != "" {
			t.Error("a value is left")
		}
		expect(t, h, 0, client.ErrClosed)
		expect(t, s.Handle("c"), 0, client.ErrClosed)
		s.Close()
	})
}

func TestErrorsTellWhyThereIsNoValue(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(*http.Request) (*http.Response, error)
		state string
		want  []error
	}{
		"sealed":      {outages["503, HSMs"], "ok", []error{client.ErrSealed, client.ErrUnavailable, client.ErrHSMUnavailable}},
		"unavailable": {outages["broken connection"], "ok", []error{client.ErrUnavailable, client.ErrNoAnswer}},
		"one item":    {nil, "unavailable", []error{client.ErrUnavailable}},
		"denied":      {nil, "denied", []error{client.ErrDenied}},
		"disabled":    {nil, "disabled", []error{client.ErrRevoked}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put("a", "changed", tc.state, fakeVersion{1, 1, "x"})
				f.fault = tc.fault
				s := newSecrets(t, f, client.SecretsOptions{})
				_, err := s.Handle("a").Await(t.Context(), "r")
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
			})
		})
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	c := newClient(t, client.Options{Address: "http://kms.test"})
	for _, o := range []client.SecretsOptions{
		{Freshness: time.Millisecond}, {Freshness: 2 * time.Hour}, {HardExpiry: time.Second}, {PollFreshness: 1}, {NegativeFreshness: time.Minute},
		{NegativeFreshness: time.Millisecond}, {MaxSecrets: -1}, {MaxFetches: -1}, {MaxReports: -1},
	} {
		if _, err := c.Secrets(o); !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := c.WithDryRun().Secrets(client.SecretsOptions{}); !errors.Is(err, client.ErrInvalidArgument) {
		t.Error("a dry run has secrets")
	}
}
