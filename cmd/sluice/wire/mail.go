package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"uuid"

	"github.com/sluice-kms/sluice/costreport"
	"github.com/sluice-kms/sluice/egress"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/notify"
	"github.com/sluice-kms/sluice/notify/smtp"
)

// MailConfig says by which server events are mailed, and to whom; without a
// server none are.
type MailConfig struct {
	// Server is host:port. Default none.
	Server string `koanf:"server"`
	// Security is starttls (the default), tls, or none, which takes a server on
	// loopback.
	Security string `koanf:"security"`
	// CAFile holds certificates, PEM, to trust beside the system's. Default none.
	CAFile string `koanf:"ca_file"`
	// From is the address that mail comes from.
	From string `koanf:"from"`
	// Username and PasswordFile authenticate; a newline at the file's end does
	// not count. Default none.
	Username     string `koanf:"username"`
	PasswordFile string `koanf:"password_file"`
	// RecipientDomains are those to which mail is sent, of tenants' webhooks and
	// of operators'.
	RecipientDomains []string `koanf:"recipient_domains"`
}

// sender makes the sender of mail; nil without a server.
func (c *MailConfig) sender() (*smtp.Sender, error) {
	if c.Server == "" {
		return nil, nil
	}
	roots, err := certificates("mail.ca_file", c.CAFile)
	if err != nil {
		return nil, err
	}
	settings := c.settings()
	settings.Roots = roots
	if c.PasswordFile != "" {
		raw, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("reading mail.password_file: %w", err)
		}
		settings.Password = strings.TrimRight(string(raw), "\r\n")
	}
	s, err := smtp.New(settings)
	if err != nil {
		return nil, fmt.Errorf("mail.%w", err)
	}
	return s, nil
}

// check says what is wrong with the configuration that no file tells.
func (c *MailConfig) check() error {
	if c.Server == "" {
		if c.From != "" || len(c.RecipientDomains) > 0 || c.Username != "" || c.PasswordFile != "" || c.CAFile != "" {
			return errors.New("server: is missing")
		}
		return nil
	}
	if len(c.RecipientDomains) == 0 {
		return errors.New("recipient_domains: name at least one")
	}
	for _, d := range c.RecipientDomains {
		if d == "" || d != strings.ToLower(d) || strings.ContainsAny(d, "@ *") {
			return errors.New("recipient_domains: must be domains in lower case such as example.com")
		}
	}
	settings := c.settings()
	if c.PasswordFile != "" {
		settings.Password = "of the file"
	}
	_, err := smtp.New(settings)
	return err
}

func (c *MailConfig) settings() smtp.Config {
	return smtp.Config{Server: c.Server, Security: smtp.Security(c.Security), From: c.From, Username: c.Username, Domains: c.RecipientDomains}
}

// certificates reads certificates to trust beside the system's; nil without a
// file: the system's alone.
func certificates(name, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: holds no certificate", name)
	}
	return roots, nil
}

// receivers decide where events may be sent: by mail or to public addresses.
type receivers struct {
	guard *egress.Guard
	mail  *smtp.Sender // nil: no mail is sent
}

// CheckURL implements kms.WebhookAddresses.
func (r receivers) CheckURL(ctx context.Context, url string) error {
	switch {
	case !strings.HasPrefix(url, smtp.Prefix):
		return r.guard.CheckURL(ctx, url)
	case r.mail == nil:
		return errors.New("the service is not set up to send mail")
	}
	return r.mail.Check(url)
}

// attach makes what goes with the mail of an event: the report of an incident
// that is over.
func (a *App) attach(ctx context.Context, t kms.EventType, tenant string, data map[string]string) (*notify.Attachment, error) {
	if t != kms.EventCostRecovered {
		return nil, nil
	}
	of, err := uuid.Parse(tenant)
	if err != nil {
		return nil, nil
	}
	id, err := uuid.Parse(data["incident"])
	if err != nil {
		return nil, nil
	}
	incident, err := a.Store.CostIncident(ctx, of, id)
	switch {
	case err != nil && kms.KindOf(err) == kms.KindStoreUnavailable:
		return nil, err // it is sent again
	case err != nil:
		return nil, nil // it was removed meanwhile; the mail says what there is to say
	}
	body, err := costreport.Reports{}.PDF(incident)
	if err != nil {
		return nil, err
	}
	return &notify.Attachment{Name: "incident-" + id.String() + ".pdf", Type: "application/pdf", Body: body}, nil
}
