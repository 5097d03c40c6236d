package api

import (
	"encoding/json/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Some routes answer with a stream of server-sent events (WHATWG HTML, 9.2). It
// begins when all is decided, so refusals are problems as everywhere; after that
// nothing can be told but events.

const (
	contentEvents = "text/event-stream"
	// headerLastEventID is what a client sends that begins again.
	headerLastEventID = "Last-Event-ID"
	// eventTimeout bounds the writing of one event: a client that does not read
	// for so long, with its buffers full, is gone.
	eventTimeout = 10 * time.Second
)

// stream completes a route that answers with events. begin calls a verb and
// returns what sends the events until it returns.
func stream(r Route, begin func(*call) (func(*events), error)) Route {
	r.Stream = true
	r = complete[NoBody, SecretEvent](r)
	r.serve = func(c *call) (*buffer, error) {
		if err := refuseBody(c.request); err != nil {
			return nil, err
		}
		send, err := begin(c)
		if err != nil {
			return nil, err
		}
		c.streamed = true
		e := &events{c: c, control: http.NewResponseController(c.ResponseWriter)}
		e.open()
		send(e)
		return nil, nil
	}
	return r
}

// events writes the events of a stream.
type events struct {
	c       *call
	control *http.ResponseController
	failed  bool // the client is gone
}

// open sends the headers. What bounds a request does not bound a stream.
func (e *events) open() {
	h := e.c.Header()
	h.Set("Content-Type", contentEvents)
	h.Set("X-Accel-Buffering", "no") // proxies hand on what they get
	// The limits of an ordinary request end with it.
	_ = e.control.SetReadDeadline(time.Time{})
	e.c.server.describeCharge(e.c.exchange)
	e.c.WriteHeader(http.StatusOK)
	e.write([]byte(": open\n\n"))
}

// send sends an event and tells whether the client is still there.
func (e *events) send(kind string, id uint64, data any) bool {
	b := append([]byte("event: "), kind...)
	b = strconv.AppendUint(append(b, "\nid: "...), id, 10)
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // events are made of numbers and paths
	}
	b = append(append(append(b, "\ndata: "...), text...), "\n\n"...)
	e.write(b)
	return !e.failed
}

func (e *events) write(b []byte) {
	if e.failed {
		return
	}
	// Writers of tests know no deadline.
	_ = e.control.SetWriteDeadline(time.Now().Add(eventTimeout))
	_, err := e.c.ResponseWriter.Write(b)
	e.failed = err != nil || e.control.Flush() != nil
}

// watchSecrets begins a watch at the later one of the two places that a client
// can name.
func watchSecrets(c *call) (func(*events), error) {
	from, resume := uint64(0), false
	for name, text := range map[string]string{"query: from_revision": c.query["from_revision"], "header " + headerLastEventID: c.request.Header.Get(headerLastEventID)} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return nil, kms.Errorf(kms.KindMalformed, "%s: must be a revision", name)
		}
		from, resume = max(from, n), true
	}
	w, err := c.service.WatchSecrets(c.context, &c.ticket, from, resume)
	if err != nil {
		return nil, err
	}
	return func(e *events) {
		defer w.Close()
		for {
			event, ok := w.Next(c.context)
			if !ok || !e.send(string(event.Kind), event.Revision, SecretEvent{Revision: event.Revision, Path: event.Path}) {
				return
			}
		}
	}, nil
}
