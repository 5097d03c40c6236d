package postgres

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
)

// proxy stands between a process and its server and can be cut.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	group sync.WaitGroup
}

// newProxy returns a proxy to the server of a URL, and the URL through it.
func newProxy(t *testing.T, server *pgtest.Server, url string) (*proxy, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port())), conns: map[net.Conn]bool{}}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(true)
		p.group.Wait()
	})
	return p, strings.Replace(url, p.target, l.Addr().String(), 1)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		if !p.add(client, server) {
			client.Close()
			server.Close()
			continue
		}
		p.group.Go(func() { io.Copy(server, client); server.Close() })
		p.group.Go(func() { io.Copy(client, server); client.Close() })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.cut
}

// set cuts every connection and those to come, or lets them through again.
func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.conns {
			c.Close()
		}
		clear(p.conns)
	}
}
