package wire

import (
	"archive/tar"
	"bufio"
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
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// Restore unpacks a backup into a folder, which must be empty or not exist,
// and checks every file of it against the manifest. Nothing is left behind
// when it fails.
//
// The journal among the later ones that goes on from the backup's takes its
// place, so that no entry is lost; from all that is given the next start makes
// those changes again that were made since: see App.redo.
func Restore(path, dir string, later Later) (m *Manifest, err error) {
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
	if err := takeLater(work, report.Head, redoPlan{Since: m.Created}, later); err != nil {
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

// Later is what tells of changes that were made after a database was saved.
type Later struct {
	// Journals are folders with journals of the service as they are now, those
	// of the restored API node or of others, which are verified.
	Journals []string
	// Trails are files that `sluice audit export` wrote as JSON lines, for
	// journals that are lost. Nothing proves them.
	Trails []string
}

// What a data folder holds of changes that the next start is to make again.
const (
	redoFile = "redo.json"
	redoDir  = "redo" // journals of other API nodes and exported trails, by number
)

// redoSlack is how much earlier than the database was saved the changes begin
// that are made again: the clocks of API nodes differ. Making one twice changes
// nothing.
const redoSlack = time.Minute

// redoPlan is the content of redoFile.
type redoPlan struct {
	Since    time.Time `json:"since"`    // as of when the database is
	Journals int       `json:"journals"` // of other API nodes, in redoDir
	Trails   int       `json:"trails"`   // exported, in redoDir
}

// DatabaseRestored notes in the data folder of a configuration that its database
// was put back, by the database's own tools, to how it was at a time. The next
// start makes the changes again that were made since, which are in this API
// node's own journal and in what is given of the others, which is copied.
func DatabaseRestored(c *Config, since time.Time, later Later) error {
	return takeLater(c.DataDir, audit.Head{}, redoPlan{Since: since.UTC()}, later)
}

// takeLater verifies journals and copies them into a data folder: in place of
// the one there, if one has its head, and otherwise beside it; and exported
// trails. Then it writes the plan.
func takeLater(dir string, head audit.Head, plan redoPlan, later Later) error {
	for _, journal := range later.Journals {
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
	for _, trail := range later.Trails {
		if _, err := endsOfTrail(trail); err != nil {
			return fmt.Errorf("reading the trail in %s: %w", trail, err)
		}
		if err := copyTo(trailFile(dir, plan.Trails), trail); err != nil {
			return err
		}
		plan.Trails++
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
	for _, e := range entries {
		if !e.Type().IsRegular() || !audit.IsFile(e.Name()) {
			continue
		}
		if err := copyTo(filepath.Join(to, e.Name()), filepath.Join(from, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies a file durably, and makes its folder.
func copyTo(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, backupFileMode)
	if err != nil {
		return err
	}
	err = copyFile(f, from)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func trailFile(dir string, i int) string {
	return filepath.Join(dir, redoDir, fmt.Sprintf("trail-%d.jsonl", i))
}

// endsOfTrail reads from an exported trail the changes that were made, in the
// form of their intents as far as Redo needs them.
func endsOfTrail(path string) (changes []*kms.Entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxTrailLine)
	for n := 1; lines.Scan(); n++ {
		var line client.AuditEntry
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.APINode == "" {
			return nil, fmt.Errorf("line %d is no entry that was exported as JSON", n)
		}
		e := &kms.Entry{Time: line.Time, Phase: kms.Phase(line.Phase), Op: kms.Op(line.Operation), Project: line.Project, KeyName: line.KeyName,
			Version: line.Version, Spec: kms.Spec(line.Spec), Protection: kms.Protection(line.Protection), Resource: line.Resource, Outcome: line.Outcome}
		if info := e.Op.Info(); info == nil || !info.Changes || e.Op == kms.OpRestore || e.Phase != kms.PhaseOutcome || !e.Made() || line.DryRun || line.Replayed {
			continue
		}
		for text, id := range map[string]*uuid.UUID{line.Tenant: &e.Tenant, line.Target: &e.Target, line.Key: &e.Key} {
			if text == "" {
				continue
			}
			if *id, err = uuid.Parse(text); err != nil {
				return nil, fmt.Errorf("line %d has an id that is none", n)
			}
		}
		for _, item := range line.Items { // of a grant
			id, err := uuid.Parse(item.Secret)
			if err != nil {
				return nil, fmt.Errorf("line %d has an id that is none", n)
			}
			e.Items = append(e.Items, kms.EntryItem{Secret: id})
		}
		changes = append(changes, e)
	}
	return changes, lines.Err()
}

// maxTrailLine is more bytes than an entry takes as JSON.
const maxTrailLine = 1 << 20

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
	for i := range plan.Trails {
		ends, err := endsOfTrail(trailFile(a.config.DataDir, i))
		if err != nil {
			return err
		}
		for _, e := range ends {
			collect(e, true)
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
