package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// storage makes the segments of one folder. The log goes through it for
// everything that can fail under it, so that a test can make it fail.
type storage interface {
	// create makes an empty file, in place of one of that name.
	create(name string) (segmentFile, error)
	// open opens a file that exists.
	open(name string) (segmentFile, error)
	// publish gives a file its final name, durably. Once the new name is
	// there but may not be durable the error is a *syncError.
	publish(temporary, name string) error
	remove(name string) error
	// close releases the folder.
	close() error
}

// segmentFile is an open segment.
type segmentFile interface {
	WriteAt(p []byte, offset int64) (int, error)
	// Sync makes all that was written, and the size of the file, durable.
	Sync() error
	Truncate(size int64) error
	// Allocate makes sure that writes up to offset+length find space, without
	// changing the size. errors.ErrUnsupported: the file system cannot.
	Allocate(offset, length int64) error
	Close() error
}

// syncError is the failure of an fsync. The kernel reports it once and may
// have dropped the data, so nobody may try again.
type syncError struct{ err error }

func (e *syncError) Error() string { return fmt.Sprintf("fsync: %v", e.err) }
func (e *syncError) Unwrap() error { return e.err }

// isNoSpace tells whether the error says that the disk or a quota is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// folder is the storage in a folder of the file system, locked for one log.
type folder struct {
	path string
	dir  *os.File // holds the lock
}

// The modes, whatever the umask: the journal tells who used which key when.
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

// openFolder makes the folder if it is missing, locks it and removes what a
// crash left half made. It fails when another log holds the lock and when
// others than the owner may enter the folder.
func openFolder(path string) (*folder, error) {
	if err := makeFolder(path); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	f := &folder{path: path, dir: dir}
	if err := f.prepare(); err != nil {
		dir.Close()
		return nil, err
	}
	return f, nil
}

func makeFolder(path string) error {
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(path, folderMode)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("making the journal's folder: %w", err)
	}
	return nil
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (f *folder) prepare() error {
	info, err := f.dir.Stat()
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	if mode := info.Mode().Perm(); mode&^folderMode != 0 {
		return fmt.Errorf("the journal's folder has mode %04o: others than its owner may enter it", mode)
	}
	if err := syscall.Flock(int(f.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.New("the journal is in use by another process")
		}
		return fmt.Errorf("locking the journal: %w", err)
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("listing the journal: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), temporarySuffix); ok {
			if _, ok := parseSegmentName(name); ok {
				if err := f.remove(e.Name()); err != nil {
					return fmt.Errorf("removing a segment that was never published: %w", err)
				}
			}
		}
	}
	return nil
}

func (f *folder) create(name string) (segmentFile, error) {
	file, err := os.OpenFile(filepath.Join(f.path, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return nil, err
	}
	if err := file.Chmod(fileMode); err != nil {
		file.Close()
		return nil, err
	}
	return diskFile{file}, nil
}

func (f *folder) open(name string) (segmentFile, error) {
	file, err := os.OpenFile(filepath.Join(f.path, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return diskFile{file}, nil
}

func (f *folder) publish(temporary, name string) error {
	if err := os.Rename(filepath.Join(f.path, temporary), filepath.Join(f.path, name)); err != nil {
		return err
	}
	if err := f.dir.Sync(); err != nil {
		return &syncError{err}
	}
	return nil
}

func (f *folder) remove(name string) error { return os.Remove(filepath.Join(f.path, name)) }

func (f *folder) close() error { return f.dir.Close() }

// diskFile is a segment in the file system.
type diskFile struct{ *os.File }

func (f diskFile) Sync() error {
	if err := datasync(f.File); err != nil {
		return &syncError{err}
	}
	return nil
}

func (f diskFile) Allocate(offset, length int64) error { return allocate(f.File, offset, length) }
