package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const (
	// batchesInFlight is how many calls are under way: enough to hide the way to
	// the service, each of which has items of its own in parallel.
	batchesInFlight = 4
	// maxItemTries is how often an item is sent that the service asks to be sent
	// again, and maxItemPause the longest pause before that.
	maxItemTries = 8
	maxItemPause = 30 * time.Second
	// progressInterval is how often a person is told how far it is.
	progressInterval = time.Second
	// batchEnvelope is what the request has beside its items, in bytes.
	batchEnvelope = len(`{"items":[]}`)
)

func (p *program) batch() *cobra.Command {
	c := tries(&cobra.Command{
		Use:   "batch FILE",
		Short: "Run many operations, one a line of a file",
		Long: `Run many operations. Each line of the file ("-": standard input) is a JSON object
with op, key and the fields of the operation, as the API takes them; op is what
the path of the operation ends in, such as encrypt or datakey/wrapped. Each line
printed is what became of one of them, in their order: a status with a result or
a problem. Results can hold plaintexts.

They are sent in batches of up to 500, some of them at once. What the service
refuses for now is sent again after the pause that it asks for. The time given
is for each batch. If any has a problem at last, the exit code is 1.`,
		Example: `  sluice batch items.jsonl > results.jsonl
  echo '{"op":"sign","key":"orders","message":"aGVsbG8="}' | sluice batch -`,
	})
	s := p.session(c)
	c.Args = argument("FILE")
	c.ValidArgsFunction = cobra.FixedCompletions([]cobra.Completion{"jsonl", "json"}, cobra.ShellCompDirectiveFilterFileExt)
	return s.verb(func(s *session) error {
		in, err := s.openItems(s.args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		_, api, err := s.connect()
		if err != nil {
			return err
		}
		b := &bulk{session: s, api: api, progress: s.interactive(c.ErrOrStderr())}
		return b.run(in)
	})
}

func (s *session) openItems(name string) (io.ReadCloser, error) {
	if name == "-" {
		if r := s.cmd.InOrStdin(); s.interactive(r) {
			s.say("reading the items from the terminal, one a line; Ctrl-D ends them")
		}
		return io.NopCloser(s.cmd.InOrStdin()), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the items: %w", err)
	}
	return f, nil
}

// bulk is one run of the verb batch.
type bulk struct {
	*session
	api      *client.Client
	progress bool

	done, problems int
	told           time.Time
	dry            client.DryRun // the sum
}

// chunk is a batch on its way, or what became of it.
type chunk struct {
	items   []client.BatchItem
	size    int
	results []client.BatchResult
	err     error
}

// run sends the lines of a file and prints their results in order. Reading,
// sending and printing go on at once; no more than batchesInFlight batches are
// between them.
func (b *bulk) run(in io.Reader) error {
	ctx, cancel := context.WithCancel(b.cmd.Context())
	defer cancel()
	order := make(chan chan *chunk, batchesInFlight-1)
	var all sync.WaitGroup
	all.Go(func() {
		defer close(order)
		b.read(ctx, in, func(k *chunk) bool {
			ready := make(chan *chunk, 1)
			select {
			case order <- ready:
			case <-ctx.Done():
				return false
			}
			all.Go(func() { b.send(ctx, k); ready <- k })
			return true
		})
	})
	err := b.print(order)
	cancel()
	if b.progress && b.done > 0 {
		fmt.Fprintln(b.cmd.ErrOrStderr())
	}
	// Who reads from a terminal or a pipe cannot be stopped; the process ends.
	if err != nil {
		return err
	}
	all.Wait()
	switch {
	case b.dry.RequestID != "":
		return &b.dry
	case b.problems > 0:
		return fmt.Errorf("%d of %d items have a problem", b.problems, b.done)
	}
	return nil
}

// read makes chunks of the lines and hands them on until that returns false.
func (b *bulk) read(ctx context.Context, in io.Reader, next func(*chunk) bool) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, client.MaxBatchBytes)
	k := &chunk{size: batchEnvelope}
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		item, err := itemOf(line)
		if err != nil {
			b.flush(k, next)
			next(&chunk{err: fmt.Errorf("line %d %w", n, err)})
			return
		}
		if len(k.items) == client.MaxBatch || k.size+len(line)+1 > client.MaxBatchBytes {
			if !b.flush(k, next) {
				return
			}
			k = &chunk{size: batchEnvelope}
		}
		k.items, k.size = append(k.items, item), k.size+len(line)+1
	}
	if !b.flush(k, next) || ctx.Err() != nil {
		return
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		next(&chunk{err: fmt.Errorf("line %d is longer than a batch can be: %d bytes", n+1, client.MaxBatchBytes)})
	} else if err != nil {
		next(&chunk{err: fmt.Errorf("reading the items: %w", err)})
	}
}

func (b *bulk) flush(k *chunk, next func(*chunk) bool) bool {
	return len(k.items) == 0 || next(k)
}

// itemOf is the item of a line.
func itemOf(line []byte) (client.BatchItem, error) {
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return client.BatchItem{}, errors.New("is not one JSON object")
	}
	var item client.BatchItem
	for name, into := range map[string]*string{"op": &item.Op, "key": &item.Key} {
		if value, given := fields[name]; given {
			if json.Unmarshal(value, into) != nil {
				return client.BatchItem{}, fmt.Errorf("has %s that is no string", name)
			}
			delete(fields, name)
		}
	}
	item.Input = fields
	return item, nil
}

// send sends a chunk, and again what of it the service refused for now.
func (b *bulk) send(ctx context.Context, k *chunk) {
	if k.err != nil {
		return
	}
	k.results = make([]client.BatchResult, len(k.items))
	open := make([]int, len(k.items))
	for i := range open {
		open[i] = i
	}
	for try := 1; ; try++ {
		if k.err = b.sendItems(ctx, k, open); k.err != nil || try == maxItemTries {
			return
		}
		var pause time.Duration
		if open, pause = k.refusedForNow(); len(open) == 0 {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			k.err = ctx.Err()
			return
		}
	}
}

// sendItems sends the items of some places and notes their results.
func (b *bulk) sendItems(ctx context.Context, k *chunk, places []int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	items := make([]client.BatchItem, len(places))
	for i, place := range places {
		items[i] = k.items[place]
	}
	out, err := b.api.Batch(ctx, items)
	if err != nil {
		return err
	}
	for i, place := range places {
		k.results[place] = out.Results[i]
	}
	return nil
}

// refusedForNow returns the places of the items that the service asks to be
// sent again soon, and after how long.
func (k *chunk) refusedForNow() (places []int, pause time.Duration) {
	for i := range k.results {
		r := &k.results[i]
		again := time.Duration(r.RetryAfter) * time.Second
		if (r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable) && again > 0 && again <= maxItemPause {
			places, pause = append(places, i), max(pause, again)
		}
	}
	return places, pause
}

// print prints the results of chunks in their order.
func (b *bulk) print(order <-chan chan *chunk) error {
	out := bufio.NewWriter(b.cmd.OutOrStdout())
	for ready := range order {
		k := <-ready
		if dry, asked := errors.AsType[*client.DryRun](k.err); asked {
			b.dry.Cost, b.dry.Refused, b.dry.RequestID = b.dry.Cost+dry.Cost, b.dry.Refused+dry.Refused, dry.RequestID
			continue
		}
		if k.err != nil {
			return errors.Join(k.err, out.Flush())
		}
		for i := range k.results {
			if err := json.MarshalWrite(out, &k.results[i]); err != nil {
				return fmt.Errorf("writing the results: %w", err)
			}
			out.WriteByte('\n') // Flush has the error
			if k.results[i].Status != http.StatusOK {
				b.problems++
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
		b.done += len(k.results)
		b.tell()
	}
	return nil
}

// tell tells a person how far it is.
func (b *bulk) tell() {
	if now := time.Now(); b.progress && now.Sub(b.told) >= progressInterval {
		b.told = now
		fmt.Fprintf(b.cmd.ErrOrStderr(), "\r%d items, %d with a problem", b.done, b.problems)
	}
}
