package cli_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/cli"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sluice": func() { os.Exit(sluice()) }})
}

// sluice is the program, without the verbs that are not ours.
func sluice() int {
	root := &cobra.Command{Use: "sluice", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands("test")...)
	if err := root.Execute(); err != nil {
		return cli.Report(os.Stderr, err)
	}
	return 0
}

// TestScripts runs testdata/script against a service of canned answers. Beside
// the commands of testscript there are
//
//	code N command…   runs a command that must end with the exit code N
//	request           prints the last request that the service got, and as whom
//	mode FILE MODE    checks a file's mode
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			s := startService(t)
			e.Values["service"] = s
			e.Setenv("SLUICE_ADDRESS", s.URL)
			e.Setenv("SLUICE_CREDENTIAL", demoToken)
			e.Setenv("DEMO", demoToken)
			e.Setenv("OPERATOR", operatorToken)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code,
			"request": func(ts *testscript.TestScript, _ bool, _ []string) {
				fmt.Fprintln(ts.Stdout(), ts.Value("service").(*service).lastRequest())
			},
			"mode": mode,
		},
	})
}

func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, isExit := errors.AsType[*exec.ExitError](err)
		if !isExit {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}
