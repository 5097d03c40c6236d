package outcome

import (
	"bytes"
	"net/http"
	"time"
)

// maxLine bounds a line of a stream that is kept for reading. A longer one is
// content: errors are short.
const maxLine = MaxBody

// The media types of streams that NewStream knows.
const (
	events      = "text/event-stream"
	eventFrames = "application/vnd.amazon.eventstream"
)

// Stream watches a stream of server-sent events, or of Bedrock's frames, as it
// passes, for the event that says it has failed: providers begin such answers with status 200, so
// that a failure in the middle is invisible to whoever reads the status only.
// It is not safe for concurrent use.
type Stream struct {
	provider Provider
	media    string
	frames   frames
	line     []byte
	skip     bool   // the line is too long
	event    string // of the event that is being read
	failed   bool
	verdict  Verdict
}

// NewStream makes a Stream of a provider's answer with a media type. One that
// is no stream of events says nothing.
func NewStream(p Provider, mediaType string) *Stream { return &Stream{provider: p, media: mediaType} }

// Write takes the next bytes, wherever the stream has been cut. It never
// fails.
func (s *Stream) Write(b []byte) (int, error) {
	n := len(b)
	switch {
	case s.failed:
	case s.media == eventFrames:
		if said, failed := s.frames.write(b); failed {
			s.failed, s.verdict = true, midStream(s.provider, said)
		}
	case s.media == events:
		s.lines(b)
	}
	return n, nil
}

// lines takes the next bytes of server-sent events.
func (s *Stream) lines(b []byte) {
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
