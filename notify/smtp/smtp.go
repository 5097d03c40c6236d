// Package smtp sends events by mail, by way of the operator's server.
//
// A connection is encrypted, by STARTTLS or from its beginning, and the server
// proves who it is; without encryption a server is on loopback only, or a
// password and what events say would be read by the network. Recipients are in
// the domains that the operator has named: tenants choose addresses, and the
// service must not send their mail to everybody.
//
// A recipient is mailto: and a plain address, without header fields, comments,
// quotes or escapes, so that nothing of it can be read as anything else.
package smtp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	mail "github.com/wneessen/go-mail"

	"github.com/sluice-kms/sluice/notify"
)

// Security says how a connection is protected.
type Security string

// The kinds of security.
const (
	StartTLS Security = "starttls" // the connection is encrypted before anything is said
	TLS      Security = "tls"      // it is from its beginning
	None     Security = "none"     // to a server on loopback
)

// timeout bounds the connection; an attempt has its own bound.
const timeout = 15 * time.Second

// Config is what a Sender needs.
type Config struct {
	Server   string // host:port
	Security Security
	Roots    *x509.CertPool // nil: the system's
	From     string         // a plain address
	Username string         // "": the server asks for none
	Password string
	Domains  []string // of recipients, lower case
}

// Sender sends mail. It is safe for concurrent use.
type Sender struct {
	c    Config
	host string
	port int
}

// Errors of recipients.
var (
	ErrRecipient = errors.New("a recipient is mailto: and a plain address")
	ErrDomain    = errors.New("mail is sent to the domains only that the operator has named")
)

// New makes a Sender.
func New(c Config) (*Sender, error) {
	host, port, err := net.SplitHostPort(c.Server)
	if err != nil {
		return nil, errors.New("server: must be host:port")
	}
	s := &Sender{c: c, host: host}
	if s.port, err = strconv.Atoi(port); err != nil || s.port < 1 || s.port > 65535 {
		return nil, errors.New("server: the port must be 1 to 65535")
	}
	switch {
	case c.Security != StartTLS && c.Security != TLS && c.Security != None:
		return nil, errors.New("security: must be starttls, tls or none")
	case c.Security == None && !loopback(host):
		return nil, errors.New("security: without encryption the server must be on loopback")
	case c.Security == None && c.Username != "":
		return nil, errors.New("security: a password is not sent without encryption")
	case !address.MatchString(c.From):
		return nil, errors.New("from: must be a plain address")
	case (c.Username == "") != (c.Password == ""):
		return nil, errors.New("username: goes with a password")
	}
	return s, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// address is a plain address: the unquoted form of RFC 5321, 4.1.2, without the
// signs that mean something elsewhere.
var address = regexp.MustCompile(`^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// maxAddress bounds an address in bytes (RFC 5321, 4.5.3.1.3, less the angle
// brackets).
const maxAddress = 254

// Prefix begins the URL of a recipient.
const Prefix = "mailto:"

// Check refuses a URL that is no recipient, or none that mail may be sent to.
func (s *Sender) Check(url string) error {
	_, err := s.recipient(url)
	return err
}

func (s *Sender) recipient(url string) (string, error) {
	to, ok := strings.CutPrefix(url, Prefix)
	if !ok || len(to) > maxAddress || !address.MatchString(to) {
		return "", ErrRecipient
	}
	if _, domain, _ := strings.Cut(to, "@"); !slices.Contains(s.c.Domains, domain) {
		return "", ErrDomain
	}
	return to, nil
}

// Send sends a mail to a recipient; nil when the server took it.
func (s *Sender) Send(ctx context.Context, url string, m *notify.Mail) error {
	to, err := s.recipient(url) // again: what the operator names can change
	if err != nil {
		return err
	}
	message, err := s.message(to, m)
	if err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return fmt.Errorf("setting the mail client up: %w", err)
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return errors.New("the mail server did not take it: " + reason(err))
	}
	return nil
}

// reason says what went wrong without the addresses that errors of the library
// hold.
func reason(err error) string {
	var refused *mail.SendError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode() != 0:
		return "status " + strconv.Itoa(refused.ErrorCode())
	case errors.As(err, &refused):
		return refused.Reason.String()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "it takes too long"
	}
	return "it cannot be spoken to"
}

func (s *Sender) message(to string, m *notify.Mail) (*mail.Msg, error) {
	message := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := message.From(s.c.From); err != nil {
		return nil, errors.New("the sender is no address")
	}
	if err := message.To(to); err != nil {
		return nil, ErrRecipient
	}
	_, domain, _ := strings.Cut(s.c.From, "@")
	message.SetMessageIDWithValue(m.ID + "@" + domain) // the same in every attempt
	message.SetDateWithValue(m.Time)
	message.Subject(m.Subject)
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody's absence is answered
	message.SetBodyString(mail.TypeTextPlain, m.Text)
	if a := m.Attachment; a != nil {
		if err := message.AttachReader(a.Name, bytes.NewReader(a.Body), mail.WithFileContentType(mail.ContentType(a.Type))); err != nil {
			return nil, errors.New("the attachment cannot be read")
		}
	}
	return message, nil
}

func (s *Sender) client() (*mail.Client, error) {
	_, domain, _ := strings.Cut(s.c.From, "@")
	options := []mail.Option{mail.WithPort(s.port), mail.WithTimeout(timeout), mail.WithHELO(domain),
		mail.WithTLSConfig(&tls.Config{ServerName: s.host, RootCAs: s.c.Roots, MinVersion: tls.VersionTLS12})}
	switch s.c.Security {
	case StartTLS:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	case TLS:
		options = append(options, mail.WithSSL())
	default:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if s.c.Username != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthPlain), mail.WithUsername(s.c.Username), mail.WithPassword(s.c.Password))
	}
	return mail.NewClient(s.host, options...)
}
