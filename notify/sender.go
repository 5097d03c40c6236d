package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Of an attempt.
const (
	// attemptTimeout bounds an attempt, from the look-up of the name to the
	// answer's head.
	attemptTimeout = 15 * time.Second
	// maxAnswer is how much of an answer's body is read, so that a receiver can
	// end its connection in an orderly way.
	maxAnswer = 4 << 10
	userAgent = "Sluice-Webhooks/1"
	// mailPrefix begins the URLs to which events are mailed.
	mailPrefix = "mailto:"
)

// The pauses between attempts.
const (
	firstPause   = 5 * time.Second
	longestPause = 24 * time.Hour
)

// pause is how long to wait after a number of attempts that failed: it doubles,
// and the upper half of it is random, so that what failed together is not tried
// together.
func pause(attempts int) time.Duration {
	full := longestPause
	if shift := attempts - 1; shift < 15 { // 5 s × 2^15 is more than a day
		full = min(firstPause<<max(shift, 0), longestPause)
	}
	return full/2 + rand.N(full/2)
}

// send sends what is due until the Notifier ends.
func (n *Notifier) send() {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		n.round()
		select {
		case <-n.running.Done():
			return
		case <-n.wake:
		case <-tick.C:
		}
	}
}

// round claims as many deliveries as there is room for and begins them.
func (n *Notifier) round() {
	busy := n.busyTenants()
	if len(busy) >= workers {
		return
	}
	list, err := n.c.Deliveries.ClaimDeliveries(n.running, lease, busy, workers-len(busy))
	if err != nil {
		if n.running.Err() == nil {
			n.c.Log.Error("claiming deliveries", slog.Any("error", err))
		}
		return
	}
	n.mu.Lock()
	for i := range list {
		n.busy = append(n.busy, list[i].Tenant)
	}
	n.mu.Unlock()
	for i := range list {
		n.all.Go(func() {
			n.deliver(&list[i])
			n.free(list[i].Tenant)
		})
	}
}

// free ends a delivery of a tenant, whose next may follow at once.
func (n *Notifier) free(tenant uuid.UUID) {
	n.mu.Lock()
	i := slices.Index(n.busy, tenant) // there is one for each delivery
	n.busy = slices.Delete(n.busy, i, i+1)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// deliver makes one attempt and notes what came of it.
func (n *Notifier) deliver(d *kms.Delivery) {
	w, tenant, err := n.receiver(d)
	switch {
	case err != nil && kms.KindOf(err) == kms.KindNotFound:
		return // the webhook is gone, and its deliveries with it
	case err == nil && (tenant.Deleted() || w.State != kms.WebhookActive):
		n.note(n.c.Deliveries.EndDelivery, d)
		return
	case err == nil:
		err = n.attempt(d, w, tenant)
	}
	ctx, cancel := n.marking()
	defer cancel()
	switch {
	case err == nil:
		n.deliveries.WithLabelValues("taken").Inc()
		n.note(n.c.Deliveries.EndDelivery, d)
		n.report(d, n.c.Deliveries.NoteDelivery(ctx, d.Tenant, d.Webhook, true))
	case n.running.Err() != nil: // it is not the receiver's fault
		n.report(d, n.c.Deliveries.RetryDelivery(ctx, d, n.c.Clock()))
	default:
		n.failed(ctx, d, w, err)
	}
}

// receiver finds who gets a delivery.
func (n *Notifier) receiver(d *kms.Delivery) (*kms.Webhook, *kms.Tenant, error) {
	w, err := n.c.Webhooks.Webhook(n.running, d.Tenant, d.Webhook)
	if err != nil {
		return nil, nil, err
	}
	tenant, err := n.c.Tenants.Tenant(n.running, d.Tenant)
	return w, tenant, err
}

// attempt sends a delivery; nil when the receiver took it.
func (n *Notifier) attempt(d *kms.Delivery, w *kms.Webhook, tenant *kms.Tenant) error {
	ctx, cancel := context.WithTimeout(n.running, attemptTimeout)
	defer cancel()
	if strings.HasPrefix(w.URL, mailPrefix) {
		return n.mail(ctx, d, w.URL)
	}
	secret, err := n.secret(ctx, w, tenant)
	if err != nil {
		return fmt.Errorf("opening the secret: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(d.Body))
	if err != nil {
		return errors.New("the URL is malformed") // the error would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent)
	sign(request.Header, secret, d.Event.String(), n.c.Clock(), d.Body)
	answer, err := n.c.Post(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // the status has decided
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("the answer has the status %d", answer.StatusCode)
	}
	return nil
}

// secret opens a webhook's secret, once as long as there is room: when every
// HSM is away, that must still be told.
func (n *Notifier) secret(ctx context.Context, w *kms.Webhook, tenant *kms.Tenant) ([]byte, error) {
	n.mu.Lock()
	secret, ok := n.secrets[w.ID]
	n.mu.Unlock()
	if ok {
		return secret, nil
	}
	secret, err := n.c.Secrets.Unseal(ctx, tenant.Sealing, kms.WebhookSecretName(w.ID), 1, w.Secret)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.secrets) >= maxSecrets {
		clear(n.secrets)
	}
	n.secrets[w.ID] = secret
	return secret, nil
}

// failed notes a failure: the delivery is tried again or given up, the webhook
// goes on or is disabled. w is nil when it could not be read.
func (n *Notifier) failed(ctx context.Context, d *kms.Delivery, w *kms.Webhook, cause error) {
	now := n.c.Clock()
	attributes := []any{slog.String("tenant", d.Tenant.String()), slog.String("webhook", d.Webhook.String()),
		slog.String("event_id", d.Event.String()), slog.Int("attempts", d.Attempts), slog.Any("error", cause)}
	if end := d.Created.Add(n.c.GiveUp); now.Before(end) {
		n.deliveries.WithLabelValues("failed").Inc()
		n.c.Log.Info("a webhook did not take an event", attributes...)
		next := now.Add(pause(d.Attempts))
		if next.After(end) {
			next = end
		}
		n.report(d, n.c.Deliveries.RetryDelivery(ctx, d, next))
	} else {
		n.deliveries.WithLabelValues("given_up").Inc()
		n.c.Log.Warn("an event is given up that a webhook did not take", attributes...)
		n.note(n.c.Deliveries.EndDelivery, d)
	}
	if w == nil {
		return
	}
	n.report(d, n.c.Deliveries.NoteDelivery(ctx, d.Tenant, d.Webhook, false))
	if !w.FailingSince.IsZero() && now.Sub(w.FailingSince) >= n.c.DisableAfter {
		n.disable(ctx, d, w)
	}
}

func (n *Notifier) disable(ctx context.Context, d *kms.Delivery, w *kms.Webhook) {
	err := n.c.Webhooks.DisableWebhook(ctx, w.Tenant, w.ID, w.Revision)
	if kms.KindOf(err) == kms.KindPreconditionFailed && err != nil {
		return // somebody else did
	}
	n.report(d, err)
	if err == nil {
		n.Publish(kms.Event{Type: kms.EventWebhookDisabled, Tenant: w.Tenant, Fields: []kms.EventField{
			{Name: "webhook", Value: w.ID.String()}, {Name: "failing_since", Value: w.FailingSince.UTC().Format(time.RFC3339)}}})
	}
}

// marking is the context of what must be noted though the Notifier ends.
func (n *Notifier) marking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(n.running), storeTimeout)
}

func (n *Notifier) note(mark func(context.Context, *kms.Delivery) error, d *kms.Delivery) {
	ctx, cancel := n.marking()
	defer cancel()
	n.report(d, mark(ctx, d))
}

// report logs that something could not be noted. The lease runs out, and the
// delivery is made again.
func (n *Notifier) report(d *kms.Delivery, err error) {
	if err != nil {
		n.c.Log.Error("noting a delivery", slog.String("event_id", d.Event.String()), slog.String("webhook", d.Webhook.String()), slog.Any("error", err))
	}
}
