package outcometest

import (
	"io"
	"maps"
	"net/http"
	"sync"
)

// Provider is an LLM provider for tests: an http.Handler that gives the answers
// it was told to, one a request, and then Default. It is safe for concurrent
// use.
type Provider struct {
	// Check, if set, sees each request before it is answered.
	Check func(*http.Request)
	// Default answers when there is nothing left to play; the zero Case is
	// Fine.
	Default Case

	mu       sync.Mutex
	script   []Case
	requests int
}

// Play adds answers for the next requests.
func (p *Provider) Play(cases ...Case) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = append(p.script, cases...)
}

// Requests is how many requests have come.
func (p *Provider) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *Provider) next() Case {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	if len(p.script) > 0 {
		c := p.script[0]
		p.script = p.script[1:]
		return c
	}
	if p.Default.Status == 0 && p.Default.Err == nil {
		return Fine
	}
	return p.Default
}

// ServeHTTP answers a request as the next case says. An Err becomes a
// connection that breaks.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.Check != nil {
		p.Check(r)
	}
	c := p.next()
	if c.Err != nil {
		panic(http.ErrAbortHandler)
	}
	io.Copy(io.Discard, r.Body)
	maps.Copy(w.Header(), c.FullHeader())
	w.WriteHeader(c.Status)
	io.WriteString(w, c.Body)
	if c.Breaks {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}
