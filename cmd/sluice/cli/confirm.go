package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// maxConfirmation bounds what is read of an answer, in bytes.
const maxConfirmation = 64

// confirmation is the flag --yes of a verb that cannot be taken back, or not
// easily.
type confirmation struct{ yes bool }

func (k *confirmation) flag(c *cobra.Command) {
	c.Flags().BoolVar(&k.yes, "yes", false, "do not ask for confirmation")
}

// ask asks on the terminal, unless --yes was given or nothing will be done. Where there is no
// terminal, --yes must be.
func (k *confirmation) ask(s *session, format string, args ...any) error {
	if k.yes || s.dryRun() {
		return nil
	}
	if !s.interactive(s.cmd.InOrStdin()) {
		return noTerminal(s.cmd)
	}
	return askYes(s.cmd, fmt.Sprintf(format, args...))
}

// Confirm asks on the command's terminal whether to go on. It is for commands
// that need no service; their flag --yes says not to ask.
func Confirm(c *cobra.Command, what string) error {
	if !isTerminal(c.InOrStdin()) {
		return noTerminal(c)
	}
	return askYes(c, what)
}

func noTerminal(c *cobra.Command) error {
	return usage(c, "there is no terminal to ask for confirmation on; give --yes")
}

func askYes(c *cobra.Command, what string) error {
	fmt.Fprintf(c.ErrOrStderr(), "%s Type yes to go on: ", printable(what))
	answer, err := bufio.NewReader(io.LimitReader(c.InOrStdin(), maxConfirmation)).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return fmt.Errorf("not confirmed; nothing was done")
	}
	return nil
}
