package watch

import (
	"strconv"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The lines beyond which people are told.
const (
	// lookInterval is how often the conditions are looked at: people need no
	// more than seconds.
	lookInterval = 5 * time.Second

	idleLine      = 0.60
	busyLine      = 0.85
	saturatedLine = 0.95
	busyFor       = 15 * time.Minute
	saturatedFor  = time.Minute

	gateTripsLine = 3 // an hour

	retryLine  = kms.RetryLine
	retryCalls = kms.RetryCalls

	decryptLine = 20 // a minute
	deniedLine  = 20 // a minute
	lagLine     = 10 * time.Second

	// calm is for how long a condition must be gone before it is over, so that
	// one that comes and goes is told once.
	calm = time.Minute

	// maxAlarms bounds what is told of at the same time; of more nobody could
	// take note.
	maxAlarms = 256
)

// Pool is a domain of nodes as its scheduler sees it.
type Pool struct {
	Domain      string
	Slots       int
	Utilisation float64 // 0 to 1
	GateTrips   uint64  // so far
}

// Key is a tenant's key.
type Key struct{ Tenant, Key uuid.UUID }

// Retrying is a tenant of whose calls of the last minute a part came before the
// Retry-After that it was given was over, or together when it was: Spike times as
// many as at other times.
type Retrying struct {
	Tenant       uuid.UUID
	Calls, Early int
	Spike        int
}

// Sources are what Alarms looks at. All are required.
type Sources struct {
	Pools   func() []Pool
	HotKeys func() []Key // whose hot-spot breaker is open
	// Retrying lists the tenants with enough calls and more than a share, in
	// thousandths, of early ones, and sums those of all tenants.
	Retrying func(calls, share int) (list []Retrying, all Retrying)
	Failing  *Failing
	// Capacity is what was last seen of the pool; nil: nothing yet.
	Capacity func() *kms.Capacity
	// Lag is for how long the journal has not made an entry durable that waits.
	Lag func() time.Duration
}

// Alarms turns conditions that last into events. Its methods other than Open
// are not safe for concurrent use.
type Alarms struct {
	from   Sources
	events kms.Events
	node   string // this API node
	trips  map[string]*tripLog

	mu    sync.Mutex // guards the rest
	known map[occurrence]*alarm
}

// occurrence is what an alarm is about.
type occurrence struct {
	event  kms.EventType
	tenant uuid.UUID
	object string // domain or key; "": the service
}

// alarm is a condition that was seen.
type alarm struct {
	since time.Time // it was first seen
	last  time.Time // it was last seen
	told  bool
}

// condition is one that holds now.
type condition struct {
	occurrence
	lasting time.Duration // for how long, before it is told
	fields  []kms.EventField
}

// NewAlarms makes Alarms that publish to events what an API node notices.
func NewAlarms(from Sources, events kms.Events, node string) *Alarms {
	return &Alarms{from: from, events: events, node: node, trips: map[string]*tripLog{}, known: map[occurrence]*alarm{}}
}

// Look looks at all conditions at a time and tells what has begun and what is
// over. What it knows is lost with the process: an alarm that lasts is told
// again by the next one.
func (a *Alarms) Look(now time.Time) {
	var holds []condition
	for _, p := range a.from.Pools() {
		holds = a.pool(holds, &p, now)
	}
	for _, k := range a.from.HotKeys() {
		holds = append(holds, condition{occurrence: occurrence{kms.EventHotKey, k.Tenant, k.Key.String()}, fields: []kms.EventField{field("key", k.Key.String())}})
	}
	retrying, _ := a.from.Retrying(retryCalls, retryLine)
	for _, r := range retrying {
		holds = append(holds, condition{occurrence: occurrence{kms.EventRetries, r.Tenant, ""},
			fields: []kms.EventField{number("calls", int64(r.Calls)), number("early", int64(r.Early)), number("spike", int64(r.Spike))}})
	}
	for _, f := range a.from.Failing.Keys.More(now, decryptLine) {
		holds = append(holds, condition{occurrence: occurrence{kms.EventDecryptFailures, f.Tenant, f.Object.String()},
			fields: []kms.EventField{field("key", f.Object.String()), number("failures", int64(f.Times))}})
	}
	for _, f := range a.from.Failing.Credentials.More(now, deniedLine) {
		holds = append(holds, condition{occurrence: occurrence{kms.EventDenials, f.Tenant, f.Object.String()},
			fields: []kms.EventField{field("credential", f.Object.String()), number("denials", int64(f.Times))}})
	}
	if c := a.from.Capacity(); c != nil && c.Oversold() {
		holds = append(holds, condition{occurrence: occurrence{event: kms.EventOversold},
			fields: []kms.EventField{number("committed", c.Committed), number("sellable", c.Sellable)}})
	}
	if lag := a.from.Lag(); lag > lagLine {
		holds = append(holds, condition{occurrence: occurrence{event: kms.EventJournalLag}, fields: []kms.EventField{number("seconds", int64(lag.Seconds()))}})
	}
	a.see(holds, now)
}

// pool adds the conditions of a pool. One without slots is told of as the loss
// of its nodes.
func (a *Alarms) pool(holds []condition, p *Pool, now time.Time) []condition {
	if p.Slots == 0 {
		return holds
	}
	busy := func(event kms.EventType, lasting time.Duration) {
		holds = append(holds, condition{occurrence{event: event, object: p.Domain}, lasting,
			[]kms.EventField{field("domain", p.Domain), number("percent", int64(p.Utilisation*100+0.5))}})
	}
	if p.Utilisation > saturatedLine {
		busy(kms.EventPoolSaturated, saturatedFor)
	}
	switch {
	case p.Utilisation > busyLine:
		busy(kms.EventPoolBusy, busyFor)
	case p.Utilisation < idleLine:
		busy(kms.EventPoolIdle, busyFor)
	}
	log := a.trips[p.Domain]
	if log == nil {
		log = new(tripLog)
		a.trips[p.Domain] = log
	}
	if n := log.hour(p.GateTrips, now); n > gateTripsLine {
		holds = append(holds, condition{occurrence: occurrence{event: kms.EventGateTrips, object: p.Domain},
			fields: []kms.EventField{field("domain", p.Domain), number("trips", int64(n))}})
	}
	return holds
}

// tripLog counts the trips of a gate in the last hour, by minutes.
type tripLog struct {
	seen    bool
	last    uint64 // the counter
	minute  int64
	minutes [60]uint32
}

// hour notes the counter and returns by how much it grew in the last hour. What
// it was when it was first seen does not count.
func (l *tripLog) hour(counter uint64, now time.Time) (n uint32) {
	minute := now.Unix() / 60
	for m := max(l.minute+1, minute-int64(len(l.minutes))+1); m <= minute; m++ {
		l.minutes[m%60] = 0
	}
	l.minute = max(l.minute, minute)
	if l.seen && counter > l.last {
		l.minutes[l.minute%60] += uint32(counter - l.last)
	}
	l.seen, l.last = true, counter
	for _, c := range l.minutes {
		n += c
	}
	return n
}

// see compares what holds with what is known.
func (a *Alarms) see(holds []condition, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range holds {
		h := &holds[i]
		k := a.known[h.occurrence]
		if k == nil {
			if len(a.known) >= maxAlarms {
				continue
			}
			k = &alarm{since: now}
			a.known[h.occurrence] = k
		}
		k.last = now
		if !k.told && now.Sub(k.since) >= h.lasting {
			k.told = true
			a.tell(&h.occurrence, "begin", h.fields)
		}
	}
	for o, k := range a.known {
		switch gone := now.Sub(k.last); {
		case gone > 0 && !k.told: // it did not last
			delete(a.known, o)
		case gone >= calm:
			delete(a.known, o)
			a.tell(&o, "end", append(o.fields(), number("lasted_seconds", int64(k.last.Sub(k.since).Seconds()))))
		}
	}
}

// fields say what an alarm that is over was about.
func (o *occurrence) fields() []kms.EventField {
	switch {
	case o.object == "":
		return nil
	case o.tenant == uuid.Nil():
		return []kms.EventField{field("domain", o.object)}
	}
	return []kms.EventField{field("key", o.object)}
}

func (a *Alarms) tell(o *occurrence, state string, fields []kms.EventField) {
	a.events.Publish(kms.Event{Type: o.event, Tenant: o.tenant,
		Fields: append([]kms.EventField{field("state", state), field("api_node", a.node)}, fields...)})
}

func field(name, value string) kms.EventField { return kms.EventField{Name: name, Value: value} }

func number(name string, n int64) kms.EventField { return field(name, strconv.FormatInt(n, 10)) }

// Open counts the alarms that were told and are not over, by type. It is safe
// for concurrent use.
func (a *Alarms) Open() map[kms.EventType]int {
	open := make(map[kms.EventType]int, len(AlarmTypes))
	for _, t := range AlarmTypes {
		open[t] = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for o, k := range a.known {
		if k.told {
			open[o.event]++
		}
	}
	return open
}

// AlarmTypes are the types of the events that Alarms publishes.
var AlarmTypes = []kms.EventType{kms.EventHotKey, kms.EventGateTrips, kms.EventPoolIdle, kms.EventPoolBusy, kms.EventPoolSaturated,
	kms.EventRetries, kms.EventOversold, kms.EventJournalLag, kms.EventDecryptFailures, kms.EventDenials}

// Watcher looks at Alarms until Close.
type Watcher struct {
	stop chan struct{}
	all  sync.WaitGroup
}

// Start looks at the alarms every few seconds until Close.
func (a *Alarms) Start(clock func() time.Time) *Watcher {
	w := &Watcher{stop: make(chan struct{})}
	w.all.Go(func() {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
				a.Look(clock())
			}
		}
	})
	return w
}

// Close ends the looking and waits for a look under way.
func (w *Watcher) Close() error {
	close(w.stop)
	w.all.Wait()
	return nil
}
