package api

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// DefaultMaxBody is the limit of a request's body in bytes when none is
// configured: base64 of the largest input and of an AAD fit.
const DefaultMaxBody = 2 << 20

// hstsMaxAge is how long browsers and clients shall insist on TLS, once they
// saw it: a year, as RFC 6797 has it in its examples.
const hstsMaxAge = "max-age=31536000"

// Config is what a Server needs. Fields are required unless they say otherwise.
type Config struct {
	Service       *kms.Service
	Authenticator *kms.Authenticator
	Log           *slog.Logger
	Clock         func() time.Time
	// MaxBody bounds a request's body in bytes; 0: DefaultMaxBody.
	MaxBody int64
	// TrustedProxies are the networks of the load balancers whose
	// X-Forwarded-For is believed; empty: nobody's is.
	TrustedProxies []netip.Prefix
	// Registerer takes the metrics; nil: there are none.
	Registerer prometheus.Registerer
	// Tracer traces requests; nil: nobody does.
	Tracer Tracer
	// Ready returns why the service cannot work now; nil: it always can.
	Ready func() error
	// Version is the release that the OpenAPI document names.
	Version string
	// Reports write the reports of incidents of cost breakers down.
	Reports CostReports
}

// Tracer begins traces of requests. It is safe for concurrent use.
type Tracer interface {
	// Begin begins the trace of a request whose ticket was opened: it sets the
	// ticket's Steps and TraceID. nil: this one is not traced.
	Begin(t *kms.Ticket, r *http.Request) Trace
}

// Trace is a request's trace.
type Trace interface {
	// End ends it when the answer was written. route is the template of the
	// path, status 0 when nothing was answered.
	End(t *kms.Ticket, route string, status int)
}

// Server is the REST interface. It has no goroutines and nothing to close. It
// is safe for concurrent use.
type Server struct {
	service       *kms.Service
	authenticator *kms.Authenticator
	log           *slog.Logger
	clock         func() time.Time
	maxBody       int64
	proxies       proxies
	room          room // for bodies
	metrics       *metrics
	tracer        Tracer
	ready         func() error
	version       string
	reports       CostReports
	document      []byte
	vault         []*Route          // of the facade
	native        map[string]bool   // :: first segment behind /v1/ of a native path
	items         map[string]*Route // by what their items of batches have as op
	itemOps       []string
	echo          *echo.Echo
	allow         map[string][]string // :: echo's path → the methods that it has
}

// New makes a Server. It panics when the registerer has its metrics already.
func New(c Config) *Server {
	s := &Server{
		service: c.Service, authenticator: c.Authenticator, log: c.Log, clock: c.Clock,
		maxBody: c.MaxBody, proxies: c.TrustedProxies, tracer: c.Tracer,
		ready: c.Ready, version: c.Version, reports: c.Reports,
		room: room{tenants: make(map[uuid.UUID]int64)},
		echo: echo.New(), allow: make(map[string][]string),
	}
	if s.maxBody == 0 {
		s.maxBody = DefaultMaxBody
	}
	table := Routes()
	s.metrics = newMetrics(c.Registerer, table)
	s.document = buildDocument(table, c.Version)
	s.items = make(map[string]*Route)
	items := itemRoutes()
	for i := range items {
		s.items[itemOp(&items[i])] = &items[i]
		s.itemOps = append(s.itemOps, itemOp(&items[i]))
	}
	// Nothing of ours asks echo for an address; should anything ever, it gets
	// the one that the ticket has.
	s.echo.IPExtractor = func(r *http.Request) string { return s.proxies.client(r).String() }
	s.echo.Use(s.refuseUnknown)
	for i := range table {
		if table[i].Vault == nil {
			s.mount(&table[i])
		}
	}
	s.mountVault(table)
	return s
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// serve opens a request's ticket, sends it to its route and sees its end.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, context: r.Context()}
	s.openTicket(&x.ticket, r)
	h := w.Header()
	x.set(h, headerRequestID, x.ticket.RequestID.String())
	// In their canonical spelling, and shared: nobody changes a header's
	// values in place.
	h["Cache-Control"] = headerNoStore
	h["X-Content-Type-Options"] = headerNoSniff
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", hstsMaxAge)
	}
	if r.Method == http.MethodConnect {
		// What follows on the connection is not meant for us.
		h.Set("Connection", "close")
	}
	var trace Trace
	if s.tracer != nil {
		trace = s.tracer.Begin(&x.ticket, r)
	}
	s.metrics.inFlight.Inc()
	defer func() {
		p := recover()
		s.metrics.inFlight.Dec()
		s.metrics.observe(x, s.clock().Sub(x.ticket.Received))
		if trace != nil {
			trace.End(&x.ticket, x.template(), x.status)
		}
		if p != nil {
			s.abort(x, p)
		}
	}()
	if m := s.matchVault(r.URL, r.Method); m != nil {
		s.serveVault(x, r, m)
		return
	}
	if !canonicalPath(r.URL) {
		s.fail(x, errNoRoute)
		return
	}
	s.echo.ServeHTTP(x, r)
}

var (
	headerNoStore = []string{"no-store"}
	headerNoSniff = []string{"nosniff"}
)

var errNoRoute = kms.Errorf(kms.KindNotFound, "there is no such route")

// abort ends a request whose answer cannot be trusted to be whole: the panic
// came from outside the handler, which recovers its own.
func (s *Server) abort(x *exchange, p any) {
	s.log.LogAttrs(x.context, slog.LevelError, "answering failed",
		slog.String("request_id", x.ticket.RequestID.String()),
		slog.String("route", x.template()), slog.Any("error", panicked(p)))
	panic(http.ErrAbortHandler)
}

// mount registers a route with the router.
func (s *Server) mount(route *Route) {
	path := strings.NewReplacer("{", ":", "}", "").Replace(route.Path)
	endsInObject := strings.HasSuffix(route.Path, "}")
	s.echo.Add(route.Method, path, func(c echo.Context) error {
		objects := c.ParamValues()
		if endsInObject && strings.Contains(objects[len(objects)-1], "/") {
			// echo's last parameter takes the rest of the path when no path goes
			// on after it; one segment more is another path.
			return s.refuse(c, errNoRoute)
		}
		x := c.Response().Writer.(*exchange)
		x.route = route
		s.run(x, c.Request(), objects)
		return nil
	})
	s.allow[path] = append(s.allow[path], route.Method)
}

// refuseUnknown answers what the router has no route for: unknown paths, and
// every method that a path does not have, OPTIONS and HEAD among them.
func (s *Server) refuseUnknown(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		allow := s.allow[c.Path()]
		if allow == nil {
			return s.refuse(c, errNoRoute)
		}
		if slices.Contains(allow, c.Request().Method) {
			return next(c)
		}
		x := c.Response().Writer.(*exchange)
		x.Header().Set("Allow", strings.Join(allow, ", "))
		x.writeProblem(Problem{Type: typeBlank, Title: http.StatusText(http.StatusMethodNotAllowed),
			Status: http.StatusMethodNotAllowed, Code: CodeMethodNotAllowed})
		return nil
	}
}

func (s *Server) refuse(c echo.Context, err error) error {
	s.fail(c.Response().Writer.(*exchange), err)
	return nil
}
