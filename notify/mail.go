package notify

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-kms/sluice/kms"
)

// Mail is an event as it is mailed. The header lines are of our own words: what
// clients can choose is in Text only.
type Mail struct {
	ID         string // of the event, the same in every attempt
	Time       time.Time
	Subject    string
	Text       string
	Attachment *Attachment // nil: none
}

// Attachment is a file of a mail.
type Attachment struct {
	Name, Type string
	Body       []byte
}

// mailedEvent is the body of a delivery, as far as a mail says it.
type mailedEvent struct {
	ID        string            `json:"id"`
	Type      kms.EventType     `json:"type"`
	Timestamp time.Time         `json:"timestamp"`
	Severity  kms.Severity      `json:"severity"`
	Tenant    string            `json:"tenant"`
	Data      map[string]string `json:"data"`
}

// mailOf makes the mail of a delivery.
func mailOf(d *kms.Delivery) (*Mail, *mailedEvent, error) {
	var e mailedEvent
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return nil, nil, errors.New("the event cannot be read")
	}
	info := e.Type.Info()
	if info == nil {
		return nil, nil, errors.New("the event is of no type that is known")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", info.Doc)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%s: %s\n", name, oneLine(value))
		}
	}
	line("event", string(e.Type))
	line("severity", string(e.Severity))
	line("time", e.Timestamp.UTC().Format(time.RFC3339))
	line("tenant", e.Tenant)
	for _, name := range slices.Sorted(maps.Keys(e.Data)) {
		line(name, e.Data[name])
	}
	line("id", d.Event.String())
	return &Mail{ID: d.Event.String(), Time: e.Timestamp, Subject: fmt.Sprintf("Sluice: %s (%s)", e.Type, info.Severity), Text: text.String()}, &e, nil
}

// oneLine writes a value so that it cannot look like several lines.
func oneLine(value string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, value)
}

// mail makes one attempt by mail; nil when the server took it.
func (n *Notifier) mail(ctx context.Context, d *kms.Delivery, url string) error {
	if n.c.Mail == nil {
		return errors.New("the service is not set up to send mail")
	}
	m, e, err := mailOf(d)
	if err != nil {
		return err
	}
	if n.c.Attach != nil {
		if m.Attachment, err = n.c.Attach(ctx, e.Type, e.Tenant, e.Data); err != nil {
			return fmt.Errorf("making the attachment: %w", err)
		}
	}
	return n.c.Mail(ctx, url, m)
}
