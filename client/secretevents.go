package client

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// SecretEvent is what a watch tells of secrets.
type SecretEvent struct {
	// Kind is changed or revoked, of the secret at Path; resync: changes may have
	// been missed; or heartbeat: none was, up to Revision.
	Kind     string `json:"kind"`
	Revision uint64 `json:"revision"`
	Path     string `json:"path,omitzero"`
}

const (
	// longestSilence is how long a stream may say nothing: three heartbeats of
	// 15 s.
	longestSilence = 45 * time.Second
	// longestEventLine bounds a line in bytes: a path and a number.
	longestEventLine = 4096
	// longestProblem bounds a refusal in bytes.
	longestProblem = 64 << 10
)

// WatchSecrets tells of changes of the secrets that the credential may read:
// after a revision, or, with nil, from now on. It is one connection, which ends
// with ctx, when it is silent for three heartbeats, and when the credential
// changes in any way; the end is the error of the last pair. Programs that use
// secrets have the cache of this package watch.
func (c *Client) WatchSecrets(ctx context.Context, after *uint64) iter.Seq2[*SecretEvent, error] {
	return func(yield func(*SecretEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		res, err := c.openEvents(ctx, after)
		if err != nil {
			yield(nil, err)
			return
		}
		defer res.Body.Close()
		silence := time.AfterFunc(longestSilence, cancel)
		defer silence.Stop()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(make([]byte, 0, longestEventLine), longestEventLine)
		for event := new(SecretEvent); lines.Scan(); {
			silence.Reset(longestSilence)
			name, value, _ := strings.Cut(lines.Text(), ":")
			switch name {
			case "event":
				event.Kind = strings.TrimSpace(value)
			case "data":
				if json.Unmarshal([]byte(value), event) != nil {
					yield(nil, fmt.Errorf("%w: an event cannot be read", ErrBadAnswer))
					return
				}
			case "":
				if lines.Text() != "" || event.Kind == "" {
					continue // a comment, or nothing
				}
				if !yield(event, nil) {
					return
				}
				event = new(SecretEvent)
			}
		}
		yield(nil, fmt.Errorf("%w: the stream has ended", ErrNoAnswer))
	}
}

// openEvents asks for the stream.
func (c *Client) openEvents(ctx context.Context, after *uint64) (*http.Response, error) {
	k := call{path: []string{"v1", "secret-values", "watch"}}
	if after != nil {
		k.query = url.Values{"from_revision": {strconv.FormatUint(*after, 10)}}
	}
	target, err := c.target(k)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	endless := *c.http
	endless.Timeout = 0 // it is for answers that end
	res, err := endless.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, withoutURL(err))
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		// A body that breaks off leaves the status to tell.
		body, _ := io.ReadAll(io.LimitReader(res.Body, longestProblem))
		return nil, refusal(res, body)
	}
	return res, nil
}
