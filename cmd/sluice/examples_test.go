package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/quota"
)

// exampleBlock finds the shell blocks of the README that are marked as
// examples.
var exampleBlock = regexp.MustCompile("(?s)<!-- example -->\n```sh\n(.*?)```")

// runExamples runs the examples of a document as they stand, against a service
// that `sluice dev` started, and returns what they print; only the address and
// the data folder are others.
func runExamples(t *testing.T, document string) string {
	t.Helper()
	wiretest.Require(t)
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks := exampleBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 2 {
		t.Fatalf("found %d examples", len(blocks))
	}
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	dev := startDev(t, program, filepath.Join(dir, ".sluice"), "--nodes", "2")
	// One shell for all, as a reader would paste them.
	var script strings.Builder
	for _, block := range blocks {
		script.WriteString(strings.ReplaceAll(block[1], "127.0.0.1:8440", dev.address))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SLUICE_ADDRESS=http://"+dev.address, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestREADMEExamplesWork(t *testing.T) {
	out := runExamples(t, "../../README.md")
	for what, want := range map[string]int{`"valid":true`: 3, `{"plaintext":"aGVsbG8="`: 4, "\nvalid\n": 1, `"code":"quota_exceeded"`: 1, "it ended as quota_exceeded": 1, `"mount_type":"kv"`: 1} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%q appears %d times, want %d", what, got, want)
		}
	}
	if !regexp.MustCompile(`(?m)^Summary +it took [0-9.]+ ms: [0-9.]+ ms in the queue, mostly for [A-Z_]+, and [0-9.]+ ms on node-[12]$`).MatchString(out) {
		t.Error("no request says what it waited for")
	}
	if got := strings.Count(out, " segments verify\n"); got != 2 || !strings.Contains(out, "\nsigned: up to sequence ") {
		t.Errorf("%d verifications of the journal succeed, or none of its signed heads", got)
	}
	checkShown(t, out)
}

// The gateway that the README shows loses no call when its key is rotated, when
// the old one is refused, and when its provider is down; and it prints what the
// README shows.
func TestTheExampleOfAGatewayLosesNoCall(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	dev := startDev(t, buildProgram(t, filepath.Join(dir, "bin")), filepath.Join(dir, ".sluice"))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "./client/examples/gateway", "-address", "http://"+dev.address,
		"-credential-file", filepath.Join(dir, ".sluice", wire.DemoCredentialFile))
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	// Which of the calls still had the old key is chance.
	printed := regexp.MustCompile(`(rotated: 20 calls, 0 failed; ).*`).ReplaceAllString(string(out), "${1}20 by one, key version 2")
	if len(out) == 0 || !strings.Contains(string(text), "```\n"+printed+"```\n") {
		t.Errorf("it prints\n%s", out)
	}
}

// What the README shows of the audit trail and of usage is what its examples
// print, but for times, ids and numbers, and for which limit is met first.
func checkShown(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shape := func(s string) string {
		s = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(s, "ID")
		s = regexp.MustCompile(`[0-9][0-9.:TZ-]*`).ReplaceAllString(s, "N")
		s = regexp.MustCompile(`(TENANT|KEY|CREDENTIAL)_RATE`).ReplaceAllString(s, "RATE")
		return regexp.MustCompile(` +`).ReplaceAllString(s, " ")
	}
	_, shown, found := strings.Cut(string(text), "\n```\nSTART")
	shown, _, closed := strings.Cut(shown, "```")
	if !found || !closed {
		t.Fatal("the README shows no usage")
	}
	printed := shape(out)
	for line := range strings.Lines("START" + shown) {
		if !strings.Contains(printed, shape(line)) {
			t.Errorf("nothing that is printed looks like %q", line)
		}
	}
}

// The document of secrets shows what its examples print.
func TestSecretsDocumentIsRight(t *testing.T) {
	out := runExamples(t, "../../docs/secrets.md")
	for what, want := range map[string]int{
		"\nsk-first\n":                        1, // alone on its line
		"1\t90\tsk-first\n2\t10\tsk-second\n": 1,
		"ROLLED_BACK: version 2 takes over":   2,
		"2        DISABLED  -":                2,
		`"status":"ok"`:                       1,
		`"status":"unchanged"`:                1,
		`"status":"not_found"`:                1,
		"secret:read:llm/*":                   2,
	} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%q appears %d times, want %d, in\n%s", what, got, want, out)
		}
	}
}

// The document of the Vault facade shows what its examples print, but for times
// and ids.
func TestVaultFacadeDocumentIsRight(t *testing.T) {
	const document = "../../docs/vault-facade.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	shape := func(s string) string {
		s = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(s, "ID")
		return regexp.MustCompile(`"2[0-9T:.-]*Z"`).ReplaceAllString(s, `"TIME"`)
	}
	out := shape(runExamples(t, document))
	_, shown, _ := strings.Cut(string(text), "It prints:\n\n```\n")
	shown, _, found := strings.Cut(shown, "```")
	if !found {
		t.Fatal("it shows nothing")
	}
	for line := range strings.Lines(shown) {
		if !strings.Contains(out, shape(strings.TrimSpace(line))) {
			t.Errorf("nothing that is printed looks like %s in\n%s", line, out)
		}
	}
}

// The document of jobs shows what its examples print.
func TestJobsDocumentIsRight(t *testing.T) {
	out := runExamples(t, "../../docs/jobs.md")
	for what, want := range map[string]int{
		": 3000 items\n": 1,
		"100 %  3000 of 3000 items, 0 with a problem, 6000 credits, done\n": 1,
		"State           DONE\n": 1,
		"\n3000\n":               1,
		"State  deleted":         1,
	} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%q appears %d times, want %d, in\n%s", what, got, want, out)
		}
	}
}

// The document of routes shows what its examples print.
func TestRoutesDocumentIsRight(t *testing.T) {
	out := runExamples(t, "../../docs/routes.md")
	for what, want := range map[string]int{
		"one     100     healthy":           1,
		"one     90      unhealthy  open":   2,
		"two     10      healthy    closed": 2,
		"breaker_open":                      2,
		"State  deleted":                    1,
	} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%q appears %d times, want %d, in\n%s", what, got, want, out)
		}
	}
}

// What the policy's document shows is what its examples print, and it names
// every section of a policy.
func TestPolicyDocumentIsRight(t *testing.T) {
	const document = "../../docs/policy.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[quota.Policy]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("it does not name %s", name)
		}
	}
	out := runExamples(t, document)
	_, shown, _ := strings.Cut(string(text), "\n```\nFIELD")
	shown, _, _ = strings.Cut("FIELD"+shown, "```")
	for what, want := range map[string]int{
		shown:                            2, // compared, and before it is applied
		"\nvalid, SHA-256 ":              1,
		"gold may burst more":            2, // the version that was made, and the history
		"back to version 0":              1,
		"no difference from version 2\n": 1,
	} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%q appears %d times, want %d, in\n%s", what, got, want, out)
		}
	}
}
