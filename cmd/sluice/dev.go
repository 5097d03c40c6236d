package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

func newDev() *cobra.Command {
	var dir, listen, ops string
	var nodes int
	var verbose, twoOperators bool
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole service on this machine, on SoftHSM and SQLite",
		Long: `Run a whole service on this machine, for development and for trying things out.

The first start makes everything in the data folder: SoftHSM tokens and the
offline backup tokens of their root keys, the database, the journal, an
operator's credential and a demo tenant with its own. Later starts find it as
it was left, also after a crash. The folder holds the tokens' PINs, so it is as
secret as the keys are.`,
		Example: `  sluice dev
  sluice dev --data-dir try --listen 127.0.0.1:9440 --ops-listen 127.0.0.1:9441 --nodes 4`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelInfo
			}
			log := newLog(level)
			d := &wire.Dev{Dir: dir, Nodes: nodes, Log: log, TwoOperators: twoOperators, Progress: func(what string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "sluice dev: %s\n", what)
			}}
			app, config, err := d.Open(cmd.Context())
			if err != nil {
				return err
			}
			config.Listen, config.OpsListen = listen, ops
			if err := config.Validate(); err != nil {
				app.Close()
				return err
			}
			return serve(cmd.Context(), app, config, log, func(api, ops net.Addr) {
				welcome(cmd.OutOrStdout(), d.Dir, api, ops)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "data-dir", ".sluice", "folder that holds everything; made if it does not exist")
	f.StringVar(&listen, "listen", wire.DefaultListen, "address of the API, on loopback")
	f.StringVar(&ops, "ops-listen", wire.DefaultOpsListen, "address of /livez, /readyz, /metrics and pprof, on loopback")
	f.IntVar(&nodes, "nodes", 2, fmt.Sprintf("HSM nodes (SoftHSM tokens), 1 to %d", wire.MaxDevNodes))
	f.BoolVar(&twoOperators, "two-operators", false, "have what destroys take two operators, as sluice server does")
	f.BoolVarP(&verbose, "verbose", "v", false, "log more than warnings and errors")
	return c
}

// welcome prints what to paste next.
func welcome(w io.Writer, dir string, api, ops net.Addr) {
	credential := filepath.Join(dir, wire.DemoCredentialFile)
	fmt.Fprintf(w, `Sluice is ready.

  API         http://%[1]s        (OpenAPI document: /openapi.json)
  operations  http://%[2]s        (/livez /readyz /metrics /debug/pprof/)
  credentials %[3]s   the demo tenant's
              %[4]s   the operator's

Try it:

  credential=$(cat %[3]s)
  curl -sS -H "Authorization: Bearer $credential" -H 'Content-Type: application/json' \
    http://%[1]s/v1/keys -d '{"name":"orders","spec":"ECC_NIST_P256"}'
  curl -sS -H "Authorization: Bearer $credential" -H 'Content-Type: application/json' \
    http://%[1]s/v1/keys/orders/sign -d '{"message":"aGVsbG8="}'

`, api, ops, credential, filepath.Join(dir, wire.OperatorCredentialFile))
}
