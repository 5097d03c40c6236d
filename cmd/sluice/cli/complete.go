package cli

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// Bounds of a completion that asks the service: a person is waiting for the
// key that he pressed, and reads no more names than these.
const (
	completionTimeout = 1500 * time.Millisecond
	maxCompletions    = 200
)

// names lists candidates with a word about each, as many as can be had.
type names func(context.Context, *client.Client) iter.Seq[cobra.Completion]

func keyNames(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for k, err := range c.ListKeys(ctx, client.ListKeysInput{PageSize: maxCompletions}) {
			if err != nil || !yield(cobra.CompletionWithDesc(k.Name, string(k.Spec)+" "+string(k.State))) {
				return
			}
		}
	}
}

func aliasNames(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for a, err := range c.ListAliases(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(a.Name, a.KeyID)) {
				return
			}
		}
	}
}

func tenantNames(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for t, err := range c.ListTenants(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(t.Name, string(t.Tier)+" "+string(t.State))) {
				return
			}
		}
	}
}

// credentialIDs lists the live credentials of the tenant acted on.
func (s *session) credentialIDs(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for cr, err := range c.ListCredentials(ctx, s.tenant) {
			if err != nil {
				return
			}
			if cr.RevokedAt.IsZero() && !yield(cobra.CompletionWithDesc(cr.ID, cr.Name)) {
				return
			}
		}
	}
}

// completeAt completes the argument at a place, from 0, with names from the
// service. It is silent when they cannot be had.
func (s *session) completeAt(place int, n names) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != place {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.ask(n, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes a flag with names from the service.
func (s *session) completeFlag(flag string, n names) {
	must(s.cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return s.ask(n, typed), cobra.ShellCompDirectiveNoFileComp
	}))
}

// tenantFlag adds --tenant to a verb that acts on the own tenant or, for
// operators, on any.
func (s *session) tenantFlag() {
	s.cmd.Flags().StringVar(&s.tenant, "tenant", "", "act on this `TENANT`, as an operator (default: the credential's own)")
	must(s.cmd.RegisterFlagCompletionFunc("tenant", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		s.operator = true
		return s.ask(tenantNames, typed), cobra.ShellCompDirectiveNoFileComp
	}))
}

func (s *session) ask(n names, typed string) []cobra.Completion {
	ctx, c, err := s.dial(completionTimeout, 1)
	if err != nil {
		return nil
	}
	defer s.close()
	var found []cobra.Completion
	seen := 0
	for candidate := range n(ctx, c) {
		if strings.HasPrefix(candidate, typed) {
			found = append(found, candidate)
		}
		if seen++; seen == maxCompletions {
			break
		}
	}
	return found
}

// noCompletion keeps the shell from offering files for flags that take none.
func noCompletion(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		must(c.RegisterFlagCompletionFunc(f, cobra.NoFileCompletions))
	}
}

// choices completes a flag with fixed values.
func choices[T ~string](c *cobra.Command, flag string, values ...T) {
	list := make([]cobra.Completion, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	must(c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)))
}

func specs() []kms.Spec {
	var list []kms.Spec
	for _, i := range kms.Specs() {
		list = append(list, i.Spec)
	}
	return list
}

// algorithms lists the algorithms of a usage in the order of the specs.
func algorithms(u kms.Usage) []kms.Algorithm {
	var list []kms.Algorithm
	for _, i := range kms.Specs() {
		for _, a := range i.Algorithms(u) {
			if !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}
