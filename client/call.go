package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Headers of the service.
const (
	headerRequestID   = "X-Request-Id"
	headerUrgency     = "Sluice-Urgency"
	headerDeadline    = "Sluice-Deadline-Ms"
	headerIdempotency = "Idempotency-Key"
	headerApproval    = "Sluice-Approval"
	headerSecond      = "Sluice-Second-Credential"
	headerOneTime     = "Sluice-One-Time-Code"
	contentJSON       = "application/json"
)

// maxDeadline is the longest deadline that the service takes.
const maxDeadline = time.Minute

// maxAnswer bounds the bytes of an answer that are read: ten times the
// largest one, a page of pageSize keys with descriptions and tags in full.
const maxAnswer = 32 << 20

// call is one call of the service.
type call struct {
	method string
	path   []string // segments; names are escaped when it is sent
	query  url.Values
	in     any // nil: no body
	// changes marks a call that changes stored state: doing it twice is not
	// doing it once, so that its repetitions carry one Idempotency-Key.
	changes bool
	// accept is the type of an answer that is not JSON; "": it is.
	accept string
	// prepares marks a POST that neither uses a key nor changes anything.
	prepares bool
}

// invoke makes a call whose answer is a T.
func invoke[T any](ctx context.Context, c *Client, k call) (*T, error) {
	out := new(T)
	if err := c.do(ctx, k, out); err != nil {
		return nil, err
	}
	return out, nil
}

// do makes a call, whose answer it decodes into out; a dry run has none.
func (c *Client) do(ctx context.Context, k call, out any) error {
	if !c.dryRun {
		return c.repeat(ctx, k, out)
	}
	k, err := k.asking()
	if err != nil {
		return err
	}
	var answer dryRunAnswer
	if err := c.repeat(ctx, k, &answer); err != nil {
		return err
	}
	return answer.result()
}

// repeat sends a call, again where that may help, and decodes the answer.
func (c *Client) repeat(ctx context.Context, k call, out any) error {
	var body []byte
	if k.in != nil {
		var err error
		if body, err = json.Marshal(k.in); err != nil {
			// Only text that is not UTF-8 cannot be written.
			return invalid("text must be valid UTF-8")
		}
	}
	target, err := c.target(k)
	if err != nil {
		return err
	}
	var once string
	if k.changes {
		once = rand.Text()
	}
	for attempt := 1; ; attempt++ {
		req, err := c.request(ctx, k.method, target, body)
		if err != nil {
			return err
		}
		if once != "" {
			req.Header.Set(headerIdempotency, once)
		}
		if k.accept != "" {
			req.Header.Set("Accept", k.accept)
		}
		err = c.send(req, out)
		if err == nil {
			return nil
		}
		if attempt == c.maxAttempts || !repeatable(err) || !sleep(ctx, pause(err, attempt)) {
			return err
		}
	}
}

// target is the URL of a call.
func (c *Client) target(k call) (*url.URL, error) {
	var path strings.Builder
	path.WriteString(strings.TrimSuffix(c.base.EscapedPath(), "/"))
	for _, segment := range k.path {
		if !addressable(segment) {
			return nil, invalid("names consist of letters, digits and -_./")
		}
		path.WriteByte('/')
		path.WriteString(url.PathEscape(segment))
	}
	u := *c.base
	u.RawPath = path.String()
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, invalid("the path of the address is malformed")
	}
	u.RawQuery = k.query.Encode()
	return &u, nil
}

// addressable tells whether a name or id can stand in a path: not empty, not
// a dots-only path segment, which servers and proxies resolve, and of the
// characters that names have. What else a name must be the service decides.
func addressable(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if strings.Trim(part, ".") == "" {
			return false
		}
		for i := range len(part) {
			if c := part[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
				strings.IndexByte("-_.", c) >= 0) {
				return false
			}
		}
	}
	return true
}

func (c *Client) request(ctx context.Context, method string, target *url.URL, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", withoutURL(err))
	}
	h := req.Header
	h.Set("Authorization", "Bearer "+c.token.Reveal())
	h.Set("Accept", contentJSON)
	h.Set("User-Agent", c.userAgent)
	if body != nil {
		h.Set("Content-Type", contentJSON)
	}
	if c.approval != "" {
		h.Set(headerApproval, c.approval)
	}
	if !c.second.IsZero() {
		h.Set(headerSecond, c.second.Reveal())
	}
	if c.oneTime != "" {
		h.Set(headerOneTime, c.oneTime)
	}
	if c.urgency != "" {
		h.Set(headerUrgency, string(c.urgency))
	}
	// The service stops waiting for a slot when the caller does. A budget
	// below a millisecond is left to ctx.
	if end, ok := ctx.Deadline(); ok {
		if left := min(time.Until(end), maxDeadline).Milliseconds(); left > 0 {
			h.Set(headerDeadline, strconv.FormatInt(left, 10))
		}
	}
	return req, nil
}

// send makes one attempt.
func (c *Client) send(req *http.Request, out any) error {
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAnswer, withoutURL(err))
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: reading it: %w", ErrNoAnswer, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrBadAnswer, maxAnswer)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return refusal(res, body)
	}
	if raw, ok := out.(*document); ok {
		return raw.take(res.Header, body)
	}
	if mediaType(res.Header) != contentJSON || json.Unmarshal(body, out) != nil {
		// The decoder's error is not kept: it can quote the body.
		return fmt.Errorf("%w: status %d without its JSON", ErrBadAnswer, res.StatusCode)
	}
	if out, ok := out.(interface{ answered(http.Header) }); ok {
		out.answered(res.Header)
	}
	return nil
}

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// withoutURL takes the URL off an error of net/http: it names the key.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
