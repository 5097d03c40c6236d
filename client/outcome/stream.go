package outcome

import (
	"bytes"
	"net/http"
	"time"
)

// maxLine bounds a line of a stream that is kept for reading. A longer one is
// content: errors are short.
const maxLine = MaxBody

// Stream watches a stream of server-sent events as it passes, for the event
// that says it has failed: providers begin such answers with status 200, so
// that a failure in the middle is invisible to whoever reads the status only.
// It is not safe for concurrent use.
type Stream struct {
	provider Provider
	line     []byte
	skip     bool   // the line is too long
	event    string // of the event that is being read
	failed   bool
	verdict  Verdict
}

// NewStream makes a Stream of a provider's answer.
func NewStream(p Provider) *Stream { return &Stream{provider: p} }

// Write takes the next bytes, wherever the stream has been cut. It never
// fails.
func (s *Stream) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && !s.failed {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if len(s.line)+len(line) > maxLine {
			s.skip = true
		}
		if !s.skip {
			s.line = append(s.line, line...)
		}
		if !whole {
			break
		}
		if !s.skip {
			s.read(bytes.TrimSuffix(s.line, []byte{'\r'}))
		}
		s.line, s.skip = s.line[:0], false
		b = rest
	}
	return n, nil
}

// Verdict is OK as long as no event said otherwise, and for ever the failure
// afterwards.
func (s *Stream) Verdict() Verdict {
	if s.failed {
		return s.verdict
	}
	return verdict(rowOK, 0)
}

// read takes a line.
func (s *Stream) read(line []byte) {
	if len(line) == 0 {
		s.event = ""
		return
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "event":
		s.event = string(value[:min(len(value), maxEvent)])
	case "data":
		s.data(value)
	}
}

// maxEvent bounds an event's name.
const maxEvent = 64

// failure tells of an event's data, without reading all of it, whether it may
// be an error: a stream has thousands of events.
func (s *Stream) failure(data []byte) bool {
	return s.event == "error" || s.event == "response.failed" || bytes.Contains(data, []byte(`"error"`))
}

func (s *Stream) data(data []byte) {
	if !s.failure(data) {
		return
	}
	var said problem
	said.read(data)
	if !said.failed && s.event != "error" && s.event != "response.failed" {
		return
	}
	s.failed = true
	s.verdict = midStream(s.provider, said)
}

// midStream is the verdict on an error after a status of success.
func midStream(p Provider, said problem) Verdict {
	v := verdict(find(p, 0, said), retryAfter(http.Header{}, said.message, said.delay, time.Time{}))
	v.Retryable, v.MidStream = false, true
	return v
}

// Broken judges a stream, or any body after a status of success, that broke
// off with err.
func Broken(err error) Verdict {
	v := OfError(err)
	v.Retryable, v.MidStream = false, true
	return v
}
