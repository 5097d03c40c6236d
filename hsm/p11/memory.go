package p11

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
)

const (
	// maxData bounds input and additional data of one operation together, in
	// bytes: the largest request body, 2 MiB, and room for what the service
	// puts around a message (envelope header, key commitment, tag).
	maxData = 2<<20 + 4<<10
	// outputSlack is the room for output beyond the data's length, in bytes:
	// an AEAD tag, and the block that some modules count on.
	outputSlack = 64
	// keptData is how many bytes of a session's input and of its output stay
	// resident between operations: nearly all messages fit, and a thousand
	// sessions hold at most 128 MiB.
	keptData = 64 << 10
)

// pageSize divides keptData: the sizes in use are 4, 16 and 64 KiB.
var pageSize = unix.Getpagesize()

// memory is the part of a session's state that the module sees. It is mapped
// apart from Go's heap, kept out of core dumps, and ends at an inaccessible
// page. Its pages cost nothing until they are touched, and
// release gives back those of large operations.
//
//	request | input and additional data | output | guard
type memory struct {
	mapped  []byte
	request []byte // one page
	input   []byte // maxData
	output  []byte // maxData + outputSlack

	touchedInput, touchedOutput int // since release
}

func newMemory() (*memory, error) {
	in, out := pages(maxData), pages(maxData+outputSlack)
	mapped, err := unix.Mmap(-1, 0, 2*pageSize+in+out, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassCapacity, Call: "mmap", Err: err}
	}
	m := &memory{mapped: mapped}
	m.request, mapped = mapped[:pageSize], mapped[pageSize:]
	m.input, mapped = mapped[:maxData], mapped[in:]
	m.output, mapped = mapped[:maxData+outputSlack], mapped[out:]
	if err := unix.Mprotect(mapped, unix.PROT_NONE); err != nil {
		m.unmap()
		return nil, &hsm.Error{Class: hsm.ClassCapacity, Call: "mprotect", Err: err}
	}
	if err := unix.Madvise(m.mapped, unix.MADV_DONTDUMP); err != nil {
		m.unmap()
		return nil, &hsm.Error{Class: hsm.ClassCapacity, Call: "madvise", Err: err}
	}
	return m, nil
}

func pages(n int) int { return (n + pageSize - 1) / pageSize * pageSize }

// release wipes what an operation left and gives back the pages beyond
// keptData. Input was wiped by the operation.
func (m *memory) release() {
	clear(m.output[:m.touchedOutput])
	giveBack(m.input, m.touchedInput)
	giveBack(m.output, m.touchedOutput)
	m.touchedInput, m.touchedOutput = 0, 0
}

func giveBack(area []byte, touched int) {
	if touched <= keptData {
		return
	}
	// Failure would only leave zeroed pages resident.
	_ = unix.Madvise(area[keptData:min(pages(touched), len(area))], unix.MADV_DONTNEED)
}

func (m *memory) unmap() {
	// Unmapping what mmap returned cannot fail.
	_ = unix.Munmap(m.mapped)
}
