package trial

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/machine"
	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/bench/target"
)

// Result is what came of a trial. It is written as JSON.
type Result struct {
	Scenario string          `json:"scenario"`
	About    string          `json:"about"`
	Target   string          `json:"target"`
	Kind     target.Kind     `json:"kind"`
	Command  string          `json:"command"` // that does it again
	Started  time.Time       `json:"started"`
	Machine  machine.Machine `json:"machine"` // of the load generator
	Complete bool            `json:"complete"`
	Steps    []Step          `json:"steps"`
}

// Step is one measurement.
type Step struct {
	Factor  float64  `json:"factor"`
	Seconds float64  `json:"seconds"` // that were looked at
	Streams []Stream `json:"streams"`
}

// Stream is what a stream's requests came to.
type Stream struct {
	Name    string  `json:"name"`
	Offered float64 `json:"offered"` // requests/s; 0: a closed one
	Sent    int64   `json:"sent"`
	OK      int64   `json:"ok"`
	// Failed are the others, by status: "none" for those without an answer in
	// time, "broken" for those whose connection broke.
	Failed map[string]int64 `json:"failed,omitzero"`
	// Latency of the answered ones, in ms.
	Latency Latency `json:"latency_ms"`
	// Percentiles are the latencies in ms at each of Parts.
	Percentiles []float64 `json:"percentiles_ms"`
}

// Latency are percentiles in ms.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Parts are where latencies are looked at for a chart.
var Parts = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999}

// Rate is the throughput of answered requests, per second.
func (s *Step) Rate(stream int) float64 { return float64(s.Streams[stream].OK) / s.Seconds }

// Progress is where a trial stands.
type Progress struct {
	Step, Steps int
	Done, Total time.Duration // of the step, warm-up included
	Sent, OK    int64         // of the step, warm-up included
	P99         time.Duration // of the step so far
}

// progressInterval is how often it is told.
const progressInterval = 500 * time.Millisecond

// Run plays the scenario. tell is given the progress, nil for nobody. When ctx
// ends, the result is what there is so far, with the error of ctx.
func Run(ctx context.Context, s *scenarios.Scenario, t *target.Target, tell func(Progress)) (*Result, error) {
	streams, err := t.Streams(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &Result{Scenario: s.Name, About: s.About, Target: t.String(), Kind: t.Kind, Started: time.Now().UTC(), Machine: machine.Here()}
	for i, factor := range s.Steps {
		c := newCollector(s, factor, len(streams))
		stop := c.report(tell, Progress{Step: i + 1, Steps: len(s.Steps), Total: s.WarmUp + s.Duration})
		_, err := load.Play(ctx, c.streams(streams), s.WarmUp+s.Duration)
		stop()
		step := c.step(s, factor)
		if step.Seconds > 0 {
			r.Steps = append(r.Steps, step)
		}
		if err != nil {
			return r, err
		}
	}
	r.Complete = true
	return r, r.check()
}

// check fails when a stream got no answer at all: a table of zeros says nothing.
func (r *Result) check() error {
	var errs []error
	for _, step := range r.Steps {
		for _, s := range step.Streams {
			if s.OK == 0 {
				errs = append(errs, fmt.Errorf("step %v, stream %s: none of %d requests was served (%s)", step.Factor, s.Name, s.Sent, failures(s.Failed)))
			}
		}
	}
	return errors.Join(errs...)
}

// collector takes the samples of a step.
type collector struct {
	warm   time.Duration
	factor float64
	began  time.Time

	mu       sync.Mutex // guards the rest
	counts   []Stream
	times    []*load.Histogram
	all      *load.Histogram // of all streams, warm-up included
	sent, ok int64
}

func newCollector(s *scenarios.Scenario, factor float64, streams int) *collector {
	c := &collector{warm: s.WarmUp, factor: factor, began: time.Now(), counts: make([]Stream, streams), all: load.NewHistogram()}
	for i := range c.counts {
		c.counts[i] = Stream{Name: s.Streams[i].Name, Offered: s.Streams[i].Rate * factor, Failed: map[string]int64{}}
		c.times = append(c.times, load.NewHistogram())
	}
	return c
}

// streams are those of the step.
func (c *collector) streams(base []load.Stream) []load.Stream {
	all := append([]load.Stream(nil), base...)
	for i := range all {
		all[i].Rate *= c.factor
		all[i].Observe = func(s load.Sample) { c.take(i, s) }
	}
	return all
}

func (c *collector) take(stream int, s load.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if s.Status == 200 {
		c.ok++
		c.all.Record(s.Latency())
	}
	if s.Intended < c.warm {
		return
	}
	of := &c.counts[stream]
	of.Sent++
	if s.Status == 200 {
		of.OK++
		c.times[stream].Record(s.Latency())
		return
	}
	of.Failed[statusName(s.Status)]++
}

func statusName(status int) string {
	switch status {
	case 0:
		return "none"
	case load.StatusBroken:
		return "broken"
	}
	return strconv.Itoa(status)
}

// report tells the progress until the returned function is called, which waits.
func (c *collector) report(tell func(Progress), p Progress) (stop func()) {
	if tell == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				c.mu.Lock()
				p.Sent, p.OK, p.P99 = c.sent, c.ok, c.all.At(0.99)
				c.mu.Unlock()
				p.Done = min(time.Since(c.began), p.Total)
				tell(p)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// step is what was collected.
func (c *collector) step(s *scenarios.Scenario, factor float64) Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	looked := min(time.Since(c.began)-c.warm, s.Duration)
	step := Step{Factor: factor, Seconds: max(0, looked.Seconds())}
	for i := range c.counts {
		of, h := c.counts[i], c.times[i]
		of.Latency = Latency{ms(h.At(0.5)), ms(h.At(0.9)), ms(h.At(0.99)), ms(h.At(0.999)), ms(h.Max())}
		for _, part := range Parts {
			of.Percentiles = append(of.Percentiles, ms(h.At(part)))
		}
		step.Streams = append(step.Streams, of)
	}
	return step
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
