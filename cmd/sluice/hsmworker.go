package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

// newHSMWorker is for the service alone, which starts it for every token whose
// module runs in a process of its own.
func newHSMWorker() *cobra.Command {
	return &cobra.Command{
		Use:    wire.HSMWorkerCommand + " NODE",
		Short:  "Run a node's PKCS#11 module for the service that has started this",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// The name that ps and top show beside the arguments; it is for
			// operators, and has room for 15 bytes.
			if err := os.WriteFile("/proc/self/comm", []byte("hsm:"+args[0]), 0); err != nil {
				return fmt.Errorf("naming the process: %w", err)
			}
			if err := harden(); err != nil {
				return err
			}
			return wire.ServeHSM()
		},
	}
}
