package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// Where the service is, and how long a verb may take by default: longer than
// the longest wait of an interactive call and the generation of an RSA key.
const (
	defaultAddress = "http://127.0.0.1:8440"
	defaultTimeout = 30 * time.Second
)

// Environment of the verbs.
const (
	envAddress        = "SLUICE_ADDRESS"
	envCredential     = "SLUICE_CREDENTIAL"
	envCredentialFile = "SLUICE_CREDENTIAL_FILE"
	// A flagged credential is proven by one of these. They are no flags: a
	// command line can be read by every user of the machine.
	envOneTimeCode = "SLUICE_ONE_TIME_CODE"
	envSecondFile  = "SLUICE_SECOND_CREDENTIAL_FILE"
)

// session is one run of a verb.
type session struct {
	*program
	cmd  *cobra.Command
	args []string

	address        string
	credentialFile string
	timeout        time.Duration
	json           bool
	// operator tells whether the default credential is the operator's.
	operator bool
	// tenant that an operator acts on; "" for the credential's own.
	tenant string
	// approval of another operator, "" for none.
	approval string

	client *client.Client // nil until connect
	cancel context.CancelFunc
}

// verb is a verb that calls the service; its own flags are defined before.
func (p *program) verb(c *cobra.Command, run func(*session) error) *cobra.Command {
	return p.session(c).verb(run)
}

// operatorVerb is a verb that takes an operator's credential.
func (p *program) operatorVerb(c *cobra.Command, run func(*session) error) *cobra.Command {
	s := p.session(c)
	s.operator = true
	return s.verb(run)
}

// keyVerb is a verb whose argument is a key.
func (p *program) keyVerb(c *cobra.Command, run func(s *session, key string) error) *cobra.Command {
	s := p.session(c)
	c.Args = argument("KEY")
	c.ValidArgsFunction = s.completeAt(0, keyNames)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

func (p *program) session(c *cobra.Command) *session {
	c.Flags().SortFlags = false
	return &session{program: p, cmd: c}
}

// verb completes the command of a session with the flags that all verbs have
// which call the service, after its own.
func (s *session) verb(run func(*session) error) *cobra.Command {
	c := s.cmd
	f := c.Flags()
	f.BoolVar(&s.json, "json", false, "print the JSON of the API")
	f.StringVar(&s.address, "address", defaultAddress, "`URL` of the service; environment "+envAddress)
	f.StringVar(&s.credentialFile, "credential-file", "",
		"`FILE` with the credential; environment "+envCredentialFile+", or the credential itself in "+envCredential)
	f.DurationVar(&s.timeout, "timeout", defaultTimeout, "time for all calls of the verb, repetitions included")
	noCompletion(c, "address", "timeout")

	return s.finish(run)
}

// local is a verb that calls no service.
func (p *program) local(c *cobra.Command, run func(*session) error) *cobra.Command {
	s := p.session(c)
	c.Flags().BoolVar(&s.json, "json", false, "print JSON")
	return s.finish(run)
}

// finish gives the command what it runs, and marks errors of its command line.
func (s *session) finish(run func(*session) error) *cobra.Command {
	c := s.cmd
	c.SetFlagErrorFunc(UsageError)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateFlagGroups(); err != nil {
			return usage(c, "%v", err)
		}
		return nil
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		s.args = args
		defer s.close()
		err := run(s)
		if dry, asked := errors.AsType[*client.DryRun](err); asked {
			return s.showDryRun(dry)
		}
		return err
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}

// connect makes the client and starts the time for its calls. What a verb
// reads from a person or a pipe it reads before.
func (s *session) connect() (context.Context, *client.Client, error) {
	if s.timeout <= 0 {
		return nil, nil, usage(s.cmd, "--timeout must be more than 0")
	}
	if err := s.checkApproval(); err != nil {
		return nil, nil, err
	}
	ctx, c, err := s.dial(s.timeout, client.DefaultMaxAttempts)
	if err == nil && s.approval != "" {
		c = c.WithApproval(s.approval)
	}
	if err == nil && s.dryRun() {
		c = c.WithDryRun()
	}
	return ctx, c, err
}

func (s *session) dial(timeout time.Duration, attempts int) (context.Context, *client.Client, error) {
	address := s.address
	if env := os.Getenv(envAddress); env != "" && !s.cmd.Flags().Changed("address") {
		address = env
	}
	token, err := s.credential()
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Options{
		Address: address, Credential: token, UserAgent: "sluice-cli/" + s.version, MaxAttempts: attempts,
	})
	if err != nil {
		return nil, nil, usage(s.cmd, "%v", err)
	}
	ctx, cancel := context.WithTimeout(s.cmd.Context(), timeout)
	s.client, s.cancel = c, cancel
	proven, err := s.prove(c)
	return ctx, proven, err
}

// prove lets the calls carry the second factor of the environment.
func (s *session) prove(c *client.Client) (*client.Client, error) {
	if code := os.Getenv(envOneTimeCode); code != "" {
		c = c.WithOneTimeCode(code)
	}
	if file := os.Getenv(envSecondFile); file != "" {
		token, err := s.readCredential(file)
		if err != nil {
			return nil, err
		}
		c = c.WithSecondCredential(token)
	}
	return c, nil
}

func (s *session) close() {
	if s.client != nil {
		s.cancel()
		s.client.Close()
	}
}

// argument checks that there is exactly one argument.
func argument(name string) cobra.PositionalArgs { return arguments(name) }

// arguments checks that there is an argument for every name, and no other.
func arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(c, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return usage(c, "there are arguments after %s", names[len(names)-1])
		}
		return nil
	}
}

// noArguments checks that there are none.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(c, "it takes no arguments")
	}
	return nil
}

// must is for errors of the command tree itself, which the tests would show.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
