// Package wiretest starts the whole service for tests: SoftHSM tokens, SQLite
// and journal in a temporary folder, the real API on a loopback port.
package wiretest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

// Service is a running service.
type Service struct {
	App      *wire.App
	Config   *wire.Config
	URL      string // of the API, without a slash at its end
	Demo     string // the demo tenant's credential
	Operator string
	Dir      string // the data folder
	Handler  http.Handler

	server *httptest.Server
}

// Require skips the test when SoftHSM is not installed, and fails it when
// SLUICE_REQUIRE says that it must be.
func Require(t testing.TB) {
	t.Helper()
	err := softhsm.Available()
	required.Part(t, "softhsm", err)
}

// Start starts a service in a folder, with what is there already, and stops it
// when the test ends. The first start in a folder takes seconds.
func Start(t testing.TB, dir string) *Service {
	t.Helper()
	return start(t, &wire.Dev{Dir: dir})
}

// StartQuiet is Start of a service that from then on does nothing with its HSMs
// but what it is asked for: its journal's head is signed, and then not again for
// an hour. Nor does it look at how credentials are used.
func StartQuiet(t testing.TB, dir string) *Service {
	t.Helper()
	s := start(t, &wire.Dev{Dir: dir, SignInterval: time.Hour, AbuseOff: true})
	AwaitSigned(t, s.App, s.Config)
	return s
}

// AwaitSigned returns when the head of a service's journal was signed once.
func AwaitSigned(t testing.TB, app *wire.App, config *wire.Config) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if heads, err := wire.Anchors(t.Context(), app.Store, config.Node); err == nil && len(heads) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the journal's head is not signed")
		}
	}
}

// StartTwoOperators is Start of a service where what destroys takes two
// operators.
func StartTwoOperators(t testing.TB, dir string) *Service {
	t.Helper()
	return start(t, &wire.Dev{Dir: dir, TwoOperators: true})
}

func start(t testing.TB, dev *wire.Dev) *Service {
	t.Helper()
	Require(t)
	s, err := open(dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the service: %v", err)
		}
	})
	return s
}

// Open is Start for callers that share a service among tests; they Close it.
func Open(dir string) (*Service, error) { return open(&wire.Dev{Dir: dir}) }

func open(dev *wire.Dev) (*Service, error) {
	dir := dev.Dir
	dev.Nodes, dev.Log = 2, slog.New(slog.DiscardHandler)
	app, config, err := dev.Open(context.Background())
	if err != nil {
		return nil, err
	}
	s := &Service{App: app, Config: config, Dir: dir}
	handler, err := app.API("test")
	if err == nil {
		s.Demo, err = credential(dir, wire.DemoCredentialFile)
	}
	if err == nil {
		s.Operator, err = credential(dir, wire.OperatorCredentialFile)
	}
	if err != nil {
		app.Close()
		return nil, err
	}
	s.Handler = handler.Handler()
	s.server = httptest.NewServer(s.Handler)
	s.URL = s.server.URL
	return s, nil
}

func credential(dir, file string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(raw)), err
}

// Client returns an HTTP client for the API.
func (s *Service) Client() *http.Client {
	if s.server == nil {
		return http.DefaultClient
	}
	return s.server.Client()
}

// Close lets requests end and closes the service.
func (s *Service) Close() error {
	s.server.Close()
	return s.App.Close()
}
