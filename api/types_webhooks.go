package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Webhook is an address to which events are sent, without its secret.
type Webhook struct {
	ID           uuid.UUID        `json:"id"`
	URL          string           `json:"url"`
	Types        []kms.EventType  `json:"types,omitempty" doc:"Types of events that it gets; absent: all"`
	State        kms.WebhookState `json:"state" doc:"DISABLED: it failed for too long, and nothing is sent to it any more"`
	CreatedAt    time.Time        `json:"created_at"`
	FailingSince time.Time        `json:"failing_since,omitzero" doc:"When the first of the failures in a row was; absent: it does not fail"`
	DeliveredAt  time.Time        `json:"delivered_at,omitzero" doc:"When it last took an event; absent: never"`
	Revision     uint64           `json:"revision" doc:"Grows by one with every change" min:"1"`
}

// WebhookResponse is a webhook.
type WebhookResponse struct {
	Webhook
	Charge
}

// CreatedWebhookResponse is a webhook with its secret.
type CreatedWebhookResponse struct {
	Webhook
	Secret string `json:"secret" doc:"What deliveries are signed with: whsec_ and the base64 of the bytes. Shown this once"`
	Charge
}

// WebhookListResponse is a page of webhooks.
type WebhookListResponse struct {
	Webhooks      []Webhook `json:"webhooks" doc:"In the order in which they were made"`
	NextPageToken string    `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// DeletedWebhookResponse names what is gone.
type DeletedWebhookResponse struct {
	ID string `json:"id"`
	Charge
}

// TestWebhookResponse names the event that is sent.
type TestWebhookResponse struct {
	Event uuid.UUID `json:"event_id"`
	Charge
}

// CreateWebhookRequest is the body of create-webhook.
type CreateWebhookRequest struct {
	URL   string          `json:"url" api:"required" doc:"An https URL without user information and fragment, to port 443 or one above 1023 of a public address; or mailto: and an address, where the service sends mail" maxlen:"MaxWebhookURL" example:"https://hooks.example.com/sluice"`
	Types []kms.EventType `json:"types" doc:"Types of events that it gets; absent or empty: all" maxlen:"MaxEventTypes"`
}
