package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// secretVerb is a verb whose first argument is the path or the id of a secret;
// more are those that follow.
func (p *program) secretVerb(c *cobra.Command, more []string, run func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error) *cobra.Command {
	s := p.session(c)
	c.Args = arguments(append([]string{"PATH"}, more...)...)
	c.ValidArgsFunction = s.completeAt(0, secretPaths)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		secret, err := findSecret(ctx, api, s.args[0])
		if err != nil {
			return err
		}
		return run(s, api, ctx, secret)
	})
}

// findSecret finds a secret by its path or id, with its versions.
func findSecret(ctx context.Context, api *client.Client, ref string) (*client.Secret, error) {
	if strings.Count(ref, "-") == 4 && len(ref) == 36 { // the form of an id
		out, err := api.GetSecret(ctx, ref)
		if err != nil {
			return nil, err
		}
		return &out.Secret, nil
	}
	for listed, err := range api.ListSecrets(ctx, ref) {
		if err != nil {
			return nil, err
		}
		if listed.Path == ref { // the first: it begins with itself
			out, err := api.GetSecret(ctx, listed.ID)
			if err != nil {
				return nil, err
			}
			return &out.Secret, nil
		}
		break
	}
	return nil, errNoSecret
}

var errNoSecret = errors.New("there is no secret of that path")

func secretPaths(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for s, err := range c.ListSecrets(ctx, "") {
			if err != nil || !yield(cobra.CompletionWithDesc(s.Path, s.Provider)) {
				return
			}
		}
	}
}

// versionArgument is the number of a version that is the second argument.
func versionArgument(s *session) (uint32, error) {
	n, err := strconv.ParseUint(s.args[1], 10, 32)
	if err != nil || n == 0 {
		return 0, usage(s.cmd, "VERSION must be a number from 1")
	}
	return uint32(n), nil
}

func secretDetails(w io.Writer, s *client.Secret) error {
	fields := []field{{"Path", s.Path}, {"Id", s.ID}, {"Provider", s.Provider}, {"State", s.State},
		{"Fresh", (time.Duration(s.FreshSeconds) * time.Second).String()}, {"Lease", (time.Duration(s.LeaseSeconds) * time.Second).String()},
		{"Deletion", date(s.DeletionDate)}, {"Created", date(s.CreatedAt)}, {"Revision", strconv.FormatUint(s.Revision, 10)}}
	for _, name := range sortedNames(s.Metadata) {
		fields = append(fields, field{"Metadata", name + "=" + s.Metadata[name]})
	}
	if r := s.Rollout; r != nil {
		fields = append(fields, field{"Rollout", fmt.Sprintf("%s: version %d takes over from %d, step %d of %d", r.State, r.To, r.From, r.Step, len(r.Steps))})
	}
	if err := details(w, fields...); err != nil || len(s.Versions) == 0 {
		return err
	}
	return secretVersions(w, s)
}

// none stands in a table for what there is not, so that columns stay aligned.
const none = "-"

func secretVersions(w io.Writer, s *client.Secret) error {
	rows := make([][]string, len(s.Versions))
	for i, v := range s.Versions {
		weight := none
		if v.State == string(kms.SecretActive) {
			weight = strconv.FormatUint(uint64(v.Weight), 10)
		}
		rows[i] = []string{strconv.FormatUint(uint64(v.Version), 10), v.State, weight, date(v.CreatedAt), cmp.Or(date(v.NotAfter), none), cmp.Or(date(v.DestroyAt), none)}
	}
	return table(w, []string{"VERSION", "STATE", "WEIGHT", "CREATED", "NOT AFTER", "DESTROYED"}, rows)
}

func sortedNames(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *session) showSecret(out *client.SecretOutput) error {
	return s.show(out, func(w io.Writer) error { return secretDetails(w, &out.Secret) })
}

// readValue reads a value: text, without the line break at its end.
func (s *session) readValue(file string) (client.Value, error) {
	data, err := s.readFile(file, "value", kms.MaxSecretValue+2)
	if err != nil {
		return client.Value{}, err
	}
	defer clear(data)
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return client.Value{}, fmt.Errorf("the value is empty")
	}
	return client.NewValue(text), nil
}

func (p *program) secretPut() *cobra.Command {
	var file, provider string
	var metadata []string
	var notAfter string
	c := &cobra.Command{
		Use:   "put PATH",
		Short: "Store a value: a new secret, or a new version of one",
		Long: `Store a value, which is read from standard input or a file and never from the
command line. Where there is no secret of that path it is made, and its version 1 is
in use at once. Else the value is staged as a new version: "sluice secret activate"
brings it into use. A line break at the end of the value is left out.`,
		Example: `  sluice secret put llm/openai --provider openai < openai.key
  sluice secret put llm/openai --in new.key`,
		Args: argument("PATH"),
	}
	f := c.Flags()
	f.StringVar(&file, "in", "-", "read the value from this `FILE`; - is standard input")
	f.StringVar(&provider, "provider", "", "`NAME` of the provider; needed for a new secret")
	f.StringArrayVar(&metadata, "metadata", nil, "`NAME=VALUE`, what is not secret of a new secret, such as base_url; repeat for more")
	f.StringVar(&notAfter, "not-after", "", "`TIME` from which on the value is not handed out, as RFC 3339")
	choices(c, "provider", "openai", "anthropic", "azure", "bedrock", "deepseek", "dashscope", "gemini", "vertex")
	noCompletion(c, "metadata", "not-after")
	s := p.session(c)
	c.ValidArgsFunction = s.completeAt(0, secretPaths)
	return s.verb(func(s *session) error {
		expires, err := expiry(c, 0, notAfter)
		if err != nil {
			return err
		}
		said := map[string]string{}
		for _, m := range metadata {
			name, value, ok := strings.Cut(m, "=")
			if !ok {
				return usage(c, "--metadata must be NAME=VALUE")
			}
			said[name] = value
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		secret, err := findSecret(ctx, api, s.args[0])
		if err != nil && err != errNoSecret {
			return err
		}
		if secret == nil && provider == "" {
			return usage(c, "there is no such secret yet; to make it --provider is needed")
		}
		value, err := s.readValue(file)
		if err != nil {
			return err
		}
		defer value.Wipe()
		if secret == nil {
			out, err := api.CreateSecret(ctx, client.CreateSecretInput{Path: s.args[0], Provider: provider, Value: value, Metadata: said, NotAfter: expires})
			if err != nil {
				return err
			}
			return s.showSecret(out)
		}
		added, err := api.AddSecretVersion(ctx, secret.ID, client.AddSecretVersionInput{Value: value, NotAfter: expires})
		if err != nil {
			return err
		}
		s.say("version %d has the value; \"sluice secret activate\" brings it into use", added.Version)
		return s.show(added, func(w io.Writer) error { return secretDetails(w, &added.Secret) })
	})
}

func (p *program) secretGet() *cobra.Command {
	var reveal bool
	c := &cobra.Command{
		Use:   "get PATH",
		Short: "Show a secret, or with --reveal its value",
		Long: `Show what is not secret of a secret. With --reveal its value is fetched and printed,
alone on standard output; while two versions share the calls, each is on a line with
its version and weight. The fetch is in the audit trail.`,
		Example: `  sluice secret get llm/openai
  sluice secret get llm/openai --reveal`,
		Args: argument("PATH"),
	}
	c.Flags().BoolVar(&reveal, "reveal", false, "fetch the value and print it")
	s := p.session(c)
	c.ValidArgsFunction = s.completeAt(0, secretPaths)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		if reveal {
			return s.reveal(ctx, api)
		}
		secret, err := findSecret(ctx, api, s.args[0])
		if err != nil {
			return err
		}
		return s.show(secret, func(w io.Writer) error { return secretDetails(w, secret) })
	})
}

// reveal fetches the secret of the path that is the argument and prints its
// values.
func (s *session) reveal(ctx context.Context, api *client.Client) error {
	out, err := api.FetchSecrets(ctx, client.FetchSecretsInput{Items: []client.FetchSecretItem{{Path: s.args[0]}}})
	if err != nil {
		return err
	}
	item := &out.Items[0]
	if item.Status != string(kms.FetchOK) {
		return fmt.Errorf("the secret is %s", strings.ReplaceAll(item.Status, "_", " "))
	}
	type revealed struct {
		Version uint32 `json:"version"`
		Weight  uint32 `json:"weight"`
		Value   string `json:"value"`
	}
	var list []revealed
	for _, v := range item.Versions {
		list = append(list, revealed{v.Version, v.Weight, v.Value.Reveal()})
	}
	return s.show(struct {
		Path     string     `json:"path"`
		Revision uint64     `json:"revision"`
		Versions []revealed `json:"versions"`
	}{item.Path, item.Revision, list}, func(w io.Writer) error {
		if len(list) == 1 {
			_, err := fmt.Fprintln(w, list[0].Value)
			return err
		}
		for _, v := range list {
			if _, err := fmt.Fprintf(w, "%d\t%d\t%s\n", v.Version, v.Weight, v.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *program) secretList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List secrets",
		Long:  "List the secrets whose path begins with PREFIX, by path, without their values.",
		Example: `  sluice secret list
  sluice secret list llm/`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	limitFlag(c, &limit, "secrets")
	return p.session(c).verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		list, err := collect(api.ListSecrets(ctx, strings.Join(s.args, "")), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Secrets []*client.Secret `json:"secrets"`
		}{list}, func(w io.Writer) error {
			rows := make([][]string, len(list))
			for i, x := range list {
				rollout := none
				if x.Rollout != nil {
					rollout = x.Rollout.State
				}
				rows[i] = []string{x.Path, x.Provider, x.State, rollout, x.ID}
			}
			return table(w, []string{"PATH", "PROVIDER", "STATE", "ROLLOUT", "ID"}, rows)
		})
	})
}

func (p *program) secretVersions() *cobra.Command {
	return p.secretVerb(&cobra.Command{
		Use:     "versions PATH",
		Short:   "List the versions of a secret",
		Long:    "List the versions of a secret with their states, without their values.",
		Example: "  sluice secret versions llm/openai",
	}, nil, func(s *session, _ *client.Client, _ context.Context, secret *client.Secret) error {
		return s.show(struct {
			Versions []client.SecretVersion `json:"versions"`
		}{secret.Versions}, func(w io.Writer) error { return secretVersions(w, secret) })
	})
}
