package soft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapLocked maps size zeroed bytes, asks that they never reach swap or a core
// dump, and tells whether both were granted. Neither is a condition for
// running: RLIMIT_MEMLOCK is 64 KiB on some systems.
func mapLocked(size int) (memory []byte, locked bool, err error) {
	memory, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, false, fmt.Errorf("map key memory: %w", err)
	}
	dumped := unix.Madvise(memory, unix.MADV_DONTDUMP)
	swapped := unix.Mlock(memory)
	return memory, dumped == nil && swapped == nil, nil
}

func unmap(memory []byte) error { return unix.Munmap(memory) }
