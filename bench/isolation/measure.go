package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// The loads, as parts of all slots, and for how long callers wait.
const (
	// victimLoad is what the victims ask for together: by their weights, each
	// below its share.
	victimLoad = 0.5
	// abuserFactor is how many times its share the abuser asks for.
	abuserFactor = 10
	// patience is after how long a caller gives up: longer than any tenant of
	// the bench may wait for a slot.
	patience = 5 * time.Second
	// warmPart is the part of a measurement that is not looked at.
	warmPart = 5
	// slowFactor is how much slower the last node becomes.
	slowFactor = 3
)

// bench is what is measured.
type bench struct {
	config
	victims  []*tenant
	abuser   *tenant
	sharers  []*tenant
	operator *client.Client
	sluice   target
	thin     target
	seed     uint64 // of the next measurement
	say      func(string)
}

// target is a server with its HSMs.
type target struct {
	*servers.Process
	hsms
	isThin bool
}

// measure starts the servers and measures all.
func measure(ctx context.Context, c config, dir string, say func(string)) (*report, error) {
	b := &bench{config: c, sharers: sharers(), say: say, seed: 1}
	b.victims, b.abuser = cast()
	close, err := b.open(ctx, dir)
	defer close()
	if err != nil {
		return nil, err
	}
	r := &report{Cores: runtime.NumCPU(), Rounds: c.rounds, Seconds: c.each.Seconds(), ShareSeconds: b.shareWindow().Seconds(), Slots: c.slots(),
		Servers: []*isolation{{Server: serverSluice}, {Server: serverThin}}}
	say("warming up")
	if err := b.warmUp(ctx); err != nil {
		return nil, err
	}
	for round := range c.rounds {
		say(fmt.Sprintf("round %d of %d", round+1, c.rounds))
		if err := b.round(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, i := range r.Servers {
		i.summarise()
	}
	if err := b.slowNode(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// open starts both servers and makes the tenants. The returned function ends
// what was started, also after an error.
func (b *bench) open(ctx context.Context, dir string) (close func(), err error) {
	var closes []func()
	close = func() {
		for _, f := range closes {
			f()
		}
	}
	b.say("making tokens, root keys and tenants")
	data, thinProgram := filepath.Join(dir, "data"), ""
	if err := servers.Prepare(ctx, b.config.sluice, data, nodes); err != nil {
		return close, err
	}
	library, err := fault.Build(dir)
	if err != nil {
		return close, err
	}
	if thinProgram, err = servers.Build(ctx, dir, "thin"); err != nil {
		return close, err
	}
	b.thin.isThin = true
	own, err := servers.Copy(ctx, dir, "thin-data", data)
	if err != nil {
		return close, err
	}
	if b.thin.Process, b.thin.HSMs, err = servers.StartThinBehindFaults(ctx, thinProgram, own, b.slots(), library); err != nil {
		return close, err
	}
	closes = append(closes, func() { b.thin.Stop(); b.thin.Close() })
	if b.sluice.Process, b.sluice.HSMs, err = servers.StartServer(ctx, b.config.sluice, data, nodes, b.engines, library); err != nil {
		return close, err
	}
	closes = append(closes, func() { b.sluice.Stop(); b.sluice.Close() })
	if b.operator, err = limits.Operator(b.sluice.Address, data); err != nil {
		return close, err
	}
	if err := setPolicy(ctx, b.operator); err != nil {
		return close, fmt.Errorf("setting the policy: %w", err)
	}
	for _, t := range append(append([]*tenant{b.abuser}, b.victims...), b.sharers...) {
		if err := enrol(ctx, b.sluice.Address, b.operator, t); err != nil {
			return close, fmt.Errorf("making the tenant %s: %w", t.name, err)
		}
	}
	b.sluice.setTimes(b.engines, b.times())
	b.thin.setTimes(b.slots(), b.times())
	return close, nil
}

// shareWindow is the time over which shares are looked at: ten seconds when a
// measurement takes eight.
func (b *bench) shareWindow() time.Duration { return b.each * 5 / 4 }

// warmUp has every node load the keys that it may be asked for, and the
// scheduler measure the operations.
func (b *bench) warmUp(ctx context.Context) error {
	if _, _, err := b.saturated(ctx, b.sluice, b.each/2); err != nil {
		return err
	}
	_, _, err := b.isolated(ctx, b.sluice, true)
	return err
}

// streams are the requests of a tenant, one stream for each of its keys. rate
// is of the tenant, in requests/s; with 0 it always has clients for each key.
func (b *bench) streams(s target, t *tenant, rate float64, clients int) (streams []load.Stream) {
	for key := range keysEach {
		path, body := t.request(key)
		r := load.Request{Address: s.Address, Path: path, Body: body, Header: map[string]string{"Authorization": "Bearer " + t.credential.Reveal()}}
		if s.isThin { // which has one key of each kind, and no tenants
			r.Header, r.Path = nil, "/encrypt"
			if t.large {
				r.Path = "/sign/ec"
			}
		}
		streams = append(streams, load.Stream{Request: r, Rate: rate / keysEach, Clients: clients, Patience: patience, Seed: b.seed})
		b.seed++
	}
	return streams
}

// outcome is what a tenant's requests came to.
type outcome struct {
	*tenant
	all     []load.Sample
	samples []load.Sample // of those, what was to be sent after the warm-up
}

// run plays tenants' loads on a server and returns each one's samples, with
// the part of the slots that worked.
func (b *bench) run(ctx context.Context, s target, each time.Duration, who []*tenant, streams [][]load.Stream) ([]outcome, float64, error) {
	var all []load.Stream
	for _, of := range streams {
		all = append(all, of...)
	}
	warm := each / warmPart
	used := make(chan time.Duration, 1)
	go func() { // ends before Play does
		time.Sleep(warm)
		before := s.work(b.times())
		time.Sleep(each - warm)
		used <- s.work(b.times()) - before
	}()
	samples, err := load.Play(ctx, all, each)
	worked := <-used
	if err != nil {
		return nil, 0, err
	}
	var outcomes []outcome
	for i, of := range streams {
		o := outcome{tenant: who[i]}
		for range of {
			o.all = append(o.all, samples[0]...)
			samples = samples[1:]
		}
		for _, sample := range o.all {
			if sample.Intended >= warm {
				o.samples = append(o.samples, sample)
			}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, worked.Seconds() / (float64(b.slots()) * (each - warm).Seconds()), nil
}

// round measures each server once: alone, beside the abuser, and shares.
func (b *bench) round(ctx context.Context, r *report) error {
	for i, s := range []target{b.sluice, b.thin} {
		before, err := b.loaded(ctx)
		if err != nil {
			return err
		}
		alone, aloneUsed, err := b.isolated(ctx, s, false)
		if err != nil {
			return err
		}
		after, err := b.loaded(ctx)
		if err != nil {
			return err
		}
		r.Loaded.add(after, before)
		beside, besideUsed, err := b.isolated(ctx, s, true)
		if err != nil {
			return err
		}
		r.Servers[i].add(alone, beside, aloneUsed, besideUsed)
		if s.isThin && len(r.Servers[i].ShareErrors) > 0 {
			continue // once is enough to see what it shares by
		}
		window := b.shareWindow()
		shares, _, err := b.saturated(ctx, s, window+window/(warmPart-1)) // the window, after the warm-up
		if err != nil {
			return err
		}
		r.Servers[i].addShares(shares, window, b.times())
	}
	return nil
}

// loaded asks the service how often a key was loaded already where it was used,
// and how often that was the node that it prefers.
func (b *bench) loaded(ctx context.Context) (l loaded, err error) {
	all, err := b.operator.Nodes(ctx)
	if err != nil {
		return l, err
	}
	for _, n := range all.Nodes {
		if n.Domain != "" { // not the engine in the process
			l.Found, l.Missing = l.Found+n.Hits, l.Missing+n.Misses
		}
	}
	state, err := b.operator.Scheduler(ctx)
	if err != nil {
		return l, err
	}
	for _, n := range state.Nodes {
		if n.Domain != "" {
			l.Home, l.Away = l.Home+n.Granted-n.Away, l.Away+n.Away
		}
	}
	return l, nil
}

// isolated plays the victims, with the abuser or without.
func (b *bench) isolated(ctx context.Context, s target, abused bool) ([]outcome, float64, error) {
	weights := 0
	for _, v := range b.victims {
		weights += v.weight()
	}
	who, streams := b.victims, [][]load.Stream(nil)
	for _, v := range who {
		part := victimLoad * float64(v.weight()) / float64(weights)
		streams = append(streams, b.streams(s, v, part*float64(b.slots())/b.small.Seconds(), 0))
	}
	if abused {
		share := float64(b.abuser.weight()) / float64(weights+b.abuser.weight())
		who = append(who[:len(who):len(who)], b.abuser)
		streams = append(streams, b.streams(s, b.abuser, abuserFactor*share*float64(b.slots())/b.times().large.Seconds(), 0))
	}
	return b.run(ctx, s, b.each, who, streams)
}

// clientsPerPart is how many clients each key of a sharer has for each part of
// its weight: with eight keys three times the slots of its share, of which it
// waits for two, and still no longer than it may.
const clientsPerPart = 2

// saturated plays the sharers, who always have more to do.
func (b *bench) saturated(ctx context.Context, s target, each time.Duration) ([]outcome, float64, error) {
	var streams [][]load.Stream
	for _, t := range b.sharers {
		streams = append(streams, b.streams(s, t, 0, clientsPerPart*t.weight()))
	}
	return b.run(ctx, s, each, b.sharers, streams)
}

// slowNode makes the last node slower, and measures what it does while all
// slots have work, and what the victims feel of it.
func (b *bench) slowNode(ctx context.Context, r *report) error {
	b.say("one node becomes slower")
	slow := b.sluice.HSMs[nodes-1]
	slow.SlowDown(slowFactor)
	defer slow.SlowDown(1)
	var before [nodes]uint64
	calls := func(m *fault.Module) uint64 { return m.Calls(fault.Encrypt) + m.Calls(fault.Sign) }
	for i, m := range b.sluice.HSMs {
		before[i] = calls(m)
	}
	if _, _, err := b.saturated(ctx, b.sluice, b.each); err != nil {
		return err
	}
	others := uint64(0)
	for i, m := range b.sluice.HSMs[:nodes-1] {
		others += calls(m) - before[i]
	}
	r.Slow.Part = float64(calls(slow)-before[nodes-1]) / (float64(others) / (nodes - 1))
	victims, _, err := b.isolated(ctx, b.sluice, false)
	if err != nil {
		return err
	}
	r.Slow.Latency = percentiles(latencies(victims, nil))
	r.Slow.Ratio = r.Slow.Latency.P99 / r.Servers[0].Alone.P99
	r.Slow.Requests, r.Slow.Errors = count(victims)
	return nil
}
