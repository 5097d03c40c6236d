package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/mail"
	"strings"
	"testing"
	"time"
	"uuid"

	server "github.com/emersion/go-smtp"

	"github.com/sluice-kms/sluice/kms"
)

// letterbox is a mail server on loopback.
type letterbox struct{ got chan []byte }

func (b *letterbox) NewSession(*server.Conn) (server.Session, error) { return &letter{box: b}, nil }

type letter struct {
	box *letterbox
	to  string
}

func (l *letter) Mail(string, *server.MailOptions) error { return nil }
func (l *letter) Rcpt(to string, _ *server.RcptOptions) error {
	l.to = to
	return nil
}
func (l *letter) Data(r io.Reader) error {
	content, err := io.ReadAll(r)
	l.box.got <- content
	return err
}
func (l *letter) Reset()        {}
func (l *letter) Logout() error { return nil }

// An operator asks for mail when an incident is over, and gets it with the
// report. Strangers get none.
func TestReportOfAnIncidentIsMailed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	box := &letterbox{got: make(chan []byte, 10)}
	s := server.NewServer(box)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		_ = s.Close()
		_ = listener.Close() // Serve may not have begun
		<-done
	})
	c := newCluster(t)
	c.more = fmt.Sprintf("mail: {server: %q, security: none, from: sluice@example.com, recipient_domains: [example.com]}\n", listener.Addr())
	n := c.start(t, 1)
	operator := c.operator(t, n.app)
	n.Service.Operator = operator
	newTenant(t, n.Service, "loopy", "gold")
	tenant, err := n.app.Store.TenantByRef(t.Context(), "loopy")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"mailto:somebody@example.org", "mailto:ops@example.com?bcc=somebody@example.org"} {
		if status, _, answer := raw(t, n.Service, operator, "POST", "/v1/webhooks", fmt.Sprintf(`{"url":%q}`, url)); status != 422 {
			t.Errorf("%s is taken: %d %v", url, status, answer)
		}
	}
	createHook(t, n.Service, operator, "mailto:ops@example.com", `["cost.recovered"]`)
	began := time.Now().Add(-time.Hour)
	i := &kms.CostIncident{ID: uuid.NewV7(), Tenant: tenant.ID, Node: "api-1", Began: began, Ended: began.Add(time.Minute),
		Components: []kms.CostShare{{Name: "loop", Credits: kms.Credit}}, Causes: []kms.CostCause{{Code: kms.CauseHotKey}}}
	if err := n.app.Store.AddCostIncident(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	n.app.Events.Publish(i.Recovered())
	var content []byte
	select {
	case content = <-box.got:
	case <-time.After(recovery):
		t.Fatal("nothing was mailed")
	}
	m, err := mail.ReadMessage(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if m.Header.Get("To") != "<ops@example.com>" || m.Header.Get("Subject") != "Sluice: cost.recovered (info)" {
		t.Errorf("the header is %v", m.Header)
	}
	body, err := io.ReadAll(m.Body)
	if err != nil || !strings.Contains(string(body), "causes: HOT_KEY") || !strings.Contains(string(body), `filename="incident-`+i.ID.String()+`.pdf"`) {
		t.Errorf("%v: %.2000s", err, body)
	}
}
