package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// The formats of an export.
const (
	formatJSON = "json"
	formatCEF  = "cef"
)

// syslogTimeout bounds the connection to a syslog server and each message.
const syslogTimeout = 10 * time.Second

// exporter is one run of audit export.
type exporter struct {
	trailFlags
	format, file, syslog string
	on                   bool
}

func (p *program) auditExport() *cobra.Command {
	var x exporter
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the audit trail out, as JSON lines or CEF, or to a syslog server",
		Long: `Write the audit trail out in the order of arrival, an entry a line: as JSON or in
the Common Event Format, to the output, appended to a file, or to a syslog server
(RFC 5424 over udp, or over tcp with octet counting, RFC 6587).

At its end it says the position of the last entry. Given as --after it goes on
behind it, so that an export that was interrupted misses nothing and repeats
nothing. With --follow it goes on by itself.
` + trailHelp,
		Example: `  sluice audit export --out audit.jsonl
  sluice audit export --after api-1/48213 --out audit.jsonl
  sluice audit export --syslog udp://192.0.2.7:514 --follow`,
		Args: noArguments,
	}
	f := c.Flags()
	f.StringVar(&x.format, "format", formatJSON, "`FORMAT` of the lines: json or cef")
	f.StringVar(&x.file, "out", "", "append to this `FILE`, mode 0600")
	f.StringVar(&x.syslog, "syslog", "", "send to this server's `URL`: udp://HOST:PORT or tcp://HOST:PORT")
	f.StringVar(&x.query.After, "after", "", "begin behind the entry at this `POSITION`, API-NODE/SEQUENCE")
	f.BoolVar(&x.on, "follow", false, "go on as entries come, until it is interrupted")
	choices(c, "format", formatJSON, formatCEF)
	noCompletion(c, "syslog", "after")
	x.add(c)
	s := p.session(c)
	s.tenantFlag()
	verb := s.verb(func(s *session) error { return s.export(&x) })
	return exclusive(verb, "out", "syslog")
}

func (s *session) export(x *exporter) (err error) {
	if err := x.read(s.cmd, time.Now()); err != nil {
		return err
	}
	if x.format != formatJSON && x.format != formatCEF {
		return usage(s.cmd, "--format: must be %s or %s", formatJSON, formatCEF)
	}
	ctx, stop := s.untilInterrupted()
	defer stop()
	_, api, err := s.connect()
	if err != nil {
		return err
	}
	out, err := s.exportTo(x)
	if err != nil {
		return err
	}
	q := x.query
	q.ByArrival, q.PageSize = true, maxTrailPage
	n, last := 0, x.query.After
	err = s.follow(ctx, api, q, x.on, func(e *client.AuditEntry) error {
		if err := out.entry(e, x.format); err != nil {
			return fmt.Errorf("writing an entry: %w", err)
		}
		n, last = n+1, e.Position()
		return nil
	})
	// What was written is worth knowing whatever happened then.
	err = errors.Join(err, out.close())
	if last != "" {
		s.say("%d entries; the next begin behind --after %s", n, last)
	}
	return err
}

// exportTo opens what the entries are written to.
func (s *session) exportTo(x *exporter) (*lineSink, error) {
	switch {
	case x.syslog != "":
		u, err := url.Parse(x.syslog)
		if err != nil || u.Scheme != "udp" && u.Scheme != "tcp" || u.Port() == "" || u.Path != "" {
			return nil, usage(s.cmd, "--syslog: must be udp://HOST:PORT or tcp://HOST:PORT")
		}
		conn, err := net.DialTimeout(u.Scheme, u.Host, syslogTimeout)
		if err != nil {
			return nil, fmt.Errorf("connecting to the syslog server: %w", err)
		}
		return &lineSink{conn: conn, stream: u.Scheme == "tcp", close: conn.Close}, nil
	case x.file != "":
		f, err := os.OpenFile(x.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening the output file: %w", err)
		}
		return &lineSink{lines: f, close: func() error { return errors.Join(f.Sync(), f.Close()) }}, nil
	}
	return &lineSink{lines: s.cmd.OutOrStdout(), close: func() error { return nil }}, nil
}

// lineSink takes entries as lines, or as syslog messages.
type lineSink struct {
	lines  io.Writer
	conn   net.Conn // nil: lines
	stream bool     // messages are counted, and no datagrams
	close  func() error
	buffer bytes.Buffer
}

func (k *lineSink) entry(e *client.AuditEntry, format string) error {
	k.buffer.Reset()
	if format == formatCEF {
		k.buffer.WriteString(cef(e))
		k.buffer.WriteByte('\n')
	} else if err := jsonLine(&k.buffer, e); err != nil {
		return err
	}
	if k.conn == nil {
		_, err := k.lines.Write(k.buffer.Bytes())
		return err
	}
	message := syslogMessage(e, strings.TrimSuffix(k.buffer.String(), "\n"))
	if k.stream {
		message = strconv.Itoa(len(message)) + " " + message
	}
	if err := k.conn.SetWriteDeadline(time.Now().Add(syslogTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(k.conn, message)
	return err
}

// syslogMessage is a message of RFC 5424 with the facility "log audit": a
// warning when something was refused, else informational.
func syslogMessage(e *client.AuditEntry, text string) string {
	const facility, warning, informational = 13, 4, 6
	severity := informational
	if refusedEntry(e) {
		severity = warning
	}
	return fmt.Sprintf("<%d>1 %s %s sluice - audit - %s", facility*8+severity, e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), e.APINode, text)
}

func refusedEntry(e *client.AuditEntry) bool { return e.Outcome != "ok" && e.Phase != "intent" }

// cef is an entry in the Common Event Format, version 0.
func cef(e *client.AuditEntry) string {
	severity := "3"
	if refusedEntry(e) {
		severity = "6"
	}
	name := strings.TrimSpace(e.Operation + " " + e.Outcome)
	var b strings.Builder
	b.WriteString("CEF:0")
	for _, field := range []string{"Sluice", "Sluice", "1", e.Operation, name, severity} {
		b.WriteByte('|')
		b.WriteString(cefHeader.Replace(printable(field)))
	}
	b.WriteByte('|')
	reasons := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		reasons[i] = r.Code
	}
	separator := ""
	for _, x := range []struct{ name, label, value string }{
		{"rt", "", strconv.FormatInt(e.Time.UnixMilli(), 10)},
		{"externalId", "", e.RequestID},
		{"dvchost", "", e.APINode},
		{"cn1", "sequence", strconv.FormatUint(e.Sequence, 10)},
		{"act", "", e.Operation},
		{"outcome", "", e.Outcome},
		{"reason", "", strings.Join(reasons, ",")},
		{"cat", "", e.Phase},
		{"src", "", e.Address},
		{"requestClientApplication", "", e.UserAgent},
		{"suid", "", e.Credential},
		{"suser", "", e.Subject},
		{"cs1", "tenant", e.Tenant},
		{"cs2", "project", e.Project},
		{"cs3", "component", e.Component},
		{"cs4", "key", strings.TrimSpace(e.Key + " " + e.KeyName)},
		{"cs5", "resource", e.Resource},
		{"cs6", "algorithm", e.Algorithm},
		{"cfp1", "credits", credits(e.Charged)},
		{"cnt", "", strconv.FormatUint(uint64(max(e.Count, 1)), 10)},
	} {
		if x.value == "" {
			continue
		}
		b.WriteString(separator + x.name + "=" + cefValue.Replace(printable(x.value)))
		if separator = " "; x.label != "" {
			b.WriteString(separator + x.name + "Label=" + x.label)
		}
	}
	return b.String()
}

// What the format escapes.
var (
	cefHeader = strings.NewReplacer(`\`, `\\`, `|`, `\|`)
	cefValue  = strings.NewReplacer(`\`, `\\`, `=`, `\=`)
)
