package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// exchange is one request under way, from its first byte to its last. It is
// also the http.ResponseWriter that the router sees, which is how the ticket
// reaches the route.
type exchange struct {
	http.ResponseWriter
	context context.Context
	ticket  kms.Ticket
	route   *Route // nil until it was matched
	status  int    // 0 until the answer began

	values  [usualHeaders]string // of headers: see set
	headers int
}

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

// usualHeaders is how many headers of a value of its own an answer has.
const usualHeaders = 9

// set sets a header of the answer. The name is spelt as it is to be sent; the
// value lies beside those of the other headers, so that they cost no
// allocation each.
func (x *exchange) set(h http.Header, name, value string) {
	if x.headers == len(x.values) {
		h[name] = []string{value}
		return
	}
	x.values[x.headers] = value
	x.headers++
	h[name] = x.values[x.headers-1 : x.headers : x.headers]
}

// write sends a whole answer.
func (x *exchange) write(status int, contentType string, body []byte) {
	h := x.Header()
	x.set(h, "Content-Type", contentType)
	x.set(h, "Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	// An error means that the client has left; there is nobody to tell.
	_, _ = x.ResponseWriter.Write(body)
}

// template names the route in logs and metrics: a closed set.
func (x *exchange) template() string {
	if x.route == nil {
		return unmatched
	}
	return x.route.template()
}

// unmatched stands for every request that matches no route.
const unmatched = "unmatched"

// call is an exchange that a route matched: what handlers work with.
type call struct {
	*exchange
	service *kms.Service
	server  *Server
	request *http.Request
	objects []string          // what the path names, as it stands in the path
	itemKey string            // of an item of a batch, which has no path
	query   map[string]string // checked; absent parameters are absent
	// raw is an answer that is not JSON; media is its type.
	raw   *buffer
	media string
	// success is the status of an answer that is no problem.
	success int
	// streamed tells that the answer was a stream and is written.
	streamed bool
	// named is what the idempotency record names instead of the ticket's
	// resource, "": that.
	named string
}

// object is the reference to the path's object of an index.
func (c *call) object(i int) string {
	if c.itemKey != "" {
		return c.itemKey
	}
	return unescapeSegment(c.objects[i])
}

// run takes a request through its route and answers it.
func (s *Server) run(x *exchange, r *http.Request, objects []string) {
	c := &call{exchange: x, service: s.service, server: s, request: r, objects: objects,
		media: contentJSON, success: x.route.Success}
	body, err := c.travel()
	if err != nil && c.streamed {
		panic(http.ErrAbortHandler) // what was sent is not whole, and shows it
	}
	if err != nil {
		if x.ticket.Op == "" && !x.route.Public {
			// It reached no verb: the journal has no entry of it yet.
			err = s.service.Refuse(x.context, &x.ticket, x.route.Op, err)
		}
		s.fail(x, err)
		return
	}
	if c.streamed {
		return
	}
	defer body.release()
	if !x.route.Public {
		s.describeCharge(x)
	}
	x.write(c.success, c.media, body.bytes)
}

// travel authenticates the caller, reads the request and runs the handler.
func (c *call) travel() (body *buffer, err error) {
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, panicked(p)
		}
	}()
	if !c.route.Public {
		if err := c.server.authenticate(c.exchange, c.request); err != nil {
			return nil, err
		}
	}
	if err := c.server.readDirectives(&c.ticket, c.request.Header); err != nil {
		return nil, err
	}
	if c.query, err = readQuery(c.request.URL, c.route.Query); err != nil {
		return nil, err
	}
	if err := c.readApproval(); err != nil {
		return nil, err
	}
	c.ticket.DryRun = c.query[dryRunParameter.Name] == "true"
	c.readDebug()
	return c.route.serve(c)
}

// panicked describes a panic by its place, without its value, which could
// hold anything.
func panicked(p any) error {
	return &kms.Error{Kind: kms.KindInternal, Err: fmt.Errorf("panic of type %T\n%s", p, debug.Stack())}
}

// authenticate finds out who is calling, from the one Authorization header.
func (s *Server) authenticate(x *exchange, r *http.Request) error {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return kms.ErrUnauthenticated
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return kms.ErrUnauthenticated
	}
	// A principal is known even when its tenant is suspended.
	by, err := s.authenticator.Authenticate(x.context, token, x.ticket.Address)
	x.ticket.By = by
	x.ticket.Passed(kms.StepAuthenticate, s.clock)
	return err
}

// readRequest decodes the body, or makes sure that there is none. It returns
// the body for the caller to release, nil when there is none.
func (c *call) readRequest(in any) (*buffer, error) {
	if c.route.shape == nil {
		return nil, refuseBody(c.request)
	}
	b, err := c.server.readBody(c.exchange, c.request)
	if err != nil {
		return nil, err
	}
	var body []byte
	if b != nil {
		body = b.bytes
	}
	if err := decode(body, c.route.shape, in); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// answer writes what a handler made.
func (c *call) answer(out any, err error) (*buffer, error) {
	switch {
	case err == errDryRun:
		return c.answerDryRun()
	case err != nil:
		return nil, err
	}
	return c.encode(out)
}

// refuseBody refuses a body where none has a meaning, rather than to ignore
// what the client believes to be asking for.
func refuseBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 {
		var one [1]byte
		if n, _ := r.Body.Read(one[:]); n == 0 {
			return nil
		}
	}
	return kms.Errorf(kms.KindMalformed, "body: %s takes none here", r.Method)
}

// readQuery checks a query against the parameters of a route.
func readQuery(u *url.URL, known []Parameter) (map[string]string, error) {
	if u.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, kms.Errorf(kms.KindMalformed, "query: is not well-formed")
	}
	query := make(map[string]string, len(values))
	for _, p := range known {
		given, ok := values[p.Name]
		if !ok {
			continue
		}
		if len(given) > 1 {
			return nil, kms.Errorf(kms.KindMalformed, "query: %s is given more than once", p.Name)
		}
		if p.Max > 0 {
			if n, err := strconv.ParseUint(given[0], 10, 32); err != nil || n < 1 || n > uint64(p.Max) {
				return nil, kms.Errorf(kms.KindMalformed, "query: %s must be a whole number from 1 to %d", p.Name, p.Max)
			}
		}
		if p.Values != nil && !slices.Contains(p.Values, given[0]) {
			return nil, kms.Errorf(kms.KindMalformed, "query: %s must be one of %v", p.Name, p.Values)
		}
		query[p.Name] = given[0]
	}
	if len(query) < len(values) {
		if len(known) == 0 {
			return nil, kms.Errorf(kms.KindMalformed, "query: takes no parameters here")
		}
		return nil, kms.Errorf(kms.KindMalformed, "query: has an unknown parameter; known are %s", names(known))
	}
	return query, nil
}

func names(parameters []Parameter) string {
	list := make([]string, len(parameters))
	for i, p := range parameters {
		list[i] = p.Name
	}
	return strings.Join(list, ", ")
}

// number is the value of a whole-number parameter, which readQuery has
// checked; absent it is 0.
func (c *call) number(name string) uint32 {
	n, _ := strconv.ParseUint(c.query[name], 10, 32)
	return uint32(n)
}

// page is the page of a list that is asked for.
func (c *call) page() kms.Page {
	size := int(c.number("page_size"))
	if size == 0 {
		size = defaultPageSize
	}
	return kms.Page{Size: size, Token: c.query["page_token"]}
}

// created points to what a request made.
func (c *call) created(id uuid.UUID) {
	c.Header().Set("Location", c.request.URL.EscapedPath()+"/"+id.String())
}

// createdKey points to a key that a request made: not all are made under
// their own path.
func (c *call) createdKey(id uuid.UUID) {
	c.Header().Set("Location", "/v1/keys/"+id.String())
}

// charge is the part of an answer that says what it cost.
func (c *call) charge() Charge {
	return Charge{Cost: Cost(c.ticket.Settled.Charged), RequestID: c.ticket.RequestID}
}

// meta is the part of an answer of an operation with a key.
func (c *call) meta() Meta {
	return Meta{Charge: c.charge(), Protection: c.ticket.Key.Protection}
}

// describeCharge sets the headers that say what a request cost and where its
// time went. Only answers of success carry them: on a refusal they would
// tell causes apart that must look the same.
func (s *Server) describeCharge(x *exchange) {
	h, t := x.Header(), &x.ticket
	x.set(h, headerCost, Cost(t.Settled.Charged).String())
	if t.Key != nil {
		x.set(h, headerProtection, string(t.Key.Protection))
	}
	r, reserved := t.Reserved()
	if reserved && r.PerSecond > 0 {
		s.describeLimits(x, &r)
	}
	if !r.Exhausted.IsZero() {
		x.set(h, headerCostWarning, "exhausted_at="+r.Exhausted.UTC().Format(time.RFC3339))
	}
	s.describeTime(x)
}

// describeTime sets the headers that say where a request's time went.
func (s *Server) describeTime(x *exchange) {
	h, t := x.Header(), &x.ticket
	timing := make([]byte, 0, 64)
	timing = appendDuration(timing, "queue;dur=", t.Wait)
	timing = appendDuration(timing, ", hsm;dur=", t.SlotTime)
	timing = appendDuration(timing, ", total;dur=", s.clock().Sub(t.Received))
	x.set(h, headerTiming, string(timing))
	if t.Wait > 0 && len(t.Reasons) > 0 {
		x.set(h, headerWaitReason, waitReasons(t.Reasons))
	}
	if t.Debug {
		s.describeDecision(x)
	}
}

// appendDuration appends a metric of Server-Timing: milliseconds.
func appendDuration(b []byte, metric string, d time.Duration) []byte {
	b = append(b, metric...)
	µs := max(d.Microseconds(), 0)
	b = strconv.AppendInt(b, µs/1000, 10)
	thousandths := µs % 1000
	return append(b, '.', byte('0'+thousandths/100), byte('0'+thousandths/10%10), byte('0'+thousandths%10))
}
