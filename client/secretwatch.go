package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"time"
)

// maxEventLine bounds a line of the watch; ours have some hundred bytes.
const maxEventLine = 8 << 10

// secretEvent is an event of the watch.
type secretEvent struct {
	kind     string
	Revision uint64 `json:"revision"`
	Path     string `json:"path"`
}

// follow is the goroutine that watches, connection after connection.
func (s *Secrets) follow() {
	select {
	case <-s.known:
	case <-s.ctx.Done():
		return
	}
	silence := time.AfterFunc(longestSilence, s.poll)
	defer silence.Stop()
	for failures := 1; ; failures++ {
		heard := false
		err := s.watch(func(e secretEvent) {
			failures, heard = 0, true
			silence.Reset(longestSilence)
			s.take(e)
		})
		if heard {
			// The service ends a stream when the credential changes: what it may
			// read can be less now. And an event that cannot be read is lost.
			s.resync(s.revision())
		}
		if !sleep(s.ctx, min(pause(err, max(failures, 1)), maxRetryAfter)) {
			return
		}
	}
}

func (s *Secrets) revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cursor
}

// errEvent is an event that cannot be read.
var errEvent = fmt.Errorf("%w: an event of the watch cannot be read", ErrBadAnswer)

// watch makes one connection and gives its events to take until it ends.
func (s *Secrets) watch(take func(secretEvent)) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	quiet := time.AfterFunc(longestSilence, cancel)
	defer quiet.Stop()
	from := s.revision()
	res, err := s.c.openEvents(ctx, &from)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if mediaType(res.Header) != "text/event-stream" {
		return refusal(res, nil)
	}
	lines := bufio.NewReaderSize(res.Body, maxEventLine)
	for {
		e, err := readEvent(lines)
		if err != nil {
			return err
		}
		quiet.Reset(longestSilence)
		take(e)
	}
}

// readEvent reads the next event.
func readEvent(r *bufio.Reader) (secretEvent, error) {
	var e secretEvent
	var data []byte
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return e, errEvent
		case err != nil:
			return e, fmt.Errorf("%w: the watch ended: %w", ErrNoAnswer, err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if e.kind == "" && data == nil {
				continue // between events, and after comments
			}
			if json.Unmarshal(data, &e) != nil {
				return e, errEvent
			}
			return e, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.kind = string(value)
		case "data":
			data = append(data[:len(data):len(data)], value...)
		}
	}
}

// take does what an event says.
func (s *Secrets) take(ev secretEvent) {
	if ev.kind == "resync" {
		s.resync(ev.Revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling = false
	s.cursor = max(s.cursor, ev.Revision)
	if e := s.entries[ev.Path]; e != nil && (ev.kind == "changed" || ev.kind == "revoked") && ev.Revision > e.asOf {
		s.invalidate(e, ev)
	}
}

// invalidate has an entry fetched anew as of the event. Of what was revoked
// nothing is given out until the service says what is left.
func (s *Secrets) invalidate(e *entry, ev secretEvent) {
	e.floor = max(e.floor, ev.Revision)
	if e.flight != nil && e.flight.min < ev.Revision {
		e.flight = nil // its answer may be older than the event
	}
	if st := e.state.Load(); ev.kind == "revoked" && st.err == nil {
		e.limbo = append(e.limbo, st.versions...)
		e.state.Store(stateRevoked)
	}
	e.holdOff = time.Time{}
	s.ask(e)
}

// resync has everything fetched again as of a revision: events may be lost. A
// revision lower than what the watch has told of is of a node that lags.
func (s *Secrets) resync(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = max(s.cursor, revision)
	s.base = s.cursor
	for _, e := range s.entries {
		if e.flight != nil && e.flight.min < s.base {
			e.flight = nil
		}
		s.ask(e)
	}
}

// poll shortens freshness while the watch is silent.
func (s *Secrets) poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling = true
	now := time.Now()
	for _, e := range s.entries {
		if soon := now.Add(jittered(s.o.PollFreshness / 2)); e.state.Load().err == nil && soon.Before(e.refresh) {
			e.refresh = soon
			s.schedule(e)
		}
	}
	s.rouse()
}
