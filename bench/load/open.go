package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Stream is one source of requests.
type Stream struct {
	Request
	// Rate is the mean of requests/s. They arrive at random (Poisson), however
	// long the answers take: the load is open. 0: it is closed, and Clients
	// send the next one when the last was answered.
	Rate    float64
	Clients int
	Seed    uint64
	// Patience is how long after its intended start a request is given up.
	Patience time.Duration
}

// Sample is what became of one request. Times count from the begin of the run.
type Sample struct {
	Intended time.Duration // when it was to be sent, not when it could be
	Done     time.Duration
	// Status is the answer's. 0: none came within the patience.
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
// and returns each stream's samples in no order. Only loopback addresses are
// driven. It fails on what no server may answer: a broken connection, or an
// answer that is not HTTP.
func Play(ctx context.Context, streams []Stream, d time.Duration) ([][]Sample, error) {
	p := &player{start: time.Now(), total: d, samples: make([][]Sample, len(streams))}
	for _, s := range streams {
		ap, err := netip.ParseAddrPort(s.Address)
		if err != nil || !ap.Addr().IsLoopback() {
			return nil, errors.New("load: the address must be an IP address and port on loopback")
		}
		if s.Clients > maxConnections || s.Rate == 0 && s.Clients < 1 || s.Rate < 0 || s.Patience <= 0 {
			return nil, fmt.Errorf("load: a stream needs a rate, or 1 to %d clients, and patience", maxConnections)
		}
	}
	for i, s := range streams {
		c := &caller{player: p, stream: i, address: s.Address, raw: s.bytes(), patience: s.Patience}
		if s.Rate > 0 {
			p.all.Go(func() { c.open(ctx, s.Rate, rand.New(rand.NewPCG(s.Seed, uint64(i)))) })
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
	stream   int
	address  string
	raw      []byte
	patience time.Duration

	idle     []*conn
	idleLock sync.Mutex // guards idle
}

type conn struct {
	net.Conn
	in *bufio.Reader
}

func (c *caller) open(ctx context.Context, rate float64, rnd *rand.Rand) {
	defer c.hangUp()
	var running sync.WaitGroup
	defer running.Wait()
	for next := time.Duration(0); ; {
		next += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
		if next >= c.total || c.stopped(ctx) {
			return
		}
		time.Sleep(next - c.at())
		running.Go(func() { c.request(next) })
	}
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
	a, err := c.exchange(c.start.Add(intended + c.patience))
	if late, ok := errors.AsType[net.Error](err); err != nil && !(ok && late.Timeout()) {
		c.fail(fmt.Errorf("load: %w", err))
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples[c.stream] = append(c.samples[c.stream], Sample{Intended: intended, Done: c.at(), Status: a.status, Queued: a.queued, HSM: a.hsm})
	return a.status
}

func (c *caller) exchange(until time.Time) (a answer, err error) {
	k, err := c.connection(until)
	if err != nil {
		return a, err
	}
	if err = k.SetDeadline(until); err == nil {
		if _, err = k.Write(c.raw); err == nil {
			a, err = readHead(k.in)
		}
	}
	if err != nil {
		k.Close() // its answer may still come
		return answer{}, err
	}
	c.idleLock.Lock()
	defer c.idleLock.Unlock()
	c.idle = append(c.idle, k)
	return a, nil
}

func (c *caller) connection(until time.Time) (*conn, error) {
	c.idleLock.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		k := c.idle[last]
		c.idle = c.idle[:last]
		c.idleLock.Unlock()
		return k, nil
	}
	c.idleLock.Unlock()
	k, err := (&net.Dialer{Deadline: until}).Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	return &conn{k, bufio.NewReader(k)}, nil
}

func (c *caller) hangUp() {
	c.idleLock.Lock()
	defer c.idleLock.Unlock()
	for _, k := range c.idle {
		k.Close()
	}
	c.idle = nil
}
