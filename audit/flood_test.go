package audit

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// refusal is the entry of a request whose credential lacks the scope.
func refusal(credential byte) *kms.Entry {
	e := &kms.Entry{
		Time:      time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Phase:     kms.PhaseOutcome,
		RequestID: uuid.NewV7(),
		Project:   "default",
		Op:        kms.OpSign,
		KeyName:   "orders/signing",
		Outcome:   "permission_denied",
		Refused:   true,
		Address:   netip.MustParseAddr("192.0.2.17"),
		UserAgent: "curl/8.5",
		Charged:   kms.Credit / 10,
	}
	e.Credential[0] = credential
	return e
}

// unauthenticated is the entry of a request without a valid credential.
func unauthenticated(address string) *kms.Entry {
	e := refusal(0)
	e.Outcome, e.Project, e.KeyName = "unauthenticated", "", ""
	e.Address = netip.MustParseAddr(address)
	return e
}

func TestFloodIsCountedPerSource(t *testing.T) {
	now := time.Unix(0, 0)
	tests := []struct {
		name string
		// a and b alternate; written is how many of 2×15 are written.
		a, b    *kms.Entry
		written int
	}{
		{"one credential", refusal(1), refusal(1), 10},
		{"two credentials of one address", refusal(1), refusal(2), 20},
		{"one address", unauthenticated("192.0.2.1"), unauthenticated("192.0.2.1"), 10},
		{"two addresses", unauthenticated("192.0.2.1"), unauthenticated("192.0.2.2"), 20},
		{"one IPv6 network", unauthenticated("2001:db8::1"), unauthenticated("2001:db8::ffff:1"), 10},
		{"two IPv6 networks", unauthenticated("2001:db8::1"), unauthenticated("2001:db8:0:1::1"), 20},
		{"IPv4 in both forms", unauthenticated("192.0.2.1"), unauthenticated("::ffff:192.0.2.1"), 10},
		{"credential and address apart", refusal(1), unauthenticated("192.0.2.17"), 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlood()
			written := 0
			for range 15 {
				for _, e := range []*kms.Entry{tt.a, tt.b} {
					if !f.absorb(now, e) {
						written++
					}
				}
			}
			if written != tt.written {
				t.Errorf("%d of 30 were written, want %d", written, tt.written)
			}
			var counted uint32
			for _, e := range f.drain() {
				counted += e.Count
			}
			if int(counted) != 30-tt.written {
				t.Errorf("%d were counted, want %d", counted, 30-tt.written)
			}
		})
	}
}

func TestOnlyCheapRefusalsAreCounted(t *testing.T) {
	tests := []struct {
		name   string
		change func(*kms.Entry)
		want   bool
	}{
		{"permission denied", func(*kms.Entry) {}, true},
		{"not found", func(e *kms.Entry) { e.Outcome = "not_found" }, true},
		{"unauthenticated", func(e *kms.Entry) { e.Outcome = "unauthenticated" }, true},
		{"over quota", func(e *kms.Entry) { e.Outcome = "quota_exceeded" }, true},
		{"malformed", func(e *kms.Entry) { e.Outcome = "malformed" }, true},
		{"success", func(e *kms.Entry) { e.Outcome, e.Refused = "ok", false }, false},
		{"bad ciphertext", func(e *kms.Entry) { e.Outcome, e.Refused = "decryption_failed", false }, false},
		{"not found after admission", func(e *kms.Entry) { e.Outcome, e.Cost, e.Refused = "not_found", 5, false }, false},
		{"intent", func(e *kms.Entry) { e.Phase = kms.PhaseIntent }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := refusal(1)
			tt.change(e)
			if got := isRefusal(e); got != tt.want {
				t.Errorf("counted: %v", got)
			}
		})
	}
}

func TestWindowOfAFloodIsASecond(t *testing.T) {
	f := newFlood()
	start := time.Unix(1000, 0)
	steps := []struct {
		at   time.Duration
		want int // written of 20
	}{
		{0, 10}, {999 * time.Millisecond, 0}, {time.Second, 10}, {1500 * time.Millisecond, 0},
		{10 * time.Second, 10},
		{0, 10}, // the clock was set back
	}
	for _, step := range steps {
		written := 0
		for range 20 {
			if !f.absorb(start.Add(step.at), refusal(1)) {
				written++
			}
		}
		if written != step.want {
			t.Errorf("at %v %d were written, want %d", step.at, written, step.want)
		}
	}
}

func TestAggregatedEntryHoldsWhatIsCommon(t *testing.T) {
	f := newFlood()
	now := time.Unix(0, 0)
	for range floodRate {
		f.absorb(now, refusal(1))
	}
	first := refusal(1)
	first.Time = first.Time.Add(-time.Hour)
	f.absorb(now, refusal(1))
	f.absorb(now, first) // the earliest, though not the first to be counted
	other := refusal(1)
	other.Op = kms.OpDecrypt
	f.absorb(now, other)
	entries := f.drain()
	if len(entries) != 2 || len(f.drain()) != 0 {
		t.Fatalf("%d entries, want one per operation, once", len(entries))
	}
	got := entries[0]
	if got.Op != kms.OpSign {
		got = entries[1]
	}
	want := &kms.Entry{
		Time: first.Time, Phase: kms.PhaseOutcome, RequestID: got.RequestID, Project: "default", Credential: first.Credential,
		Op: kms.OpSign, Outcome: "permission_denied", Address: first.Address, Charged: kms.Credit / 5, Count: 2,
	}
	if !reflect.DeepEqual(got, want) || got.RequestID == (uuid.UUID{}) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

func TestMillionSourcesAreBounded(t *testing.T) {
	const refusals = 1_000_000
	f := newFlood()
	now := time.Unix(0, 0)
	e := refusal(1)
	written := 0
	for i := range refusals {
		binary.BigEndian.PutUint32(e.Credential[:], uint32(1+i%(refusals/20)))
		if !f.absorb(now, e) {
			written++
		}
	}
	if len(f.written) > maxFloodSources+1 || len(f.groups) > maxFloodGroups+3 {
		t.Errorf("%d sources and %d groups are held", len(f.written), len(f.groups))
	}
	if want := (maxFloodSources + 1) * floodRate; written != want {
		t.Errorf("%d were written, want %d", written, want)
	}
	counted, unknown := 0, 0
	for _, e := range f.drain() {
		counted += int(e.Count)
		if e.Credential == (uuid.UUID{}) {
			unknown++
			if e.Project != "" || e.Address.IsValid() {
				t.Errorf("the entry of many sources names one: %+v", e)
			}
		}
	}
	if written+counted != refusals || unknown != 1 {
		t.Errorf("%d written and %d counted of %d, %d entries for the rest", written, counted, refusals, unknown)
	}
}

func TestGroupsOfAFloodAreBounded(t *testing.T) {
	f := newFlood()
	now := time.Unix(0, 0)
	e := refusal(1)
	for i := range 3 * maxFloodGroups {
		binary.BigEndian.PutUint32(e.Credential[:], uint32(1+i%maxFloodSources))
		for _, outcome := range []string{"not_found", "permission_denied", "unauthenticated"} {
			e.Outcome = outcome
			for range floodRate {
				f.absorb(now, e)
			}
		}
	}
	if len(f.groups) > maxFloodGroups+3 {
		t.Errorf("%d groups are held", len(f.groups))
	}
}

func TestFloodInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		l := mustOpen(t, c)
		for range 100 {
			mustRecord(t, l, refusal(1))
		}
		mustRecordAfter(t, l) // written within a second
		for range 50 {
			mustRecord(t, l, refusal(1))
		}
		mustClose(t, l) // or at the end
		if err := l.Record(t.Context(), refusal(1)); kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Errorf("a refusal after Close, which nothing will write, was answered with %v", err)
		}
		var counts []uint32
		total := 0
		for _, e := range readAll(t, c.Dir) {
			total += int(max(e.Count, 1))
			if e.Count > 0 {
				counts = append(counts, e.Count)
			}
		}
		if total != 150 || !reflect.DeepEqual(counts, []uint32{90, 40}) {
			t.Errorf("%d requests are in the journal, aggregated %v", total, counts)
		}
		mustVerify(t, c.Dir, 22)
	})
}

func TestFloodIsKeptWhileTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		l, s := openFault(t, c, nil)
		for range 30 {
			mustRecord(t, l, refusal(1))
		}
		s.fill()
		fillJournal(t, l)
		for l.Record(t.Context(), new(kms.Entry)) == nil { // the last gap, too small for an aggregated entry
		}
		<-time.After(5500 * time.Millisecond) // five tries
		s.empty()
		mustRecordAfter(t, l)
		mustClose(t, l)
		for _, e := range readAll(t, c.Dir) {
			if e.Count == 20 {
				return
			}
		}
		t.Error("the journal has no entry for the 20 refusals")
	})
}
