package keystore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// sharedDriver has one key of one tenant, which others are said to change.
type sharedDriver struct {
	tenantsDriver
	nothingToPurge
	mu       sync.Mutex
	position int
	server   string
	changes  []ChangeRow // from the next call on
	down     bool
	deaf     bool
	loads    int
	polls    []time.Time
	heard    chan struct{}
}

func newSharedDriver() *sharedDriver {
	d := &sharedDriver{server: "first", heard: make(chan struct{}, 1)}
	d.revision.Store(1)
	return d
}

func (d *sharedDriver) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

var errDown = errors.New("down")

func (d *sharedDriver) Changes(_ context.Context, p ChangesParams) (*ChangesResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.polls = append(d.polls, time.Now())
	if d.down {
		return nil, errDown
	}
	if want := fmt.Sprint(d.position); p.Since != want && d.position > 0 {
		return nil, fmt.Errorf("since %q, want %q", p.Since, want)
	}
	d.position++
	r := &ChangesResult{Position: fmt.Sprint(d.position), Server: d.server, Changes: d.changes}
	d.changes = nil
	return r, nil
}

func (d *sharedDriver) Announcements(ctx context.Context, announce func()) error {
	for {
		d.mu.Lock()
		deaf := d.deaf
		d.mu.Unlock()
		if deaf {
			return errDown
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.heard:
			announce()
		}
	}
}

func (d *sharedDriver) DeleteOldChanges(context.Context, DeleteOldChangesParams) (int, error) {
	return 0, nil
}
func (d *sharedDriver) Key(ctx context.Context, p KeyParams) (*KeyRow, error) {
	d.mu.Lock()
	d.loads++
	d.mu.Unlock()
	return d.tenantsDriver.Key(ctx, p)
}

// loaded looks the key up and tells how often it was read since the last call.
func (d *sharedDriver) loaded(t *testing.T, s *Store) int {
	t.Helper()
	d.mu.Lock()
	before := d.loads
	d.mu.Unlock()
	if _, err := s.Lookup(t.Context(), uuid.Nil(), uuid.Nil().String()); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loads - before
}

func idOf(id uuid.UUID) Bytes { return bytesOf(id[:]) }

func TestChangesOfOthersAreForgottenOnceAnnouncedOrPolled(t *testing.T) {
	other := uuid.NewV7()
	changed := func(object Object, id uuid.UUID) ChangeRow {
		return ChangeRow{Object: textOf(string(object)), Tenant: idOf(uuid.Nil()), ID: idOf(id)}
	}
	many := make([]ChangeRow, pollLimit+1)
	for i := range many {
		many[i] = changed(ObjectKey, other)
	}
	for name, test := range map[string]struct {
		changes []ChangeRow
		server  string
		loads   int
	}{
		"nothing":              {nil, "first", 0},
		"the key":              {[]ChangeRow{changed(ObjectKey, uuid.Nil())}, "first", 1},
		"another key":          {[]ChangeRow{changed(ObjectKey, other)}, "first", 0},
		"a credential":         {[]ChangeRow{changed(ObjectCredential, uuid.Nil())}, "first", 0},
		"something unknown":    {[]ChangeRow{changed("planet", other)}, "first", 1},
		"more than is counted": {many, "first", 1},
		"another server":       {nil, "second", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSharedDriver()
				s := newOpen(d, Options{})
				defer s.Close()
				synctest.Wait()
				d.loaded(t, s)
				if n := d.loaded(t, s); n != 0 {
					t.Fatalf("a warm look-up read %d times", n)
				}
				d.set(func() { d.changes, d.server = test.changes, test.server })
				d.heard <- struct{}{}
				synctest.Wait() // no time passes
				if n := d.loaded(t, s); n != test.loads {
					t.Errorf("announced: %d reads, want %d", n, test.loads)
				}
				d.set(func() { d.changes, d.server = test.changes, test.server+" again" })
				if test.server == "first" {
					d.set(func() { d.server = "first" })
				}
				time.Sleep(pollInterval)
				synctest.Wait()
				if n := d.loaded(t, s); n != test.loads {
					t.Errorf("not announced: %d reads, want %d", n, test.loads)
				}
			})
		})
	}
}

func TestMovedNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSharedDriver()
		s := newOpen(d, Options{})
		defer s.Close()
		synctest.Wait()
		names := 0
		s.keyNames.load = func(context.Context, keyName) (uuid.UUID, error) { names++; return uuid.Nil(), nil }
		lookup := func() {
			if _, err := s.Lookup(t.Context(), uuid.Nil(), "alias"); err != nil {
				t.Fatal(err)
			}
		}
		lookup()
		d.set(func() {
			d.changes = []ChangeRow{{Object: textOf(string(ObjectKeyName)), Tenant: idOf(uuid.Nil()), Name: textOf("alias")}}
		})
		lookup()
		if names != 1 {
			t.Fatalf("a warm name was read %d times", names)
		}
		time.Sleep(pollInterval)
		synctest.Wait()
		if lookup(); names != 2 {
			t.Errorf("a moved name was read %d times, want 2", names)
		}
	})
}

func TestStaleStateIsRefusedUntilTheDatabaseAnswers(t *testing.T) {
	const staleness = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		d := newSharedDriver()
		s := newOpen(d, Options{Staleness: staleness})
		defer s.Close()
		synctest.Wait()
		asked := time.Now()
		d.loaded(t, s)
		d.set(func() { d.down = true })
		calls := map[string]func() error{
			"Lookup":                      func() error { _, err := s.Lookup(t.Context(), uuid.Nil(), uuid.Nil().String()); return err },
			"Tenant":                      func() error { _, err := s.Tenant(t.Context(), uuid.Nil()); return err },
			"TenantByRef":                 func() error { _, err := s.TenantByRef(t.Context(), uuid.Nil().String()); return err },
			"CredentialForAuthentication": func() error { _, err := s.CredentialForAuthentication(t.Context(), uuid.Nil()); return err },
		}
		time.Sleep(time.Until(asked.Add(staleness - time.Nanosecond)))
		if n := d.loaded(t, s); n != 0 {
			t.Errorf("before the bound: %d reads", n)
		}
		time.Sleep(time.Nanosecond)
		for name, call := range calls {
			if err := call(); kms.KindOf(err) != kms.KindStoreUnavailable || err == nil {
				t.Errorf("%s at the bound: %v", name, err)
			}
		}
		d.set(func() { d.down = false })
		time.Sleep(lastRetry)
		synctest.Wait()
		if n := d.loaded(t, s); n != 0 {
			t.Errorf("what did not change was read %d times again", n)
		}
	})
}

func TestAFailingDatabaseIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSharedDriver()
		s := newOpen(d, Options{})
		defer s.Close()
		synctest.Wait()
		d.set(func() { d.down, d.polls = true, nil })
		time.Sleep(10 * time.Minute)
		d.set(func() {
			// Every 2.5 to 5 seconds in the end.
			if n := len(d.polls); n < 120 || n > 260 {
				t.Errorf("asked %d times in ten minutes", n)
			}
			for i := 2; i < len(d.polls); i++ {
				if wait := d.polls[i].Sub(d.polls[i-1]); wait > lastRetry || wait < firstRetry/2 {
					t.Errorf("attempt %d came after %s", i, wait)
				}
			}
			d.down, d.polls = false, nil
		})
		time.Sleep(lastRetry + 10*pollInterval)
		synctest.Wait()
		d.set(func() {
			if n := len(d.polls); n < 10 || n > 16 {
				t.Errorf("asked %d times in %s of health", n, lastRetry+10*pollInterval)
			}
		})
	})
}

// TestLostAnnouncementsCostASecond makes the driver deaf: polling goes on.
func TestLostAnnouncementsCostASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSharedDriver()
		d.deaf = true
		s := newOpen(d, Options{})
		defer s.Close()
		synctest.Wait()
		d.loaded(t, s)
		for range 10 {
			d.set(func() {
				d.changes = []ChangeRow{{Object: textOf(string(ObjectKey)), Tenant: idOf(uuid.Nil()), ID: idOf(uuid.Nil())}}
			})
			time.Sleep(pollInterval)
			synctest.Wait()
			if n := d.loaded(t, s); n != 1 {
				t.Errorf("%d reads after a second, want 1", n)
			}
		}
	})
}

func TestLongSilenceForgetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSharedDriver()
		s := newOpen(d, Options{})
		defer s.Close()
		synctest.Wait()
		d.loaded(t, s)
		d.set(func() { d.down = true })
		time.Sleep(changesKept/2 + time.Second)
		d.set(func() { d.down = false })
		time.Sleep(lastRetry)
		synctest.Wait()
		if n := d.loaded(t, s); n != 1 {
			t.Errorf("%d reads of what could have changed unrecorded, want 1", n)
		}
	})
}
