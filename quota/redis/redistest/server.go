// Package redistest runs redis-servers for tests: on free ports of the loopback
// interface, in folders of their own, until the test ends or its process does.
package redistest

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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-kms/sluice/required"
)

// Patience is how long a server may take to start, or a cluster to agree.
const Patience = 30 * time.Second

// Server is a redis-server, or a Sentinel. Its methods fail the test.
type Server struct {
	Port    int
	t       testing.TB
	folder  string
	args    []string
	process *exec.Cmd
	leash   io.Closer
}

// leashed runs its arguments until its input ends: when this process closes
// it, or is no more.
const leashed = `"$@" & server=$!; cat; kill -CONT $server 2>/dev/null; kill -KILL $server; wait $server`

// Start starts a server with further arguments. Without redis-server it skips
// the test, or fails it when SLUICE_REQUIRE names redis.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port), "--save", "", "--appendonly", "no",
		"--pidfile", filepath.Join(s.folder, "pid"), "--dir", s.folder}, args...)
	s.Restart()
	return s
}

// Sentinel starts a Sentinel that fails a master over, by itself, when it has
// not answered for the given time.
func Sentinel(t testing.TB, name string, master *Server, down time.Duration) *Server {
	t.Helper()
	s := newServer(t)
	conf := filepath.Join(s.folder, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\nsentinel down-after-milliseconds %[3]s %[5]d\nsentinel failover-timeout %[3]s 3000\n",
		s.Port, s.folder, name, master.Port, down.Milliseconds())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{conf, "--sentinel"}
	s.Restart()
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	required.Part(t, "redis", err)
	s := &Server{t: t, folder: t.TempDir(), Port: freePort(t)}
	t.Cleanup(s.End)
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

// Restart starts a server that has ended on its port, empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.process = exec.Command("sh", append([]string{"-c", leashed, "sh", "redis-server"}, s.args...)...)
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
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for client.Ping(ctx).Err() != nil {
		if ctx.Err() != nil {
			s.t.Fatalf("redis-server does not answer: %s", output.String())
		}
		time.Sleep(10 * time.Millisecond) // it tells nobody when it is ready
	}
}

// End ends the server at once.
func (s *Server) End() {
	if s.leash != nil {
		s.leash.Close()
		_ = s.process.Wait() // tells the signal that ended it
		s.leash = nil
	}
}

// Address is host:port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Address(), ContextTimeoutEnabled: true})
}

// Do sends a command and returns its answer as text, "<nil>" for none.
func (s *Server) Do(args ...any) string {
	s.t.Helper()
	client := s.client()
	defer client.Close()
	answer, err := client.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(answer)
}

// Signal sends the server's process a signal: it stops in the middle of what
// it does, or goes on.
func (s *Server) Signal(sig syscall.Signal) {
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

// Scripts returns how many scripts the server has run.
func (s *Server) Scripts() (calls int) {
	s.t.Helper()
	for line := range strings.Lines(s.Do("INFO", "commandstats")) {
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
