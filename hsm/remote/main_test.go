package remote

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

// What this program is when it is started by a test.
const (
	workerRole  = "test-worker"  // a worker process
	garbageRole = "test-garbage" // one that does not keep to the protocol
	parentRole  = "test-parent"  // the parent of a worker process
)

func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case workerRole:
		err = Serve(openForTest)
	case garbageRole:
		err = serveGarbage()
	case parentRole:
		err = beParent()
	default:
		os.Exit(runTests(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runTests(m *testing.M) int {
	var err error
	if testDir, err = os.MkdirTemp("", "remote"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(testDir)
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// settings choose the driver that a test's worker serves.
type settings struct {
	Wild bool // or else a PKCS#11 token:

	Module, Label, Serial string
	Env                   map[string]string
	Domain                hsm.Domain
}

func openForTest(raw, pin []byte) (hsm.Token, error) {
	var s settings
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	if s.Wild {
		return openWildDriver(pin)
	}
	return openP11(&s, func() ([]byte, error) { return slices.Clone(pin), nil })
}

func openP11(s *settings, pin func() ([]byte, error)) (hsm.Token, error) {
	token, err := p11.Open(context.Background(), p11.Config{Module: s.Module, Env: s.Env,
		TokenLabel: s.Label, TokenSerial: s.Serial, PIN: pin, Domain: s.Domain})
	if err != nil {
		return nil, err
	}
	return token, nil
}

// testPIN is the PIN of the wild driver.
const testPIN = "the PIN of a test"

// config is what starts a worker on this program.
func config(t testing.TB, s settings, pin func() ([]byte, error)) Config {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Program: "/proc/self/exe", Args: []string{os.Args[0], workerRole, "node-of-the-test"},
		Settings: raw, PIN: pin, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func wildConfig(t testing.TB) Config {
	return config(t, settings{Wild: true}, func() ([]byte, error) { return []byte(testPIN), nil })
}

// open opens a token until the test ends; what Close returns is for those that
// close it themselves.
func open(t testing.TB, c Config) *Token {
	t.Helper()
	token, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { token.Close() })
	return token
}

// pid is the process's number.
func (t *Token) pid() int { return t.process.cmd.Process.Pid }

// watched is a process whose end can be waited for by others than its parent.
type watched struct{ fd int }

func watch(t *testing.T, pid int) watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return watched{fd}
}

func (w watched) endsWithin(d time.Duration) bool {
	polled := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(polled, int(d.Milliseconds()))
	for err == unix.EINTR {
		n, err = unix.Poll(polled, int(d.Milliseconds()))
	}
	return n == 1
}

// testDir holds the tokens that the tests share.
var testDir string

// testDomain is a domain of two SoftHSM tokens.
type testDomain struct {
	members []*softhsm.Token
	domain  *hsm.Domain
}

func (d *testDomain) settings(i int) settings {
	m := d.members[i]
	return settings{Module: m.Module, Label: m.Label, Serial: m.Serial, Env: m.Env, Domain: *d.domain}
}

func (d *testDomain) config(t testing.TB, i int) Config {
	return config(t, d.settings(i), d.members[i].UserPIN)
}

var sharedDomain = sync.OnceValues(func() (*testDomain, error) {
	d := &testDomain{}
	var backups []*softhsm.Token
	for i := range 4 {
		name := fmt.Sprintf("token-%d", i)
		token, err := softhsm.Provision(filepath.Join(testDir, name), name)
		if err != nil {
			return nil, err
		}
		if i < 2 {
			d.members = append(d.members, token)
		} else {
			backups = append(backups, token)
		}
	}
	var err error
	d.domain, err = p11.Ceremony(context.Background(), p11.CeremonyConfig{Name: "test",
		Members: ceremonyTokens(d.members), Backups: ceremonyTokens(backups),
		Confirm: func(string, string) error { return nil }})
	return d, err
})

func ceremonyTokens(tokens []*softhsm.Token) []p11.CeremonyToken {
	var list []p11.CeremonyToken
	for _, t := range tokens {
		list = append(list, p11.CeremonyToken{Module: t.Module, Env: t.Env, TokenLabel: t.Label,
			TokenSerial: t.Serial, UserPIN: t.UserPIN, SOPIN: t.SOPIN})
	}
	return list
}

func shared(t testing.TB) *testDomain {
	t.Helper()
	required.Part(t, "softhsm", softhsm.Available())
	d, err := sharedDomain()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
