package api

import (
	"io"
	"sync"
)

// buffer is pooled memory for a body. Bodies hold plaintexts, so release
// wipes it, and growth wipes what it leaves behind. Nothing that outlives the
// request may alias its bytes.
type buffer struct {
	bytes []byte
	// leave gives back what the body of a request took of the room for bodies;
	// nil: nothing.
	leave func()
}

// Capacities of pooled buffers. Nearly every body of a key operation fits a
// small one; the large ones are of the size of the message.
const (
	smallBuffer = 4 << 10
	// maxPooledBuffer is the largest capacity that is kept: the default limit
	// of a body, and the byte where its end is read.
	maxPooledBuffer = DefaultMaxBody + 1
)

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, 0, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{} }}
)

// newBuffer returns an empty buffer with room for size bytes.
func newBuffer(size int) *buffer {
	if size <= smallBuffer {
		return smallBuffers.Get().(*buffer)
	}
	b := largeBuffers.Get().(*buffer)
	b.reserve(size)
	return b
}

// release wipes the buffer and gives it back; without a buffer it does
// nothing.
func (b *buffer) release() {
	if b == nil {
		return
	}
	clear(b.bytes)
	b.bytes = b.bytes[:0]
	if b.leave != nil {
		b.leave()
		b.leave = nil
	}
	switch c := cap(b.bytes); {
	case c <= smallBuffer:
		smallBuffers.Put(b)
	case c <= maxPooledBuffer:
		largeBuffers.Put(b)
	}
}

// reserve makes room for n more bytes.
func (b *buffer) reserve(n int) {
	if cap(b.bytes)-len(b.bytes) >= n {
		return
	}
	b.grow(max(2*cap(b.bytes), len(b.bytes)+n))
}

// grow moves the bytes to a larger capacity.
func (b *buffer) grow(capacity int) {
	grown := make([]byte, len(b.bytes), capacity)
	copy(grown, b.bytes)
	clear(b.bytes)
	b.bytes = grown
}

// Write appends p.
func (b *buffer) Write(p []byte) (int, error) {
	b.reserve(len(p))
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

// readAll appends what r holds until its end, which is most bytes at most. It
// takes no more than that much memory, and half of it while it grows.
func (b *buffer) readAll(r io.Reader, most int) error {
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.grow(max(min(2*cap(b.bytes), most+1), len(b.bytes)+1)) // the one more is where the end is read
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
