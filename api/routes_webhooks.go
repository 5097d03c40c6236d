package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

// webhookRoutes are about the webhooks of the own tenant. Those of the tenant
// of the operators are the operators'.
func webhookRoutes() []Route {
	group, one := ownTenant.group, "/v1/webhooks/{webhook}"
	return []Route{
		change(Route{Name: "create-webhook", Group: group, Method: http.MethodPost, Path: "/v1/webhooks", Op: kms.OpCreateWebhook,
			Success: http.StatusCreated, Secret: true, Errors: makeErrors, Summary: "Have events sent to an address",
			Description: "The answer shows the secret that deliveries are signed with this once. " + webhookDocs()}, createWebhook,
			func(c *call, id string) (*CreatedWebhookResponse, error) {
				w, err := c.service.ReplayWebhook(c.context, &c.ticket, c.route.Op, id)
				if err != nil {
					return nil, err
				}
				return &CreatedWebhookResponse{Webhook: webhookOf(w), Charge: c.charge()}, nil
			}),
		define(Route{Name: "list-webhooks", Group: group, Method: http.MethodGet, Path: "/v1/webhooks", Op: kms.OpReadWebhook,
			Errors: makeErrors, Query: pageParameters, Summary: "List webhooks"},
			func(c *call, _ *NoBody) (*WebhookListResponse, error) {
				list, next, err := c.service.ListWebhooks(c.context, &c.ticket, c.page())
				if err != nil {
					return nil, err
				}
				out := &WebhookListResponse{Webhooks: make([]Webhook, len(list)), NextPageToken: next, Charge: c.charge()}
				for i, w := range list {
					out.Webhooks[i] = webhookOf(w)
				}
				return out, nil
			}),
		define(Route{Name: "describe-webhook", Group: group, Method: http.MethodGet, Path: one, Op: kms.OpReadWebhook,
			Errors: keyErrors, Summary: "Describe a webhook"},
			func(c *call, _ *NoBody) (*WebhookResponse, error) {
				w, err := c.service.DescribeWebhook(c.context, &c.ticket, c.object(0))
				if err != nil {
					return nil, err
				}
				return &WebhookResponse{webhookOf(w), c.charge()}, nil
			}),
		change(Route{Name: "delete-webhook", Group: group, Method: http.MethodDelete, Path: one, Op: kms.OpDeleteWebhook,
			Errors: makeErrors, Summary: "Send nothing more to an address", Description: "What waits for it is dropped."},
			func(c *call, _ *NoBody) (*DeletedWebhookResponse, error) {
				w, err := c.service.DeleteWebhook(c.context, &c.ticket, c.object(0))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &DeletedWebhookResponse{w.ID.String(), c.charge()}, nil
			},
			func(c *call, id string) (*DeletedWebhookResponse, error) {
				// It is gone, so there is nothing of it to find.
				if _, err := c.service.Replay(c.context, &c.ticket, c.route.Op, ""); err != nil {
					return nil, err
				}
				return &DeletedWebhookResponse{id, c.charge()}, nil
			}),
		define(Route{Name: "test-webhook", Group: group, Method: http.MethodPost, Path: one + "/test", Op: kms.OpTestWebhook,
			Errors: makeErrors, Summary: "Send a webhook an event to try it",
			Description: "It goes the way of all events: the answer does not wait for it."},
			func(c *call, _ *Empty) (*TestWebhookResponse, error) {
				event, err := c.service.TestWebhook(c.context, &c.ticket, c.object(0))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &TestWebhookResponse{event, c.charge()}, nil
			}),
	}
}

// webhookDocs says what is sent, and the types.
func webhookDocs() string {
	text := "An event is POSTed as JSON {id, type, timestamp, severity, tenant, data} with the headers webhook-id (of the event, the same in every attempt), " +
		"webhook-timestamp (seconds since 1970) and webhook-signature: v1, and the base64 of HMAC-SHA-256 over id.timestamp.body, " +
		"keyed with the bytes whose base64 follows whsec_ in the secret (Standard Webhooks). " +
		"It is repeated until the answer has a status of 200 to 299, so it can come more than once. The types:"
	for _, e := range kms.EventTypes() {
		text += "\n- " + string(e.Type)
		if e.Operators {
			text += " (operators)"
		}
		text += ": " + e.Doc
	}
	return text
}

func createWebhook(c *call, in *CreateWebhookRequest) (*CreatedWebhookResponse, error) {
	w, secret, err := c.service.CreateWebhook(c.context, &c.ticket, in.URL, in.Types)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.created(w.ID)
	return &CreatedWebhookResponse{webhookOf(w), secret, c.charge()}, nil
}

func webhookOf(w *kms.Webhook) Webhook {
	return Webhook{ID: w.ID, URL: w.URL, Types: w.Types, State: w.State, CreatedAt: w.Created.UTC(), Revision: w.Revision,
		FailingSince: w.FailingSince.UTC(), DeliveredAt: w.Delivered.UTC()}
}
