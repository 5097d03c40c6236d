package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// webhookVerb is a verb whose argument is the id of a webhook.
func (p *program) webhookVerb(c *cobra.Command, run func(s *session, id string) error) *cobra.Command {
	s := p.session(c)
	c.Args = argument("ID")
	c.ValidArgsFunction = s.completeAt(0, webhookIDs)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

func webhookIDs(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for w, err := range c.ListWebhooks(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(w.ID, w.URL)) {
				return
			}
		}
	}
}

// eventHelp lists the types of events.
func eventHelp() string {
	var b strings.Builder
	for _, e := range kms.EventTypes() {
		note := ""
		if e.Operators {
			note = " (operators)"
		}
		fmt.Fprintf(&b, "  %s%s\n", e.Type, note)
	}
	return b.String()
}

func eventTypes() []string {
	var list []string
	for _, e := range kms.EventTypes() {
		list = append(list, string(e.Type))
	}
	return list
}

func (p *program) webhookCreate() *cobra.Command {
	var in client.CreateWebhookInput
	var file string
	c := &cobra.Command{
		Use:   "create URL",
		Short: "Have events sent to an address",
		Long: `Have events sent to an address: an https URL of a public address, or mailto: and a
mail address where the service is set up to send mail. The secret that
deliveries are signed with is printed this once and cannot be had again; with
--out it goes to a file of mode 0600 instead.

Deliveries follow Standard Webhooks: the headers webhook-id, webhook-timestamp and
webhook-signature let a receiver verify what it gets, with any library for them.
The same event can come more than once, under the same id. The types of events:

` + eventHelp() + `
An operator's webhooks get those of the service and of all tenants.`,
		Example: `  sluice webhook create https://hooks.example.com/sluice --out webhook.secret
  sluice webhook create https://hooks.example.com/sluice --type quota.day_soft_limit`,
		Args: argument("URL"),
	}
	f := c.Flags()
	f.StringArrayVar(&in.Types, "type", nil, "`TYPE` of events that it gets; repeat for more (default: all)")
	f.StringVar(&file, "out", "", "write the secret to this `FILE`, mode 0600, instead of printing it")
	choices(c, "type", eventTypes()...)
	s := p.session(c)
	return s.verb(func(s *session) error {
		in.URL = s.args[0]
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		w, err := api.CreateWebhook(ctx, in)
		if err != nil {
			return err
		}
		return s.showCreatedWebhook(w, file)
	})
}

// showCreatedWebhook shows a webhook with its secret, as showMinted does a
// credential with its token.
func (s *session) showCreatedWebhook(w *client.CreatedWebhook, file string) error {
	if file != "" {
		if err := s.writeFile(file, []byte(w.Secret.Reveal()+"\n")); err != nil {
			s.say("the secret is not in the file; this is the only time that it is shown:")
			fmt.Fprintln(s.cmd.ErrOrStderr(), w.Secret.Reveal())
			return err
		}
		return s.show(&client.WebhookOutput{Webhook: w.Webhook, Charge: w.Charge},
			func(out io.Writer) error { return webhookDetails(out, &w.Webhook) })
	}
	if !s.json {
		if err := webhookDetails(s.cmd.ErrOrStderr(), &w.Webhook); err != nil {
			return err
		}
	}
	s.say("This is the only time that the secret is shown. Whoever has it can pretend to be this service: keep it secret.")
	return s.show(struct {
		client.Webhook
		Secret string `json:"secret"`
		client.Charge
	}{w.Webhook, w.Secret.Reveal(), w.Charge}, func(out io.Writer) error {
		_, err := fmt.Fprintln(out, w.Secret.Reveal())
		return err
	})
}

func webhookDetails(w io.Writer, h *client.Webhook) error {
	return details(w, field{"Id", h.ID}, field{"URL", h.URL}, field{"Types", typesOf(h)}, field{"State", h.State},
		field{"Failing since", date(h.FailingSince)}, field{"Delivered", date(h.DeliveredAt)}, field{"Created", date(h.CreatedAt)})
}

func typesOf(h *client.Webhook) string {
	if len(h.Types) == 0 {
		return "all"
	}
	return strings.Join(h.Types, " ")
}

func (p *program) webhookList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List webhooks",
		Long:    "List webhooks in the order in which they were made, without their secrets.",
		Example: "  sluice webhook list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "webhooks")
	return p.session(c).verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		list, err := collect(api.ListWebhooks(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Webhooks []*client.Webhook `json:"webhooks"`
		}{list}, func(w io.Writer) error {
			rows := make([][]string, len(list))
			for i, h := range list {
				rows[i] = []string{h.ID, h.State, h.URL, typesOf(h), date(h.FailingSince)}
			}
			return table(w, []string{"ID", "STATE", "URL", "TYPES", "FAILING SINCE"}, rows)
		})
	})
}

func (p *program) webhookGet() *cobra.Command {
	return p.webhookVerb(&cobra.Command{
		Use:     "get ID",
		Short:   "Show a webhook",
		Long:    "Show a webhook, without its secret.",
		Example: "  sluice webhook get 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		h, err := api.GetWebhook(ctx, id)
		if err != nil {
			return err
		}
		return s.show(h, func(w io.Writer) error { return webhookDetails(w, &h.Webhook) })
	})
}

func (p *program) webhookTest() *cobra.Command {
	return p.webhookVerb(&cobra.Command{
		Use:   "test ID",
		Short: "Send a webhook an event to try it",
		Long: `Send a webhook an event of the type webhook.test. It goes the way of all events:
the verb does not wait for it; "sluice webhook get" shows whether it was taken.`,
		Example: "  sluice webhook test 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		e, err := api.TestWebhook(ctx, id)
		if err != nil {
			return err
		}
		return s.show(e, func(w io.Writer) error { return details(w, field{"Event", e.EventID}) })
	})
}

func (p *program) webhookDelete() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:     "delete ID",
		Short:   "Send nothing more to an address",
		Long:    "Send nothing more to an address. What waits for it is dropped.",
		Example: "  sluice webhook delete 01920c5e-0000-7000-8000-000000000000",
	}
	confirm.flag(c)
	return p.webhookVerb(c, func(s *session, id string) error {
		if err := confirm.ask(s, "Nothing more is sent to the webhook %s.", id); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		gone, err := api.DeleteWebhook(ctx, id)
		if err != nil {
			return err
		}
		return s.show(gone, func(w io.Writer) error { return details(w, field{"Id", gone.ID}, field{"State", "deleted"}) })
	})
}
