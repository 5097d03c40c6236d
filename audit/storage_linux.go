package audit

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// datasync leaves out times and other metadata that reading the data back
// does not need.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func allocate(f *os.File, offset, length int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
