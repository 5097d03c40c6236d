package cli_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-kms/sluice/cmd/sluice/cli"
)

// walk visits every command of the tree, groups included.
func walk(t *testing.T, visit func(*testing.T, *cobra.Command)) {
	root := &cobra.Command{Use: "sluice"}
	root.AddCommand(cli.Commands("test")...)
	var descend func(*cobra.Command)
	descend = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			t.Run(strings.TrimPrefix(sub.CommandPath(), "sluice "), func(t *testing.T) { visit(t, sub) })
			descend(sub)
		}
	}
	descend(root)
}

// verbs is what the product promises.
var verbs = []string{
	"approval approve", "approval get", "approval list", "audit export", "audit query", "audit tail", "batch", "bench compare", "bench list", "bench run", "capacity",
	"credential clear", "credential create", "credential enrol", "credential get", "credential list", "credential revoke", "credential rotate",
	"csr", "datakey", "decapsulate", "decrypt", "derive", "digest", "encapsulate", "encrypt", "hsm cold", "hsm drain", "hsm enable", "hsm map",
	"hsm self-test", "hsm standby", "hsm status",
	"job cancel", "job get", "job list", "job results", "job submit", "job watch",
	"key alias delete", "key alias list", "key alias set",
	"key cancel-deletion", "key create", "key disable", "key enable", "key get", "key import", "key import-parameters", "key list", "key rotate", "key rotation",
	"key schedule-deletion", "key update",
	"key version cancel-destruction", "key version disable", "key version enable", "key version schedule-destruction",
	"mac", "policy apply", "policy diff", "policy get", "policy history", "policy rollback", "policy validate", "project create", "project list", "public", "quota incidents", "quota lift-stop", "quota tenants", "random", "reencrypt",
	"route delete", "route get", "route list", "route put", "route report",
	"secret activate", "secret delete", "secret destroy", "secret disable", "secret get", "secret grant", "secret list", "secret put", "secret restore", "secret rollback", "secret versions", "secret watch", "shared-secret", "sign",
	"tenant create", "tenant delete", "tenant get", "tenant list", "tenant resume", "tenant suspend", "tenant update",
	"top", "unwrap", "usage bill", "usage service-level", "verify", "verify-mac", "webhook create", "webhook delete", "webhook get", "webhook list", "webhook test", "why", "wrap",
}

// local are the verbs that call no service.
var local = []string{"bench compare", "bench list"}

// readers are the verbs on keys that neither use one nor change anything.
var readers = []string{"job get", "job list", "job results", "job watch", "key alias list", "key get", "key import-parameters", "key list", "public"}

func TestEveryVerbOnKeysThatDoesSomethingCanBeTried(t *testing.T) {
	walk(t, func(t *testing.T, c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "sluice ")
		family, _, _ := strings.Cut(path, " ")
		if c.HasSubCommands() || slices.Contains([]string{"approval", "audit", "bench", "capacity", "credential", "hsm", "policy", "project", "quota", "route", "secret", "tenant", "top", "usage", "webhook", "why"}, family) {
			return
		}
		if can := c.Flags().Lookup("dry-run") != nil; can == slices.Contains(readers, path) {
			t.Errorf("it has --dry-run: %v", can)
		}
	})
}

func TestTheVerbsAreThosePromised(t *testing.T) {
	var got []string
	walk(t, func(_ *testing.T, c *cobra.Command) {
		if !c.HasSubCommands() {
			got = append(got, strings.TrimPrefix(c.CommandPath(), "sluice "))
		}
	})
	slices.Sort(got)
	if !slices.Equal(got, verbs) {
		t.Errorf("the verbs are %q", got)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	walk(t, func(t *testing.T, c *cobra.Command) {
		if c.Short == "" || c.Long == "" {
			t.Error("it has no Short or no Long")
		}
		if first, _ := utf8.DecodeRuneInString(c.Short); !unicode.IsUpper(first) || strings.HasSuffix(c.Short, ".") {
			t.Errorf("Short %q is not a phrase with a capital and without a full stop", c.Short)
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
				t.Errorf("a line of its help has %d characters: %s", n, line)
			}
		}
		var help bytes.Buffer
		c.SetOut(&help)
		if err := c.Help(); err != nil || !strings.HasPrefix(help.String(), c.Long) {
			t.Errorf("its help is %q, %v", help.String(), err)
		}
		if c.HasSubCommands() {
			return
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("it has no example with %q", c.CommandPath())
		}
		for _, name := range []string{"json", "address", "credential-file", "timeout"} {
			if path := strings.TrimPrefix(c.CommandPath(), "sluice "); name != "json" && slices.Contains(local, path) {
				continue
			}
			if c.Flags().Lookup(name) == nil {
				t.Errorf("it has no flag --%s", name)
			}
		}
	})
}

func TestEveryFlagHasItsUsageAndCompletes(t *testing.T) {
	walk(t, func(t *testing.T, c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			value, text := pflag.UnquoteUsage(f)
			if text == "" {
				t.Errorf("--%s has no usage", f.Name)
			}
			if f.Value.Type() == "bool" || value == "FILE" {
				return // nothing to complete, and what the shell completes
			}
			if _, completes := c.GetFlagCompletionFunc(f.Name); !completes {
				t.Errorf("--%s offers the names of files", f.Name)
			}
		})
	})
}

// Other users of a machine see the arguments of every process.
func TestNoSecretIsTakenFromTheCommandLine(t *testing.T) {
	secret := []string{"credential", "token", "secret", "password", "plaintext", "pin"}
	walk(t, func(t *testing.T, c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value == "FILE" {
				return
			}
			for part := range strings.SplitSeq(f.Name, "-") {
				if slices.Contains(secret, part) {
					t.Errorf("--%s takes a secret", f.Name)
				}
			}
		})
		if f := c.Flags().Lookup("message"); f != nil && (c.Name() == "encrypt" || c.Name() == "decrypt") {
			t.Error("it takes a plaintext as --message")
		}
	})
}
