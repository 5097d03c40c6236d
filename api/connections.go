package api

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Connections bounds the connections of an HTTP server. When there are more than
// may be, the one goes that has had no request under way for the longest time: a
// crowd of idle connections, or of those that never come to a request, locks
// nobody out. Only when every connection has a request is a new one closed. It
// is safe for concurrent use.
type Connections struct {
	max int

	mu      sync.Mutex // guards the rest
	all     map[net.Conn]*list.Element
	waiting list.List // of net.Conn without a request, the longest waiting first
}

// LimitConnections bounds the connections of a server to max, 1 at least, by its
// ConnState. It is called before the server serves.
func LimitConnections(s *http.Server, max int) *Connections {
	c := &Connections{max: max, all: make(map[net.Conn]*list.Element)}
	s.ConnState = c.changed
	return c
}

// changed is told of every change of a connection's state.
func (c *Connections) changed(conn net.Conn, state http.ConnState) {
	if excess := c.note(conn, state); excess != nil {
		abandon(excess)
	}
}

// note notes a connection's state and returns the connection that has to go.
func (c *Connections) note(conn net.Conn, state http.ConnState) (excess net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch place := c.all[conn]; state {
	case http.StateNew, http.StateIdle:
		if place == nil {
			c.all[conn] = c.waiting.PushBack(conn)
		}
	case http.StateActive:
		if place != nil {
			c.waiting.Remove(place)
		}
		c.all[conn] = nil
	default: // closed, or no longer the server's
		if place != nil {
			c.waiting.Remove(place)
		}
		delete(c.all, conn)
	}
	if len(c.all) <= c.max || c.waiting.Len() == 0 {
		return nil
	}
	excess = c.waiting.Remove(c.waiting.Front()).(net.Conn)
	delete(c.all, excess)
	return excess
}

// abandon closes a connection without a word: a TLS alert could wait for a peer
// that does not read.
func abandon(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close() // there is nobody to tell of an error
}

// Len is how many connections there are.
func (c *Connections) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}
