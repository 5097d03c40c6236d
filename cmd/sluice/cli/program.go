package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// program is what all verbs share.
type program struct {
	version string
	// interactive tells whether a stream is a terminal.
	interactive func(stream any) bool
}

// Commands returns the client verbs, for mounting under the root command. The
// version is sent to the service as part of the user agent.
func Commands(version string) []*cobra.Command {
	return (&program{version: version, interactive: isTerminal}).commands()
}

func (p *program) commands() []*cobra.Command {
	return []*cobra.Command{
		group("key", "Create and manage keys",
			"Create and manage keys. A key is named by its id or its name.",
			p.keyCreate(), p.keyImport(), p.keyImportParameters(), p.keyList(), p.keyGet(), p.keyUpdate(), p.keyRotate(), p.keyEnable(), p.keyDisable(),
			p.keyScheduleDeletion(), p.keyCancelDeletion(), p.keyRotation(), p.keyVersions(), p.keyAliases()),
		p.sign(), p.verify(), p.encrypt(), p.decrypt(), p.reencrypt(), p.mac(), p.verifyMAC(),
		p.dataKey(), p.wrap(), p.unwrap(), p.sharedSecret(), p.derive(), p.encapsulate(), p.decapsulate(),
		p.public(), p.csr(), p.random(), p.digest(), p.batch(),
		group("job", "Have many operations run that nobody waits for",
			"Have many operations run that nobody waits for: up to a million, at bulk urgency,\neach charged and recorded once whatever happens to the service.",
			p.jobSubmit(), p.jobWatch(), p.jobGet(), p.jobList(), p.jobResults(), p.jobCancel()),
		group("secret", "Keep keys of LLM providers",
			"Keep keys of LLM providers for gateways: versions that take over from each other in\nsteps, and who may read them. A secret is named by its path or its id.",
			p.secretPut(), p.secretGet(), p.secretList(), p.secretVersions(), p.secretActivate(), p.secretRollback(), p.secretDisable(),
			p.secretDestroy(), p.secretRestore(), p.secretDelete(), p.secretGrant(), p.secretWatch()),
		group("route", "Say over which providers calls of models go",
			"Say over which providers calls of models go, and see where they go now.",
			p.routePut(), p.routeGet(), p.routeList(), p.routeDelete(), p.routeReport()),
		group("tenant", "Create and manage tenants (operators)",
			"Create and manage tenants. "+operators,
			p.tenantCreate(), p.tenantList(), p.tenantGet(), p.tenantUpdate(), p.tenantSuspend(), p.tenantResume(), p.tenantDelete()),
		p.quota(), p.usageVerb(), p.why(), p.top(), p.capacity(),
		group("bench", "Measure this service, and others beside it",
			"Measure this service, and others beside it, under the same load on your own\nmachine.",
			p.benchRun(), p.benchList(), p.benchCompare()),
		group("audit", "Read the audit trail, and verify the journal",
			"Read the audit trail, which is a copy of all API nodes' journals, and verify a\njournal.",
			p.auditQuery(), p.auditTail(), p.auditExport()),
		group("webhook", "Have events sent to an address",
			"Have events sent to an address: that a tenant comes to a limit and, with an\noperator's credential, what concerns the service.",
			p.webhookCreate(), p.webhookList(), p.webhookGet(), p.webhookTest(), p.webhookDelete()),
		group("project", "Create and list projects",
			"Create and list projects, the namespaces inside a tenant.\n"+anyTenant,
			p.projectCreate(), p.projectList()),
		group("credential", "Mint and manage credentials",
			"Mint and manage credentials, which callers authenticate with.\n"+anyTenant,
			p.credentialCreate(), p.credentialList(), p.credentialGet(), p.credentialRotate(), p.credentialRevoke(),
			p.credentialClear(), p.credentialEnrol()),
		group("approval", "Approve what another operator asks for (operators)",
			"Approve what another operator asks for: the service can be set to want two for\nwhat cannot be taken back. "+operators,
			p.approvalList(), p.approvalGet(), p.approvalApprove()),
		group("policy", "Look at the policy and change it (operators)",
			"Look at the policy and change it: the document of every tier, price, line and\ntime, in versions. "+operators,
			p.policyGet(), p.policyValidate(), p.policyDiff(), p.policyApply(), p.policyHistory(), p.policyRollback()),
		group("hsm", "Look at the HSM pool and take nodes in and out (operators)",
			"Look at the HSM pool and take nodes in and out. "+operators,
			p.hsmStatus(), p.hsmMap(), p.hsmDrain(), p.hsmEnable(), p.hsmStandby(), p.hsmCold(), p.hsmSelfTest()),
	}
}

// What the help of several groups says.
const (
	operators = `It takes an operator's credential: without
--credential-file and environment the verbs look for ` + operatorCredentialFile + "."
	anyTenant = "With --tenant an operator does so in any tenant."
)

// group makes a command that only holds others.
func group(name, short, long string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Long: long,
		// Without a RunE, cobra answers an unknown verb with help and success.
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return usage(c, "%s has no such verb%s", c.CommandPath(), suggestion(c, args[0]))
		},
		Args: cobra.ArbitraryArgs,
		// The verbs are what completes.
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.SetFlagErrorFunc(UsageError)
	c.AddCommand(verbs...)
	return c
}

func suggestion(c *cobra.Command, typed string) string {
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2 // cobra's own default
	}
	for _, s := range c.SuggestionsFor(typed) {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}
