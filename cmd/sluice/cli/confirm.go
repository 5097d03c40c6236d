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
	in := s.cmd.InOrStdin()
	if !s.interactive(in) {
		return usage(s.cmd, "there is no terminal to ask for confirmation on; give --yes")
	}
	fmt.Fprintf(s.cmd.ErrOrStderr(), "%s Type yes to go on: ", printable(fmt.Sprintf(format, args...)))
	answer, err := bufio.NewReader(io.LimitReader(in, maxConfirmation)).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return fmt.Errorf("not confirmed; nothing was done")
	}
	return nil
}
