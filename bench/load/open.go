package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is one source of requests.
type Stream struct {
	Request
	// More are further requests to the same address. All take turns.
	More []Request
	// Rate is the mean of requests/s. They arrive at random (Poisson), or at
	// equal intervals when Constant, however long the answers take: the load is
	// open. 0: it is closed, and Clients send the next one when the last was
	// answered.
	Rate     float64
	Constant bool
	Clients  int
	Seed     uint64
	// Patience is how long after its intended start a request is given up.
	Patience time.Duration
	// Remote lets the stream drive an address that is not on loopback.
	Remote bool
	// Tolerant makes a connection that breaks a sample of StatusBroken. Without
	// it, it ends the run.
	Tolerant bool
	// Observe is given each sample in place of keeping it; nil: keep them. Calls
	// come one after the other.
	Observe func(Sample)
}

// StatusBroken is the status of a request whose connection broke, or could not
// be made.
const StatusBroken = -1

// Sample is what became of one request. Times count from the begin of the run.
type Sample struct {
	Intended time.Duration // when it was to be sent, not when it could be
	Done     time.Duration
	// Status is the answer's. 0: none came within the patience. Also
	// StatusBroken.
	Status int
	// Queued and HSM are the times that the server says it took: waiting for a
	// slot, and holding it. 0: it does not say.
	Queued, HSM time.Duration
}

// Latency counts from the intended start, so that a server that stalls cannot
// hide the requests which it kept from being sent.
func (s Sample) Latency() time.Duration { return s.Done - s.Intended }

// refusedPause is how long a client of a closed load waits after a refusal.
const refusedPause = 10 * time.Millisecond

// Play runs all streams at once for the duration, waits for the last answers,
// and returns each stream's samples in no order, also when ctx ends it early.
// Only loopback addresses are driven, but for Remote streams. It fails on what no
// server may answer: a broken connection, or an answer that is not HTTP.
func Play(ctx context.Context, streams []Stream, d time.Duration) ([][]Sample, error) {
	p := &player{start: time.Now(), total: d, samples: make([][]Sample, len(streams))}
	for _, s := range streams {
		ap, err := netip.ParseAddrPort(s.Address)
		if !s.Remote && (err != nil || !ap.Addr().IsLoopback()) {
			return nil, errors.New("load: the address must be an IP address and port on loopback")
		}
		if s.Clients > maxConnections || s.Rate == 0 && s.Clients < 1 || s.Rate < 0 || s.Patience <= 0 {
			return nil, fmt.Errorf("load: a stream needs a rate, or 1 to %d clients, and patience", maxConnections)
		}
	}
	for i, s := range streams {
		c := &caller{player: p, Stream: s, stream: i, raw: [][]byte{s.bytes()}}
		for _, r := range s.More {
			c.raw = append(c.raw, r.bytes())
		}
		if s.Rate > 0 {
			p.all.Go(func() { c.open(ctx, rand.New(rand.NewPCG(s.Seed, uint64(i)))) })
			continue
		}
		for range s.Clients {
			p.all.Go(func() { c.closed(ctx) })
		}
	}
	p.all.Wait()
	return p.samples, errors.Join(p.failed, ctx.Err())
}

// player is a run.
type player struct {
	start time.Time
	total time.Duration
	all   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	samples [][]Sample
	failed  error // the first
}

func (p *player) at() time.Duration { return time.Since(p.start) }

func (p *player) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *player) stopped(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed != nil || ctx.Err() != nil
}

// caller sends the requests of a stream on connections that it keeps.
type caller struct {
	*player
	Stream
	stream int // its index
	raw    [][]byte
	turn   atomic.Uint64

	idle     []*conn
	idleLock sync.Mutex // guards idle
}

type conn struct {
	net.Conn
	in   *bufio.Reader
	idle time.Time // since when
}

// maxIdle is how long a connection is kept without a request: shorter than
// servers keep one, since a request on a connection that its server is closing
// is lost.
const maxIdle = 20 * time.Second

func (c *caller) open(ctx context.Context, rnd *rand.Rand) {
	defer c.hangUp()
	var running sync.WaitGroup
	defer running.Wait()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for next := time.Duration(0); ; {
		next += c.interval(rnd)
		if next >= c.total || c.stopped(ctx) {
			return
		}
		wake.Reset(next - c.at())
		select {
		case <-wake.C:
		case <-ctx.Done():
			return
		}
		running.Go(func() { c.request(next) })
	}
}

// interval is the time between two intended starts.
func (c *caller) interval(rnd *rand.Rand) time.Duration {
	mean := float64(time.Second) / c.Rate
	if c.Constant {
		return time.Duration(mean)
	}
	return time.Duration(rnd.ExpFloat64() * mean)
}

func (c *caller) closed(ctx context.Context) {
	defer c.hangUp()
	for c.at() < c.total && !c.stopped(ctx) {
		if c.request(c.at()) != 200 {
			time.Sleep(refusedPause)
		}
	}
}

// request sends one and returns the status of its answer.
func (c *caller) request(intended time.Duration) int {
	a, err := c.exchange(c.start.Add(intended + c.Patience))
	if late, ok := errors.AsType[net.Error](err); err != nil && !(ok && late.Timeout()) {
		if !c.Tolerant {
			c.fail(fmt.Errorf("load: %w", err))
			return 0
		}
		a = answer{status: StatusBroken}
	}
	s := Sample{Intended: intended, Done: c.at(), Status: a.status, Queued: a.queued, HSM: a.hsm}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Observe != nil {
		c.Observe(s)
	} else {
		c.samples[c.stream] = append(c.samples[c.stream], s)
	}
	return a.status
}

func (c *caller) exchange(until time.Time) (a answer, err error) {
	k, err := c.connection(until)
	if err != nil {
		return a, err
	}
	if err = k.SetDeadline(until); err == nil {
		if _, err = k.Write(c.raw[(c.turn.Add(1)-1)%uint64(len(c.raw))]); err == nil {
			a, err = readHead(k.in)
		}
	}
	if err != nil {
		k.Close() // its answer may still come
		return answer{}, err
	}
	if a.closes {
		return a, k.Close()
	}
	c.idleLock.Lock()
	defer c.idleLock.Unlock()
	k.idle = time.Now()
	c.idle = append(c.idle, k)
	return a, nil
}

func (c *caller) connection(until time.Time) (*conn, error) {
	c.idleLock.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		if k := c.idle[last]; time.Since(k.idle) < maxIdle {
			c.idle = c.idle[:last]
			c.idleLock.Unlock()
			return k, nil
		}
		c.closeIdle() // those below it have been so for longer
	}
	c.idleLock.Unlock()
	dialer := &net.Dialer{Deadline: until}
	k, err := dialer.Dial("tcp", c.Address)
	if err != nil {
		return nil, err
	}
	if c.TLS != nil {
		k = tls.Client(k, c.TLS) // shakes hands with the first write, by the deadline
	}
	return &conn{Conn: k, in: bufio.NewReader(k)}, nil
}

func (c *caller) hangUp() {
	c.idleLock.Lock()
	defer c.idleLock.Unlock()
	c.closeIdle()
}

// closeIdle is called with the lock.
func (c *caller) closeIdle() {
	for _, k := range c.idle {
		k.Close()
	}
	c.idle = nil
}
