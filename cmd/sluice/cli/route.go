package cli

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// maxRouteFile bounds the file of a route or a report in bytes.
const maxRouteFile = 1 << 20

// routeVerb is a verb whose argument is the name of a route.
func (p *program) routeVerb(c *cobra.Command, run func(ctx context.Context, s *session, api *client.Client, name string) error) *cobra.Command {
	s := p.session(c)
	c.Args = argument("NAME")
	c.ValidArgsFunction = s.completeAt(0, routeNames)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return run(ctx, s, api, s.args[0])
	})
}

func routeNames(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for r, err := range c.ListRoutes(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(r.Name, strings.Join(r.Models, " "))) {
				return
			}
		}
	}
}

// readJSON reads a document of which every field must be known.
func (s *session) readJSON(file, what string, into any) error {
	data, err := s.readFile(file, what, maxRouteFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("the %s is not one: %w", what, err)
	}
	return nil
}

func (p *program) routePut() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "put NAME",
		Short: "Make a route, or replace it",
		Long: `Make a route over providers, or replace the one of that name, from a file in JSON
("-": standard input). No fallback may be in a region, keep what it is sent for
longer, or have a capability, that the primary does not:

  {"models": ["gpt-5"], "residency": "eu",
   "primary": {"name": "one", "provider": "openai", "base_url": "https://…/v1",
               "region": "eu-west-1", "retention_days": 30, "secret": "llm/one"},
   "fallbacks": [{"name": "two", "provider": "azure-openai", "base_url": "https://…",
                  "region": "eu", "secret": "llm/two"}]}

What is known of the health of targets whose address stays is kept.`,
		Example: `  sluice route put chat --in chat.json`,
	}
	c.Flags().StringVar(&file, "in", "-", "read the route from this `FILE`")
	return p.routeVerb(c, func(ctx context.Context, s *session, api *client.Client, name string) error {
		var in client.PutRouteInput
		if err := s.readJSON(file, "route", &in); err != nil {
			return err
		}
		r, err := api.PutRoute(ctx, name, in)
		if err != nil {
			return err
		}
		return s.show(r, func(w io.Writer) error { return routeDetails(w, &r.Route) })
	})
}

func (p *program) routeGet() *cobra.Command {
	var model string
	c := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a route and the order to use now",
		Long: `Show a route and the order to use now: the parts of the calls that the targets get,
and why. Nothing is granted here; leases and retries come with "sluice route report".`,
		Example: `  sluice route get chat
  sluice route get chat --model gpt-5`,
	}
	c.Flags().StringVar(&model, "model", "", "show the order for this `MODEL` of the route")
	noCompletion(c, "model")
	return p.routeVerb(c, func(ctx context.Context, s *session, api *client.Client, name string) error {
		r, err := api.GetRoute(ctx, name, model)
		if err != nil {
			return err
		}
		return s.show(r, func(w io.Writer) error {
			if err := routeDetails(w, &r.Route); err != nil {
				return err
			}
			return orderTable(w, &r.Order)
		})
	})
}

func (p *program) routeList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List routes",
		Long:    "List routes by name.",
		Example: "  sluice route list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "routes")
	return p.session(c).verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		list, err := collect(api.ListRoutes(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Routes []*client.Route `json:"routes"`
		}{list}, func(w io.Writer) error {
			rows := make([][]string, len(list))
			for i, r := range list {
				rows[i] = []string{r.Name, r.Primary.Name, namesOfTargets(r.Fallbacks), strings.Join(r.Models, " ")}
			}
			return table(w, []string{"NAME", "PRIMARY", "FALLBACKS", "MODELS"}, rows)
		})
	})
}

func (p *program) routeDelete() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a route",
		Long:    "Delete a route with what is known of its health. Gateways that ask for it get nothing.",
		Example: "  sluice route delete chat",
	}
	confirm.flag(c)
	return p.routeVerb(c, func(ctx context.Context, s *session, api *client.Client, name string) error {
		if err := confirm.ask(s, "The route %s is deleted.", name); err != nil {
			return err
		}
		gone, err := api.DeleteRoute(ctx, name)
		if err != nil {
			return err
		}
		return s.show(gone, func(w io.Writer) error { return details(w, field{"Name", gone.Name}, field{"State", "deleted"}) })
	})
}

func (p *program) routeReport() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "report NAME",
		Short: "Report what calls came to, and show the order to use now",
		Long: `Report what calls over a route came to, as gateways do, and show the order to use
now with what is granted to the reporter. The report is JSON:

  {"generation": 7, "items": [{"target": "one", "model": "gpt-5", "version": 1,
                               "ok": 120, "transient": 3, "p99_ms": 900}]}

An empty one, {}, asks for the order alone.`,
		Example: `  echo '{}' | sluice route report chat
  sluice route report chat --in outcomes.json`,
	}
	c.Flags().StringVar(&file, "in", "-", "read the report from this `FILE`")
	return p.routeVerb(c, func(ctx context.Context, s *session, api *client.Client, name string) error {
		var in client.RouteReport
		if err := s.readJSON(file, "report", &in); err != nil {
			return err
		}
		out, err := api.ReportRoute(ctx, name, in)
		if err != nil {
			return err
		}
		return s.show(out, func(w io.Writer) error { return orderTable(w, &out.Order) })
	})
}

func namesOfTargets(list []client.RouteTarget) string {
	if len(list) == 0 {
		return none
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, " ")
}

func routeDetails(w io.Writer, r *client.Route) error {
	fields := []field{{"Name", r.Name}, {"Models", strings.Join(r.Models, " ")}, {"Residency", r.Residency}, {"Key in", r.AuthHeader}}
	for _, name := range slices.Sorted(maps.Keys(r.Weights)) {
		fields = append(fields, field{"Weight", name + " " + strconv.FormatUint(uint64(r.Weights[name]), 10) + " %"})
	}
	fields = append(fields, field{"Created", date(r.CreatedAt)}, field{"Revision", strconv.FormatUint(r.Revision, 10)})
	if err := details(w, fields...); err != nil {
		return err
	}
	targets := append([]client.RouteTarget{r.Primary}, r.Fallbacks...)
	if r.LocalLastResort != nil {
		targets = append(targets, *r.LocalLastResort)
	}
	rows := make([][]string, len(targets))
	for i := range targets {
		t := &targets[i]
		key := t.Secret
		if key == "" {
			key = none
		}
		rows[i] = []string{t.Name, t.Provider, t.Region, strconv.Itoa(t.RetentionDays), key, t.BaseURL}
	}
	return table(w, []string{"TARGET", "PROVIDER", "REGION", "DAYS KEPT", "KEY", "ADDRESS"}, rows)
}

func orderTable(w io.Writer, o *client.RouteOrder) error {
	rows := make([][]string, len(o.Targets))
	for i := range o.Targets {
		c := &o.Targets[i]
		until, lease := date(c.Until), none
		if until == "" {
			until = none
		}
		if c.Lease != 0 {
			lease = strconv.FormatUint(c.Lease, 10)
		}
		rows[i] = []string{c.Target, strconv.FormatUint(uint64(c.Weight), 10), c.State, c.Breaker, until, lease, strings.Join(c.Reasons, " ")}
	}
	if err := table(w, []string{"TARGET", "WEIGHT", "STATE", "BREAKER", "UNTIL", "LEASE", "REASONS"}, rows); err != nil {
		return err
	}
	fields := []field{{"Generation", strconv.FormatUint(o.Generation, 10)}, {"Retries", strconv.Itoa(o.Retries)}, {"Retries per request", strconv.Itoa(o.RetriesPerRequest)}}
	if o.Panic {
		fields = append(fields, field{"Panic", "no target is good: one is tried at a time"})
	}
	return details(w, fields...)
}
