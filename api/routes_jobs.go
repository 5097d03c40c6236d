package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

const (
	contentLines = "application/x-ndjson"
	// headerComplete tells whether results of a job are all that there will be.
	headerComplete = "Sluice-Results-Complete"

	// jobRoom is the memory that takes in a job: a line and a chunk of the
	// longest, and twice that while it is sealed.
	jobRoom = 4 * kms.MaxChunkBytes
	// jobBlank is how many bytes of a job's body may be white space around its
	// items.
	jobBlank = 16 << 20
	// linesTimeout bounds each step of a stream of lines: a client that sends or
	// takes nothing for so long is gone.
	linesTimeout = 30 * time.Second
)

func jobRoutes() []Route {
	const group, all, one = "Jobs", "/v1/jobs", "/v1/jobs/{job}"
	list := []Route{
		submitJob(Route{Name: "create-job", Group: group, Method: http.MethodPost, Path: all, Op: kms.OpCreateJob, Success: http.StatusAccepted,
			Body: contentLines, Errors: []kms.Kind{kms.KindConflict, kms.KindUnsupportedMedia}, MaxBody: kms.MaxJobBytes + jobBlank,
			Query: []Parameter{{Name: "retain_hours", Max: uint32(kms.MaxJobRetain / time.Hour), Default: "24",
				Doc: "For how many hours the job is kept with its results after its end"}},
			Summary: "Have many operations run that nobody waits for",
			Description: "The body is lines of JSON, each an item as in a batch, up to 1,000,000. It is read as it comes, and a line that is no item refuses the job, by its number. " +
				"Items run in chunks at bulk urgency, each authorised, priced, recorded and charged by itself, once, whatever happens to the service. " +
				"What is refused for now (429, 402, 503, 504) is no result: it is run again when that is over, and the job waits. " +
				"What is stored is sealed under the tenant's key in the HSM. The job is its credential's, which it stops with. A tenant has at most 16 jobs that are not over."}),
		define(Route{Name: "list-jobs", Group: group, Method: http.MethodGet, Path: all, Op: kms.OpListJobs, Errors: []kms.Kind{kms.KindInvalidArgument},
			Query: pageParameters, Summary: "List jobs", Description: "Those of the credential, or for an administrator of the tenant all of its."}, listJobs),
		define(Route{Name: "describe-job", Group: group, Method: http.MethodGet, Path: one, Op: kms.OpReadJob, Errors: keyErrors,
			Summary: "Show how far a job is"}, describeJob),
		jobResults(Route{Name: "read-job-results", Group: group, Method: http.MethodGet, Path: one + "/results", Op: kms.OpReadJobResults,
			Errors: append([]kms.Kind{kms.KindInvalidArgument}, keyErrors...), Lines: true,
			Query:   []Parameter{{Name: "from", Max: kms.MaxJobItems, Default: "0", Doc: "The index of the first item whose result is wanted"}},
			Summary: "Read the results of a job",
			Description: "Lines of JSON in the order of the items, as far as they are done without a gap. " + headerComplete + " tells whether that is all that there will be; " +
				"otherwise ask again, from the index behind the last. Only the job's own credential may: results can hold plaintexts."}),
		change(Route{Name: "cancel-job", Group: group, Method: http.MethodDelete, Path: one, Op: kms.OpCancelJob, Errors: keyErrors,
			Summary:     "Cancel a job, or delete one that is over",
			Description: "Chunks that have not begun are not run; results there are stay as long as they would have. A job that is over is deleted with its results."},
			cancelJob, replayCancelJob),
	}
	return list
}

// submitJob completes the route that takes in a job.
func submitJob(r Route) Route {
	r = complete[NoBody, JobResponse](r)
	r.serve = func(c *call) (*buffer, error) {
		c.streamsBody()
		intake, err := c.service.BeginJob(c.context, &c.ticket, time.Duration(c.number("retain_hours"))*time.Hour)
		if err != nil {
			return nil, err
		}
		digest, err := c.takeIn(intake)
		if err != nil {
			intake.Abandon(c.context)
			return nil, err
		}
		claim, key, record, err := c.claimJob(digest)
		if err != nil || record != nil {
			intake.Abandon(c.context)
		}
		if err != nil {
			return nil, err
		}
		if record != nil {
			out, err := replayJob(c, record.Resource)
			return c.answer(out, c.replayed(record, err))
		}
		status, err := c.service.SubmitJob(c.context, &c.ticket, intake, key)
		if claim != nil {
			c.conclude(claim, err)
		}
		if err != nil {
			if undone(err) {
				intake.Abandon(c.context)
			}
			return nil, err
		}
		if err := c.carriedOut(nil); err != nil {
			return c.answer(nil, err)
		}
		c.created(status.ID)
		return c.answer(&JobResponse{jobOf(status), c.charge()}, nil)
	}
	return r
}

// claimJob is claimRequest of a job with a digest of its items, and returns the
// key. A job that the key stands for already is as good as a record: whoever made
// it may have ended before the claim did.
func (c *call) claimJob(digest [32]byte) (claim *kms.Claim, key string, record *kms.IdempotencyRecord, err error) {
	claim, record, err = c.claimRequest(digest[:])
	if claim == nil && (err == nil || kms.KindOf(err) != kms.KindConflict) {
		return nil, "", record, err
	}
	key = c.request.Header.Get(headerIdempotency)
	job, missing := c.service.JobOfKey(c.context, c.ticket.By, key, digest)
	switch {
	case missing == nil:
		c.named = job.ID.String()
		record, err = &kms.IdempotencyRecord{Status: c.route.Success, Resource: c.named}, nil
	case kms.KindOf(missing) == kms.KindNotFound:
		return claim, key, nil, err
	default:
		err = missing
	}
	if claim != nil {
		c.conclude(claim, err)
	}
	return nil, key, record, err
}

// undone tells whether an error of a change means that it was not made.
func undone(err error) bool {
	switch kms.KindOf(err) {
	case kms.KindInternal, kms.KindStoreUnavailable, kms.KindAuditUnavailable:
		return false
	}
	return true
}

// streamsBody has the limits of a request hold for each step of its body, and
// then for its answer.
func (c *call) streamsBody() {
	control := http.NewResponseController(c.ResponseWriter)
	c.request.Body = &slowBody{ReadCloser: c.request.Body, step: func() {
		// Writers of tests know no deadlines.
		_ = control.SetReadDeadline(time.Now().Add(linesTimeout))
		_ = control.SetWriteDeadline(time.Now().Add(WriteTimeout))
	}}
}

type slowBody struct {
	io.ReadCloser
	step func()
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	b.step()
	return b.ReadCloser.Read(p)
}

// takeIn reads the items of a job into an intake, and returns their digest.
func (c *call) takeIn(intake *kms.JobIntake) (digest [32]byte, err error) {
	if err := c.takesLines(); err != nil {
		return digest, err
	}
	tenant := c.ticket.By.Tenant.ID
	if err := c.server.room.take(tenant, jobRoom); err != nil {
		return digest, err
	}
	defer c.server.room.give(tenant, jobRoom)
	lines := bufio.NewScanner(http.MaxBytesReader(c.ResponseWriter, c.request.Body, c.route.MaxBody))
	held := make([]byte, kms.MaxChunkBytes)
	defer clear(held)
	lines.Buffer(held, len(held))
	scratch := make([]byte, 0, smallBuffer)
	defer func() { clear(scratch[:cap(scratch)]) }()
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		scratch = append(scratch[:0], line...)
		op, err := c.server.checkItem(scratch)
		if err == nil {
			err = intake.Add(c.context, op, line)
		}
		if err != nil {
			return digest, atLine(n, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return digest, kms.Errorf(kms.KindTooLarge, "body: line %d is longer than %d bytes", n+1, kms.MaxChunkBytes-1)
	case err != nil:
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return digest, errTooLarge(c.route.MaxBody)
		}
		return digest, kms.Wrap(kms.KindMalformed, err, "body: ended early")
	}
	return intake.End(c.context)
}

// atLine tells of which line an error is.
func atLine(n int, err error) error {
	e, ok := errors.AsType[*kms.Error](err)
	if !ok || e.Kind == kms.KindStoreUnavailable || e.Kind == kms.KindInternal {
		return err
	}
	at := *e
	at.Detail = fmt.Sprintf("body: line %d: ", n) + strings.TrimPrefix(e.Detail, "body: ")
	return &at
}

// takesLines refuses a body that is not said to be lines of JSON.
func (c *call) takesLines() error {
	for _, coding := range c.request.Header["Content-Encoding"] {
		if !strings.EqualFold(coding, "identity") {
			return kms.Errorf(kms.KindUnsupportedMedia, "header Content-Encoding: only identity is accepted")
		}
	}
	if values := c.request.Header["Content-Type"]; len(values) == 1 {
		if media, _, err := mime.ParseMediaType(values[0]); err == nil && media == contentLines {
			return nil
		}
	}
	return kms.Errorf(kms.KindUnsupportedMedia, "header Content-Type: must be %s", contentLines)
}

func replayJob(c *call, id string) (*JobResponse, error) {
	status, err := c.service.ReplayJob(c.context, &c.ticket, c.route.Op, id)
	if err != nil {
		return nil, err
	}
	c.created(status.ID)
	return &JobResponse{jobOf(status), c.charge()}, nil
}

func listJobs(c *call, _ *NoBody) (*JobListResponse, error) {
	list, next, err := c.service.ListJobs(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &JobListResponse{Jobs: make([]Job, len(list)), NextPageToken: next, Charge: c.charge()}
	for i, j := range list {
		out.Jobs[i] = jobOf(j)
	}
	return out, nil
}

func describeJob(c *call, _ *NoBody) (*JobResponse, error) {
	status, err := c.service.ReadJob(c.context, &c.ticket, c.object(0))
	if err != nil {
		return nil, err
	}
	return &JobResponse{jobOf(status), c.charge()}, nil
}

func cancelJob(c *call, _ *NoBody) (*CancelJobResponse, error) {
	status, deleted, err := c.service.CancelJob(c.context, &c.ticket, c.object(0))
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	out := &CancelJobResponse{ID: status.ID, Deleted: deleted, Charge: c.charge()}
	if !deleted {
		out.State = JobState(status.State)
	}
	return out, nil
}

func replayCancelJob(c *call, id string) (*CancelJobResponse, error) {
	job, status, err := c.service.ReplayCancelJob(c.context, &c.ticket, id)
	if err != nil {
		return nil, err
	}
	out := &CancelJobResponse{ID: job, Deleted: status == nil, Charge: c.charge()}
	if status != nil {
		out.State = JobState(status.State)
	}
	return out, nil
}

// jobResults completes the route that answers with results.
func jobResults(r Route) Route {
	r = complete[NoBody, JobResult](r)
	r.serve = func(c *call) (*buffer, error) {
		if err := refuseBody(c.request); err != nil {
			return nil, err
		}
		results, err := c.service.ReadJobResults(c.context, &c.ticket, c.object(0), int64(c.number("from")))
		if err != nil {
			return nil, err
		}
		defer results.Close()
		return nil, c.sendResults(results)
	}
	return r
}

// sendResults streams results. An error comes too late to be told: the answer is
// cut off.
func (c *call) sendResults(results *kms.JobResults) error {
	lines, err := results.Next(c.context)
	if err != nil {
		return err // it can be told still
	}
	control := http.NewResponseController(c.ResponseWriter)
	h := c.Header()
	h.Set("Content-Type", contentLines)
	h.Set(headerComplete, map[bool]string{false: "false", true: "true"}[results.Complete])
	c.server.describeCharge(c.exchange)
	c.streamed = true
	c.WriteHeader(http.StatusOK)
	for len(lines) > 0 {
		text := append(bytes.Join(lines, []byte{'\n'}), '\n')
		_ = control.SetWriteDeadline(time.Now().Add(linesTimeout))
		_, err = c.ResponseWriter.Write(text)
		clear(text)
		for _, line := range lines {
			clear(line)
		}
		if err != nil {
			return err
		}
		if lines, err = results.Next(c.context); err != nil {
			c.server.log.LogAttrs(c.context, slog.LevelWarn, "reading results of a job failed", slog.String("request_id", c.ticket.RequestID.String()), slog.Any("error", err))
			return err
		}
	}
	return nil
}

// sayBulk points who was refused with bulk work to jobs.
func sayBulk(x *exchange, p *Problem) {
	if x.route == nil || x.ticket.Urgency != kms.UrgencyBulk && x.route.Op != kms.OpBatch || !refusedForNow(p.Status) {
		return
	}
	x.Header().Set("Link", jobLink)
	p.Detail = strings.TrimPrefix(p.Detail+". ", ". ") + "Work that can wait is taken by POST /v1/jobs"
}

// jobLink points to jobs (RFC 8288).
const jobLink = `</v1/jobs>; rel="alternate"`

// refusedForNow tells whether a status is that of a refusal that passes.
func refusedForNow(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusPaymentRequired, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
