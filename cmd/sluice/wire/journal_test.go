package wire_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// pinned returns the public keys beside a journal, as an auditor pins them.
func pinned(t *testing.T, journal string) *wire.HeadKeys {
	t.Helper()
	text, err := audit.HeadKeys(journal)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := wire.OpenHeadKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
	})
	return keys
}

func newestAnchor(t *testing.T, c *wire.Config) audit.SignedHead {
	t.Helper()
	anchors, err := wire.AnchorsOf(t.Context(), c)
	if err != nil || len(anchors) == 0 {
		t.Fatalf("%d heads are anchored, %v", len(anchors), err)
	}
	return anchors[0]
}

// waitAnchored waits until the head of the running service, with what it did
// until now, is in the database.
func waitAnchored(t *testing.T, s *wiretest.Service) {
	t.Helper()
	want := s.App.Journal.Head().Sequence
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if anchors, err := wire.Anchors(t.Context(), s.App.Store, s.Config.Node); err == nil && len(anchors) > 0 && anchors[0].Sequence >= want {
			return
		}
	}
	t.Fatal("no head was anchored in ten seconds")
}

func TestJournalsHeadIsSignedByAnHSMKeyAndAnchored(t *testing.T) {
	wiretest.Require(t)
	s, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "/v1/keys", object{"name": "orders", "spec": "AES_256"})
	waitAnchored(t, s)
	key, err := s.App.Store.Lookup(t.Context(), s.App.System.ID, "sluice.journal/ecdsa")
	if err != nil || key.Protection != kms.ProtectionHSM || !key.DeletionProtection {
		t.Errorf("the key is %+v, %v", key, err)
	}
	// Rotated while heads of the first version are there.
	ticket := &kms.Ticket{RequestID: key.ID, Received: time.Now(), Urgency: kms.UrgencyNormal, By: keyManager(t, s)}
	if _, err := s.App.Service.RotateKey(t.Context(), ticket, "sluice.journal/ecdsa"); err != nil {
		t.Fatal(err)
	}
	must(t, s, "/v1/keys/orders/encrypt", object{"plaintext": []byte("x")})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dir := s.Config.Journal.Dir
	keys := pinned(t, dir)
	anchor := newestAnchor(t, s.Config)
	report, err := audit.Verify(dir, audit.VerifyOptions{Signed: keys.Signed, Anchors: []audit.SignedHead{anchor}})
	if err != nil {
		t.Fatal(err, report.Faults)
	}
	if report.Unsigned != 0 || anchor.Head != report.Head || anchor.KeyVersion != 2 {
		t.Errorf("%d entries are not signed; anchored is %d by version %d, the journal ends with %d",
			report.Unsigned, anchor.Sequence, anchor.KeyVersion, report.Head.Sequence)
	}
}

func keyManager(t *testing.T, s *wiretest.Service) *kms.Principal {
	t.Helper()
	scopes, err := kms.ParseScopes([]string{"key:*", "key:manage"})
	if err != nil {
		t.Fatal(err)
	}
	return &kms.Principal{Tenant: s.App.System, Project: kms.DefaultProject, Credential: s.App.System.ID, Scopes: scopes}
}

// Who could have it sign what he likes could write a journal of his own.
func TestTheKeyOfTheJournalServesNobodyElse(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	waitAnchored(t, s)
	token, err := s.App.FirstCredential(t.Context(), s.App.System, "everything",
		[]string{"key:*", "key:manage", "key:destroy", "key:import", "tenant:admin", "operator:admin"})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/v1/keys/sluice.journal%2Fecdsa"
	message := object{"message": []byte("a head")}
	for name, request := range map[string]struct {
		method, path string
		body         any
		want         int
	}{
		"sign":         {http.MethodPost, path + "/sign", message, http.StatusForbidden},
		"csr":          {http.MethodPost, path + "/csr", object{"subject": object{"common_name": "x"}}, http.StatusForbidden},
		"disable":      {http.MethodPost, path + "/disable", object{}, http.StatusForbidden},
		"update":       {http.MethodPatch, path, object{"deletion_protection": false}, http.StatusForbidden},
		"destroy":      {http.MethodPost, path + "/schedule-deletion", object{"days": 7}, http.StatusForbidden},
		"version":      {http.MethodPost, path + "/versions/1/disable", object{}, http.StatusForbidden},
		"alias of it":  {http.MethodPut, "/v1/aliases/heads", object{"key": "sluice.journal/ecdsa"}, http.StatusForbidden},
		"another":      {http.MethodPost, "/v1/keys", object{"name": "sluice.journal/sm2", "spec": "SM2", "protection": "SEALED"}, http.StatusForbidden},
		"read":         {http.MethodGet, path, nil, http.StatusOK},
		"public":       {http.MethodGet, path + "/public", nil, http.StatusOK},
		"another name": {http.MethodPost, "/v1/keys", object{"name": "mine", "spec": "AES_256"}, http.StatusCreated},
	} {
		if status, a := call(t, s, token, request.method, request.path, request.body); status != request.want {
			t.Errorf("%s: %d %s", name, status, a.Detail)
		}
	}
	if status, a := call(t, s, token, http.MethodPut, "/v1/aliases/sluice.journal%2Fsm2", object{"key": "mine"}); status != http.StatusForbidden {
		t.Errorf("an alias of that name: %d %s", status, a.Detail)
	}
	// Of other tenants the name is nothing special.
	must(t, s, "/v1/keys", object{"name": "sluice.journal/ecdsa", "spec": "AES_256"})
}

func TestJournalThatWasPutBackIsAlarmedAtTheStart(t *testing.T) {
	wiretest.Require(t)
	log := &journalOfLines{}
	dir := t.TempDir()
	open := func() (*wire.App, error) {
		dev := &wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.NewTextHandler(log, nil))}
		app, _, err := dev.Open(t.Context())
		return app, err
	}
	app, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "journal_anchor") {
		t.Fatal("a first start alarms")
	}
	segment := filepath.Join(wire.DevConfig(dir).Journal.Dir, fmt.Sprintf("journal-%020d.slj", 1))
	earlier, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what a start records, and nothing
		if app, err = open(); err != nil {
			t.Fatal(err)
		}
		if _, err := app.Service.RotateKey(t.Context(), &kms.Ticket{RequestID: app.System.ID, Received: time.Now(),
			Urgency: kms.UrgencyNormal, By: keyManager(t, &wiretest.Service{App: app})}, "sluice.journal/ecdsa"); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "journal_anchor") {
			t.Fatal("an ordinary start alarms")
		}
	}
	// The folder as it was before, heads and all: it verifies, but for the
	// anchor.
	if err := os.WriteFile(segment, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if app, err = open(); err != nil {
		t.Fatalf("the service does not start: %v", err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "alarm=journal_anchor") {
		t.Error("the log says nothing")
	}
}

func TestDamagedAnchorsAreReportedAndStopNothing(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"SQLite": sqliteSite, "PostgreSQL": postgresSite} {
		t.Run(name, func(t *testing.T) {
			site := open(t)
			if err := site.starts(t); err != nil {
				t.Fatal(err)
			}
			raw := site.raw(t)
			for _, column := range raw.columns["journal_heads"] {
				for _, value := range column.values {
					raw.damage(t, "journal_heads", column.name, value, "1 = 1")
				}
				if err := site.starts(t); err != nil {
					t.Errorf("with another %s: %v", column.name, err)
				}
			}
		})
	}
}

func TestHeadsAreAppendedToTheAnchorFile(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	s, err := wiretest.Open(dir) // makes the tokens
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := s.Config
	c.Journal.AnchorFile = filepath.Join(t.TempDir(), "heads")
	app, err := wire.Open(context.Background(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	anchors, err := audit.ReadHeads(c.Journal.AnchorFile)
	if err != nil {
		t.Fatal(err)
	}
	keys := pinned(t, c.Journal.Dir)
	report, err := audit.Verify(c.Journal.Dir, audit.VerifyOptions{Signed: keys.Signed, Anchors: anchors})
	if err != nil || anchors[len(anchors)-1].Head != report.Head {
		t.Errorf("the file ends with record %d, the journal with %d, %v", anchors[len(anchors)-1].Sequence, report.Head.Sequence, err)
	}
}

func TestHeadsOfAnSM3ChainAreSignedWithSM2(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := s.Config
	// A node of its own, whose journal begins with SM3.
	c.Node, c.Journal.Dir, c.Journal.Chain = "gm", filepath.Join(dir, "journal-gm"), "sm3"
	for range 2 { // read back by the second start
		app, err := wire.Open(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := app.Service.RotateKey(t.Context(), &kms.Ticket{RequestID: app.System.ID, Received: time.Now(),
			Urgency: kms.UrgencyNormal, By: keyManager(t, &wiretest.Service{App: app})}, "sluice.journal/ecdsa"); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
	}
	anchor := newestAnchor(t, c)
	keys := pinned(t, c.Journal.Dir)
	report, err := audit.Verify(c.Journal.Dir, audit.VerifyOptions{Signed: keys.Signed, Anchors: []audit.SignedHead{anchor}, SM3: soft.NewSM3})
	if err != nil || anchor.Algorithm != kms.AlgSM2DSA || anchor.Head != report.Head || report.Unsigned != 0 {
		t.Errorf("anchored is %d by %s, the journal ends with %d, of which %d are not signed, %v",
			anchor.Sequence, anchor.Algorithm, report.Head.Sequence, report.Unsigned, err)
	}
}
