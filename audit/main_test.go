package audit

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
	"uuid"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirVariable); dir != "" {
		recordUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// require ends a test whose part is missing: it skips, unless SLUICE_REQUIRE
// names the part.
func require(t *testing.T, part string, err error) {
	t.Helper()
	required.Part(t, part, err)
}

// testConfig is a small journal's in a new folder.
func testConfig(t testing.TB) Config {
	t.Helper()
	return Config{
		Dir:          filepath.Join(t.TempDir(), "journal"),
		Node:         "node-1",
		ReserveBytes: 64 << 10,
	}
}

func mustOpen(t testing.TB, c Config) *Log {
	t.Helper()
	l, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// testEntry is an ordinary entry with the number as its request id.
func testEntry(n int) *kms.Entry {
	e := &kms.Entry{
		Time:            time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC).Add(time.Duration(n) * time.Millisecond),
		Phase:           kms.PhaseOutcome,
		ClientRequestID: "order-7781",
		TraceID:         "4bf92f3577b34da6a3ce929d0e0e4736",
		Project:         "default",
		Component:       "checkout",
		Op:              kms.OpSign,
		KeyName:         "orders/signing",
		Version:         3,
		Spec:            kms.SpecSM2,
		Algorithm:       kms.AlgSM2DSA,
		Protection:      kms.ProtectionHSM,
		Bytes:           32,
		Node:            "hsm-a/0",
		Cost:            12 * kms.Credit,
		Charged:         12 * kms.Credit,
		Settlement:      kms.Settled,
		Wait:            1200 * time.Microsecond,
		SlotTime:        430 * time.Microsecond,
		Total:           1900 * time.Microsecond,
		Outcome:         "ok",
		Address:         netip.MustParseAddr("192.0.2.17"),
		UserAgent:       "checkout/1.4 (linux; amd64)",
	}
	e.RequestID = requestID(n)
	e.Tenant[0], e.Credential[0], e.Key[0] = 1, 2, 3
	return e
}

func requestID(n int) (id uuid.UUID) {
	for i := range 8 {
		id[15-i] = byte(n >> (8 * i))
	}
	return id
}

func mustRecord(t testing.TB, l *Log, entries ...*kms.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := l.Record(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// mustVerify fails unless the journal verifies with the number of entries.
func mustVerify(t testing.TB, dir string, entries int) Report {
	t.Helper()
	report, err := Verify(dir, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Entries != uint64(entries) || report.Head.Sequence != uint64(entries) {
		t.Fatalf("the journal has %d entries and head %d, want %d", report.Entries, report.Head.Sequence, entries)
	}
	return report
}

// readAll returns the journal's entries.
func readAll(t testing.TB, dir string) []*kms.Entry {
	t.Helper()
	var entries []*kms.Entry
	if err := Read(dir, 0, func(e *kms.Entry, p Position) error {
		entries = append(entries, e)
		if p.Sequence != uint64(len(entries)) {
			return fmt.Errorf("entry %d has sequence %d", len(entries), p.Sequence)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return entries
}

// segments returns the names of the journal's segments.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	names, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
