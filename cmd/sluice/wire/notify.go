package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/egress"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/notify"
	"github.com/sluice-kms/sluice/probe"
	"github.com/sluice-kms/sluice/quota"
)

// WebhooksConfig says where events may be sent, and for how long it is tried.
type WebhooksConfig struct {
	// AllowNetworks are networks to which webhooks may lead though they are not
	// public, in CIDR notation; in them plain http is allowed too. Default none.
	AllowNetworks []string `koanf:"allow_networks"`
	// CAFile holds certificates, PEM, to trust beside the system's. Default none.
	CAFile string `koanf:"ca_file"`
	// GiveUp is after how long an event that was not taken is given up. Default
	// 72h.
	GiveUp time.Duration `koanf:"give_up"`
	// DisableAfter is after how long a webhook that has only failed is disabled.
	// Default 120h.
	DisableAfter time.Duration `koanf:"disable_after"`
}

// Defaults and bounds of webhooks. A receiver that is broken on a Friday is
// mended on Monday, and has lost nothing then.
const (
	DefaultGiveUp       = 72 * time.Hour
	DefaultDisableAfter = 120 * time.Hour
	// maxWebhookPeriod is shorter than what the queue remembers of deliveries.
	maxWebhookPeriod = 30 * 24 * time.Hour
)

// networks parses what is allowed.
func (c *WebhooksConfig) networks() ([]netip.Prefix, error) {
	list := make([]netip.Prefix, len(c.AllowNetworks))
	for i, s := range c.AllowNetworks {
		p, err := netip.ParsePrefix(s)
		if err != nil || p != p.Masked() {
			return nil, errors.New("must be networks without host bits such as 10.1.0.0/16")
		}
		list[i] = p
	}
	return list, nil
}

func (c *WebhooksConfig) tls() (*tls.Config, error) {
	roots, err := certificates("webhooks.ca_file", c.CAFile)
	if roots == nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// openNotifier starts what takes events to the log and to webhooks.
func (a *App) openNotifier() error {
	c := a.config.Webhooks
	networks, err := c.networks()
	if err != nil {
		return fmt.Errorf("webhooks.allow_networks: %w", err)
	}
	trust, err := c.tls()
	if err != nil {
		return err
	}
	a.addresses = &egress.Guard{Allow: networks}
	if a.mail, err = a.config.Mail.sender(); err != nil {
		return err
	}
	var mail func(context.Context, string, *notify.Mail) error
	if a.mail != nil {
		mail = a.mail.Send
	}
	a.Events = notify.New(notify.Config{
		Mail: mail, Attach: a.attach,
		Webhooks: a.Store, Deliveries: a.Store, Tenants: a.Store, Secrets: a.Device, System: a.System.ID,
		Post:   func(r *http.Request) (*http.Response, error) { return a.addresses.RoundTrip(r, trust) },
		GiveUp: c.GiveUp, DisableAfter: c.DisableAfter, Log: a.log, Clock: time.Now, Registerer: a.Metrics,
	})
	a.closes = append(a.closes, a.Events.Close)
	return nil
}

// startProber starts what asks endpoints of providers whether they answer.
func (a *App) startProber() {
	prober := probe.Start(probe.Config{Probes: a.Store,
		Get:      func(r *http.Request) (*http.Response, error) { return a.addresses.RoundTrip(r, nil) },
		Interval: func() time.Duration { return a.RouteRules().ProbeTime }, Log: a.log, Clock: time.Now, Registerer: a.Metrics})
	a.closes = append(a.closes, prober.Close)
}

// keyTrials tries keys out at the public addresses of providers.
func (a *App) keyTrials() *probe.Trials {
	return &probe.Trials{Lists: probe.ModelLists(), Log: a.log, Clock: time.Now,
		Get: func(r *http.Request) (*http.Response, error) { return a.addresses.RoundTrip(r, nil) }}
}

// quotaEvent makes an event of what the quota engine tells. Every API node of a
// tenant tells it.
func quotaEvent(e quota.Event) kms.Event {
	types := map[quota.EventKind]kms.EventType{
		quota.EventDaySoft: kms.EventDaySoft, quota.EventMonthSoft: kms.EventMonthSoft, quota.EventBandwidthSoft: kms.EventBandwidthSoft,
	}
	unit := int64(kms.Credit)
	if e.Kind == quota.EventBandwidthSoft {
		unit = 1
	}
	window := strconv.Itoa(int(e.Window))
	t := types[e.Kind]
	return kms.Event{Type: t, Tenant: e.Tenant, Once: string(t) + "/" + e.Tenant.String() + "/" + window, Fields: []kms.EventField{
		{Name: "window", Value: window},
		{Name: "used", Value: strconv.FormatInt(e.Used/unit, 10)},
		{Name: "limit", Value: strconv.FormatInt(e.Limit/unit, 10)},
	}}
}

// openLooks is for how many looks a node that is being opened is not lost: a
// token is opened and tested in a second or a few.
const openLooks = 10

// nodeWatchInterval is how often the states of nodes are compared: people need
// no more than seconds.
const nodeWatchInterval = time.Second

// nodeWatch tells of HSM nodes that are lost and that come back.
type nodeWatch struct {
	status func() []kms.NodeStatus
	events kms.Events
	node   string // this API node
	lost   map[kms.NodeID]kms.NodeState
	// opening counts the looks for which a node may still be down that was
	// closed on purpose and is wanted again.
	opening map[kms.NodeID]int
	stop    chan struct{}
	all     sync.WaitGroup
}

func (a *App) startNodeWatch() {
	w := &nodeWatch{status: a.Device.Status, events: a.Events, node: a.config.Node,
		lost: map[kms.NodeID]kms.NodeState{}, opening: map[kms.NodeID]int{}, stop: make(chan struct{})}
	w.all.Go(w.run)
	a.closes = append(a.closes, w.close)
}

func (w *nodeWatch) run() {
	tick := time.NewTicker(nodeWatchInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.look()
		}
	}
}

func (w *nodeWatch) close() error {
	close(w.stop)
	w.all.Wait()
	return nil
}

// look compares the states of the nodes with those of the last time. A node
// that was down and is taken out of service on purpose is neither lost nor
// back, and one that is being opened after that is not lost yet.
func (w *nodeWatch) look() {
	for _, n := range w.status() {
		if n.ID == hsm.EngineID {
			continue
		}
		if n.State == kms.NodeDown && w.opening[n.ID] > 0 {
			w.opening[n.ID]--
			continue
		}
		was, isLost := w.lost[n.ID]
		var t kms.EventType
		switch {
		case n.State == was:
			continue
		case n.State == kms.NodeDown && !isLost:
			t = kms.EventNodeDown
		case n.State == kms.NodeOut:
			t = kms.EventNodeOut
		case n.State == kms.NodeUp && isLost:
			t = kms.EventNodeUp
		}
		switch n.State {
		case kms.NodeDown, kms.NodeOut:
			w.lost[n.ID] = n.State
		case kms.NodeUp:
			delete(w.lost, n.ID)
			delete(w.opening, n.ID)
		case kms.NodeClosed:
			delete(w.lost, n.ID)
			w.opening[n.ID] = openLooks
		}
		if t != "" {
			w.events.Publish(kms.Event{Type: t, Fields: []kms.EventField{{Name: "node", Value: string(n.ID)}, {Name: "api_node", Value: w.node}}})
		}
	}
}
