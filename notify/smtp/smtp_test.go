package smtp_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	server "github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/notify"
	"github.com/sluice-kms/sluice/notify/smtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mailbox is a server that keeps what it gets.
type mailbox struct {
	address string
	roots   *x509.CertPool
	got     chan letter
	refuse  error // of every letter
}

type letter struct {
	from, to string
	secure   bool
	user     string
	content  []byte
}

const password = "a-password-of-the-operator"

// session is a conversation with the server.
type session struct {
	box  *mailbox
	conn *server.Conn
	letter
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, given string) error {
		if user != "sluice" || given != password {
			return server.ErrAuthFailed
		}
		s.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *server.MailOptions) error {
	_, s.secure = s.conn.TLSConnectionState()
	s.from = from
	return s.box.refuse
}

func (s *session) Rcpt(to string, _ *server.RcptOptions) error {
	s.to = to
	return nil
}

func (s *session) Data(r io.Reader) (err error) {
	if s.content, err = io.ReadAll(r); err == nil {
		s.box.got <- s.letter
	}
	return err
}

func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }

// newMailbox starts a server: with TLS from the beginning, with STARTTLS, or
// with neither.
func newMailbox(t *testing.T, security smtp.Security) *mailbox {
	t.Helper()
	box := &mailbox{got: make(chan letter, 10), roots: x509.NewCertPool()}
	s := server.NewServer(server.BackendFunc(func(c *server.Conn) (server.Session, error) {
		return &session{box: box, conn: c}, nil
	}))
	s.Domain, s.ErrorLog = "mail.example.com", silent{}
	certificate := newCertificate(t, box.roots)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	box.address = listener.Addr().String()
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	switch security {
	case smtp.StartTLS:
		s.TLSConfig = config
	case smtp.TLS:
		listener = tls.NewListener(listener, config)
	}
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
	return box
}

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}

func newCertificate(t *testing.T, roots *x509.CertPool) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(certificate)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func config(box *mailbox, security smtp.Security) smtp.Config {
	c := smtp.Config{Server: box.address, Security: security, Roots: box.roots, From: "sluice@ops.example.com", Domains: []string{"example.com"}}
	if security != smtp.None {
		c.Username, c.Password = "sluice", password
	}
	return c
}

func sender(t *testing.T, c smtp.Config) *smtp.Sender {
	t.Helper()
	s, err := smtp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var sample = &notify.Mail{ID: "01890000-0000-7000-8000-00000000000a", Time: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	Subject: "Sluice: cost.stopped (error)", Text: "component: Zürich-支付\ncredits: 12\n",
	Attachment: &notify.Attachment{Name: "incident.pdf", Type: "application/pdf", Body: []byte("%PDF-1.4 \x00\x01")}}

func TestMailArrivesAsItWasWritten(t *testing.T) {
	for _, security := range []smtp.Security{smtp.StartTLS, smtp.TLS, smtp.None} {
		t.Run(string(security), func(t *testing.T) {
			box := newMailbox(t, security)
			if err := sender(t, config(box, security)).Send(t.Context(), "mailto:ops+sluice@example.com", sample); err != nil {
				t.Fatal(err)
			}
			l := <-box.got
			encrypted := security != smtp.None
			if l.from != "sluice@ops.example.com" || l.to != "ops+sluice@example.com" || (l.user == "sluice") != encrypted || security == smtp.StartTLS && !l.secure {
				t.Errorf("%+v", l)
			}
			m, err := mail.ReadMessage(bytes.NewReader(l.content))
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"Subject": sample.Subject, "Auto-Submitted": "auto-generated", "To": "<ops+sluice@example.com>",
				"Message-Id": "<01890000-0000-7000-8000-00000000000a@ops.example.com>", "Date": "Wed, 02 Jan 2030 03:04:05 +0000"} {
				if got := m.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			_, parameters, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
			if err != nil {
				t.Fatal(err)
			}
			parts := multipart.NewReader(m.Body, parameters["boundary"])
			text, err := parts.NextRawPart()
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(quotedprintable.NewReader(text))
			if err != nil || strings.ReplaceAll(string(body), "\r\n", "\n") != sample.Text {
				t.Errorf("the text is %q, %v", body, err)
			}
			file, err := parts.NextPart()
			if err != nil || file.FileName() != "incident.pdf" {
				t.Errorf("the attachment is %v, %v", file, err)
			}
		})
	}
}

func TestNothingIsSaidToAServerThatProvesNothing(t *testing.T) {
	stranger := x509.NewCertPool()
	newCertificate(t, stranger)
	for name, c := range map[string]struct {
		is, asked smtp.Security
		roots     *x509.CertPool
	}{
		"without STARTTLS":          {smtp.None, smtp.StartTLS, nil},
		"a certificate of others":   {smtp.StartTLS, smtp.StartTLS, stranger},
		"TLS of others":             {smtp.TLS, smtp.TLS, stranger},
		"no TLS from the beginning": {smtp.StartTLS, smtp.TLS, nil},
	} {
		t.Run(name, func(t *testing.T) {
			box := newMailbox(t, c.is)
			set := config(box, c.asked)
			if c.roots != nil {
				set.Roots = c.roots
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := sender(t, set).Send(ctx, "mailto:ops@example.com", sample)
			if err == nil || len(box.got) != 0 {
				t.Errorf("%d letters are there, %v", len(box.got), err)
			}
		})
	}
}

func TestRefusalsSayNeitherPasswordNorAddress(t *testing.T) {
	box := newMailbox(t, smtp.StartTLS)
	wrong := config(box, smtp.StartTLS)
	wrong.Password = "another-password"
	errs := []error{sender(t, wrong).Send(t.Context(), "mailto:ops@example.com", sample)}
	box.refuse = &server.SMTPError{Code: 550, Message: "no mail from sluice@ops.example.com"}
	errs = append(errs, sender(t, config(box, smtp.StartTLS)).Send(t.Context(), "mailto:ops@example.com", sample))
	for _, err := range errs {
		if err == nil {
			t.Fatal("it was taken")
		}
		for _, secret := range []string{"password", "example.com", "ops@", "sluice@"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%v says %s", err, secret)
			}
		}
	}
	if !strings.Contains(errs[1].Error(), "550") {
		t.Errorf("%v does not say what the server answered", errs[1])
	}
}

func TestRecipientsArePlainAddressesOfNamedDomains(t *testing.T) {
	s := sender(t, config(newMailbox(t, smtp.None), smtp.None))
	for _, url := range []string{"mailto:ops@example.com", "mailto:first.last+tag@example.com"} {
		if err := s.Check(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"mailto:", "ops@example.com", "mailto:ops", "mailto:@example.com", "mailto:ops@example.com?subject=x", "mailto:ops@example.com,other@example.com",
		"mailto:ops@example.com%0d%0aBcc:x@y", "mailto:ops@example.com\r\nBcc: other@example.com", "mailto:\"a b\"@example.com", "mailto:<ops@example.com>",
		"mailto:Ops <ops@example.com>", "mailto:a..b@example.com", "mailto:.a@example.com", "mailto:ops@[127.0.0.1]", "mailto:ops@EXAMPLE.com", "mailto:ops@exa_mple.com",
		"mailto:ops@example.com\n", "mailto:опс@example.com", "mailto:" + strings.Repeat("a", 250) + "@example.com", "https://example.com"} {
		if err := s.Check(url); !errors.Is(err, smtp.ErrRecipient) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"mailto:ops@example.org", "mailto:ops@sub.example.com", "mailto:ops@example.com.attacker.net"} {
		if err := s.Check(url); !errors.Is(err, smtp.ErrDomain) {
			t.Errorf("%q: %v", url, err)
		}
		if err := s.Send(t.Context(), url, sample); !errors.Is(err, smtp.ErrDomain) {
			t.Errorf("sending to %q: %v", url, err)
		}
	}
}

func TestPasswordsAndEventsAreNotSentInClear(t *testing.T) {
	good := smtp.Config{Server: "mail.example.com:587", Security: smtp.StartTLS, From: "sluice@example.com", Username: "sluice", Password: "x"}
	for name, edit := range map[string]func(*smtp.Config){
		"no encryption elsewhere":       func(c *smtp.Config) { c.Security, c.Username, c.Password = smtp.None, "", "" },
		"a password without encryption": func(c *smtp.Config) { c.Server, c.Security = "127.0.0.1:25", smtp.None },
		"no kind of security":           func(c *smtp.Config) { c.Security = "" },
		"no port":                       func(c *smtp.Config) { c.Server = "mail.example.com" },
		"a port that is none":           func(c *smtp.Config) { c.Server = "mail.example.com:0" },
		"a sender with a name":          func(c *smtp.Config) { c.From = "Sluice <sluice@example.com>" },
		"a user without a password":     func(c *smtp.Config) { c.Password = "" },
	} {
		c := good
		edit(&c)
		if _, err := smtp.New(c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := smtp.New(good); err != nil {
		t.Error(err)
	}
}
