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
}

// Capacities of pooled buffers. Nearly every body of a key operation fits a
// small one; the large ones are of the size of the message.
const (
	smallBuffer = 4 << 10
	// maxPooledBuffer is the largest capacity that is kept: the default limit
	// of a body.
	maxPooledBuffer = DefaultMaxBody
)

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, smallBuffer)} }}
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
	grown := make([]byte, len(b.bytes), max(2*cap(b.bytes), len(b.bytes)+n))
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

// readAll appends what r holds until its end.
func (b *buffer) readAll(r io.Reader) error {
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.reserve(smallBuffer)
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
