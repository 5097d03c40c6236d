package notify

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// Tenants finds tenants.
type Tenants interface {
	Tenant(ctx context.Context, id uuid.UUID) (*kms.Tenant, error)
}

// Secrets opens the secrets of webhooks; kms.Device does.
type Secrets interface {
	Unseal(ctx context.Context, k kms.SealingKey, name string, version uint32, blob []byte) ([]byte, error)
}

// Config is what a Notifier needs; every field is required but Mail,
// Attach and Registerer.
type Config struct {
	Webhooks   kms.Webhooks
	Deliveries kms.Deliveries
	Tenants    Tenants
	Secrets    Secrets
	// System is the tenant of the operators.
	System uuid.UUID
	// Post sends a request to the address that it names, if that may be sent
	// to, and follows no redirect.
	Post func(*http.Request) (*http.Response, error)
	// Mail sends an event to a mailto: URL, if mail may be sent to it; nil: no
	// mail is sent. Attach makes what goes with a mail, by the event's type,
	// tenant and fields; nil, and nil of it: nothing.
	Mail   func(ctx context.Context, url string, m *Mail) error
	Attach func(ctx context.Context, t kms.EventType, tenant string, data map[string]string) (*Attachment, error)
	// GiveUp is after how long a delivery is not tried again, and DisableAfter
	// after how long a webhook that has only failed is disabled.
	GiveUp, DisableAfter time.Duration
	Log                  *slog.Logger
	Clock                func() time.Time
	Registerer           prometheus.Registerer
}

// Bounds of what is in memory and under way.
const (
	// maxEvents bounds the events that wait to be queued: each tenant makes a
	// few a day.
	maxEvents = 1024
	// workers is how many deliveries are under way at once: they wait for the
	// network.
	workers = 32
	// pollInterval is how often the queue is looked into when nothing happens.
	pollInterval = time.Second
	// lease is for how long a claimed delivery is one sender's; longer than an
	// attempt takes.
	lease = time.Minute
	// storeTimeout bounds a call of the store that a Close must not interrupt.
	storeTimeout = 5 * time.Second
	// queuePause is how long the queue is left alone after it failed.
	queuePause = time.Second
	// maxSecrets bounds the opened secrets; when there are more they are opened
	// anew.
	maxSecrets = 4096
)

// Notifier takes events to the log and to webhooks. All methods are safe for
// concurrent use.
type Notifier struct {
	c      Config
	events chan kms.Event
	wake   chan struct{}

	running context.Context // until Close
	stop    context.CancelFunc
	all     sync.WaitGroup

	deliveries *prometheus.CounterVec
	lost       prometheus.Counter

	mu      sync.Mutex // guards the rest
	busy    []uuid.UUID
	secrets map[uuid.UUID][]byte // opened, by webhook
}

// New makes a Notifier that runs until Close.
func New(c Config) *Notifier {
	n := newNotifier(c)
	n.all.Go(n.queue)
	n.all.Go(n.send)
	return n
}

func newNotifier(c Config) *Notifier {
	n := &Notifier{c: c, events: make(chan kms.Event, maxEvents), wake: make(chan struct{}, 1), secrets: map[uuid.UUID][]byte{},
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_webhook_deliveries_total",
			Help: "Deliveries to webhooks by outcome: taken, failed (and tried again), given_up, dropped."}, []string{"outcome"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_events_lost_total",
			Help: "Events that reached the log and no webhook, because too many waited to be queued."}),
	}
	n.running, n.stop = context.WithCancel(context.Background())
	if c.Registerer != nil {
		c.Registerer.MustRegister(n.deliveries, n.lost)
	}
	return n
}

// Close stops sending, waits for what is under way, and queues what is in
// memory, if that takes no longer than a few seconds.
func (n *Notifier) Close() error {
	n.stop()
	n.all.Wait()
	n.flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, secret := range n.secrets {
		clear(secret)
	}
	n.secrets = nil
	return nil
}

// Publish implements kms.Events.
func (n *Notifier) Publish(e kms.Event) {
	if e.ID == uuid.Nil() {
		e.ID = uuid.NewV7()
	}
	if e.Time.IsZero() {
		e.Time = n.c.Clock()
	}
	n.log(&e)
	select {
	case n.events <- e:
	default:
		n.lost.Inc()
		n.c.Log.Error("an event reaches no webhook: too many wait to be queued", slog.String("event", string(e.Type)))
	}
}

func (n *Notifier) log(e *kms.Event) {
	level := slog.LevelInfo
	if info := e.Type.Info(); info != nil {
		switch info.Severity {
		case kms.SeverityWarning:
			level = slog.LevelWarn
		case kms.SeverityError:
			level = slog.LevelError
		}
	}
	attributes := []slog.Attr{slog.String("event", string(e.Type)), slog.String("event_id", e.ID.String())}
	if e.Tenant != uuid.Nil() {
		attributes = append(attributes, slog.String("tenant", e.Tenant.String()))
	}
	for _, f := range e.Fields {
		attributes = append(attributes, slog.String(f.Name, f.Value))
	}
	n.c.Log.LogAttrs(context.Background(), level, "event", attributes...)
}

// queue writes events into the durable queue, in their order. While the queue
// cannot be written to, events wait.
func (n *Notifier) queue() {
	for {
		select {
		case <-n.running.Done():
			return
		case e := <-n.events:
			for n.fanOut(n.running, &e) != nil {
				select {
				case <-n.running.Done():
					n.keep(e)
					return
				case <-time.After(queuePause):
				}
			}
		}
	}
}

// keep puts an event back for flush.
func (n *Notifier) keep(e kms.Event) {
	select {
	case n.events <- e:
	default:
		n.lost.Inc()
	}
}

// flush queues what is in memory when the Notifier ends.
func (n *Notifier) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for {
		select {
		case e := <-n.events:
			if n.fanOut(ctx, &e) != nil {
				n.lost.Inc()
			}
		default:
			return
		}
	}
}

// fanOut queues an event for every webhook that wants it. It may be repeated:
// what is queued already is not queued again.
func (n *Notifier) fanOut(ctx context.Context, e *kms.Event) error {
	owners := []uuid.UUID{n.c.System}
	if e.Tenant != uuid.Nil() && e.Tenant != n.c.System {
		owners = append(owners, e.Tenant)
	}
	for _, owner := range owners {
		if err := n.fanOutTo(ctx, e, owner); err != nil {
			if ctx.Err() == nil {
				n.c.Log.Error("queueing an event", slog.String("event_id", e.ID.String()), slog.Any("error", err))
			}
			return err
		}
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return nil
}

func (n *Notifier) fanOutTo(ctx context.Context, e *kms.Event, owner uuid.UUID) error {
	// Twice the number that there can be, for those that came at once.
	webhooks, _, err := n.c.Webhooks.ListWebhooks(ctx, owner, kms.Page{Size: 2 * kms.MaxWebhooks})
	if err != nil && kms.KindOf(err) == kms.KindNotFound {
		return nil // a tenant that is gone
	}
	if err != nil {
		return err
	}
	var list []kms.Delivery
	for _, w := range webhooks {
		if !w.Wants(e, owner == n.c.System) {
			continue
		}
		d, err := e.Delivery(w)
		if err != nil {
			n.c.Log.Error("an event cannot be written", slog.String("event_id", e.ID.String()), slog.Any("error", err))
			return nil
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil
	}
	dropped, err := n.c.Deliveries.Enqueue(ctx, owner, list)
	if err == nil && dropped > 0 {
		n.dropped(owner, dropped)
	}
	return err
}

// dropped tells that a tenant's oldest deliveries were dropped, once an hour:
// every further event drops more.
func (n *Notifier) dropped(owner uuid.UUID, count int) {
	n.deliveries.WithLabelValues("dropped").Add(float64(count))
	hour := n.c.Clock().UTC().Format("2006010215")
	n.Publish(kms.Event{Type: kms.EventsDropped, Tenant: owner, Once: string(kms.EventsDropped) + "/" + owner.String() + "/" + hour,
		Fields: []kms.EventField{{Name: "count", Value: strconv.Itoa(count)}}})
}

// busyTenants tells which tenants have deliveries under way.
func (n *Notifier) busyTenants() []uuid.UUID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.busy)
}
