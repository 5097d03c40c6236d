package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/kms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard takes events.
type heard struct{ list []kms.Event }

func (h *heard) Publish(e kms.Event) { h.list = append(h.list, e) }

// told returns what was told since the last call: type, state and the rest.
func (h *heard) told() (list []string) {
	for _, e := range h.list {
		text := string(e.Type)
		for _, f := range e.Fields {
			if f.Name != "api_node" {
				text += " " + f.Value
			}
		}
		list = append(list, text)
	}
	h.list = nil
	return list
}

// quiet are sources of a service where nothing is the matter.
func quiet() Sources {
	return Sources{
		Pools:    func() []Pool { return []Pool{{Domain: "hsm", Slots: 8, Utilisation: 0.7}} },
		HotKeys:  func() []Key { return nil },
		Retrying: func(int, int) ([]Retrying, Retrying) { return nil, Retrying{} },
		Failing:  NewFailing(),
		Capacity: func() *kms.Capacity { return nil },
		Lag:      func() time.Duration { return 0 },
	}
}

// pass looks every few seconds for a time and returns what was told.
func pass(a *Alarms, h *heard, now *time.Time, d time.Duration) []string {
	for end := now.Add(d); now.Before(end); {
		*now = now.Add(lookInterval)
		a.Look(*now)
	}
	return h.told()
}

func TestAlarmIsToldOnceWhenItBeginsAndOnceWhenItIsOver(t *testing.T) {
	from := quiet()
	tenant, key := tenantID(1), tenantID(2)
	var hot, late, oversold, retrying bool
	from.HotKeys = func() []Key {
		if hot {
			return []Key{{tenant, key}}
		}
		return nil
	}
	from.Lag = func() time.Duration {
		if late {
			return 11 * time.Second
		}
		return 10 * time.Second
	}
	from.Capacity = func() *kms.Capacity {
		if oversold {
			return &kms.Capacity{Sellable: 80, Committed: 81}
		}
		return &kms.Capacity{Sellable: 80, Committed: 80}
	}
	from.Retrying = func(calls, share int) ([]Retrying, Retrying) {
		if retrying && calls == 100 && share == 100 {
			return []Retrying{{tenant, 200, 21, 7}}, Retrying{}
		}
		return nil, Retrying{}
	}
	h := new(heard)
	a, now := NewAlarms(from, h, "api-1"), noon
	for name, of := range map[string]struct {
		on                  *bool
		begin, end          string
		aboutTenant, failed bool
	}{
		"hot key":  {on: &hot, begin: "key.hot begin " + key.String(), end: "key.hot end " + key.String(), aboutTenant: true},
		"lag":      {on: &late, begin: "journal.lag begin 11", end: "journal.lag end"},
		"oversold": {on: &oversold, begin: "capacity.oversold begin 81 80", end: "capacity.oversold end"},
		"retries":  {on: &retrying, begin: "tenant.retries begin 200 21 7", end: "tenant.retries end", aboutTenant: true},
	} {
		*of.on = true
		a.Look(now)
		if len(h.list) == 1 && (h.list[0].Tenant == tenant) != of.aboutTenant {
			t.Errorf("%s: it is about %v", name, h.list[0].Tenant)
		}
		if told := append(h.told(), pass(a, h, &now, 10*time.Minute)...); !slices.Equal(told, []string{of.begin}) {
			t.Errorf("%s: told %q, want %q once", name, told, of.begin)
		}
		if open := a.Open()[kms.EventType(strings.Fields(of.begin)[0])]; open != 1 {
			t.Errorf("%s: %d are open", name, open)
		}
		// It comes and goes within the calm: still the same one.
		for range 10 {
			*of.on = false
			if told := pass(a, h, &now, calm/2); len(told) != 0 {
				t.Errorf("%s: told %q before it was over", name, told)
			}
			*of.on = true
			if told := pass(a, h, &now, lookInterval); len(told) != 0 {
				t.Errorf("%s: told %q again", name, told)
			}
		}
		*of.on = false
		if told := pass(a, h, &now, 10*time.Minute); len(told) != 1 || !strings.HasPrefix(told[0], of.end) {
			t.Errorf("%s: told %q, want %q once", name, told, of.end)
		}
	}
}

func TestUtilisationIsToldWhenItLasts(t *testing.T) {
	for _, c := range []struct {
		percent int
		lasts   time.Duration
		want    []string
	}{
		{70, time.Hour, nil},
		{60, time.Hour, nil},
		{85, time.Hour, nil},
		{59, 14 * time.Minute, nil},
		{59, 16 * time.Minute, []string{"pool.idle begin hsm 59"}},
		{86, 14 * time.Minute, nil},
		{86, 16 * time.Minute, []string{"pool.busy begin hsm 86"}},
		{96, 55 * time.Second, nil},
		{96, 70 * time.Second, []string{"pool.saturated begin hsm 96"}},
		{96, 16 * time.Minute, []string{"pool.saturated begin hsm 96", "pool.busy begin hsm 96"}},
	} {
		from := quiet()
		from.Pools = func() []Pool {
			return []Pool{{Domain: "hsm", Slots: 8, Utilisation: float64(c.percent) / 100}, {Domain: "empty"}}
		}
		h := new(heard)
		a, now := NewAlarms(from, h, "api-1"), noon
		if told := pass(a, h, &now, c.lasts); !slices.Equal(told, c.want) {
			t.Errorf("%d %% for %v: told %q, want %q", c.percent, c.lasts, told, c.want)
		}
	}
}

func TestGateTripsAreCountedByTheHour(t *testing.T) {
	from := quiet()
	trips := uint64(1000) // of before the process looked
	from.Pools = func() []Pool { return []Pool{{Domain: "hsm", Slots: 8, Utilisation: 0.7, GateTrips: trips}} }
	h := new(heard)
	a, now := NewAlarms(from, h, "api-1"), noon
	told := pass(a, h, &now, time.Minute)
	for range 10 { // three an hour, for hours
		trips++
		told = append(told, pass(a, h, &now, 20*time.Minute+time.Second)...)
	}
	if len(told) != 0 {
		t.Errorf("three an hour: told %q", told)
	}
	for range 4 {
		trips++
		told = append(told, pass(a, h, &now, time.Minute)...)
	}
	told = append(told, pass(a, h, &now, 3*time.Hour)...)
	if len(told) != 2 || !strings.HasPrefix(told[0], "pool.gate_trips begin hsm ") || !strings.HasPrefix(told[1], "pool.gate_trips end hsm ") {
		t.Errorf("four in a few minutes: told %q", told)
	}
}

// A flood of occurrences is bounded, and those that are known are not lost by it.
func TestAlarmsAreBounded(t *testing.T) {
	from := quiet()
	hot := []Key{{tenantID(1), tenantID(1)}}
	from.HotKeys = func() []Key { return hot }
	h := new(heard)
	a, now := NewAlarms(from, h, "api-1"), noon
	pass(a, h, &now, time.Minute)
	for i := range 2000 {
		hot = append(hot, Key{tenantID(1), tenantID(2 + i)})
	}
	slices.Reverse(hot)
	if told := pass(a, h, &now, 2*calm); len(told) != maxAlarms-1 || len(a.known) != maxAlarms {
		t.Errorf("told %d, %d are known", len(told), len(a.known))
	}
	hot = nil
	if told := pass(a, h, &now, 2*calm); len(told) != maxAlarms || len(a.known) != 0 {
		t.Errorf("told %d when all is over, %d are known", len(told), len(a.known))
	}
}

// Every alarm's type has a row with the fields that it sends.
func TestEveryAlarmHasItsRow(t *testing.T) {
	from := quiet()
	trips := uint64(0)
	from.Pools = func() []Pool {
		trips++
		return []Pool{{"one", 1, 1, trips}, {"two", 1, 0, 0}}
	}
	from.HotKeys = func() []Key { return []Key{{tenantID(1), tenantID(2)}} }
	from.Lag = func() time.Duration { return time.Hour }
	from.Capacity = func() *kms.Capacity { return &kms.Capacity{Committed: 1} }
	from.Retrying = func(int, int) ([]Retrying, Retrying) { return []Retrying{{Tenant: tenantID(1)}}, Retrying{} }
	h := new(heard)
	a, now := NewAlarms(from, h, "api-1"), noon
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(lookInterval) {
		for range 10 {
			from.Failing.Note(failed(3, now))
			from.Failing.Credentials.Note(tenantID(1), tenantID(4), 1, now)
		}
		a.Look(now)
	}
	seen := map[kms.EventType]bool{}
	for _, e := range h.list {
		seen[e.Type] = true
		info := e.Type.Info()
		var names []string
		for _, f := range e.Fields {
			names = append(names, f.Name)
		}
		if info == nil || fmt.Sprint(names) != fmt.Sprint(info.Fields) || info.Operators != (e.Tenant == uuid.Nil()) {
			t.Errorf("%s about %v has %v, its row is %+v", e.Type, e.Tenant, names, info)
		}
	}
	for _, event := range AlarmTypes {
		if !seen[event] {
			t.Errorf("%s was not told", event)
		}
	}
}

func TestWatcherLooksUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, h := quiet(), new(heard)
		from.Lag = func() time.Duration { return time.Minute }
		w := NewAlarms(from, h, "api-1").Start(time.Now)
		time.Sleep(2 * lookInterval)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if told := h.told(); len(told) != 1 {
			t.Errorf("told %q", told)
		}
	})
}
