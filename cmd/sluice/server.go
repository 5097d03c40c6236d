package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

func newServer() *cobra.Command {
	var path, operatorFile string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the service as a configuration file says",
		Long: `Run the service as a configuration file says.

Settings come from the YAML file and from the environment (SLUICE_ and the
upper-case path, "__" between levels, for instance SLUICE_DATABASE__PATH); the
environment wins. Unknown settings are errors. PINs are in files that the
configuration names, never in it. The domain's description comes from
"sluice hsm init".

With --operator-credential the first start, which finds no credential of an
operator, mints one and writes it to the file (0600).`,
		Example: `  sluice server --config /etc/sluice/sluice.yaml
  sluice server --config sluice.yaml --operator-credential /run/operator.credential`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			config, err := wire.LoadConfig(path, os.Environ)
			if err != nil {
				return err
			}
			log := newLog(slog.LevelInfo)
			app, err := wire.Open(cmd.Context(), config, log)
			if err != nil {
				return err
			}
			if operatorFile != "" {
				if err := app.OperatorCredential(cmd.Context(), operatorFile); err != nil {
					app.Close()
					return fmt.Errorf("minting the operator's credential: %w", err)
				}
			}
			return serve(cmd.Context(), app, config, log, func(api, ops net.Addr) {
				log.Info("serving", slog.String("api", api.String()), slog.String("ops", ops.String()))
			})
		},
	}
	c.Flags().StringVar(&path, "config", "", "configuration file, YAML (required)")
	c.Flags().StringVar(&operatorFile, "operator-credential", "", "file for the first operator's credential, written if none exists yet")
	c.MarkFlagRequired("config")
	c.MarkFlagFilename("config", "yaml", "yml")
	return c
}
