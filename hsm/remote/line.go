package remote

import (
	"encoding/binary"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxFrame bounds a frame after its length, in bytes: the longest input of
	// a token, 2 MiB and some KiB of data, twice, since input and additional
	// data, or plaintext and what an algorithm makes of it, come together.
	maxFrame = 4<<20 + 64<<10
	// headerSize is that of length and kind.
	headerSize = 5
	// firstBuffer and keptBuffer are how long a line's buffers are at first
	// and how long they may stay between exchanges, in bytes: nearly all
	// messages fit into the first, and a thousand sessions hold at most 128 MiB
	// on each side.
	firstBuffer = 1 << 10
	keptBuffer  = 64 << 10
)

// line is one end of a socket pair on which requests and answers take turns.
// One goroutine uses it at a time, except for Close.
type line struct {
	file    *os.File
	out, in []byte // of the last frame each way
	read    int    // bytes of in that hold something
}

// newLine makes a line of a descriptor, which it owns from then on.
func newLine(fd int) *line {
	return &line{file: os.NewFile(uintptr(fd), "line"), out: make([]byte, 0, firstBuffer), in: make([]byte, firstBuffer)}
}

// newPair makes a line and the descriptor of its other end.
func newPair() (*line, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	return newLine(pair[0]), pair[1], nil
}

// begin returns the beginning of a frame, to which the body of at most size
// bytes is appended: the buffer must not grow under it, which would leave a
// part of the body behind. It is false when the frame would be too long.
func (l *line) begin(k kind, size int) ([]byte, bool) {
	if size > maxFrame-1 {
		return nil, false
	}
	if cap(l.out) < headerSize+size {
		l.out = make([]byte, 0, headerSize+size) // the old one is wiped
	}
	return append(l.out[:0], 0, 0, 0, 0, byte(k)), true
}

// send writes a frame that begin began, and wipes it.
func (l *line) send(frame []byte) error {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-headerSize+1))
	_, err := l.file.Write(frame)
	clear(frame)
	if cap(l.out) > keptBuffer {
		l.out = make([]byte, 0, firstBuffer)
	}
	return err
}

// receive reads a frame. Its body is valid until wipe, which must follow.
func (l *line) receive() (kind, []byte, error) {
	n, size := 0, headerSize
	for n < size {
		m, err := l.file.Read(l.in[n:])
		l.read = n + m
		if err != nil {
			if err == io.EOF && n > 0 {
				err = errFrame
			}
			return 0, nil, err
		}
		if n += m; size == headerSize && n >= headerSize {
			length := binary.BigEndian.Uint32(l.in)
			if length == 0 || length > maxFrame {
				return 0, nil, errFrame
			}
			size = headerSize - 1 + int(length)
			if size >= len(l.in) { // with room for a byte that must not come
				larger := make([]byte, size+1)
				copy(larger, l.in[:n])
				clear(l.in[:n])
				l.in = larger
			}
		}
	}
	if n > size { // nobody sends before he was answered
		return 0, nil, errFrame
	}
	return kind(l.in[headerSize-1]), l.in[headerSize:size], nil
}

// wipe clears what receive has read.
func (l *line) wipe() {
	clear(l.in[:l.read])
	l.read = 0
	if len(l.in) > keptBuffer {
		l.in = make([]byte, firstBuffer)
	}
}

// sendEnd passes a line's other end over the control socket and closes it
// here.
func sendEnd(control, end int) error {
	defer unix.Close(end)
	for {
		err := unix.Sendmsg(control, []byte{0}, unix.UnixRights(end), nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// receiveEnd waits for a line's end; io.EOF when the other side has closed the
// control socket.
func receiveEnd(control int) (int, error) {
	var data [1]byte
	oob := make([]byte, unix.CmsgSpace(4)) // one descriptor
	n, oobn, _, _, err := unix.Recvmsg(control, data[:], oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(control, data[:], oob, unix.MSG_CMSG_CLOEXEC)
	}
	switch {
	case err != nil:
		return -1, err
	case n == 0:
		return -1, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return -1, errFrame
	}
	ends, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(ends) != 1 {
		return -1, errFrame
	}
	return ends[0], nil
}
