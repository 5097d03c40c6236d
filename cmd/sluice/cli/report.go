package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// Exit codes of the program.
const (
	exitFailure  = 1
	exitUsage    = 2
	exitNotValid = 3
)

// errNotValid ends a verification whose answer, already printed, is no.
var errNotValid = errors.New("not valid")

// usageError is an error of the command line.
type usageError struct {
	command string
	text    string
}

func (e *usageError) Error() string {
	return fmt.Sprintf(`%s; see "%s --help"`, e.text, e.command)
}

func usage(c *cobra.Command, format string, args ...any) error {
	return &usageError{command: c.CommandPath(), text: fmt.Sprintf(format, args...)}
}

// UsageError marks an error as one of the command line, which ends the program
// with exit code 2. It is made for SetFlagErrorFunc of the root command; the
// commands of this package have it already.
func UsageError(c *cobra.Command, err error) error { return usage(c, "%v", err) }

// Report writes the error of a run of the root command as one line and
// returns the program's exit code.
func Report(w io.Writer, err error) int {
	if errors.Is(err, errNotValid) {
		return exitNotValid
	}
	line := "sluice: " + printable(err.Error())
	if h := hint(err); h != "" {
		line += "; hint: " + h
	}
	fmt.Fprintln(w, line)
	if isUsage(err) {
		return exitUsage
	}
	return exitFailure
}

// isUsage tells whether the command line is wrong. An unknown command is an
// error of cobra that has no type, and reaches no function of ours.
func isUsage(err error) bool {
	_, ok := errors.AsType[*usageError](err)
	return ok || strings.HasPrefix(err.Error(), "unknown command ")
}

// hints say what usually helps.
var hints = map[client.Code]string{
	client.ErrUnauthenticated:     "check the credential (--credential-file, " + envCredentialFile + ", " + envCredential + ") and the address",
	client.ErrNotFound:            "the name may be another tenant's or project's; the list verbs show what this credential sees",
	client.ErrKeyDisabled:         `"sluice key enable KEY" switches it on`,
	client.ErrPendingDeletion:     `"sluice key cancel-deletion KEY" takes the deletion back`,
	client.ErrDecryptionFailed:    "check the key, the additional data (--aad) and, for SM2, the --order",
	client.ErrSecondFactor:        "set " + envOneTimeCode + " to a code of the credential, or " + envSecondFile + " to the file of another one of the tenant; \"sluice credential clear ID\" with another one ends it",
	client.ErrCredentialSuspended: `"sluice credential get ID" with another credential says why, and "sluice credential clear ID" ends it`,
	client.ErrQuotaExhausted:      "a total of the tenant is used up; an operator can raise its tier",
}

func hint(err error) string {
	e, refused := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, client.ErrApprovalRequired) && refused:
		return printable(fmt.Sprintf(`another operator runs "sluice approval approve %[1]s"; then repeat this with --approval %[1]s`, e.Approval))
	case refused && slices.ContainsFunc(e.Reasons, func(r client.Reason) bool { return r.Code == client.ReasonCapacity }):
		return `"sluice capacity" shows what was sold; --force sells more`
	case refused && e.RetryAfter > 0:
		return fmt.Sprintf("try again in %v", e.RetryAfter.Round(time.Second))
	case refused:
		return hints[e.Code]
	case errors.Is(err, context.DeadlineExceeded):
		return "--timeout gives it more time"
	case errors.Is(err, client.ErrNoAnswer):
		return `is the service running? "sluice dev" starts one here; --address and ` + envAddress + " name another"
	}
	return ""
}

// printable makes a text safe to show on a terminal: one line, and no control
// characters, which could come from a server that is not ours.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
