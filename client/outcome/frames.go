package outcome

import "encoding/binary"

// Sizes of a frame of application/vnd.amazon.eventstream: two lengths and a
// checksum before the headers, a checksum behind the payload.
const (
	framePrelude = 12
	frameLeast   = framePrelude + 4
)

// frames reads the stream in which Bedrock answers, frame by frame, for the one
// that is an exception. Checksums are left to the reader of the content.
type frames struct {
	buffer []byte
	skip   uint32 // bytes of a frame that is too long, which is content
	broken bool   // not the format: nothing more is read
}

// write takes the next bytes and returns what an exception among them says.
func (f *frames) write(b []byte) (said problem, failed bool) {
	for len(b) > 0 && !f.broken {
		if f.skip > 0 {
			n := min(uint32(len(b)), f.skip)
			b, f.skip = b[n:], f.skip-n
			continue
		}
		want := framePrelude - len(f.buffer)
		if want <= 0 {
			want = int(binary.BigEndian.Uint32(f.buffer)) - len(f.buffer)
		}
		n := min(want, len(b))
		f.buffer, b = append(f.buffer, b[:n]...), b[n:]
		if len(f.buffer) < framePrelude {
			continue
		}
		total := binary.BigEndian.Uint32(f.buffer)
		switch {
		case total < frameLeast:
			f.broken = true
		case total > maxLine:
			f.skip = total - uint32(len(f.buffer))
			f.buffer = f.buffer[:0]
		case total == uint32(len(f.buffer)):
			said, failed = readFrame(f.buffer)
			f.buffer = f.buffer[:0]
			if failed {
				return said, true
			}
		}
	}
	return problem{}, false
}

// readFrame tells of a whole frame whether it is an exception, and what it says.
func readFrame(frame []byte) (said problem, failed bool) {
	rest := frame[framePrelude : len(frame)-4]
	n := binary.BigEndian.Uint32(frame[4:])
	if uint64(n) > uint64(len(rest)) {
		return said, false
	}
	headers, payload := rest[:n], rest[n:]
	for len(headers) > 0 {
		name, value, more, ok := readHeader(headers)
		if !ok {
			break
		}
		headers = more
		switch name {
		case ":message-type":
			failed = failed || value == "exception" || value == "error"
		case ":exception-type", ":error-code":
			said.code(value)
		case ":error-message":
			said.message += " " + value
		}
	}
	if failed {
		said.read(payload)
	}
	return said, failed
}

// sizes of the values of headers by their type; a string and bytes, of types 7
// and 6, have two bytes of length before them.
var sizes = [...]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: -1, 7: -1, 8: 8, 9: 16}

// readHeader takes the first header off b.
func readHeader(b []byte) (name, value string, rest []byte, ok bool) {
	n := int(b[0])
	if len(b) < 1+n+1 || int(b[1+n]) >= len(sizes) {
		return "", "", nil, false
	}
	name, b = string(b[1:1+n]), b[1+n:]
	size := sizes[b[0]]
	b = b[1:]
	if size < 0 {
		if len(b) < 2 {
			return "", "", nil, false
		}
		size = int(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) < size {
		return "", "", nil, false
	}
	return name, string(b[:size]), b[size:], true
}
