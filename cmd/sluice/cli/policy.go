package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

func (p *program) policyGet() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "get",
		Short: "Show the policy in force, as the document that it is",
		Long: `Show the policy in force, as the document that it is: what is printed can be
changed and applied. Which version it is, and a newer one that cannot be put
into force, is told on standard error.`,
		Example: `  sluice policy get > policy.json
  sluice policy get --version 0`,
		Args: noArguments,
	}
	s := p.session(c)
	s.operator = true
	c.Flags().StringVar(&version, "version", "", "show this `VERSION` instead; 0 is the policy that Sluice comes with")
	s.completeFlag("version", policyVersions)
	return s.verb(func(s *session) error {
		number, err := s.policyVersion("--version", version)
		if err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		if version != "" {
			found, err := api.GetPolicyVersion(ctx, uint64(number))
			if err != nil {
				return err
			}
			return s.showPolicy(found, &found.PolicyVersion, found.Document)
		}
		inForce, err := api.GetPolicy(ctx)
		if err != nil {
			return err
		}
		s.warnPolicy(inForce)
		return s.showPolicy(inForce, &inForce.PolicyVersion, inForce.Document)
	})
}

// showPolicy prints a document, and on standard error what it is.
func (s *session) showPolicy(answer any, v *client.PolicyVersion, document jsontext.Value) error {
	s.say("%s", policyOrigin(v))
	return s.show(answer, func(w io.Writer) error {
		if err := document.Indent(jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		_, err := fmt.Fprintf(w, "%s\n", document)
		return err
	})
}

func policyOrigin(v *client.PolicyVersion) string {
	if v.Version == 0 {
		return "version 0: the policy that Sluice comes with"
	}
	return fmt.Sprintf("version %d of %s by %s", v.Version, date(v.CreatedAt), v.CreatedBy)
}

// warnPolicy tells of a newer version that is not in force.
func (s *session) warnPolicy(p *client.PolicyOutput) {
	if p.Problem != "" {
		s.say("version %d is stored and not in force: %s", p.Stored, p.Problem)
	}
}

func (p *program) policyValidate() *cobra.Command {
	var server bool
	c := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a policy in a file",
		Long: `Check a policy in a file ("-": standard input): every field must be there, known,
and within its range. It needs no service; --server asks the service, which may
be of another version than this program. The SHA-256 is what a second operator
compares with the one that an approval names.`,
		Example: `  sluice policy validate policy.json
  sluice policy validate policy.json --server`,
	}
	c.Flags().BoolVar(&server, "server", false, "let the service check it")
	return p.policyFileVerb(c, func(s *session, document []byte) error {
		if !server {
			return s.validateHere(document)
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		checked, err := api.CheckPolicy(ctx, document)
		if err != nil {
			return err
		}
		return s.showChecked(checked, verdict{checked.Valid, checked.SHA256, checked.Errors})
	})
}

// verdict is what a check of a policy has come to.
type verdict struct {
	Valid  bool                   `json:"valid"`
	SHA256 string                 `json:"sha256,omitzero"`
	Errors []client.PolicyMistake `json:"errors,omitempty"`
}

// validateHere checks a policy as the service would.
func (s *session) validateHere(document []byte) error {
	parsed, err := quota.ParsePolicy(document)
	if err == nil {
		document, err = parsed.Document()
	}
	digest := sha256.Sum256(document)
	v := verdict{Valid: true, SHA256: hex.EncodeToString(digest[:])}
	if mistake, ok := errors.AsType[*quota.PolicyError](err); ok {
		v = verdict{Errors: []client.PolicyMistake{{Path: mistake.Path, Message: mistake.What}}}
	} else if err != nil {
		return err
	}
	return s.showChecked(v, v)
}

func (s *session) showChecked(answer any, v verdict) error {
	err := s.show(answer, func(w io.Writer) error {
		if v.Valid {
			_, err := fmt.Fprintf(w, "valid, SHA-256 %s\n", printable(v.SHA256))
			return err
		}
		for _, m := range v.Errors {
			fmt.Fprintln(w, printable(mistakeLine(m)))
		}
		return nil
	})
	if err == nil && !v.Valid {
		err = errNotValid
	}
	return err
}

func mistakeLine(m client.PolicyMistake) string {
	if m.Path == "" {
		return "the policy " + m.Message
	}
	return m.Path + ": " + m.Message
}

func (p *program) policyDiff() *cobra.Command {
	return p.policyFileVerb(&cobra.Command{
		Use:     "diff FILE",
		Short:   "Compare a policy in a file with the one in force",
		Long:    "Compare a policy in a file (\"-\": standard input) with the one in force: every\nfield that differs, in force and in the file.",
		Example: "  sluice policy diff policy.json",
	}, func(s *session, document []byte) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		diff, err := s.comparePolicy(ctx, api, client.DiffPolicyInput{Document: document})
		if err != nil {
			return err
		}
		return s.show(diff, func(w io.Writer) error { return diffTable(w, diff) })
	})
}

// comparePolicy compares, and says what is wrong with a document that cannot
// be.
func (s *session) comparePolicy(ctx context.Context, api *client.Client, in client.DiffPolicyInput) (*client.DiffPolicyOutput, error) {
	diff, err := api.DiffPolicy(ctx, in)
	if in.Document == nil || !errors.Is(err, client.ErrInvalidArgument) {
		return diff, err
	}
	checked, checkErr := api.CheckPolicy(ctx, in.Document)
	if checkErr != nil || len(checked.Errors) == 0 {
		return nil, err
	}
	return nil, fmt.Errorf("not a valid policy: %s", mistakeLine(checked.Errors[0]))
}

func diffTable(w io.Writer, diff *client.DiffPolicyOutput) error {
	if len(diff.Changes) == 0 {
		_, err := fmt.Fprintf(w, "no difference from version %d\n", diff.Version)
		return err
	}
	rows := make([][]string, len(diff.Changes))
	for i, c := range diff.Changes {
		rows[i] = []string{c.Path, dash(c.From), dash(c.To)}
	}
	return table(w, []string{"FIELD", fmt.Sprintf("VERSION %d", diff.Version), "NEW"}, rows)
}

func (p *program) policyApply() *cobra.Command {
	var confirm confirmation
	var comment string
	var force bool
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy in a file into force",
		Long: `Put a policy in a file ("-": standard input, with --yes) into force, after showing
in what it differs. It becomes the next version, in force on every API node within a
second. When another version was stored since the comparison, nothing is done. One
that raises rates beyond what the HSMs can keep is refused unless forced.`,
		Example: `  sluice policy get > policy.json
  sluice policy apply policy.json --comment "more for gold"`,
	}
	policyCommentFlag(c, &comment)
	forceFlag(c, &force)
	confirm.flag(c)
	tries(c)
	return p.policyFileVerb(c, func(s *session, document []byte) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		// What is read is read in a dry run too.
		inForce, err := s.client.GetPolicy(ctx)
		if err != nil {
			return err
		}
		s.warnPolicy(inForce)
		diff, err := s.comparePolicy(ctx, s.client, client.DiffPolicyInput{Document: document})
		if err != nil {
			return err
		}
		if len(diff.Changes) == 0 && inForce.Problem == "" {
			s.say("it does not differ from version %d; nothing was done", diff.Version)
			return nil
		}
		if err := s.confirmPolicy(&confirm, diff); err != nil {
			return err
		}
		return s.showPut(api.PutPolicy(ctx, client.PutPolicyInput{Document: document, Previous: uint32(inForce.Stored), Comment: comment, Force: force}))
	})
}

func policyCommentFlag(c *cobra.Command, comment *string) {
	c.Flags().StringVar(comment, "comment", "", "say why, in this `TEXT`, for the history")
	noCompletion(c, "comment")
}

// confirmPolicy shows a difference and asks.
func (s *session) confirmPolicy(confirm *confirmation, diff *client.DiffPolicyOutput) error {
	if err := diffTable(s.cmd.ErrOrStderr(), diff); err != nil {
		return err
	}
	return confirm.ask(s, "It is then in force for every tenant.")
}

func (s *session) showPut(v *client.PutPolicyOutput, err error) error {
	if err != nil {
		return err
	}
	return s.show(v, func(w io.Writer) error {
		return details(w, field{"Version", strconv.FormatUint(v.Version, 10)}, field{"SHA-256", v.SHA256}, field{"Comment", v.Comment},
			field{"Created", date(v.CreatedAt)}, field{"Created by", v.CreatedBy})
	})
}

func (p *program) policyHistory() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "history",
		Short:   "List the versions of the policy",
		Long:    "List the versions of the policy, the newest first.",
		Example: "  sluice policy history --limit 10",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "versions")
	return p.operatorVerb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		versions, err := collect(api.ListPolicyVersions(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Versions []*client.PolicyVersion `json:"versions"`
		}{versions}, func(w io.Writer) error {
			rows := make([][]string, len(versions))
			for i, v := range versions {
				rows[i] = []string{strconv.FormatUint(v.Version, 10), date(v.CreatedAt), v.CreatedBy, v.Comment}
			}
			return table(w, []string{"VERSION", "CREATED", "BY", "COMMENT"}, rows)
		})
	})
}

func (p *program) policyRollback() *cobra.Command {
	var confirm confirmation
	var comment string
	var force bool
	c := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Put an earlier policy into force again",
		Long: `Put an earlier policy into force again, after showing in what it differs: its
document becomes the next version. 0 is the policy that Sluice comes with. One that
raises rates beyond what the HSMs can keep is refused unless forced.`,
		Example: "  sluice policy rollback 3",
		Args:    argument("VERSION"),
	}
	policyCommentFlag(c, &comment)
	forceFlag(c, &force)
	confirm.flag(c)
	tries(c)
	s := p.session(c)
	s.operator = true
	s.approvalFlag()
	c.ValidArgsFunction = s.completeAt(0, policyVersions)
	return s.verb(func(s *session) error {
		version, err := s.policyVersion("VERSION", s.args[0])
		if err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		diff, err := s.client.DiffPolicy(ctx, client.DiffPolicyInput{Version: &version})
		if err != nil {
			return err
		}
		if err := s.confirmPolicy(&confirm, diff); err != nil {
			return err
		}
		return s.showPut(api.RollbackPolicy(ctx, client.RollbackPolicyInput{Version: version, Comment: comment, Force: force}))
	})
}

// policyVersion reads the number of a version; "" is 0.
func (s *session) policyVersion(what, text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, usage(s.cmd, "%s must be the number of a version", what)
	}
	return uint32(n), nil
}

// policyFileVerb is a verb whose argument is a file with a policy.
func (p *program) policyFileVerb(c *cobra.Command, run func(s *session, document []byte) error) *cobra.Command {
	s := p.session(c)
	s.operator = true
	c.Args = argument("FILE")
	c.ValidArgsFunction = cobra.FixedCompletions([]cobra.Completion{"json"}, cobra.ShellCompDirectiveFilterFileExt)
	if c.Flags().Lookup(dryRunName) != nil {
		s.approvalFlag() // it changes something
	}
	return s.verb(func(s *session) error {
		document, err := s.readPolicy(s.args[0])
		if err != nil {
			return err
		}
		return run(s, document)
	})
}

// readPolicy reads a file, "-" for standard input. What is too long or no JSON
// object is refused here, because it cannot be sent.
func (s *session) readPolicy(name string) ([]byte, error) {
	in := s.cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("opening the policy: %w", err)
		}
		defer f.Close()
		in = f
	}
	document, err := io.ReadAll(io.LimitReader(in, kms.MaxPolicyDocument+1))
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	if len(document) > kms.MaxPolicyDocument {
		return nil, fmt.Errorf("the policy is longer than %d bytes", kms.MaxPolicyDocument)
	}
	if value := jsontext.Value(document); !value.IsValid() || value.Kind() != jsontext.KindBeginObject {
		return nil, errors.New("the policy is not one JSON object")
	}
	return document, nil
}

func policyVersions(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for v, err := range c.ListPolicyVersions(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(strconv.FormatUint(v.Version, 10), date(v.CreatedAt)+" "+v.Comment)) {
				return
			}
		}
	}
}
