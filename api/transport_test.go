package api_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
)

// overTLS serves a world's handler as the service does, with HTTP/2, and
// returns its address.
func (w *world) overTLS(change func(*http.Server)) (address string, client *http.Client) {
	w.t.Helper()
	server := httptest.NewUnstartedServer(w.handler)
	server.Config = api.NewHTTPServer(w.handler, slog.New(slog.DiscardHandler))
	if change != nil {
		change(server.Config)
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	w.t.Cleanup(server.Close)
	return server.Listener.Addr().String(), server.Client()
}

// A connection that never says anything does not even begin TLS. etcd kept such
// connections for ever (CVE-2026-73500).
func TestSilentConnectionsAreClosedAtTheDeadline(t *testing.T) {
	if api.ReadHeaderTimeout > 10*time.Second {
		t.Errorf("a silent connection is kept for %v", api.ReadHeaderTimeout)
	}
	w := newWorld(t)
	const deadline, connections = 300 * time.Millisecond, 500
	address, _ := w.overTLS(func(s *http.Server) { s.ReadHeaderTimeout = deadline })
	before := runtime.NumGoroutine()
	var silent []net.Conn
	for range connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for i, c := range silent {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
			t.Fatalf("connection %d: %v, want that the server closes it", i, err)
		}
	}
	if n := runtime.NumGoroutine() - before; n > connections/10 {
		t.Errorf("%d goroutines are left of %d connections", n, connections)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// countingBody is a body without an end that counts what is read of it.
type countingBody struct{ n int }

func (b *countingBody) Read(p []byte) (int, error) {
	b.n += len(p)
	return copy(p, bytes.Repeat([]byte("a"), len(p))), nil
}

// A stranger's body is not read before he is known: with many slow large bodies
// memory ran out before anybody was authenticated (CVE-2023-6337,
// CVE-2024-8185).
func TestBodyOfAStrangerIsNotRead(t *testing.T) {
	w := newWorld(t)
	for _, authorization := range []string{"", "Bearer x", "Bearer " + w.acme.token + "a", "Basic " + w.acme.token} {
		for _, r := range api.Routes() {
			if r.Request == nil || r.Public { // a login's body is its credential
				continue
			}
			body := &countingBody{}
			request := httptest.NewRequest(r.Method, paths(&r, missing)[0], body)
			request.ContentLength = 1 << 20
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", authorization)
			recorder := httptest.NewRecorder()
			w.handler.ServeHTTP(recorder, request)
			if recorder.Code != http.StatusUnauthorized || body.n > 0 {
				t.Errorf("%s as %q: %d, %d bytes of the body were read", r.Name, authorization, recorder.Code, body.n)
			}
		}
	}
}

// Trailers without number, and headers that frame in trailers, cost no memory
// and change nothing (CVE-2026-78659, -78660).
func TestTrailersCostNothingAndChangeNothing(t *testing.T) {
	w := newWorld(t)
	const body = `{"bytes":16}`
	head := "POST /v1/random HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " +
		w.acme.token + "\r\n"
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n", len(body), body)
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "X-Trailer-%d: a\r\n", i)
	}
	next := "GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for name, trailers := range map[string]string{
		"twenty thousand":       many.String(),
		"a credential":          "Authorization: Bearer x\r\n",
		"a length":              "Content-Length: 5\r\n",
		"a transfer coding":     "Transfer-Encoding: chunked\r\n",
		"one without a name":    ": a\r\n",
		"one that is no header": strings.Repeat("a", 1<<16) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			statuses := push(t, w, head+"\r\n"+chunks+trailers+"\r\n"+next)
			runtime.ReadMemStats(&after)
			// A reset may overtake the answer.
			if len(statuses) > 2 || len(statuses) > 0 && statuses[0] != 200 && statuses[0]/100 != 4 {
				t.Errorf("the answers are %v", statuses)
			}
			w.must(200, "POST", "/v1/random", w.acme.token, body)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
				t.Errorf("%d bytes of memory", spent)
			}
		})
	}
}

// push sends bytes to a server that may close, or reset, the connection before
// it has read them all, and returns the statuses of what it answered.
func push(t *testing.T, w *world, request string) (statuses []int) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	writing.Go(func() { io.WriteString(c, request) })
	defer writing.Wait()
	defer c.Close()
	for reader := bufio.NewReader(c); ; {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			if isTimeout(err) {
				t.Errorf("the connection stays open: %v", err)
			}
			return statuses
		}
		statuses = append(statuses, answer.StatusCode)
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return statuses
		}
	}
}

// frame appends a frame of HTTP/2 (RFC 9113, 4.1).
func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// A client that changes the size of the header table all the while it sends
// requests crashed servers (CVE-2026-97032), and one that flips the window let
// them buffer (CVE-2026-78669). The server goes on, for others at least.
func TestSettingsThatChangeAllTheTimeHarmNobodyElse(t *testing.T) {
	w := newWorld(t)
	address, other := w.overTLS(nil)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() { flood(t, address) })
	}
	clients.Wait()
	response, err := other.Get("https://" + address + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.ProtoMajor != 2 {
		t.Errorf("another client: %d over HTTP/%d", response.StatusCode, response.ProtoMajor)
	}
}

// flood sends requests with settings between them, until it is done or the
// server has had enough.
func flood(t *testing.T, address string) {
	const frameHeaders, frameSettings, endHeadersAndStream = 0x1, 0x4, 0x5
	const headerTableSize, initialWindowSize = 0x1, 0x4
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // a test's certificate
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		t.Errorf("the server speaks %q", c.ConnectionState().NegotiatedProtocol)
		return
	}
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, c) })
	defer reading.Wait()
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	out := frame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
	for i := range uint32(2000) {
		for setting, value := range map[uint16]uint32{headerTableSize: i % 3 * 4096, initialWindowSize: i % 2 * (1<<31 - 1)} {
			payload := binary.BigEndian.AppendUint16(nil, setting)
			out = frame(out, frameSettings, 0, 0, binary.BigEndian.AppendUint32(payload, value))
		}
		// GET, https, and a path that goes into the table (RFC 7541).
		path := fmt.Sprintf("/%04d", i)
		headers := append([]byte{0x82, 0x87, 0x44, byte(len(path))}, path...)
		headers = append(headers, 0x41, 1, 'x')
		out = frame(out, frameHeaders, endHeadersAndStream, 2*i+1, headers)
		if _, err := c.Write(out); err != nil {
			return // it has had enough
		}
		out = out[:0]
	}
}

// A client that begins requests and resets them at once has no more of them
// under way than its connection may, and the end of the connection at last
// (CVE-2023-44487).
func TestRapidResetsHarmNobodyElse(t *testing.T) {
	w := newWorld(t)
	address, other := w.overTLS(nil)
	before := runtime.NumGoroutine()
	var most atomic.Int64
	var clients sync.WaitGroup
	const connections = 4
	for range connections {
		clients.Go(func() {
			resets(t, address, func() { most.Store(max(most.Load(), int64(runtime.NumGoroutine()))) })
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); clients.Wait() }()
	for answered := 0; ; answered++ {
		response, err := other.Get("https://" + address + "/openapi.json")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 || response.ProtoMajor != 2 {
			t.Errorf("another client: %d over HTTP/%d", response.StatusCode, response.ProtoMajor)
		}
		select {
		case <-done:
			// A stream's handler and its connection's own.
			if n := most.Load() - int64(before); n > connections*(128+16) {
				t.Errorf("%d goroutines", n)
			}
			return
		default:
		}
	}
}

// resets begins and resets requests, until it is done or the server has had
// enough.
func resets(t *testing.T, address string, look func()) {
	const frameHeaders, frameReset, frameSettings, endHeadersAndStream, cancel = 0x1, 0x3, 0x4, 0x5, 8
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // a test's certificate
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, c) })
	defer reading.Wait()
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	out := frame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
	request := append([]byte{0x82, 0x87, 0x04, 8}, "/v1/keys"...) // GET, https, a path (RFC 7541)
	request = append(request, 0x01, 1, 'x')
	for i := range uint32(20_000) {
		out = frame(out, frameHeaders, endHeadersAndStream, 2*i+1, request)
		out = frame(out, frameReset, 0, 2*i+1, []byte{0, 0, 0, cancel})
		if len(out) < 4<<10 {
			continue
		}
		if _, err := c.Write(out); err != nil {
			return // it has had enough
		}
		look()
		out = out[:0]
	}
}
