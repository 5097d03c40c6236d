package cli

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const (
	// jobTimeout is how long a verb of jobs may take by default that sends or reads
	// a million items, or watches them run.
	jobTimeout = 24 * time.Hour
	// watchInterval is how often a watch asks how far a job is.
	watchInterval = time.Second
	// barWidth is that of a progress bar, in characters.
	barWidth = 30
)

// jobVerb is a verb whose argument is a job.
func (p *program) jobVerb(c *cobra.Command, run func(ctx context.Context, s *session, api *client.Client, id string) error) *cobra.Command {
	s := p.session(c)
	c.Args = argument("JOB")
	c.ValidArgsFunction = s.completeAt(0, jobIDs)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return run(ctx, s, api, s.args[0])
	})
}

func jobIDs(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for j, err := range c.ListJobs(ctx) {
			if err != nil || !yield(cobra.CompletionWithDesc(j.ID, fmt.Sprintf("%s, %d items", j.State, j.Items))) {
				return
			}
		}
	}
}

// takesLong gives a verb more time than others have.
func takesLong(c *cobra.Command) *cobra.Command {
	f := c.Flags().Lookup("timeout")
	f.DefValue = jobTimeout.String()
	must(f.Value.Set(f.DefValue))
	return c
}

func (p *program) jobSubmit() *cobra.Command {
	var watch bool
	var retain int
	c := tries(&cobra.Command{
		Use:   "submit FILE",
		Short: "Have many operations run that nobody waits for",
		Long: `Have many operations run that nobody waits for. Each line of the file ("-":
standard input) is an item as for "sluice batch", up to 1,000,000. They run at
bulk urgency, each charged and recorded once, whatever happens to the service.
What is refused for now is run again later.`,
		Example: `  sluice job submit items.jsonl --watch
  producer | sluice job submit - --retain 72`,
	})
	c.Flags().BoolVar(&watch, "watch", false, "show how far it is, until it is over")
	c.Flags().IntVar(&retain, "retain", 24, "keep the results for this number of `HOURS` after its end, 1 to 168")
	noCompletion(c, "retain")
	s := p.session(c)
	c.Args = argument("FILE")
	c.ValidArgsFunction = cobra.FixedCompletions([]cobra.Completion{"jsonl", "json"}, cobra.ShellCompDirectiveFilterFileExt)
	return takesLong(s.verb(func(s *session) error {
		in, err := s.openItems(s.args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		j, err := api.SubmitJob(ctx, in, &client.SubmitJobOptions{Retain: time.Duration(retain) * time.Hour})
		if err != nil {
			return err
		}
		if !watch {
			return s.show(j, func(w io.Writer) error { return jobDetails(w, &j.Job) })
		}
		s.say("job %s: %d items", j.ID, j.Items)
		return s.watchJob(ctx, api, j.ID)
	}))
}

func (p *program) jobWatch() *cobra.Command {
	c := &cobra.Command{
		Use:   "watch JOB",
		Short: "Show how far a job is, until it is over",
		Long: `Show how far a job is, until it is over: as a bar on a terminal, elsewhere as a
line whenever something has changed. Ctrl-C ends the watching; the job goes on.
If the job is not done at the end, or items have a problem, the exit code is 1.`,
		Example: `  sluice job watch 0192f3a0-0000-7000-8000-000000000001`,
	}
	return takesLong(p.jobVerb(c, func(ctx context.Context, s *session, api *client.Client, id string) error {
		return s.watchJob(ctx, api, id)
	}))
}

// watchJob shows a job's progress until it is over.
func (s *session) watchJob(ctx context.Context, api *client.Client, id string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	bar := s.interactive(s.cmd.ErrOrStderr())
	for last := ""; ; {
		j, err := api.GetJob(ctx, id)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			if bar {
				fmt.Fprintln(s.cmd.ErrOrStderr())
			}
			s.say("the job goes on; see it with: sluice job watch %s", id)
			return ctx.Err()
		}
		line := progressLine(&j.Job)
		switch {
		case bar:
			fmt.Fprintf(s.cmd.ErrOrStderr(), "\r\x1b[K%s %s", progressBar(&j.Job), line)
		case line != last:
			fmt.Fprintln(s.cmd.ErrOrStderr(), line)
		}
		last = line
		if j.State.Ended() {
			if bar {
				fmt.Fprintln(s.cmd.ErrOrStderr())
			}
			if err := s.show(j, func(w io.Writer) error { return jobDetails(w, &j.Job) }); err != nil {
				return err
			}
			return jobError(&j.Job)
		}
		timer := time.NewTimer(watchInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// jobError is what the exit code of a watch says of a job that is over.
func jobError(j *client.Job) error {
	switch {
	case j.State != client.JobDone:
		return fmt.Errorf("the job is %s", strings.TrimSpace(strings.ToLower(string(j.State))+" "+j.Reason))
	case j.Failed > 0:
		return fmt.Errorf("%d of %d items have a problem", j.Failed, j.Items)
	}
	return nil
}

func progressBar(j *client.Job) string {
	full := 0
	if j.Items > 0 {
		full = int(j.Done * barWidth / j.Items)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// progressLine says in a line how far a job is.
func progressLine(j *client.Job) string {
	percent := int64(100)
	if j.Items > 0 {
		percent = j.Done * 100 / j.Items
	}
	line := fmt.Sprintf("%3d %%  %d of %d items, %d with a problem, %s credits", percent, j.Done, j.Items, j.Failed, credits(j.Credits))
	switch {
	case j.State == client.JobWaiting && j.WaitsUntil != nil:
		line += fmt.Sprintf(", waits for %s until %s", j.WaitsFor, date(*j.WaitsUntil))
	case j.State.Ended():
		line += ", " + strings.ToLower(string(j.State))
	case j.EndsAt != nil && j.PerSecond > 0:
		line += fmt.Sprintf(", %.0f a second, some %v to go", j.PerSecond, time.Until(*j.EndsAt).Round(time.Second))
	}
	return line
}

func jobDetails(w io.Writer, j *client.Job) error {
	when := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return date(*t)
	}
	return details(w, field{"ID", j.ID}, field{"State", string(j.State)}, field{"Reason", j.Reason}, field{"Waits for", j.WaitsFor},
		field{"Waits until", when(j.WaitsUntil)}, field{"Items", strconv.FormatInt(j.Items, 10)}, field{"Done", strconv.FormatInt(j.Done, 10)},
		field{"With a problem", strconv.FormatInt(j.Failed, 10)}, field{"Credits", credits(j.Credits)},
		field{"Items a second", strconv.FormatFloat(j.PerSecond, 'f', 0, 64)}, field{"Project", j.Project}, field{"Credential", j.Credential},
		field{"Created", date(j.CreatedAt)}, field{"Ended", when(j.EndedAt)}, field{"Expires", date(j.ExpiresAt)})
}

func (p *program) jobGet() *cobra.Command {
	c := &cobra.Command{
		Use:     "get JOB",
		Short:   "Show how far a job is",
		Long:    "Show how far a job is, what it was charged, and what it waits for.",
		Example: "  sluice job get 0192f3a0-0000-7000-8000-000000000001",
	}
	return p.jobVerb(c, func(ctx context.Context, s *session, api *client.Client, id string) error {
		j, err := api.GetJob(ctx, id)
		if err != nil {
			return err
		}
		return s.show(j, func(w io.Writer) error { return jobDetails(w, &j.Job) })
	})
}

func (p *program) jobList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List jobs",
		Long:    "List the credential's jobs, or for an administrator all of the tenant, in the\norder in which they were made.",
		Example: "  sluice job list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "jobs")
	return p.session(c).verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		list, err := collect(api.ListJobs(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Jobs []*client.Job `json:"jobs"`
		}{list}, func(w io.Writer) error {
			rows := make([][]string, len(list))
			for i, j := range list {
				rows[i] = []string{j.ID, string(j.State), strconv.FormatInt(j.Items, 10), strconv.FormatInt(j.Done, 10), strconv.FormatInt(j.Failed, 10),
					credits(j.Credits), date(j.CreatedAt)}
			}
			return table(w, []string{"ID", "STATE", "ITEMS", "DONE", "PROBLEMS", "CREDITS", "CREATED"}, rows)
		})
	})
}

func (p *program) jobResults() *cobra.Command {
	var from int64
	var out string
	c := &cobra.Command{
		Use:   "results JOB",
		Short: "Print the results of a job",
		Long: `Print the results of a job, one a line in the order of its items: an index and a
status with a result or a problem. Results can hold plaintexts. Only the
credential that submitted the job may read them.

With --out they are added to a file, mode 0600, from where it ends: a verb that
was interrupted goes on. If there are more to come the exit code is 1.`,
		Example: `  sluice job results 0192f3a0-0000-7000-8000-000000000001 --out results.jsonl`,
	}
	c.Flags().Int64Var(&from, "from", 0, "begin with the item of this `INDEX`")
	c.Flags().StringVar(&out, "out", "", "add the results to this `FILE`, from where it ends")
	noCompletion(c, "from")
	c.MarkFlagsMutuallyExclusive("from", "out")
	return takesLong(p.jobVerb(c, func(ctx context.Context, s *session, api *client.Client, id string) error {
		to := s.cmd.OutOrStdout()
		if out != "" {
			f, lines, err := openResults(out)
			if err != nil {
				return err
			}
			defer f.Close()
			to, from = f, lines
		}
		next, err := s.writeResults(ctx, api, id, from, to)
		if errors.Is(err, client.ErrJobUnfinished) {
			return fmt.Errorf("%w; %d are there so far: ask again with --from %d", err, next, next)
		}
		return err
	}))
}

// openResults opens a file of results, cuts off a line that was not written
// whole, and counts the others.
func openResults(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the results: %w", err)
	}
	var whole, read, lines int64
	for r := bufio.NewReader(f); ; {
		part, err := r.ReadSlice('\n')
		read += int64(len(part))
		switch err {
		case nil:
			whole, lines = read, lines+1
		case bufio.ErrBufferFull:
		case io.EOF:
			if err := f.Truncate(whole); err != nil {
				return nil, 0, errors.Join(fmt.Errorf("cutting off a result: %w", err), f.Close())
			}
			_, err := f.Seek(whole, io.SeekStart)
			return f, lines, err
		default:
			return nil, 0, errors.Join(fmt.Errorf("reading the results: %w", err), f.Close())
		}
	}
}

// writeResults writes results and returns the index behind the last.
func (s *session) writeResults(ctx context.Context, api *client.Client, id string, from int64, to io.Writer) (next int64, err error) {
	out := bufio.NewWriter(to)
	defer func() {
		if flushed := out.Flush(); err == nil && flushed != nil {
			err = fmt.Errorf("writing the results: %w", flushed)
		}
	}()
	next = from
	for r, err := range api.JobResults(ctx, id, from) {
		if err != nil {
			return next, err
		}
		if err := json.MarshalWrite(out, r); err != nil {
			return next, fmt.Errorf("writing the results: %w", err)
		}
		out.WriteByte('\n') // Flush has the error
		next = r.Index + 1
	}
	return next, nil
}

func (p *program) jobCancel() *cobra.Command {
	c := tries(&cobra.Command{
		Use:   "cancel JOB",
		Short: "Cancel a job, or delete one that is over",
		Long: `Cancel a job: what has not begun is not run, and the results there are stay. A job
that is over is deleted with its results.`,
		Example: `  sluice job cancel 0192f3a0-0000-7000-8000-000000000001`,
	})
	return p.jobVerb(c, func(ctx context.Context, s *session, api *client.Client, id string) error {
		j, err := api.CancelJob(ctx, id)
		if err != nil {
			return err
		}
		return s.show(j, func(w io.Writer) error {
			state := string(j.State)
			if j.Deleted {
				state = "deleted"
			}
			return details(w, field{"ID", j.ID}, field{"State", state})
		})
	})
}
