package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Webhook is an address to which events are sent, without its secret.
type Webhook struct {
	ID    string   `json:"id"`
	URL   string   `json:"url"`
	Types []string `json:"types,omitempty"` // of events that it gets; none: all
	// State is ACTIVE, or DISABLED: it failed for too long, and nothing is sent
	// to it any more.
	State        string    `json:"state"`
	CreatedAt    time.Time `json:"created_at"`
	FailingSince time.Time `json:"failing_since,omitzero"` // zero: it does not fail
	DeliveredAt  time.Time `json:"delivered_at,omitzero"`  // when it last took an event
	Revision     uint64    `json:"revision"`               // grows by one with every change
}

// WebhookOutput is a webhook as one call returns it.
type WebhookOutput struct {
	Webhook
	Charge
}

// CreatedWebhook is a webhook with the secret that its deliveries are signed
// with, which is shown this once: whsec_ and the base64 of the bytes.
type CreatedWebhook struct {
	Webhook
	Secret Token `json:"secret"`
	Charge
}

// CreateWebhookInput is the input of CreateWebhook.
type CreateWebhookInput struct {
	URL   string   `json:"url"`             // https, to a public address
	Types []string `json:"types,omitempty"` // of events; none: all
}

// CreateWebhook has events of the credential's tenant sent to an address; those
// of the service, for an operator's credential. When the answer is lost on the
// way, the repetition gives ErrConflict and names the webhook's id; its secret
// is lost: delete it and make another.
func (c *Client) CreateWebhook(ctx context.Context, in CreateWebhookInput) (*CreatedWebhook, error) {
	return invoke[CreatedWebhook](ctx, c, call{method: http.MethodPost, path: inTenant("", "webhooks"), in: in, changes: true})
}

// GetWebhook returns a webhook by its id.
func (c *Client) GetWebhook(ctx context.Context, id string) (*WebhookOutput, error) {
	return invoke[WebhookOutput](ctx, c, call{method: http.MethodGet, path: inTenant("", "webhooks", id)})
}

type webhookPage struct {
	Webhooks []*Webhook `json:"webhooks"`
	Next     string     `json:"next_page_token"`
}

// ListWebhooks returns the webhooks in the order in which they were made. See
// ListTenants.
func (c *Client) ListWebhooks(ctx context.Context) iter.Seq2[*Webhook, error] {
	return list(ctx, c, call{method: http.MethodGet, path: inTenant("", "webhooks")},
		func(p *webhookPage) ([]*Webhook, string) { return p.Webhooks, p.Next })
}

// DeletedWebhook names a webhook that is gone.
type DeletedWebhook struct {
	ID string `json:"id"`
	Charge
}

// DeleteWebhook removes a webhook; what waits for it is dropped.
func (c *Client) DeleteWebhook(ctx context.Context, id string) (*DeletedWebhook, error) {
	return invoke[DeletedWebhook](ctx, c, call{method: http.MethodDelete, path: inTenant("", "webhooks", id), changes: true})
}

// TestedWebhook names the event that a webhook is tried with.
type TestedWebhook struct {
	EventID string `json:"event_id"`
	Charge
}

// TestWebhook sends a webhook an event of the type webhook.test. It goes the
// way of all events: the answer does not wait for it.
func (c *Client) TestWebhook(ctx context.Context, id string) (*TestedWebhook, error) {
	return invoke[TestedWebhook](ctx, c, call{method: http.MethodPost, path: inTenant("", "webhooks", id, "test"), prepares: true})
}
