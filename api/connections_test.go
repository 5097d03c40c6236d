package api

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// limitedServer serves with at most max connections; requests for /held wait.
func limitedServer(t *testing.T, max int) (address string, connections *Connections, came, leave chan struct{}) {
	t.Helper()
	came, leave = make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			came <- struct{}{}
			<-leave
		}
		io.WriteString(w, "ok")
	}), slog.New(slog.DiscardHandler))
	// The test server notes states itself, before us.
	connections = LimitConnections(server.Config, max)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), connections, came, leave
}

// client is a connection of its own.
type client struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{c, bufio.NewReader(c)}
}

func (c *client) ask(path string) error {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	return c.answered()
}

func (c *client) answered() error {
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// closed tells whether the server closes the connection.
func (c *client) closed() bool {
	_, err := c.reader.ReadByte()
	timeout, ok := errors.AsType[net.Error](err)
	return err != nil && (!ok || !timeout.Timeout())
}

// awaitLen returns when the server knows of n connections: it accepts them in
// its own time.
func awaitLen(c *Connections, n int) {
	for c.Len() < n {
		<-time.After(time.Millisecond)
	}
}

// TestIdleConnectionsGiveWayToNewOnes: those that wait longest first, silent
// ones, half requests and kept ones alike, and never one with a request.
func TestIdleConnectionsGiveWayToNewOnes(t *testing.T) {
	const most = 8
	address, connections, came, leave := limitedServer(t, most)
	busy := dial(t, address)
	done := make(chan error, 1)
	go func() { done <- busy.ask("/held") }()
	<-came
	silent := dial(t, address)
	awaitLen(connections, 2)
	half := dial(t, address)
	io.WriteString(half, "GET / HTTP/1.1\r\nHost:")
	awaitLen(connections, 3)
	kept := dial(t, address)
	if err := kept.ask("/"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := dial(t, address).ask("/"); err != nil {
			t.Fatalf("newcomer %d: %v", i, err)
		}
		if n := connections.Len(); n > most {
			t.Errorf("%d connections", n)
		}
	}
	for name, c := range map[string]*client{"a silent one": silent, "one with half a request": half, "a kept one": kept} {
		if !c.closed() {
			t.Errorf("%s was not closed", name)
		}
	}
	leave <- struct{}{}
	if err := <-done; err != nil {
		t.Errorf("a request under way ended with %v", err)
	}
}

// TestNewConnectionIsClosedWhenAllAreBusy: there is no more room, and nobody who
// works is thrown out.
func TestNewConnectionIsClosedWhenAllAreBusy(t *testing.T) {
	const most = 4
	address, connections, came, leave := limitedServer(t, most)
	done := make(chan error, most)
	for range most {
		c := dial(t, address)
		go func() { done <- c.ask("/held") }()
		<-came
	}
	for range 10 {
		if !dial(t, address).closed() {
			t.Error("one too many is open")
		}
	}
	for range most {
		leave <- struct{}{}
	}
	for range most {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := dial(t, address).ask("/"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if n := connections.Len(); n > most {
		t.Errorf("%d connections are left", n)
	}
}
