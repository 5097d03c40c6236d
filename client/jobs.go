package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Bounds of a job.
const (
	MaxJobItems     = 1_000_000
	MaxJobLineBytes = 1<<20 - 1 // of an item's JSON
)

// JobState is the state of a job.
type JobState string

// The states of a job. Those after JobWaiting are final.
const (
	JobRunning   JobState = "RUNNING"
	JobWaiting   JobState = "WAITING" // for what WaitsFor says
	JobDone      JobState = "DONE"
	JobCancelled JobState = "CANCELLED"
	JobStopped   JobState = "STOPPED" // its credential or tenant may no longer
	JobExpired   JobState = "EXPIRED" // it was not done in a week
)

// Ended tells whether nothing more of a job is run.
func (s JobState) Ended() bool { return s != JobRunning && s != JobWaiting }

// Job is many operations that nobody waits for, and how far they are.
type Job struct {
	ID         string     `json:"id"`
	State      JobState   `json:"state"`
	Reason     string     `json:"reason,omitzero"` // why it was stopped
	Project    string     `json:"project"`
	Credential string     `json:"credential"` // whose it is: its id
	Items      int64      `json:"items"`
	Done       int64      `json:"done"`   // items whose results can be read
	Failed     int64      `json:"failed"` // those of them that have a problem
	Bytes      int64      `json:"bytes"`  // of the items
	Credits    float64    `json:"credits"`
	WaitsFor   string     `json:"waits_for,omitzero"` // the code of a reason
	WaitsUntil *time.Time `json:"waits_until,omitempty"`
	PerSecond  float64    `json:"items_per_second"`
	EndsAt     *time.Time `json:"ends_at,omitempty"` // when it would be done at that; nil: nobody can tell
	CreatedAt  time.Time  `json:"created_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	ExpiresAt  time.Time  `json:"expires_at"` // when it ends, or is deleted once it is over
}

// JobOutput is the output of SubmitJob and GetJob.
type JobOutput struct {
	Job
	Charge
}

// CancelledJob is the output of CancelJob.
type CancelledJob struct {
	ID      string   `json:"id"`
	State   JobState `json:"state,omitzero"`
	Deleted bool     `json:"deleted,omitzero"`
	Charge
}

// JobResult is what became of an item of a job.
type JobResult struct {
	Index int64 `json:"index"` // of the item, from 0
	BatchResult
	Charge
}

// JobItems makes the lines of a job of items, for SubmitJob. An item that cannot
// be written is the error of reading.
func JobItems(items iter.Seq[BatchItem]) io.ReadCloser {
	next, stop := iter.Pull(items)
	return &itemLines{next: next, stop: stop}
}

type itemLines struct {
	next func() (BatchItem, bool)
	stop func()
	line bytes.Buffer
}

// Read implements io.Reader.
func (l *itemLines) Read(p []byte) (int, error) {
	for l.line.Len() == 0 {
		item, more := l.next()
		if !more {
			return 0, io.EOF
		}
		if err := json.MarshalWrite(&l.line, item); err != nil {
			return 0, invalid("an item cannot be written as JSON")
		}
		l.line.WriteByte('\n')
	}
	return l.line.Read(p)
}

// Close ends the sequence.
func (l *itemLines) Close() error {
	l.stop()
	return nil
}

// SubmitJobOptions are the settings of a job; nil is their defaults.
type SubmitJobOptions struct {
	// Retain is for how long the job is kept with its results after its end, in
	// whole hours up to 168; 0 is 24.
	Retain time.Duration
	// IdempotencyKey makes the same job, sent again with the same key, one job; ""
	// is a key of its own.
	IdempotencyKey string
}

// SubmitJob hands over items to run, one a line as JSON with op, key and the
// fields of the operation (see JobItems), up to MaxJobItems. They are read as
// they are sent, and sent again after a failure only if they can be read again:
// if they are an io.Seeker.
func (c *Client) SubmitJob(ctx context.Context, items io.Reader, o *SubmitJobOptions) (*JobOutput, error) {
	if o == nil {
		o = new(SubmitJobOptions)
	}
	k := call{method: http.MethodPost, path: []string{"v1", "jobs"}, query: url.Values{}}
	if o.Retain != 0 {
		if o.Retain%time.Hour != 0 || o.Retain < time.Hour {
			return nil, invalid("a job is kept for whole hours, one at least")
		}
		k.query.Set("retain_hours", strconv.Itoa(int(o.Retain/time.Hour)))
	}
	once := o.IdempotencyKey
	if once == "" {
		once = rand.Text()
	}
	out, dry := new(JobOutput), new(dryRunAnswer)
	var into any = out
	if c.dryRun {
		k, _ = k.asking()
		into = dry
	}
	target, err := c.target(k)
	if err != nil {
		return nil, err
	}
	again, repeats := items.(io.Seeker)
	for attempt := 1; ; attempt++ {
		req, err := c.request(ctx, k.method, target, nil)
		if err != nil {
			return nil, err
		}
		req.Body, req.ContentLength, req.GetBody = io.NopCloser(items), -1, nil
		req.Header.Set("Content-Type", contentLines)
		req.Header.Set(headerIdempotency, once)
		req.Header.Del(headerDeadline) // it is for one operation
		if err = c.patient().send(req, into); err == nil {
			break
		}
		if !repeats || attempt == c.maxAttempts || !repeatable(err) || !sleep(ctx, pause(err, attempt)) {
			return nil, err
		}
		if _, seek := again.Seek(0, io.SeekStart); seek != nil {
			return nil, err
		}
	}
	if c.dryRun {
		return nil, dry.result()
	}
	return out, nil
}

// patient is a client without a limit of its own for streams, which ctx ends.
func (c *Client) patient() *Client {
	with, patient := *c, *c.http
	patient.Timeout = 0
	with.http = &patient
	return &with
}

// GetJob tells how far a job is.
func (c *Client) GetJob(ctx context.Context, id string) (*JobOutput, error) {
	return invoke[JobOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "jobs", id}})
}

// ListJobs yields the credential's jobs, or for an administrator the tenant's, in
// the order in which they were made.
func (c *Client) ListJobs(ctx context.Context) iter.Seq2[*Job, error] {
	type page struct {
		Jobs []*Job `json:"jobs"`
		Next string `json:"next_page_token"`
	}
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "jobs"}}, func(p *page) ([]*Job, string) { return p.Jobs, p.Next })
}

// CancelJob ends a job; results there are stay as long as they would have. A job
// that is over is deleted with its results.
func (c *Client) CancelJob(ctx context.Context, id string) (*CancelledJob, error) {
	return invoke[CancelledJob](ctx, c, call{method: http.MethodDelete, path: []string{"v1", "jobs", id}, changes: true})
}

// ErrJobUnfinished ends results that are not all yet.
var ErrJobUnfinished = errors.New("the job has more results to come")

const (
	contentLines   = "application/x-ndjson"
	headerComplete = "Sluice-Results-Complete"
	// longestResult bounds a line of results in bytes: the longest item's, in
	// base64, with room.
	longestResult = 4 << 20
)

// JobResults yields the results of a job in the order of its items, from that of
// an index on, as far as they are done without a gap. When there will be more the
// last pair is ErrJobUnfinished: go on from the next index later. Only the job's
// own credential may.
func (c *Client) JobResults(ctx context.Context, id string, from int64) iter.Seq2[*JobResult, error] {
	return func(yield func(*JobResult, error) bool) {
		res, err := c.openResults(ctx, id, from)
		if err != nil {
			yield(nil, err)
			return
		}
		defer res.Body.Close()
		lines := bufio.NewReaderSize(res.Body, 64<<10)
		for next := from; ; next++ {
			line, err := readLine(lines)
			if err == io.EOF {
				break
			}
			if err != nil {
				yield(nil, fmt.Errorf("%w: reading results: %w", ErrNoAnswer, err))
				return
			}
			r := new(JobResult)
			if json.Unmarshal(line, r) != nil || r.Index != next {
				yield(nil, fmt.Errorf("%w: a result cannot be read", ErrBadAnswer))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if res.Header.Get(headerComplete) != "true" {
			yield(nil, ErrJobUnfinished)
		}
	}
}

// readLine reads a line without its end. A last one that has none was cut off.
func readLine(r *bufio.Reader) (jsontext.Value, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case err == io.EOF && len(line) == 0:
			return nil, io.EOF
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return nil, err
		case len(line) > longestResult:
			return nil, fmt.Errorf("a line is longer than %d bytes", longestResult)
		}
	}
}

func (c *Client) openResults(ctx context.Context, id string, from int64) (*http.Response, error) {
	k := call{path: []string{"v1", "jobs", id, "results"}}
	if from > 0 {
		k.query = url.Values{"from": {strconv.FormatInt(from, 10)}}
	}
	target, err := c.target(k)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", contentLines)
	req.Header.Del(headerDeadline)
	res, err := c.patient().http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, withoutURL(err))
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(res.Body, longestProblem))
		return nil, refusal(res, body)
	}
	return res, nil
}
