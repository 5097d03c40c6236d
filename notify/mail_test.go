package notify

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-kms/sluice/kms"
)

// mails is a mail server that answers as it is told.
type mails struct {
	mu   sync.Mutex
	fail error
	got  chan Mail
	to   chan string
}

func newMails() *mails { return &mails{got: make(chan Mail, 100), to: make(chan string, 100)} }

func (m *mails) send(_ context.Context, url string, mail *Mail) error {
	m.to <- url
	m.got <- *mail
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fail
}

func TestEventIsMailedByTheSameQueue(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		s.webhook(acme, "mailto:ops@example.com", kms.EventCostStopped)
		server := newMails()
		server.fail = errors.New("it is full")
		n := s.notifier(func(c *Config) { c.Mail = server.send })
		n.Publish(kms.Event{Type: kms.EventCostStopped, Tenant: acme, Fields: []kms.EventField{
			{Name: "component", Value: "loop\r\nBcc: other@example.com\nevent: nothing happened"}, {Name: "risk_permille", Value: "3100"}}})
		first := <-server.got
		server.mu.Lock()
		server.fail = nil
		server.mu.Unlock()
		until(t, "being taken", func() bool {
			s.pass(2*firstPause, n)
			return testutil.ToFloat64(n.deliveries.WithLabelValues("taken")) == 1
		})
		again := <-server.got
		if first != again || <-server.to != "mailto:ops@example.com" {
			t.Errorf("another mail: %+v, then %+v", first, again)
		}
		if first.Subject != "Sluice: cost.stopped (error)" || first.ID == "" || first.Time.IsZero() {
			t.Errorf("%+v", first)
		}
		for _, line := range []string{"event: cost.stopped", "tenant: " + acme.String(), "risk_permille: 3100",
			"component: loop  Bcc: other@example.com event: nothing happened"} {
			if !strings.Contains(first.Text, "\n"+line+"\n") {
				t.Errorf("the text lacks the line %q:\n%s", line, first.Text)
			}
		}
	})
}

func TestMailHasItsAttachmentOrWaitsForIt(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		s.webhook(acme, "mailto:ops@example.com", kms.EventCostRecovered)
		server := newMails()
		var mu sync.Mutex
		away := errors.New("the store is away")
		n := s.notifier(func(c *Config) {
			c.Mail = server.send
			c.Attach = func(_ context.Context, typ kms.EventType, tenant string, data map[string]string) (*Attachment, error) {
				mu.Lock()
				defer mu.Unlock()
				if typ != kms.EventCostRecovered || tenant != acme.String() || data["incident"] != "an-id" {
					t.Errorf("%s, %s, %v is to be attached", typ, tenant, data)
				}
				return &Attachment{Name: "incident.pdf", Type: "application/pdf", Body: []byte("%PDF")}, away
			}
		})
		n.Publish(kms.Event{Type: kms.EventCostRecovered, Tenant: acme, Fields: []kms.EventField{{Name: "incident", Value: "an-id"}}})
		until(t, "failing", func() bool { return testutil.ToFloat64(n.deliveries.WithLabelValues("failed")) == 1 })
		if len(server.got) != 0 {
			t.Error("it is mailed without its attachment")
		}
		mu.Lock()
		away = nil
		mu.Unlock()
		until(t, "being taken", func() bool {
			s.pass(2*firstPause, n)
			return testutil.ToFloat64(n.deliveries.WithLabelValues("taken")) == 1
		})
		if m := <-server.got; m.Attachment == nil || m.Attachment.Name != "incident.pdf" {
			t.Errorf("%+v", m)
		}
	})
}

func TestWithoutAServerMailFailsAndIsGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		s.webhook(acme, "mailto:ops@example.com", kms.EventDaySoft)
		n := s.notifier()
		n.Publish(quotaEvent(acme))
		until(t, "failing", func() bool { return testutil.ToFloat64(n.deliveries.WithLabelValues("failed")) == 1 })
		s.pass(73*time.Hour, n)
		until(t, "giving up", func() bool { return testutil.ToFloat64(n.deliveries.WithLabelValues("given_up")) == 1 })
	})
}
