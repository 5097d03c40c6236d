package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

func TestBackupTableTellsWhatIsWrong(t *testing.T) {
	good := wire.BackupCheck{ID: "b1", BackupReport: p11.BackupReport{Label: "vault", Serial: "0901", Generations: []uint32{1, 2}}}
	bad := wire.BackupCheck{ID: "b2", Err: errors.Join(errors.New("another root"), errors.New("a second fault"))}
	var out bytes.Buffer
	if err := backupTable(&out, []wire.BackupCheck{good}); err != nil {
		t.Errorf("in order: %v", err)
	}
	if err := backupTable(&out, []wire.BackupCheck{bad, good}); !errors.Is(err, errBackups) {
		t.Errorf("not in order: %v", err)
	}
	for _, want := range []string{"b1      vault  0901    1 2          ok\n", "b2      -      -       -            another root; a second fault\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestRewrapProgressIsShownOnceASecond(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	show := rewrapProgress(&out, func() time.Time { return now })
	p := kms.RewrapProgress{Tenants: 1, Versions: 20, Total: kms.RootUse{Tenants: 1, Versions: 100}, Elapsed: 2 * time.Second}
	show(p)
	show(p)
	now = now.Add(rewrapInterval)
	show(p)
	want := "sealing keys 1 of 1, versions 20 of 100, failed 0, 10 a second, 8s left\n"
	if out.String() != want+want {
		t.Errorf("shown: %q", out.String())
	}
}

// What cannot be taken back is asked for; without a terminal --yes must be
// given, before anything is opened.
func TestRootsAreNotRetiredWithoutConfirmation(t *testing.T) {
	program := buildProgram(t, t.TempDir())
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"retire-root, no terminal": {[]string{"hsm", "retire-root", "--config", "none", "--ceremony", "none", "--generation", "1"}, 2, "--yes"},
		"rewrap, no terminal":      {[]string{"hsm", "rewrap", "--config", "none", "--ceremony", "none"}, 2, "--yes"},
		"retire-root, no file":     {[]string{"hsm", "retire-root", "--config", "none", "--ceremony", "none", "--generation", "1", "--yes"}, 1, "none"},
		"retire-root of nothing":   {[]string{"hsm", "retire-root", "--config", "none", "--ceremony", "none", "--yes"}, 1, "generation"},
		"rotate-root, no file":     {[]string{"hsm", "rotate-root", "--ceremony", "none"}, 1, "none"},
		"backup-check, no file":    {[]string{"hsm", "backup-check", "--ceremony", "none"}, 1, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := runProgram(t, program, c.args...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, %s", code, out)
			}
		})
	}
}

// runProgram runs the program without a terminal and returns what it wrote and
// its exit code.
func runProgram(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// backup-check finds a token whose root is not the one of the description, and
// changes nothing.
func TestBackupCheckFindsAWrongRoot(t *testing.T) {
	wiretest.Require(t)
	program, dir := buildProgram(t, t.TempDir()), t.TempDir()
	dev := &wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.DiscardHandler)}
	app, config, err := dev.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	file := config.HSM.Domains[0].File
	ceremony := ceremonyOf(t, dir, file)
	out, code := runProgram(t, program, "hsm", "backup-check", "--ceremony", ceremony)
	if code != 0 || strings.Count(out, "ok\n") != 2 {
		t.Errorf("exit code %d, %s", code, out)
	}
	domain, err := wire.ReadDomain(file)
	if err != nil {
		t.Fatal(err)
	}
	domain.SealingRootCheck[0] ^= 1
	if err := wire.WriteDomain(file, domain); err != nil {
		t.Fatal(err)
	}
	out, code = runProgram(t, program, "hsm", "backup-check", "--ceremony", ceremony)
	if code != 1 || strings.Count(out, "another sluice sealing root") != 2 {
		t.Errorf("a wrong root: exit code %d, %s", code, out)
	}
	domain.SealingRootCheck[0] ^= 1
	if err := wire.WriteDomain(file, domain); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "backup-tokens", "backup-2")); err != nil {
		t.Fatal(err)
	}
	out, code = runProgram(t, program, "hsm", "backup-check", "--ceremony", ceremony)
	if code != 1 || strings.Count(out, "ok\n") != 1 {
		t.Errorf("a lost token: exit code %d, %s", code, out)
	}
}

// The commands, as two people at a terminal and an operator run them.
func TestRootsAreReplacedByTheCommands(t *testing.T) {
	wiretest.Require(t)
	program, dir := buildProgram(t, t.TempDir()), t.TempDir()
	dev := &wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.DiscardHandler)}
	app, config, err := dev.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	domain := config.HSM.Domains[0]
	ceremony := ceremonyOf(t, dir, domain.File)
	token := domain.Tokens[0]
	settings := filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "node: dev\ndata_dir: %s\nhsm:\n  domains:\n    - file: %s\n      tokens:\n        - {id: %s, module: %s, serial: %q, pin_file: %s}\n",
		dir, domain.File, token.ID, token.Module, token.Serial, token.PINFile), 0o600); err != nil {
		t.Fatal(err)
	}
	rotateRoot(t, program, ceremony)
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"backup-check", "--ceremony", ceremony}, 0, "1 2"},
		{[]string{"retire-root", "--config", settings, "--ceremony", ceremony, "--generation", "1", "--yes"}, 1, "2 tenants and 1 versions of keys are stored"},
		{[]string{"rewrap", "--config", settings, "--ceremony", ceremony, "--batch", "1001", "--yes"}, 1, "1 to 1000"},
		{[]string{"rewrap", "--config", settings, "--ceremony", ceremony, "--yes"}, 0, "2 sealing keys and 1 versions were rewrapped"},
		{[]string{"retire-root", "--config", settings, "--ceremony", ceremony, "--generation", "2", "--yes"}, 1, "not an earlier one"},
		{[]string{"retire-root", "--config", settings, "--ceremony", ceremony, "--generation", "1", "--yes"}, 0, "generation 1 are gone"},
		{[]string{"backup-check", "--ceremony", ceremony}, 0, "2            ok"},
	} {
		out, code := runProgram(t, program, append([]string{"hsm"}, step.args...)...)
		if code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("%v: exit code %d, %s", step.args, code, out)
		}
	}
}

// rotateRoot runs the command and confirms each fingerprint that it shows.
func rotateRoot(t *testing.T, program, ceremony string) {
	t.Helper()
	cmd := exec.Command(program, "hsm", "rotate-root", "--ceremony", ceremony)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	confirmed, said := 0, ""
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said = lines.Text()
		if print, shown := strings.CutPrefix(strings.TrimSpace(said), "transport key "); shown {
			confirmed++
			if _, err := fmt.Fprintln(in, print[:8]); err != nil {
				t.Error(err)
			}
		}
	}
	// One member and the other backup token.
	if err := cmd.Wait(); err != nil || confirmed != 2 || !strings.Contains(said, "sluice hsm rewrap") {
		t.Fatalf("%d confirmed, at last %q: %v", confirmed, said, err)
	}
}

// ceremonyOf writes the ceremony file of a development domain with one node.
func ceremonyOf(t *testing.T, dir, domain string) string {
	t.Helper()
	text := "name: dev\nfile: " + domain + "\nmembers:\n"
	for _, path := range []string{"tokens/node-1", "backup-tokens/backup-1", "backup-tokens/backup-2"} {
		if path == "backup-tokens/backup-1" {
			text += "backups:\n"
		}
		folder, id := filepath.Join(dir, path), filepath.Base(path)
		token, err := softhsm.Provision(folder, "sluice-dev-"+id)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("  - {id: %s, module: %s, serial: %q, pin_file: %s/user.pin, so_pin_file: %s/so.pin, env: {SOFTHSM2_CONF: %s}}\n",
			id, token.Module, token.Serial, folder, folder, token.Env["SOFTHSM2_CONF"])
	}
	path := filepath.Join(dir, "ceremony.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
