package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a server may take to start.
const patience = 30 * time.Second

// server is a redis-server on a free port of the loopback interface, in a
// folder of its own. It ends with the test, and with the test's process.
type server struct {
	t       testing.TB
	folder  string
	port    int
	args    []string
	process *exec.Cmd
	leash   io.Closer
}

// leashed runs its arguments until its input ends: when this process closes
// it, or is no more.
const leashed = `"$@" & server=$!; cat; kill -CONT $server 2>/dev/null; kill -KILL $server; wait $server`

// startServer starts a server. Without redis-server it skips the test, or
// fails it when SLUICE_REQUIRE names redis.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("SLUICE_REQUIRE"), ","), "redis") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := &server{t: t, folder: t.TempDir(), args: args}
	s.port = freePort(t)
	s.start()
	t.Cleanup(s.end)
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	// The bus of a cluster is 10,000 ports above.
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if port < 55_000 {
			return port
		}
	}
}

// start starts the server on its port, empty.
func (s *server) start() {
	s.t.Helper()
	args := append([]string{"-c", leashed, "sh", "redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--save", "",
		"--appendonly", "no", "--pidfile", filepath.Join(s.folder, "pid"), "--dir", s.folder}, s.args...)
	s.process = exec.Command("sh", args...)
	var output bytes.Buffer
	s.process.Stdout, s.process.Stderr = &output, &output
	var err error
	if s.leash, err = s.process.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := s.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for client.Ping(ctx).Err() != nil {
		if ctx.Err() != nil {
			s.t.Fatalf("redis-server does not answer: %s", output.String())
		}
		time.Sleep(10 * time.Millisecond) // it tells nobody when it is ready
	}
}

func (s *server) end() {
	if s.leash != nil {
		s.leash.Close()
		_ = s.process.Wait() // tells the signal that ended it
		s.leash = nil
	}
}

func (s *server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.address(), ContextTimeoutEnabled: true})
}

// do sends a command that a test needs.
func (s *server) do(args ...any) string {
	s.t.Helper()
	client := s.client()
	defer client.Close()
	answer, err := client.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(answer)
}

// signal sends the server's process a signal: it stops in the middle of what
// it does, or goes on.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	pid, err := os.ReadFile(filepath.Join(s.folder, "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Kill(n, sig); err != nil {
		s.t.Fatal(err)
	}
}

// scripts returns how many scripts the server has run.
func (s *server) scripts() (calls int) {
	s.t.Helper()
	for line := range strings.Lines(s.do("INFO", "commandstats")) {
		for _, name := range []string{"evalsha", "eval"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				n, err := strconv.Atoi(rest[:strings.IndexByte(rest, ',')])
				if err != nil {
					s.t.Fatal(err)
				}
				calls += n
			}
		}
	}
	return calls
}

func open(t testing.TB, s *server) *Store {
	t.Helper()
	store, err := Open(context.Background(), Config{Addresses: []string{s.address()}, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
