package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const (
	topInterval    = time.Second
	minTopInterval = 100 * time.Millisecond // asking more often would be a load of its own
	// topRows bounds the tenants of a domain in a frame: what fits on a screen
	// beside the rest.
	topRows = 15
)

func (p *program) top() *cobra.Command {
	var once bool
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch who waits for the HSMs, and why (operators)",
		Long: `Watch who waits for the HSMs, and why, as the API node that is asked sees it:
nodes, the utilisation gate, tenants with work, and what requests wait for.

BEHIND is the wait to expect on a node. SHARE is a tenant's fair share of the
slots, USED what it used of them in the last second, LAG the slot time that it is
owed (negative: it is ahead), HELD the cap that holds it. WAITS says how many
requests of a class waited for a reason, on average since the last frame; in the
first frame it is the seconds since the service started.

q or Ctrl-C ends it. Where the output is no terminal, frames follow each other.
` + operators,
		Example: `  sluice top
  sluice top --once --json`,
		Args: noArguments,
	}
	c.Flags().BoolVar(&once, "once", false, "print one frame and end")
	c.Flags().DurationVar(&interval, "interval", topInterval, "time between two frames, at least 100ms")
	noCompletion(c, "interval")
	return p.operatorVerb(c, func(s *session) error {
		if interval < minTopInterval {
			return usage(s.cmd, "--interval must be at least %v", minTopInterval)
		}
		_, api, err := s.connect()
		if err != nil {
			return err
		}
		t := &top{session: s, api: api}
		if once {
			return t.frame(s.cmd.Context())
		}
		return t.watch(interval)
	})
}

// top is one run of the verb.
type top struct {
	*session
	api    *client.Client
	screen bool // frames replace each other
	last   *client.SchedulerState
	asked  time.Time // when last was
}

// watch shows frames until somebody ends it. The terminal is left as it was.
func (t *top) watch(interval time.Duration) error {
	ctx, stop := signal.NotifyContext(t.cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := t.cmd.OutOrStdout()
	if t.screen = t.interactive(out) && !t.json; t.screen {
		in := t.cmd.InOrStdin()
		if t.interactive(in) {
			quit, restore := readKeys(in.(*os.File))
			defer restore()
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-quit:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
		io.WriteString(out, enterScreen)
		defer io.WriteString(out, leaveScreen)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := t.frame(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// What terminals do at these sequences (ECMA-48, and xterm's alternate screen):
// frames are drawn over each other there, and what was shown before comes back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endOfLine   = "\x1b[K\r\n"
	below       = "\x1b[J"
)

// frame asks once and shows the answer.
func (t *top) frame(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	state, err := t.api.Scheduler(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	var frame bytes.Buffer
	err = t.show(state, func(io.Writer) error { return topFrame(&frame, state, t.last, now.Sub(t.asked)) })
	t.last, t.asked = state, now
	if err != nil || t.json {
		return err
	}
	text := frame.String()
	if t.screen {
		text = home + strings.ReplaceAll(text, "\n", endOfLine) + below
	}
	_, err = io.WriteString(t.cmd.OutOrStdout(), text)
	return err
}

// topFrame writes a state, with what has changed since the last one, nil for
// none.
func topFrame(w io.Writer, now, last *client.SchedulerState, since time.Duration) error {
	fmt.Fprintf(w, "%d of %d requests wait, of %d tenants, the longest for %.1f ms\n\n", now.Waiting, now.MaxWaiting, now.WaitingTenants, now.OldestMS)
	var nodes [][]string
	for i := range now.Nodes {
		n := &now.Nodes[i]
		state := "up"
		if n.Down {
			state = "down"
		}
		nodes = append(nodes, []string{n.Node, n.Domain, state, strconv.Itoa(n.Slots), strconv.Itoa(n.Busy), strconv.Itoa(n.Waiting),
			fmt.Sprintf("%.1f ms", n.BehindMS), strconv.FormatUint(n.Granted, 10), strconv.FormatUint(n.Away, 10)})
	}
	if err := table(w, []string{"NODE", "DOMAIN", "STATE", "SLOTS", "BUSY", "WAITING", "BEHIND", "SERVED", "AWAY"}, nodes); err != nil {
		return err
	}
	for i := range now.Domains {
		d := &now.Domains[i]
		if len(d.Tenants) == 0 && len(waits(d, nil, 0)) == 0 {
			continue // nothing has happened there
		}
		if err := topDomain(w, d, last, since); err != nil {
			return err
		}
	}
	return nil
}

func topDomain(w io.Writer, d *client.SchedulerDomain, last *client.SchedulerState, since time.Duration) error {
	fmt.Fprintf(w, "\n%s: %d of %d slots busy, %d wait; gate %s, %.0f %% fast, %.0f %% slow", printable(d.Name), d.Busy, d.Slots, d.Waiting,
		strings.ReplaceAll(printable(d.Band), "_", " "), 100*d.Fast, 100*d.Slow)
	if d.Capped {
		fmt.Fprintf(w, "; a tenant may hold %d", d.MaxInFlight)
	}
	fmt.Fprintln(w)
	var tenants [][]string
	for i := range d.Tenants[:min(len(d.Tenants), topRows)] {
		t := &d.Tenants[i]
		over := ""
		if t.Over {
			over = " over"
		}
		tenants = append(tenants, []string{cmp.Or(t.Name, t.ID), strconv.FormatInt(t.Weight, 10), strconv.Itoa(t.Running),
			fmt.Sprintf("%d/%d/%d", t.Interactive, t.Normal, t.Bulk), fmt.Sprintf("%.2f", t.Share), fmt.Sprintf("%.2f%s", t.UsedMS/1000, over),
			fmt.Sprintf("%.1f ms", t.LagMS), dash(t.Parked)})
	}
	if len(tenants) > 0 {
		if err := table(w, []string{"TENANT", "WEIGHT", "RUNNING", "WAITING I/N/B", "SHARE", "USED", "LAG", "HELD"}, tenants); err != nil {
			return err
		}
	}
	var before *client.SchedulerDomain
	if last != nil {
		if i := slices.IndexFunc(last.Domains, func(was client.SchedulerDomain) bool { return was.Name == d.Name }); i >= 0 {
			before = &last.Domains[i]
		}
	}
	if rows := waits(d, before, since); len(rows) > 0 {
		return table(w, []string{"CLASS", "REASON", "WAITS"}, rows)
	}
	return nil
}

// waits are what requests of each class waited for since the last frame: the
// waiting in a time, divided by it, is the mean number of those that wait
// (Little's law). Without a last frame they are in seconds.
func waits(d, last *client.SchedulerDomain, since time.Duration) (rows [][]string) {
	for i := range d.Classes {
		class := &d.Classes[i]
		for _, w := range class.Waited {
			value := fmt.Sprintf("%.1f s", w.Seconds)
			if last != nil {
				grown := w.Seconds - waited(last, class.Class, w.Code)
				if grown <= 0 {
					continue
				}
				value = fmt.Sprintf("%.2f", grown/since.Seconds())
			}
			rows = append(rows, []string{class.Class, w.Code, value})
		}
		if class.Refused > 0 {
			rows = append(rows, []string{class.Class, "refused by the gate", strconv.FormatUint(class.Refused, 10)})
		}
	}
	return rows
}

func waited(d *client.SchedulerDomain, class, code string) float64 {
	for i := range d.Classes {
		for _, w := range d.Classes[i].Waited {
			if d.Classes[i].Class == class && w.Code == code {
				return w.Seconds
			}
		}
	}
	return 0
}
