package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// credentialVerb is a verb whose argument is the id of a credential.
func (p *program) credentialVerb(c *cobra.Command, run func(s *session, id string) error) *cobra.Command {
	return p.credentialSession(c, p.session(c), run)
}

func (p *program) credentialSession(c *cobra.Command, s *session, run func(s *session, id string) error) *cobra.Command {
	s.tenantFlag()
	c.Args = argument("ID")
	c.ValidArgsFunction = s.completeAt(0, s.credentialIDs)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

// roleHelp lists the roles.
func roleHelp() string {
	var b strings.Builder
	for _, r := range kms.Roles() {
		fmt.Fprintf(&b, "  role:%-16s %s\n", r.Name, r.Doc)
	}
	return b.String()
}

func (p *program) credentialCreate() *cobra.Command {
	var in client.CreateCredentialInput
	var expiresAt, file string
	var expiresIn time.Duration
	var networks []string
	c := &cobra.Command{
		Use:   "create NAME --scope SCOPE",
		Short: "Mint a credential",
		Long: `Mint a credential. Its token is printed this once and cannot be had again; with
--out it goes to a file of mode 0600 instead.

A scope is family:operation or, for keys and secrets, family:operation:glob, in
which * stands for any characters:

  key:sign:orders-*   sign with keys whose names begin with orders-
  key:*               use, create, rotate and describe keys
  key:manage          manage keys without using them
  key:destroy         schedule the deletion of keys
  tenant:admin        administer the tenant's projects and credentials
  secret:read:llm/*   fetch the secrets whose paths begin with llm/
  secret:manage       manage secrets without fetching them
  route:report        report what calls over routes came to, as gateways do
  usage:read          read usage

It can also be a role, which stands for scopes:

` + roleHelp() + `
Nobody can give more than his own credential may; operators can inside ordinary
tenants. Minting an operator's credential can take two: see --approval.`,
		Example: `  sluice credential create orders-signer --scope key:sign:orders-* --component gateway
  sluice credential create ci --scope key:* --expires-in 720h --out ci.credential
  sluice credential create admin --tenant acme --scope tenant:admin --out acme.credential`,
		Args: argument("NAME"),
	}
	f := c.Flags()
	// Not a StringSlice: it splits values at commas.
	f.StringArrayVar(&in.Scopes, "scope", nil, "`SCOPE`, what it may do (required); repeat for more")
	f.StringVar(&in.Project, "project", "", "`PROJECT` that it works in (default: default)")
	f.StringVar(&in.Component, "component", "", "`NAME` of the consumer inside the tenant that uses it, for the usage reports")
	f.DurationVar(&expiresIn, "expires-in", 0, "`DURATION` until it expires, such as 720h (default: it does not)")
	f.StringVar(&expiresAt, "expires-at", "", "`TIME` when it expires, as RFC 3339")
	f.StringArrayVar(&networks, "network", nil, "`CIDR` of a network from which it may be used, repeated (default: from anywhere)")
	f.StringVar(&file, "out", "", "write the token to this `FILE`, mode 0600, instead of printing it")
	c.MarkFlagsMutuallyExclusive("expires-in", "expires-at")
	choices(c, "scope", "key:*", "key:manage", "key:destroy", "key:sign:", "key:verify:", "key:encrypt:", "key:decrypt:", "key:mac:", "secret:read:", "secret:list", "secret:manage", "secret:destroy", "secret:report", "route:read", "route:manage", "route:report", "tenant:admin", "usage:read",
		"role:key-user", "role:key-user:", "role:tenant-admin", "role:operator-admin", "role:operator-auditor")
	noCompletion(c, "project", "component", "expires-in", "expires-at", "network")
	s := p.session(c)
	s.tenantFlag()
	s.approvalFlag()
	return s.verb(func(s *session) (err error) {
		in.Name = s.args[0]
		if len(in.Scopes) == 0 {
			return usage(c, "--scope is missing")
		}
		if in.ExpiresAt, err = expiry(c, expiresIn, expiresAt); err != nil {
			return err
		}
		for _, n := range networks {
			prefix, err := netip.ParsePrefix(n)
			if err != nil {
				return usage(c, "--network must be a network such as 10.0.0.0/8")
			}
			in.Networks = append(in.Networks, prefix)
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		minted, err := api.CreateCredential(ctx, s.tenant, in)
		if err != nil {
			return err
		}
		return s.showMinted(minted, file)
	})
}

func expiry(c *cobra.Command, in time.Duration, at string) (time.Time, error) {
	switch {
	case in < 0:
		return time.Time{}, usage(c, "--expires-in must be positive")
	case in > 0:
		return time.Now().Add(in).UTC().Truncate(time.Second), nil
	case at == "":
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return time.Time{}, usage(c, "--expires-at must be a time such as 2030-01-31T12:00:00Z")
	}
	return t.UTC(), nil
}

func (p *program) credentialList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List credentials",
		Long:  "List a tenant's credentials by name, without their secrets.",
		Example: `  sluice credential list
  sluice credential list --tenant acme`,
		Args: noArguments,
	}
	limitFlag(c, &limit, "credentials")
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		list, err := collect(api.ListCredentials(ctx, s.tenant), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Credentials []*client.Credential `json:"credentials"`
		}{list}, func(w io.Writer) error {
			rows := make([][]string, len(list))
			for i, c := range list {
				rows[i] = []string{c.Name, c.ID, c.Project, validity(c), strings.Join(c.Scopes, " ")}
			}
			return table(w, []string{"NAME", "ID", "PROJECT", "VALID", "SCOPES"}, rows)
		})
	})
}

// validity says in a word until when a credential is valid.
func validity(c *client.Credential) string {
	switch {
	case !c.RevokedAt.IsZero():
		return "revoked"
	case c.ExpiresAt.IsZero():
		return "until revoked"
	}
	return "until " + date(c.ExpiresAt)
}

func (p *program) credentialGet() *cobra.Command {
	return p.credentialVerb(&cobra.Command{
		Use:     "get ID",
		Short:   "Show a credential",
		Long:    "Show a credential, without its secrets.",
		Example: "  sluice credential get 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		c, err := api.GetCredential(ctx, s.tenant, id)
		return s.showCredential(c, err)
	})
}

func (p *program) credentialRotate() *cobra.Command {
	var hours int
	var file string
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a credential a new secret",
		Long: `Give a credential a new secret. Its token is printed this once and cannot be had
again; with --out it goes to a file of mode 0600 instead. The old secret stays
valid for the overlap, so that programs can change over.`,
		Example: `  sluice credential rotate 01920c5e-0000-7000-8000-000000000000 --out ci.credential
  sluice credential rotate 01920c5e-0000-7000-8000-000000000000 --overlap-hours 0`,
	}
	f := c.Flags()
	f.IntVar(&hours, "overlap-hours", 24, "`NUMBER` of hours for which the old secret stays valid, 0 to 720; 0 ends it at once")
	f.StringVar(&file, "out", "", "write the token to this `FILE`, mode 0600, instead of printing it")
	noCompletion(c, "overlap-hours")
	s := p.session(c)
	s.approvalFlag()
	return p.credentialSession(c, s, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		minted, err := api.RotateCredential(ctx, s.tenant, id, client.RotateCredentialInput{OverlapHours: &hours})
		if err != nil {
			return err
		}
		return s.showMinted(minted, file)
	})
}

func (p *program) credentialRevoke() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:     "revoke ID",
		Short:   "End a credential at once and for good",
		Long:    "End a credential at once and for good: whoever still uses it is refused.",
		Example: "  sluice credential revoke 01920c5e-0000-7000-8000-000000000000",
	}
	confirm.flag(c)
	return p.credentialVerb(c, func(s *session, id string) error {
		if err := confirm.ask(s, "The credential %s ends now, for good.", id); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		c, err := api.RevokeCredential(ctx, s.tenant, id)
		return s.showCredential(c, err)
	})
}

func (p *program) credentialClear() *cobra.Command {
	return p.credentialVerb(&cobra.Command{
		Use:   "clear ID",
		Short: "End a credential's flag",
		Long: `End the flag of a credential that was used in an unusual way, because all is in
order: what was unusual is usual from now on, and what followed ends. What was
unusual is shown by "sluice credential get ID". No credential clears itself.`,
		Example: "  sluice credential clear 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		c, err := api.ClearCredential(ctx, s.tenant, id)
		return s.showCredential(c, err)
	})
}

func (p *program) credentialEnrol() *cobra.Command {
	return p.credentialVerb(&cobra.Command{
		Use:   "enrol ID",
		Short: "Give a credential a key of one-time codes",
		Long: `Give a credential a key of one-time codes, in place of the one that it may have.
It is printed this once, as an otpauth URI, for an authenticator. When the
credential is flagged and the policy wants a second factor, a code proves it:
SLUICE_ONE_TIME_CODE holds the code for the verbs of this program, or
SLUICE_SECOND_CREDENTIAL_FILE names the file of another credential of the tenant.`,
		Example: "  sluice credential enrol 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		e, err := api.EnrolOneTimeCode(ctx, s.tenant, id)
		if err != nil {
			return err
		}
		s.say("This is the only time that the key is shown. Whoever has it can make the codes: keep it secret.")
		return s.show(e, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, e.URI)
			return err
		})
	})
}

func (s *session) showCredential(c *client.CredentialOutput, err error) error {
	if err != nil {
		return err
	}
	return s.show(c, func(w io.Writer) error { return credentialDetails(w, &c.Credential) })
}

func credentialDetails(w io.Writer, c *client.Credential) error {
	var networks, secrets []string
	for _, n := range c.Networks {
		networks = append(networks, n.String())
	}
	for _, s := range c.Secrets {
		text := "made " + date(s.CreatedAt)
		if !s.ExpiresAt.IsZero() {
			text += ", valid until " + date(s.ExpiresAt)
		}
		secrets = append(secrets, text)
	}
	return details(w, field{"Name", c.Name}, field{"Id", c.ID}, field{"Project", c.Project}, field{"Component", c.Component},
		field{"Scopes", strings.Join(c.Scopes, " ")}, field{"Networks", strings.Join(networks, " ")},
		field{"Valid", validity(c)}, field{"Secrets", strings.Join(secrets, "; ")}, field{"Created", date(c.CreatedAt)},
		field{"Flag", flagText(c.Guard)}, field{"Codes", codesText(c.Guard)})
}

// flagText says what is known against a credential, "" for nothing.
func flagText(g *client.CredentialGuard) string {
	if g == nil || g.FlaggedAt.IsZero() {
		return ""
	}
	text := "open since " + date(g.FlaggedAt) + " (" + g.Action + ")"
	switch {
	case g.Open && !g.EndsAt.IsZero():
		text += ", ends " + date(g.EndsAt)
	case !g.Open && g.ClearedAt.After(g.FlaggedAt):
		text = "cleared " + date(g.ClearedAt)
	case !g.Open:
		text = "ended " + date(g.EndsAt)
	}
	if !g.Open {
		return text
	}
	if g.ProvenUntil.After(g.FlaggedAt) {
		text += ", proven until " + date(g.ProvenUntil)
	}
	for _, r := range g.Signals {
		text += "; " + r.Signal + ": " + r.Text
	}
	return text
}

func codesText(g *client.CredentialGuard) string {
	if g == nil || g.OneTimeCodeSince.IsZero() {
		return ""
	}
	return "one-time codes since " + date(g.OneTimeCodeSince)
}

// showMinted shows a credential with its new token, which goes to the file or,
// without one, to standard output, so that
//
//	TOKEN=$(sluice credential create …)
//
// holds the token and nothing else; what a person wants to know beside it goes
// to standard error.
func (s *session) showMinted(m *client.MintedCredential, file string) error {
	if file != "" {
		if err := s.writeFile(file, []byte(m.Token.Reveal()+"\n")); err != nil {
			// Better a token on the terminal than one that nobody has.
			s.say("the token is not in the file; this is the only time that it is shown:")
			fmt.Fprintln(s.cmd.ErrOrStderr(), m.Token.Reveal())
			return err
		}
		return s.show(&client.CredentialOutput{Credential: m.Credential, Charge: m.Charge},
			func(w io.Writer) error { return credentialDetails(w, &m.Credential) })
	}
	if !s.json {
		if err := credentialDetails(s.cmd.ErrOrStderr(), &m.Credential); err != nil {
			return err
		}
	}
	s.say("This is the only time that the token is shown. Whoever has it can do what it may: keep it secret.")
	return s.show(struct {
		client.Credential
		Token string `json:"credential"`
		client.Charge
	}{m.Credential, m.Token.Reveal(), m.Charge}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, m.Token.Reveal())
		return err
	})
}
