package api

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestBodyBuffersAreWiped holds on to the memory of buffers past their
// release: nothing of what they held may be left in it, nor in the memory
// that they outgrew.
func TestBodyBuffersAreWiped(t *testing.T) {
	for _, size := range []int{1, 100, smallBuffer, smallBuffer + 1, 1 << 20, maxPooledBuffer + 1} {
		b := newBuffer(16)
		var memories [][]byte
		remember := func() { memories = append(memories, b.bytes[:cap(b.bytes)]) }
		remember()
		secret := bytes.Repeat([]byte{0xAA}, size)
		for chunk := range slices.Chunk(secret, 1000) {
			if _, err := b.Write(chunk); err != nil {
				t.Fatal(err)
			}
			remember()
		}
		if !bytes.Equal(b.bytes, secret) {
			t.Errorf("%d bytes: the buffer holds something else", size)
		}
		b.release()
		for i, m := range memories {
			if bytes.IndexByte(m, 0xAA) >= 0 {
				t.Errorf("%d bytes: memory %d still holds some", size, i)
			}
		}
	}
}

func TestBufferReadsUntilTheEndOrTheError(t *testing.T) {
	text := strings.Repeat("0123456789", 5000)
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"end with the data": iotest.DataErrReader(strings.NewReader(text)),
	} {
		b := newBuffer(1)
		if err := b.readAll(r, len(text)); err != nil || string(b.bytes) != text {
			t.Errorf("%s: %v, %d bytes", name, err, len(b.bytes))
		}
		b.release()
	}
	b := newBuffer(1)
	if err := b.readAll(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))), len(text)); err != iotest.ErrTimeout {
		t.Errorf("error %v", err)
	}
	b.release()
}

// TestAnswersLeaveNoCopyBehind writes a secret through the writer and looks
// for it in every array that the buffer has been.
func TestAnswersLeaveNoCopyBehind(t *testing.T) {
	w := &writer{newBuffer(16)}
	first := w.b.bytes[:cap(w.b.bytes)]
	w.raw("{")
	w.bytes("plaintext", bytes.Repeat([]byte{0}, 2*smallBuffer)) // base64: a run of A
	second := w.b.bytes[:cap(w.b.bytes)]
	for w.b.reserve(0); cap(w.b.bytes) == cap(second); {
		w.text("name", "value")
		w.number("version", 1)
	}
	third := w.b.bytes[:cap(w.b.bytes)]
	w.b.release()
	for i, memory := range [][]byte{first, second, third} {
		if bytes.Contains(memory, []byte("AAAA")) {
			t.Errorf("memory %d still holds the secret", i)
		}
	}
}

func TestAnswerWipesTheSecretItWrote(t *testing.T) {
	secret := []byte("secret")
	c := &call{}
	for _, out := range []any{&DecryptResponse{Plaintext: secret}, &DataKeyResponse{Plaintext: secret}, &RandomResponse{Random: secret}} {
		copy(secret, "secret")
		b, err := c.encode(out)
		if err != nil || !bytes.Contains(b.bytes, []byte(`"c2VjcmV0"`)) {
			t.Errorf("%T: %v, %s", out, err, b.bytes)
		}
		if !bytes.Equal(secret, make([]byte, len(secret))) {
			t.Errorf("%T: the secret is still there", out)
		}
		b.release()
	}
}
