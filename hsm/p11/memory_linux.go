package p11

import "golang.org/x/sys/unix"

func keepOutOfCoreDumps(mapped []byte) error {
	return unix.Madvise(mapped, unix.MADV_DONTDUMP)
}
