// Command sluice is the key service and its command-line client in one
// binary: `sluice dev`, `sluice server`, `sluice hsm init`, `sluice audit
// verify`, and the client verbs (`sluice key create`, `sluice sign`, …).
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/cli"
)

func main() {
	// os.Exit ends the process without the exit handlers of C libraries:
	// SoftHSM's crash when its OpenSSL is gone first.
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	return cli.Report(os.Stderr, err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A multi-tenant key service on shared HSMs",
		Long: `Sluice shares a small pool of HSMs (PKCS#11) among many tenants over one REST API.

Start one on this machine with "sluice dev", then, in another terminal:

  sluice key create --spec ECC_NIST_P256 orders
  echo -n "hello" | sluice sign orders`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(cli.UsageError)
	root.AddCommand(newDev(), newServer(), newBackup(), newRestore(), newHSMWorker())
	for _, c := range cli.Commands(version()) {
		if c.Name() == "audit" {
			c.AddCommand(newAuditVerify(), newAuditKey())
		}
		if c.Name() == "hsm" {
			c.AddCommand(newHSMInit(), newHSMJoin(), newHSMRotateRoot(), newHSMRewrap(), newHSMRetireRoot(), newHSMBackupCheck())
		}
		root.AddCommand(c)
	}
	return root
}

// version is the module's version and the revision that the binary was built
// from, as far as the build recorded them.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v = fmt.Sprintf("%s (%s)", v, s.Value[:12])
		}
	}
	return v
}
