package wire

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// Restore unpacks a backup into a folder, which must be empty or not exist,
// and checks every file of it against the manifest. Nothing is left behind
// when it fails.
//
// journals are folders with journals of the service as they are now, those of
// the backup's API node or of others, which are verified. The one that goes on
// from the backup's takes its place, so that no entry is lost; from all of them
// the next start makes those changes again that were made since: see App.redo.
func Restore(path, dir string, journals []string) (m *Manifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".restore-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if m, err = unpack(tar.NewReader(f), work); err != nil {
		return nil, fmt.Errorf("%s is not a whole backup: %w", path, err)
	}
	report, err := audit.Verify(filepath.Join(work, journalDir), audit.VerifyOptions{TornTail: true, SM3: soft.NewSM3})
	if err != nil {
		return nil, fmt.Errorf("the backup's journal does not verify: %w", err)
	}
	if err := takeJournals(work, report.Head, redoPlan{Since: m.Created}, journals); err != nil {
		return nil, err
	}
	os.Remove(dir) // empty, if it is there
	return m, os.Rename(work, dir)
}

func unpack(archive *tar.Reader, dir string) (*Manifest, error) {
	h, err := archive.Next()
	if err != nil {
		return nil, err
	}
	if h.Name != manifestFile || h.Size > maxManifest {
		return nil, errors.New("it does not begin with a manifest")
	}
	raw, err := io.ReadAll(archive)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if m.Format != backupFormat {
		return nil, fmt.Errorf("its format is %d; this release reads %d", m.Format, backupFormat)
	}
	for _, want := range m.Files {
		h, err := archive.Next()
		if err != nil {
			return nil, err
		}
		if h.Name != want.Name || h.Size != want.Size || !filepath.IsLocal(filepath.FromSlash(want.Name)) {
			return nil, errors.New("it holds other files than its manifest lists")
		}
		if err := unpackFile(archive, dir, want); err != nil {
			return nil, err
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more files than its manifest lists")
	}
	if !slices.ContainsFunc(m.Files, func(b BackupFile) bool { return b.Name == databaseFile }) {
		return nil, errors.New("it holds no database")
	}
	return m, nil
}

func unpackFile(content io.Reader, dir string, want BackupFile) error {
	path := filepath.Join(dir, filepath.FromSlash(want.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, backupFileMode)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, hash), content); err != nil {
		return err
	}
	if hex.EncodeToString(hash.Sum(nil)) != want.SHA256 {
		return errors.New("a file of it is not what its manifest says")
	}
	return f.Sync()
}

// What a data folder holds of changes that the next start is to make again.
const (
	redoFile = "redo.json"
	redoDir  = "redo" // journals of other API nodes, in folders by number
)

// redoSlack is how much earlier than the database was saved the changes begin
// that are made again: the clocks of API nodes differ. Making one twice changes
// nothing.
const redoSlack = time.Minute

// redoPlan is the content of redoFile.
type redoPlan struct {
	Since    time.Time `json:"since"`    // as of when the database is
	Journals int       `json:"journals"` // of other API nodes, in redoDir
}

// DatabaseRestored notes in the data folder of a configuration that its database
// was put back, by the database's own tools, to how it was at a time. The next
// start makes the changes again that were made since, which are in this API
// node's own journal and in those of the others, in folders that are copied.
func DatabaseRestored(c *Config, since time.Time, journals []string) error {
	return takeJournals(c.DataDir, audit.Head{}, redoPlan{Since: since.UTC()}, journals)
}

// takeJournals verifies journals and copies them into a data folder: in place of
// the one there, if one has its head, and otherwise beside it. Then it writes
// the plan.
func takeJournals(dir string, head audit.Head, plan redoPlan, journals []string) error {
	for _, journal := range journals {
		first, err := audit.First(journal)
		if err == nil && first == 0 {
			err = errors.New("there is none in it")
		}
		if err != nil {
			return fmt.Errorf("reading the journal in %s: %w", journal, err)
		}
		into := filepath.Join(dir, redoDir, fmt.Sprint(plan.Journals))
		if follows, err := audit.Holds(journal, head, soft.NewSM3); err == nil && follows && first <= head.Sequence {
			into = filepath.Join(dir, journalDir)
		} else {
			plan.Journals++
		}
		if err := copyJournal(journal, into); err != nil {
			return fmt.Errorf("copying the journal in %s: %w", journal, err)
		}
		if err := audit.Changes(context.Background(), into, audit.ToTheEnd, func(*kms.Entry, bool) {}, soft.NewSM3); err != nil {
			return fmt.Errorf("the journal in %s does not verify: %w", journal, err)
		}
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, redoFile), raw, backupFileMode)
}

func copyJournal(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !audit.IsFile(e.Name()) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(to, e.Name()), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, backupFileMode)
		if err != nil {
			return err
		}
		err = copyFile(f, filepath.Join(from, e.Name()))
		if err == nil {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// redo makes the changes again that the data folder asks for, before anything is
// served, and takes the plan away. A start that is cut short does it once more.
func (a *App) redo(ctx context.Context) error {
	path := filepath.Join(a.config.DataDir, redoFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var plan redoPlan
	if err := json.Unmarshal(raw, &plan, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	var changes []*kms.Entry
	collect := func(intent *kms.Entry, made bool) {
		if made && intent.Op != kms.OpRestore && !intent.Time.Before(plan.Since.Add(-redoSlack)) {
			changes = append(changes, intent)
		}
	}
	if err := audit.Changes(ctx, a.config.Journal.Dir, a.Journal.Head().Sequence, collect, soft.NewSM3); err != nil {
		return err
	}
	for i := range plan.Journals {
		if err := audit.Changes(ctx, filepath.Join(a.config.DataDir, redoDir, fmt.Sprint(i)), audit.ToTheEnd, collect, soft.NewSM3); err != nil {
			return err
		}
	}
	done, err := a.Service.Redo(ctx, plan.Since, changes)
	if err != nil {
		return err
	}
	a.log.Warn("the database was restored; what was disabled, revoked or destroyed since was so again",
		slog.Time("since", plan.Since), slog.Int("made", done.Made), slog.Int("already", done.Already), slog.Int("failed", done.Failed))
	for op, n := range done.Left {
		a.log.Warn("changes since then were not made again: look at them in the journal", slog.String("op", string(op)), slog.Int("changes", n))
	}
	return errors.Join(os.RemoveAll(filepath.Join(a.config.DataDir, redoDir)), os.Remove(path))
}
