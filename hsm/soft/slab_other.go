//go:build !linux

package soft

// mapLocked allocates from the heap: locking memory is done on Linux only,
// which is what Sluice is deployed on.
func mapLocked(size int) (memory []byte, locked bool, err error) {
	return make([]byte, size), false, nil
}

func unmap([]byte) error { return nil }
