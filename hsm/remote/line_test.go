package remote

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// pipe is a line whose other end is written to by the test.
func pipe(t testing.TB) (*line, *os.File) {
	t.Helper()
	l, end, err := newPair()
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(end), "end")
	t.Cleanup(func() { l.file.Close(); f.Close() })
	return l, f
}

// frame is a whole frame.
func frame(k kind, body []byte) []byte {
	n := len(body) + 1
	return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), byte(k)}, body...)
}

func TestFramesCrossInAnyPieces(t *testing.T) {
	for _, size := range []int{0, 1, firstBuffer - headerSize, firstBuffer, keptBuffer, 2 << 20, maxFrame - 1} {
		l, other := pipe(t)
		body := bytes.Repeat([]byte{0xa5}, size)
		whole := frame(kindDo, body)
		go func() {
			for _, piece := range [][]byte{whole[:2], whole[2:headerSize], whole[headerSize:]} {
				if _, err := other.Write(piece); err != nil {
					return // the test has failed
				}
			}
		}()
		k, got, err := l.receive()
		if err != nil || k != kindDo || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes: kind %d, %d bytes, %v", size, k, len(got), err)
		}
		in := l.in
		l.wipe()
		if len(bytes.Trim(in, "\x00")) != 0 {
			t.Errorf("%d bytes: the buffer is not wiped", size)
		}
		if len(l.in) > keptBuffer {
			t.Errorf("%d bytes stay", len(l.in))
		}
	}
}

func TestASentFrameIsWiped(t *testing.T) {
	for _, size := range []int{1, keptBuffer} {
		l, other := pipe(t)
		b, ok := l.begin(kindDo, size)
		if !ok {
			t.Fatal("too long")
		}
		b = append(b, bytes.Repeat([]byte{0xa5}, size)...)
		sent := make(chan error, 1)
		go func() { sent <- l.send(b) }()
		got := make([]byte, headerSize+size)
		if _, err := io.ReadFull(other, got); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, frame(kindDo, bytes.Repeat([]byte{0xa5}, size))) {
			t.Error("another frame was sent")
		}
		if len(bytes.Trim(b, "\x00")) != 0 {
			t.Errorf("%d bytes: the buffer is not wiped", size)
		}
		if cap(l.out) > keptBuffer {
			t.Errorf("%d bytes stay", cap(l.out))
		}
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want error
	}{
		"nothing":                {"", io.EOF},
		"half a header":          {"\x00\x00\x00", errFrame},
		"no kind":                {"\x00\x00\x00\x00\x05", errFrame},
		"a body that is cut":     {"\x00\x00\x00\x03\x05a", errFrame},
		"more than a frame":      {string(frame(kindDo, nil)) + "x", errFrame},
		"longer than a frame is": {"\x7f\xff\xff\xff\x05" + strings.Repeat("x", 100), errFrame},
	} {
		t.Run(name, func(t *testing.T) {
			l, other := pipe(t)
			if _, err := io.WriteString(other, c.sent); err != nil {
				t.Fatal(err)
			}
			other.Close()
			if _, _, err := l.receive(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if len(l.in) > keptBuffer {
				t.Error("memory was given to a length that was only claimed")
			}
		})
	}
}

func TestWhatIsNoEndOfALineIsRefused(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	if _, err := unix.Write(pair[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := receiveEnd(pair[1]); !errors.Is(err, errFrame) {
		t.Errorf("a byte without a descriptor: %v", err)
	}
	l, end, err := newPair()
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	if err := sendEnd(pair[0], end); err != nil {
		t.Fatal(err)
	}
	got, err := receiveEnd(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(got), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the end is inherited by children of the process: flags %d, %v", flags, err)
	}
	unix.Close(got)
	unix.Close(pair[0])
	if _, err := receiveEnd(pair[1]); err != io.EOF {
		t.Errorf("a closed socket: %v", err)
	}
}

// TestWhatFollowsAFrameIsRefused: nobody sends before he was answered, so what
// stands behind a frame, of any length, is no answer to what is asked next. Only
// a frame that fills the first buffer to the last byte hides what follows.
func TestWhatFollowsAFrameIsRefused(t *testing.T) {
	for size := range 3 * firstBuffer {
		l, other := pipe(t)
		if _, err := other.Write(append(frame(kindDo, make([]byte, size)), 0)); err != nil {
			t.Fatal(err)
		}
		_, _, err := l.receive()
		if headerSize+size == firstBuffer {
			continue
		}
		if !errors.Is(err, errFrame) {
			t.Fatalf("a byte after a body of %d: %v", size, err)
		}
	}
}

// FuzzFrame: whatever comes, a line gives bodies that are in bounds or an
// error, and a body that is accepted is the only encoding of what it means.
func FuzzFrame(f *testing.F) {
	call := hsm.Call{Verb: 2, Algorithm: "AES_GCM", Spec: "AES_256", Handle: 7, Nonce: make([]byte, 12), Input: []byte("x")}
	f.Add(frame(kindDo, appendCall(nil, &call)))
	f.Add(frame(kindOpen, (&opening{version: version, settings: []byte("{}"), pin: []byte("1234")}).append(nil)))
	f.Add(frame(kindLoad, (&task{spec: "AES_256", usage: "ENCRYPT_DECRYPT", data: []byte("material")}).append(nil)))
	f.Add(frame(kindDone, (&outcome{output: []byte("out"), nonce: []byte{}}).append(nil)))
	f.Add(frame(kindDone, (&result{handle: 1, yes: true, key: hsm.Generated{Material: []byte("m")}}).append(nil)))
	f.Add(frame(kindDone, appendInfo(nil, &hsm.TokenInfo{Driver: "d", Wraps: []kms.Family{kms.FamilyAES}})))
	f.Add(frame(kindFailed, appendError(nil, &hsm.Error{Class: hsm.ClassPIN, Call: "C_Login", Code: 0xa0, Err: io.EOF})))
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2})
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > 64<<10 {
			t.Skip("longer than the socket holds")
		}
		l, other := pipe(t)
		if _, err := other.Write(stream); err != nil {
			t.Fatal(err)
		}
		other.Close()
		_, body, err := l.receive()
		if err != nil {
			return
		}
		if n := headerSize + len(body); n != len(stream) && n != firstBuffer {
			t.Fatalf("%d bytes were read of %d", n, len(stream))
		}
		checkBodies(t, body)
	})
}

// checkBodies parses a body as everything that it could be.
func checkBodies(t *testing.T, body []byte) {
	only := func(what string, err error, again []byte) {
		t.Helper()
		if err == nil && !bytes.Equal(body, again) {
			t.Errorf("%s: %x is read as %x", what, body, again)
		}
	}
	var c hsm.Call
	err := parseCall(&c, body)
	only("call", err, appendCall(nil, &c))
	var o opening
	if err := o.parse(body); o.version == version {
		only("opening", err, o.append(nil))
	}
	var a task
	err = a.parse(body)
	only("task", err, a.append(nil))
	var out outcome
	err = out.parse(body)
	only("outcome", err, out.append(nil))
	var r result
	err = r.parse(body)
	only("result", err, r.append(nil))
	info, err := parseInfo(body)
	only("info", err, appendInfo(nil, &info))
	if e, err := parseError(body); err == nil && len(body) < maxText {
		only("error", nil, appendError(nil, e))
	}
}
