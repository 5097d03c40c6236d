package quota

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// pages is a journal in memory.
type pages struct{ entries []kms.Entry }

func (p *pages) Last() uint64 { return uint64(len(p.entries)) }

func (p *pages) Read(from uint64, fn func(uint64, *kms.Entry) error) error {
	for i := max(from, 1) - 1; i < uint64(len(p.entries)); i++ {
		if err := fn(i+1, &p.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// ledgerBench is a ledger that is started again and again on one journal.
type ledgerBench struct {
	*testing.T
	journal pages
	path    string
	engine  *testEngine
	ledger  *Ledger
	now     time.Time
}

func newLedgerBench(t *testing.T) *ledgerBench {
	b := &ledgerBench{T: t, path: filepath.Join(t.TempDir(), "quota.ledger"), now: morning}
	b.start()
	return b
}

// start is a start after a crash, or the first.
func (b *ledgerBench) start() {
	b.Helper()
	b.engine = newTestEngine(b.T, kms.TierSilver, nil)
	b.engine.clock.pass(b.now.Sub(b.engine.clock.now()))
	var err error
	if b.ledger, err = OpenLedger(b.engine.Engine, &b.journal, b.path, slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
}

func (b *ledgerBench) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.engine.clock.pass(d)
}

// admit begins a request, record writes what it will be charged, settle ends
// it: as the route does.
func (b *ledgerBench) admit() kms.Reservation {
	b.Helper()
	r, err := b.ledger.Admit(&b.engine.costing(10).AdmitRequest)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *ledgerBench) record(r kms.Reservation) {
	b.journal.entries = append(b.journal.entries, kms.Entry{
		Time: b.now, Phase: kms.PhaseOutcome, RequestID: r.RequestID, Tenant: r.Tenant,
		Charged: r.Cost, Settlement: kms.Settled, SlotTime: 1, Bytes: 100,
	})
}

func (b *ledgerBench) settle(r kms.Reservation) {
	b.ledger.Settle(r, kms.Settlement{State: kms.Settled, Charged: r.Cost, SlotTime: 1})
}

func (b *ledgerBench) used() kms.Credits {
	b.Helper()
	b.ledger.RestoreTenant(b.engine.tenant)
	totals, _ := b.ledger.Totals(testTenant)
	return totals.DayUsed
}

// inJournal is what the journal says was charged.
func (b *ledgerBench) inJournal() (sum kms.Credits) {
	for _, e := range b.journal.entries {
		sum += e.Charged
	}
	return sum
}

// A process can be killed before an entry is written, between entry and
// settlement, or after it, and before or after the ledger was saved: after the
// restart the totals are what the journal says.
func TestLedgerIsTheJournalAfterACrashAtAnyPoint(t *testing.T) {
	b := newLedgerBench(t)
	for round := range 200 {
		a, c, d := b.admit(), b.admit(), b.admit()
		b.record(a)
		if round%2 == 0 {
			b.settle(a)
		}
		b.record(c)
		if round%3 == 0 {
			if err := b.ledger.Save(); err != nil {
				t.Fatal(err)
			}
		}
		if round%5 < 3 {
			b.settle(c)
			b.record(d)
		}
		if round%7 == 0 {
			if err := b.ledger.Save(); err != nil {
				t.Fatal(err)
			}
		}
		b.pass(time.Second)
		b.start()
		if got, want := b.used(), b.inJournal(); got != want {
			t.Fatalf("round %d: the ledger has %d and the journal %d", round, got, want)
		}
	}
}

// Entries of requests that a crash ended are recorded after the restart, and
// count at once; a later crash, and whatever was saved around it, changes
// nothing.
func TestWhatIsRecordedAfterACrashIsInTheLedgerOnce(t *testing.T) {
	b := newLedgerBench(t)
	for round := range 60 {
		r := b.admit()
		b.pass(time.Second)
		b.start() // r is lost, and was not recorded
		if round%2 == 0 {
			b.used() // the tenant is there already
		}
		lacking := []*kms.Entry{
			{Time: b.now, Phase: kms.PhaseOutcome, RequestID: r.RequestID, Tenant: r.Tenant, Charged: r.Cost, Settlement: kms.Settled, SlotTime: 1},
			{Time: b.now, Phase: kms.PhaseOutcome, RequestID: uuid.New(), Tenant: r.Tenant, Charged: r.Cost, Settlement: kms.Settled, SlotTime: 1},
		}
		failed := errors.New("the disk is full")
		errs := b.ledger.Book(b.engine.tenant, lacking, func() []error {
			b.journal.entries = append(b.journal.entries, *lacking[0])
			return []error{nil, failed}
		})
		if errs[0] != nil || errs[1] != failed {
			t.Fatal(errs)
		}
		check := func(when string) {
			t.Helper()
			if got, want := b.used(), b.inJournal(); got != want {
				t.Fatalf("round %d, %s: the ledger has %d and the journal %d", round, when, got, want)
			}
		}
		check("at once")
		for range round % 4 {
			if err := b.ledger.Save(); err != nil {
				t.Fatal(err)
			}
		}
		b.start()
		check("after another crash")
	}
}

// What was used before midnight and is recorded after it is the month's, and not
// the new day's.
func TestWhatIsRecordedADayLaterIsOfItsOwnDay(t *testing.T) {
	b := newLedgerBench(t)
	yesterday := kms.Entry{Time: b.now, Phase: kms.PhaseOutcome, RequestID: uuid.New(), Tenant: testTenant, Charged: 7 * kms.Credit, Settlement: kms.Settled, SlotTime: 1}
	b.pass(24 * time.Hour)
	b.used()
	b.ledger.Book(b.engine.tenant, []*kms.Entry{&yesterday}, func() []error { return []error{nil} })
	if totals, _ := b.ledger.Totals(testTenant); totals.DayUsed != 0 || totals.MonthUsed != 7*kms.Credit {
		t.Errorf("the day has %d and the month %d", totals.DayUsed, totals.MonthUsed)
	}
}

// A ledger that is damaged, cut or of another version is made again.
func TestDamagedLedgerIsMadeAgainFromTheJournal(t *testing.T) {
	b := newLedgerBench(t)
	for range 5 {
		r := b.admit()
		b.record(r)
		b.settle(r)
	}
	if err := b.ledger.Save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	want := b.inJournal()
	for name, content := range map[string][]byte{
		"nothing": {}, "half": whole[:len(whole)/2], "no line": whole[:len(whole)-66],
		"a digit": append([]byte(`{"format":1,"from":9`), whole[20:]...), "text": []byte("hello\nworld\n"),
	} {
		if err := os.WriteFile(b.path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		if got := b.used(); got != want {
			t.Errorf("%s: the ledger has %d, want %d", name, got, want)
		}
	}
}

// Until all tenants have their totals back nothing is saved over them; a tenant
// that is gone keeps nobody waiting.
func TestLedgerIsNotSavedOverWhatIsNotRestored(t *testing.T) {
	b := newLedgerBench(t)
	r := b.admit()
	b.record(r)
	b.settle(r)
	gone := uuid.New()
	b.journal.entries = append(b.journal.entries, kms.Entry{Time: b.now, Phase: kms.PhaseOutcome, Tenant: gone, Charged: kms.Credit, SlotTime: 1})
	b.start()
	if err := b.ledger.Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.path); !os.IsNotExist(err) {
		t.Errorf("it was saved: %v", err)
	}
	find := func(id uuid.UUID) (*kms.Tenant, error) {
		if id == gone {
			return nil, nil
		}
		return b.engine.tenant, nil
	}
	if err := b.ledger.RestoreAll(nil, find); err != nil {
		t.Fatal(err)
	}
	if err := b.ledger.Save(); err != nil {
		t.Fatal(err)
	}
	want := b.journal.entries[0].Charged
	if got := b.used(); got != want {
		t.Errorf("the ledger has %d, want %d", got, want)
	}
	b.journal.entries = b.journal.entries[:2]
	b.start()
	if got := b.used(); got != want {
		t.Errorf("after another start it has %d, want %d", got, want)
	}
}
