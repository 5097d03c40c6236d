package quota

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// LedgerInterval is how often the ledger should be saved: what a restart then
// reads of the journal is two to three of it, some hundred thousand records of
// a busy node, read in a second. No reservation is open for longer than it.
const LedgerInterval = time.Minute

// LedgerJournal is what the ledger reads.
type LedgerJournal interface {
	// Last returns the sequence of the last durable record, 0 for none.
	Last() uint64
	// Read calls fn with each entry from a sequence on, in order. A journal
	// that begins later is read from its beginning.
	Read(from uint64, fn func(sequence uint64, e *kms.Entry) error) error
}

// Ledger carries an Engine's totals through restarts. It is a projection of the
// journal: a saved balance of each tenant, and what the journal has after it.
// Nothing is charged that the journal does not have, nothing twice. A balance
// that is lost or damaged is made again from the whole journal.
//
// It stands before the Engine, since a tenant has its totals back before its
// first request. All methods are safe for concurrent use.
type Ledger struct {
	*Engine
	journal LedgerJournal
	path    string
	log     *slog.Logger

	left atomic.Int64 // tenants in pending

	mu      sync.Mutex // guards the rest
	pending map[uuid.UUID]*restoration
	// heads are the journal's last records at the two savings before the
	// present one: every request that is open now was admitted after the older.
	heads [2]uint64
}

// restoration is what a tenant gets back.
type restoration struct {
	balance Balance
	spent   []Spent
}

// ledgerFile is the saved form, followed by a line with its SHA-256 in
// hexadecimal digits.
type ledgerFile struct {
	Format   int       `json:"format"`
	From     uint64    `json:"from"` // the record after which the journal is read
	Balances []Balance `json:"balances"`
}

const ledgerFormat = 1

// errLedger is behind the failure of a file that is none of ours, or damaged.
var errLedger = errors.New("it is damaged or of another version")

// OpenLedger reads the ledger at path, if there is one, and the journal after
// it. The engine must not have been used.
func OpenLedger(e *Engine, j LedgerJournal, path string, log *slog.Logger) (*Ledger, error) {
	l := &Ledger{Engine: e, journal: j, path: path, log: log, pending: make(map[uuid.UUID]*restoration)}
	saved, err := readLedger(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the ledger of the quotas cannot be used; it is made again from the journal", slog.String("path", path), slog.Any("error", err))
	}
	if err != nil {
		saved = &ledgerFile{}
	}
	for _, b := range saved.Balances {
		l.pending[b.Tenant] = &restoration{balance: b}
	}
	if err := j.Read(saved.From+1, l.replay); err != nil {
		return nil, fmt.Errorf("reading the journal for the ledger: %w", err)
	}
	l.heads = [2]uint64{j.Last(), j.Last()}
	for _, r := range l.pending {
		slices.SortStableFunc(r.spent, func(a, b Spent) int { return a.At.Compare(b.At) })
	}
	l.left.Store(int64(len(l.pending)))
	return l, nil
}

// replay takes in a record of the journal.
func (l *Ledger) replay(sequence uint64, e *kms.Entry) error {
	if !charges(e) {
		return nil
	}
	r := l.pending[e.Tenant]
	if r == nil {
		r = &restoration{balance: Balance{Tenant: e.Tenant}}
		l.pending[e.Tenant] = r
	}
	if b := &r.balance; sequence <= b.Mark {
		if _, open := slices.BinarySearchFunc(b.Open, e.RequestID, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }); !open {
			return nil // it is in the balance
		}
	}
	r.spent = append(r.spent, spentBy(e))
	return nil
}

// charges tells whether an entry is of something that counts in the totals.
func charges(e *kms.Entry) bool {
	return e.Phase == kms.PhaseOutcome && e.Tenant != (uuid.UUID{}) && (e.Charged != 0 || ran(e))
}

func ran(e *kms.Entry) bool { return e.SlotTime > 0 || e.Settlement == kms.Partial }

func spentBy(e *kms.Entry) Spent {
	s := Spent{At: e.Time.Add(-e.Total), Charged: e.Charged, Project: e.Project, Credential: e.Credential, Key: e.Key}
	if ran(e) {
		s.Bytes = int64(max(e.Bytes, 0))
	}
	return s
}

// Book implements kms.Quota.
func (l *Ledger) Book(of *kms.Tenant, entries []*kms.Entry, record func() []error) []error {
	l.RestoreTenant(of)
	return l.Engine.Book(of, entries, record)
}

// Admit gives the tenant its totals back if it is the first of its requests,
// and asks the engine.
func (l *Ledger) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	l.RestoreTenant(r.Principal.Tenant)
	return l.Engine.Admit(r)
}

// RestoreTenant gives a tenant its totals back, if they are not there yet.
func (l *Ledger) RestoreTenant(of *kms.Tenant) {
	if l.left.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.pending[of.ID]; r != nil {
		l.RestoreSpent(of, r.balance.Totals, r.spent)
		l.forgetLocked(of.ID)
	}
}

func (l *Ledger) forgetLocked(id uuid.UUID) {
	delete(l.pending, id)
	l.left.Store(int64(len(l.pending)))
}

// RestoreAll gives all tenants their totals back, as far as find finds them;
// of one that is gone for good it returns nil. Until it has, nothing is saved.
// It ends early when stop is closed.
func (l *Ledger) RestoreAll(stop <-chan struct{}, find func(uuid.UUID) (*kms.Tenant, error)) error {
	l.mu.Lock()
	ids := make([]uuid.UUID, 0, len(l.pending))
	for id := range l.pending {
		ids = append(ids, id)
	}
	l.mu.Unlock()
	for _, id := range ids {
		select {
		case <-stop:
			return nil
		default:
		}
		tenant, err := find(id)
		switch {
		case err != nil:
			return fmt.Errorf("finding the tenant %s of the ledger: %w", id, err)
		case tenant == nil:
			l.mu.Lock()
			l.forgetLocked(id)
			l.mu.Unlock()
		default:
			l.RestoreTenant(tenant)
		}
	}
	return nil
}

// Save writes the balances of all tenants, at once. Before everything is
// restored it does nothing: the file that is there still holds.
func (l *Ledger) Save() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		return nil
	}
	head := l.journal.Last()
	file := ledgerFile{Format: ledgerFormat, From: l.heads[0], Balances: []Balance{}}
	err := l.Balances(l.journal.Last, func(b *Balance) error {
		file.Balances = append(file.Balances, *b)
		return nil
	})
	if err == nil {
		err = writeLedger(l.path, &file)
	}
	if err != nil {
		return fmt.Errorf("saving the ledger of the quotas: %w", err)
	}
	l.heads = [2]uint64{l.heads[1], head}
	return nil
}

func readLedger(path string) (*ledgerFile, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	body, line, _ := bytes.Cut(raw, []byte("\n"))
	sum := sha256.Sum256(body)
	if hex.EncodeToString(sum[:]) != string(bytes.TrimSpace(line)) {
		return nil, errLedger
	}
	file := new(ledgerFile)
	if err := json.Unmarshal(body, file, json.RejectUnknownMembers(true)); err != nil || file.Format != ledgerFormat {
		return nil, errLedger
	}
	return file, nil
}

// writeLedger replaces the file so that after a crash there is the old one or
// the new one, whole.
func writeLedger(path string, file *ledgerFile) error {
	body, err := json.Marshal(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(append(body, '\n'), hex.EncodeToString(sum[:])+"\n"...))
	err = cmp.Or(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
