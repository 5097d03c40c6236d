package wire

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/keystore/sqlite"
)

// A backup is a tar archive: manifest.json first, then what it lists.
const (
	backupFormat   = 1
	manifestFile   = "manifest.json"
	databaseFile   = "sluice.db"
	journalDir     = "journal"
	maxManifest    = 16 << 20 // bytes
	backupFileMode = 0o600
)

// Manifest describes a backup.
type Manifest struct {
	Format  int          `json:"format"`
	Created time.Time    `json:"created"`
	Head    string       `json:"journal_head"` // chain hash of the journal's last record
	Records uint64       `json:"journal_records"`
	Files   []BackupFile `json:"files"`
}

// BackupFile is one file of a backup.
type BackupFile struct {
	Name   string `json:"name"` // slash-separated, relative
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Backup writes a backup of a service's state to out, which must not exist:
// the domain's descriptions, a snapshot of the database, and the journal,
// verified. The service may be running. Keys in it are of use only to tokens
// of the domain; it holds no PIN and no credential.
//
// A PostgreSQL database is backed up with its own tools, which know more than
// we do; then this refuses.
func Backup(ctx context.Context, c *Config, out string) (m *Manifest, err error) {
	if c.Database.Driver != "sqlite" {
		return nil, errors.New("the database is PostgreSQL: back it up with pg_dump or its archive, and the journal and the domains' descriptions as files")
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".backup-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	m = &Manifest{Format: backupFormat, Created: time.Now().UTC()}
	for i, d := range c.HSM.Domains {
		if err := m.add(work, domainName(i), func(w io.Writer) error { return copyFile(w, d.File) }); err != nil {
			return nil, fmt.Errorf("backing up the domain's description: %w", err)
		}
	}
	// The database first: the journal then has every entry of what is in it.
	snapshot := filepath.Join(work, "snapshot")
	if err := sqlite.Snapshot(ctx, c.Database.Path, snapshot); err != nil {
		return nil, err
	}
	if err := m.add(work, databaseFile, func(w io.Writer) error { return copyFile(w, snapshot) }); err != nil {
		return nil, err
	}
	if err := m.addJournal(work, c.Journal.Dir); err != nil {
		return nil, fmt.Errorf("backing up the journal: %w", err)
	}
	return m, m.writeArchive(work, out)
}

func domainName(i int) string { return fmt.Sprintf("domain-%d.json", i) }

// add makes a file of the backup and lists it.
func (m *Manifest) add(work, name string, fill func(io.Writer) error) error {
	path := filepath.Join(work, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, backupFileMode)
	if err != nil {
		return err
	}
	hash := sha256.New()
	counter := &countingWriter{w: io.MultiWriter(f, hash)}
	err = fill(counter)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	m.Files = append(m.Files, BackupFile{Name: name, Size: counter.n, SHA256: hex.EncodeToString(hash.Sum(nil))})
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// addJournal copies the journal's files and verifies the copy: a backup of
// a journal that lies is worth knowing about now.
func (m *Manifest) addJournal(work, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !audit.IsFile(e.Name()) {
			continue
		}
		name := journalDir + "/" + e.Name()
		if err := m.add(work, name, func(w io.Writer) error { return copyFile(w, filepath.Join(dir, e.Name())) }); err != nil {
			return err
		}
	}
	report, err := audit.Verify(filepath.Join(work, journalDir), audit.VerifyOptions{TornTail: true, SM3: soft.NewSM3})
	if err != nil {
		return err
	}
	m.Head, m.Records = report.Head.Hash.String(), report.Entries
	return nil
}

func (m *Manifest) writeArchive(work, out string) (err error) {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, backupFileMode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(out)
		}
	}()
	archive := tar.NewWriter(f)
	manifest, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := addMember(archive, manifestFile, int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	for _, b := range m.Files {
		content, err := os.Open(filepath.Join(work, filepath.FromSlash(b.Name)))
		if err != nil {
			return err
		}
		err = addMember(archive, b.Name, b.Size, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func addMember(archive *tar.Writer, name string, size int64, content io.Reader) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: backupFileMode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}
