package wire_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// line forwards connections to a database until it is cut, or until those are
// that listen to announcements.
type line struct {
	url string // of the database through the line

	mu        sync.Mutex
	down      bool
	deaf      bool
	conns     map[net.Conn]bool
	listeners map[net.Conn]bool // part of conns, the near ends
	refused   int               // attempts to listen while the line is deaf
}

func newLine(t *testing.T, database string) *line {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	l := &line{url: u.String(), conns: map[net.Conn]bool{}, listeners: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { l.forward(near, target) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.cut()
		all.Wait()
	})
	return l
}

func (l *line) forward(near net.Conn, target string) {
	defer near.Close()
	far, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return
	}
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, copyOne := range []func(){
		func() { io.Copy(near, far) },
		func() { io.Copy(gate{l, near, far}, near) },
	} {
		both.Go(func() {
			copyOne()
			near.Close()
			far.Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	delete(l.listeners, near)
	l.mu.Unlock()
}

// gate is what a connection's requests pass on their way to the database.
type gate struct {
	line      *line
	near, far net.Conn
}

// Write looks for the statement with which a connection begins to listen. It
// comes alone, so it is in one packet.
func (g gate) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("LISTEN sluice_changes")) && !g.line.listens(g.near) {
		return 0, net.ErrClosed
	}
	return g.far.Write(b)
}

// listens notes that a connection is one that listens, and tells whether it
// may.
func (l *line) listens(near net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		l.refused++
		return false
	}
	l.listeners[near] = true
	return true
}

// deafen breaks the connections that listen and lets no new one do so, or lets
// them again. It returns how many it broke.
func (l *line) deafen(deaf bool) (broken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = deaf
	if !deaf {
		return 0
	}
	for c := range l.listeners {
		c.Close()
	}
	return len(l.listeners)
}

// hearing tells how many connections listen, and how many were kept from it.
func (l *line) hearing() (listeners, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listeners), l.refused
}

// cut breaks all connections and lets no new one through.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		c.Close()
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// ordersOn makes a tenant and the key orders on node a, and returns how node b
// answers to a ciphertext of that key.
func ordersOn(t *testing.T, a, b *apiNode) (decrypt func() (status int, code string)) {
	t.Helper()
	if status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "platinum"}); status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	status, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials",
		object{"name": "app", "scopes": []string{"key:*", "key:manage"}})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, c.Detail)
	}
	a.Demo, b.Demo = c.Credential, c.Credential
	must(t, a.Service, "/v1/keys", object{"name": "orders", "spec": "AES_256"})
	ciphertext := must(t, a.Service, "/v1/keys/orders/encrypt", object{"plaintext": []byte("x")}).Ciphertext
	return func() (int, string) {
		status, a := call(t, b.Service, b.Demo, http.MethodPost, "/v1/keys/orders/decrypt", object{"ciphertext": ciphertext})
		return status, a.Code
	}
}

// A node that cannot ask the database serves what it knows for the staleness
// that it may have, then refuses, since a key could have been disabled; when
// the database is back it knows what happened meanwhile.
func TestNodeThatIsCutOffServesForItsStalenessThenFailsClosed(t *testing.T) {
	const staleness = 2 * time.Second // of the configuration of twoNodes
	a, b, toDatabase := twoNodes(t)
	decrypt := ordersOn(t, a, b)
	within(t, time.Second, "a new key", func() bool { status, _ := decrypt(); return status == http.StatusOK })

	toDatabase.cut()
	cut := time.Now()
	must(t, a.Service, "/v1/keys/orders/disable", object{})
	served := 0
	var closed time.Duration
	within(t, staleness+time.Second, "being cut off", func() bool {
		status, code := decrypt()
		switch {
		case status == http.StatusOK:
			served++
			return false
		case status == http.StatusServiceUnavailable:
			closed = time.Since(cut)
			return true
		}
		t.Fatalf("while cut off: %d %s", status, code)
		return false
	})
	if served == 0 {
		t.Error("the node served nothing although it was allowed to")
	}
	for range 20 {
		if status, code := decrypt(); status != http.StatusServiceUnavailable {
			t.Fatalf("after it closed: %d %s", status, code)
		}
	}
	t.Logf("cut off: %d requests served, closed after %v", served, closed.Round(time.Millisecond))

	toDatabase.mend()
	mended := time.Now()
	within(t, 10*time.Second, "the database's return", func() bool {
		status, code := decrypt()
		if status == http.StatusOK {
			t.Fatal("the disabled key was used after the database was back")
		}
		return status == http.StatusConflict && code == "key_disabled"
	})
	t.Logf("knew of the disabled key %v after the database was back", time.Since(mended).Round(time.Millisecond))
}
