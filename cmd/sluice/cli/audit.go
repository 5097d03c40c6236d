package cli

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const trailHelp = `The audit trail is a copy of all API nodes' journals in the database; each entry
says by API node and sequence where it stands in the journal, which is what
counts (see "sluice audit verify"). A tenant's credential needs the scope
audit:read and reads its own tenant; an operator reads all, or with --tenant one.
Reading is itself in the journal.`

// trailFlags are the flags that say which entries.
type trailFlags struct {
	query    client.AuditQuery
	from, to string
}

func (f *trailFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.from, "from", "", "entries of this `TIME` or later: RFC 3339, a day of UTC, or how long ago, such as 2h")
	flags.StringVar(&f.to, "to", "", "entries before this `TIME`")
	flags.StringVar(&f.query.Operation, "operation", "", "entries of this `OPERATION`, such as sign")
	flags.StringVar(&f.query.Key, "key", "", "entries of the key with this `ID`")
	flags.StringVar(&f.query.Credential, "caller", "", "entries of the credential with this `ID`")
	flags.StringVar(&f.query.Outcome, "outcome", "", "entries with this `OUTCOME`: ok, or the code of a problem")
	flags.StringVar(&f.query.Request, "request", "", "entries of the request with this `ID`")
	flags.StringVar(&f.query.Project, "project", "", "entries of this `PROJECT`")
	flags.StringVar(&f.query.Component, "component", "", "entries of this `COMPONENT`")
	flags.StringVar(&f.query.APINode, "api-node", "", "entries of this API node's `NAME`")
	for _, name := range []string{"from", "to", "operation", "key", "caller", "outcome", "request", "project", "component", "api-node"} {
		noCompletion(c, name)
	}
}

// read fills the times of the query in.
func (f *trailFlags) read(c *cobra.Command, now time.Time) (err error) {
	if f.query.From, err = moment(f.from, now); err != nil {
		return usage(c, "--from: %v", err)
	}
	if f.query.To, err = moment(f.to, now); err != nil {
		return usage(c, "--to: %v", err)
	}
	return nil
}

// moment reads a time: RFC 3339, a day, or how long ago; "" is the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is no time; give 2026-01-31, 2026-01-31T12:00:00Z or 2h", text)
	}
	return t, nil
}

func (p *program) auditQuery() *cobra.Command {
	var f trailFlags
	var limit int
	c := &cobra.Command{
		Use:   "query",
		Short: "Search the audit trail",
		Long:  "Search the audit trail, the newest entries first.\n" + trailHelp,
		Example: `  sluice audit query --from 2h --outcome quota_exceeded
  sluice audit query --request 01920000-0000-7000-8000-000000000001 --json`,
		Args: noArguments,
	}
	c.Flags().IntVar(&limit, "limit", 50, "show at most this `NUMBER` of entries; 0 is all")
	noCompletion(c, "limit")
	f.add(c)
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		if err := f.read(c, time.Now()); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		found, more, err := searchTrail(ctx, api, s.tenant, f.query, limit)
		if err != nil {
			return err
		}
		if err := s.show(found, func(w io.Writer) error { return trailTable(w, found.Entries) }); err != nil {
			return err
		}
		if more {
			s.say("There are more; see --limit and --to.")
		}
		return nil
	})
}

// searchTrail reads pages up to a number of entries, 0 for all.
func searchTrail(ctx context.Context, api *client.Client, tenant string, q client.AuditQuery, limit int) (*client.AuditPage, bool, error) {
	all := &client.AuditPage{Entries: []client.AuditEntry{}}
	for {
		q.PageSize = maxTrailPage
		if limit > 0 {
			q.PageSize = min(limit-len(all.Entries), maxTrailPage)
		}
		page, err := api.Audit(ctx, tenant, q)
		if err != nil {
			return nil, false, err
		}
		all.Entries = append(all.Entries, page.Entries...)
		all.Completeness, all.Charge = page.Completeness, page.Charge
		if q.PageToken = page.Next; page.Next == "" || len(all.Entries) == limit {
			return all, page.Next != "", nil
		}
	}
}

// maxTrailPage is the largest page that the service gives.
const maxTrailPage = 1000

var trailHeader = []string{"TIME", "OPERATION", "OUTCOME", "KEY", "COMPONENT", "CREDITS", "MS", "POSITION"}

func trailRow(e *client.AuditEntry) []string {
	outcome := e.Outcome
	switch {
	case e.Phase == "intent":
		outcome = "(intent)"
	case e.DryRun:
		outcome += " (dry run)"
	case e.Replayed:
		outcome += " (replayed)"
	case e.Count > 1:
		outcome += fmt.Sprintf(" ×%d", e.Count)
	}
	for _, r := range e.Reasons {
		if r.WaitMS == 0 {
			outcome += ": " + r.Code
			break
		}
	}
	key := e.KeyName
	if key == "" {
		key = e.Key
	}
	return []string{e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), e.Operation, outcome, key, e.Component, credits(e.Charged),
		fmt.Sprintf("%.1f", e.TotalMS), e.Position()}
}

func trailTable(w io.Writer, entries []client.AuditEntry) error {
	rows := make([][]string, len(entries))
	for i := range entries {
		rows[i] = trailRow(&entries[i])
	}
	return table(w, trailHeader, rows)
}

// tailPause is how often tail asks for what is new.
const tailPause = 2 * time.Second

func (p *program) auditTail() *cobra.Command {
	var f trailFlags
	var last int
	var once bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Show entries as they come into the audit trail",
		Long: "Show entries as they come into the audit trail, about a second after they were\nrecorded, until it is interrupted. Readings of the trail are left out, unless\n" +
			"--operation read-audit asks for them.\n" + trailHelp,
		Example: `  sluice audit tail
  sluice audit tail --outcome permission_denied --json`,
		Args: noArguments,
	}
	c.Flags().IntVar(&last, "lines", 10, "show this `NUMBER` of entries that are there already first, 0 to 1000")
	c.Flags().StringVar(&f.query.After, "after", "", "begin behind the entry at this `POSITION`, as the output has it")
	c.Flags().BoolVar(&once, "once", false, "show what is there and end")
	noCompletion(c, "lines", "after")
	f.add(c)
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		if err := f.read(c, time.Now()); err != nil {
			return err
		}
		if last < 0 || last > maxTrailPage {
			return usage(c, "--lines: must be 0 to %d", maxTrailPage)
		}
		return s.tail(f.query, last, once)
	})
}

// tail shows the last entries, or none when it begins behind a position, and
// follows the trail.
func (s *session) tail(q client.AuditQuery, last int, once bool) error {
	ctx, stop := s.untilInterrupted()
	defer stop()
	_, api, err := s.connect()
	if err != nil {
		return err
	}
	follow := q
	follow.ByArrival, follow.PageSize = true, maxTrailPage
	printed := map[string]bool{}
	if q.After == "" {
		// Where the trail ends now is asked first: what comes meanwhile is in
		// both, and shown once.
		end := follow
		end.After, end.PageSize = "end", 1
		page, err := s.trailPage(ctx, api, end)
		if err != nil {
			return err
		}
		follow.PageToken = page.Resume
		if last > 0 {
			if printed, err = s.lastLines(ctx, api, q, last); err != nil {
				return err
			}
		}
	}
	return s.follow(ctx, api, follow, !once, func(e *client.AuditEntry) error {
		if printed[e.Position()] || e.Operation == readAudit && q.Operation != readAudit {
			return nil
		}
		return s.trailLine(e)
	})
}

// lastLines shows the newest entries, the oldest of them first, and returns
// their positions.
func (s *session) lastLines(ctx context.Context, api *client.Client, q client.AuditQuery, n int) (map[string]bool, error) {
	q.PageSize = n
	page, err := s.trailPage(ctx, api, q)
	if err != nil {
		return nil, err
	}
	printed := make(map[string]bool)
	for _, e := range slices.Backward(page.Entries) {
		printed[e.Position()] = true
		if e.Operation == readAudit && q.Operation != readAudit {
			continue
		}
		if err := s.trailLine(&e); err != nil {
			return nil, err
		}
	}
	return printed, nil
}

// follow hands entries to fn as they come, until ctx ends or, unless on, the
// trail does.
func (s *session) follow(ctx context.Context, api *client.Client, q client.AuditQuery, on bool, fn func(*client.AuditEntry) error) error {
	for {
		page, err := s.trailPage(ctx, api, q)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range page.Entries {
			if err := fn(&page.Entries[i]); err != nil {
				return err
			}
		}
		q.After, q.PageToken = "", page.Resume
		if page.Next != "" {
			continue
		}
		if !on {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tailPause):
		}
	}
}

// untilInterrupted is the context of a verb that a person or a service manager
// ends.
func (s *session) untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(s.cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

// trailPage reads a page within the time of one call.
func (s *session) trailPage(ctx context.Context, api *client.Client, q client.AuditQuery) (*client.AuditPage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return api.Audit(ctx, s.tenant, q)
}

// readAudit is the operation of reading the trail.
const readAudit = "read-audit"

// trailLine writes one entry: as JSON, or in columns.
func (s *session) trailLine(e *client.AuditEntry) error {
	out := s.cmd.OutOrStdout()
	if s.json {
		return jsonLine(out, e)
	}
	row := trailRow(e)
	for i := range row {
		row[i] = printable(row[i])
	}
	_, err := fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%-24s  %-14s  %-28s  %-24s  %-12s  %8s  %8s  %s",
		row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]), " "))
	return err
}

func jsonLine(w io.Writer, e *client.AuditEntry) error {
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("writing an entry: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
