// Package pgtest runs a PostgreSQL server for tests: on a free port of the
// loopback interface, in a folder of its own, with its commits synced, as an
// ordinary user also where the tests run as root. The server ends with the test
// process, however that ends.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sluice-kms/sluice/required"
)

// binaries is where Debian keeps the programs of PostgreSQL 15, which are in
// no PATH.
const binaries = "/usr/lib/postgresql/15/bin"

const (
	// patience is how long a server may take to start or stop.
	patience = time.Minute
	// startAttempts is how often another port is tried when one is taken
	// between being found free and being used.
	startAttempts = 5
)

// The roles of the server.
const (
	adminRole   = "pgtest_admin"
	ownerRole   = "sluice_owner"
	serviceRole = "sluice_login"
)

// Server is a running server.
type Server struct {
	folder   string
	password string // of all roles
	account  *syscall.Credential
	port     int
	// template is the database that Database copies, "" until there is one.
	template string
	next     int

	process *exec.Cmd
	leash   io.Closer // the server runs while it is open
	output  *os.File
}

// shared is the server of the test process.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Require returns the server of the test process, which it starts first.
// Without PostgreSQL it skips the test, or fails it when SLUICE_REQUIRE names
// postgres.
func Require(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start()
	}
	if shared.err != nil && !errors.Is(shared.err, errMissing) {
		t.Fatal(shared.err)
	}
	required.Part(t, "postgres", shared.err)
	return shared.server
}

// Stop ends the server of the test process and removes its folder. TestMain
// calls it after the tests.
func Stop() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return errors.Join(s.Stop(), s.output.Close(), os.RemoveAll(s.folder))
}

var errMissing = errors.New("PostgreSQL 15 is not installed")

func start() (*Server, error) {
	if _, err := os.Stat(filepath.Join(binaries, "postgres")); err != nil {
		return nil, errMissing
	}
	folder, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, password: rand.Text()}
	if err = s.init(); err == nil {
		err = s.Start()
	}
	if err == nil {
		err = s.createRoles()
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(), os.RemoveAll(folder))
	}
	return s, nil
}

// init makes the files of the server. The default collation is not that of
// bytes, so that a list which relies on it is in the wrong order.
func (s *Server) init() error {
	var err error
	if s.account, err = account(); err != nil {
		return err
	}
	password := filepath.Join(s.folder, "password")
	if err := os.WriteFile(password, []byte(s.password), 0o600); err != nil {
		return err
	}
	if s.output, err = os.Create(filepath.Join(s.folder, "output")); err != nil {
		return err
	}
	if s.account != nil {
		for _, path := range []string{s.folder, password} {
			if err := os.Chown(path, int(s.account.Uid), int(s.account.Gid)); err != nil {
				return err
			}
		}
	}
	init := s.command(filepath.Join(binaries, "initdb"), "--pgdata", s.data(), "--username", adminRole, "--pwfile", password,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale-provider", "icu", "--icu-locale", "en-US", "--no-sync")
	init.Stdout, init.Stderr = nil, nil
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// account returns whom the server runs as, nil for the user of the tests.
// PostgreSQL refuses to run as root.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.Join(errs...)
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = s.folder
	c.Stderr = s.output
	c.Stdout = s.output
	if s.account != nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	}
	return c
}

// leashed runs its arguments until its input ends: when this process closes it,
// or is no more.
const leashed = `"$@" & server=$!; cat; kill -INT $server; wait $server`

// Start starts the server, on the port that it had before if it had one.
func (s *Server) Start() error {
	var err error
	for range startAttempts {
		if s.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if err = s.run(); err == nil {
			return nil
		}
		err = errors.Join(err, s.Stop())
		if s.template != "" {
			break // others know the port
		}
		s.port = 0
	}
	return err
}

func (s *Server) run() (err error) {
	args := []string{"-c", leashed, "sh", filepath.Join(binaries, "postgres"), "-D", s.data()}
	for name, value := range map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"fsync": "on", "synchronous_commit": "on", "max_connections": "300", "shared_buffers": "64MB",
	} {
		args = append(args, "-c", name+"="+value)
	}
	s.process = s.command("/bin/sh", args...)
	if s.leash, err = s.process.StdinPipe(); err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	return s.waitUntilItAnswers()
}

func (s *Server) waitUntilItAnswers() error {
	db, err := sql.Open("pgx", s.url(adminRole, "postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// Stop ends the server; its connections are cut and its files stay.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	err := s.leash.Close()
	// It reports the signal that ended the server.
	_ = s.process.Wait()
	s.process = nil
	return err
}

// Port is where the server listens, on 127.0.0.1.
func (s *Server) Port() int { return s.port }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) url(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, s.password), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

// createRoles makes those of an installation: one that owns, one that serves.
func (s *Server) createRoles() error {
	return s.admin(fmt.Sprintf(`CREATE ROLE %s LOGIN CREATEROLE PASSWORD '%s'`, ownerRole, s.password),
		fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, serviceRole, s.password))
}

func (s *Server) admin(statements ...string) error {
	db, err := sql.Open("pgx", s.url(adminRole, "postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			return fmt.Errorf("%.40s: %w", statement, err)
		}
	}
	return nil
}

// URLs connect to one database: as the service, as the owner of the schema, and
// as a superuser.
type URLs struct{ Service, Owner, Admin string }

func (s *Server) urls(database string) URLs {
	return URLs{s.url(serviceRole, database), s.url(ownerRole, database), s.url(adminRole, database)}
}

// EmptyDatabase makes a database without a schema.
func (s *Server) EmptyDatabase(t testing.TB) URLs {
	t.Helper()
	return s.database(t, "template0")
}

// Database makes a database with a schema, which migrate makes once for all of
// them.
func (s *Server) Database(t testing.TB, migrate func(owner string) error) URLs {
	t.Helper()
	if s.template == "" {
		const name = "pgtest_template"
		if err := s.admin(fmt.Sprintf(`CREATE DATABASE %s OWNER %s`, name, ownerRole)); err != nil {
			t.Fatal(err)
		}
		if err := migrate(s.url(ownerRole, name)); err != nil {
			t.Fatal(err)
		}
		if err := s.admin(fmt.Sprintf(`GRANT sluice_service TO %s`, serviceRole)); err != nil {
			t.Fatal(err)
		}
		s.template = name
	}
	return s.database(t, s.template)
}

func (s *Server) database(t testing.TB, template string) URLs {
	t.Helper()
	s.next++
	name := fmt.Sprintf("pgtest_%d", s.next)
	if err := s.admin(fmt.Sprintf(`CREATE DATABASE %s OWNER %s TEMPLATE %s`, name, ownerRole, template)); err != nil {
		t.Fatal(err)
	}
	return s.urls(name)
}
