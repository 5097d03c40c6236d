package api

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

// Object is a kind of object that a path can name.
type Object string

// The kinds of objects, as they stand in braces in a path.
const (
	ObjectKey        Object = "key"
	ObjectVersion    Object = "version"
	ObjectAlias      Object = "alias"
	ObjectTenant     Object = "tenant"
	ObjectCredential Object = "credential"
	ObjectApproval   Object = "approval"
	ObjectNode       Object = "node"
	ObjectPolicy     Object = "policy"
	ObjectWebhook    Object = "webhook"
	ObjectRequest    Object = "request"
	ObjectSecret     Object = "secret"
	ObjectPath       Object = "path" // all that is left
	ObjectRoute      Object = "route"
	ObjectIncident   Object = "incident"
	ObjectJob        Object = "job"
)

// Route is one thing that can be called. Values come from Routes and must not
// be changed.
type Route struct {
	Name    string // unique; the operationId
	Group   string // for the document's readers
	Method  string
	Path    string // with objects in braces: /v1/keys/{key}/sign
	Op      kms.Op // what it is journalled as
	Public  bool   // needs no credential
	Success int    // the status of success

	Summary     string
	Description string
	Query       []Parameter
	// Errors are the kinds of problems that the route can give beside those
	// that every route can.
	Errors []kms.Kind
	// Secret tells that the answer shows a secret that is shown this once.
	Secret bool
	// Media are the content types of answers beside JSON.
	Media []string
	// Stream tells that the answer is a stream of events, whose data is the
	// Response.
	Stream bool
	// Body is the content type of a body that is not JSON; "": it is.
	Body string
	// Lines tells that the answer is lines of JSON, each of which is a Response.
	Lines bool
	// Vault is set for the routes of the facade for Vault's clients, which have
	// another language than the rest: see vaultRoutes.
	Vault *vaultRoute

	Request  reflect.Type // a struct; nil: no body
	Response reflect.Type // a struct; nil: the document itself

	// MaxBody bounds the request's body in bytes; 0: the server's own limit.
	MaxBody int64

	shape *shape
	// item answers a body that is no request of its own, but an item of a
	// batch; nil: it cannot be one.
	item func(c *call, body []byte) (*buffer, error)
	// valid tells what is wrong with such a body before it is answered.
	valid func(body []byte) error
	serve func(*call) (*buffer, error)
}

// Parameter is a query parameter.
type Parameter struct {
	Name string
	// Max is the largest value of a whole number from 1; 0 for a text.
	Max uint32
	// Values are all that a text can be; nil for any.
	Values []string
	// Default is what an absent number or one of Values stands for, in words.
	Default string
	Doc     string
}

// NoBody is the request type of routes that take no body at all.
type NoBody struct{}

// define completes a route that changes nothing with its handler. The handler
// calls one verb of the service.
func define[Req, Resp any](r Route, handle func(*call, *Req) (*Resp, error)) Route {
	r = complete[Req, Resp](r)
	if r.changes() {
		panic("api: " + r.Name + " changes state and is made by change")
	}
	r.serve = func(c *call) (*buffer, error) {
		var in Req
		body, err := c.readRequest(&in)
		if err != nil {
			return nil, err
		}
		body.release()
		return c.answer(handle(c, &in))
	}
	r.valid = func(body []byte) error {
		var in Req
		return decode(body, r.shape, &in)
	}
	r.item = func(c *call, body []byte) (*buffer, error) {
		var in Req
		if err := decode(body, c.route.shape, &in); err != nil {
			return nil, err
		}
		return c.answer(handle(c, &in))
	}
	return r
}

// complete fills in what follows from the types of a route.
func complete[Req, Resp any](r Route) Route {
	if t := reflect.TypeFor[Req](); t != reflect.TypeFor[NoBody]() {
		r.Request = t
	}
	r.Response = reflect.TypeFor[Resp]()
	r.shape = shapeOf(r.Request)
	if r.Success == 0 {
		r.Success = http.StatusOK
	}
	if r.takesDryRun() {
		r.Query = append(slices.Clone(r.Query), dryRunParameter)
	}
	return r
}

// changes tells whether the route changes stored state.
func (r *Route) changes() bool { return !r.Public && r.Op.Info().Changes }

// template names the route in logs and metrics.
func (r *Route) template() string { return r.Method + " " + r.Path }

// Objects returns the kinds of the objects in the route's path, in order.
func (r *Route) Objects() []Object {
	var objects []Object
	for segment := range strings.SplitSeq(r.Path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			objects = append(objects, Object(strings.TrimSuffix(name, "}")))
		}
	}
	return objects
}

// Routes returns the table of routes, in the order in which they are
// documented.
func Routes() []Route {
	var table []Route
	for _, group := range [][]Route{
		keyRoutes(), importRoutes(), versionRoutes(), aliasRoutes(),
		secretRoutes(), secretValueRoutes(), providerRoutes(),
		operationRoutes(), exchangeRoutes(), csrRoutes(), keylessRoutes(), batchRoutes(), jobRoutes(),
		projectRoutes(ownTenant), credentialRoutes(ownTenant), quotaRoutes(ownTenant), costRoutes(ownTenant), webhookRoutes(), requestRoutes(),
		trailRoutes(ownTenant), trailRoutes(anyTenant), serviceLevelRoutes(),
		tenantRoutes(), projectRoutes(anyTenant), credentialRoutes(anyTenant), quotaRoutes(anyTenant), costRoutes(anyTenant), standingRoutes(), approvalRoutes(),
		nodeRoutes(), schedulerRoutes(), policyRoutes(), capacityRoutes(),
		vaultRoutes(),
		documentRoutes(),
	} {
		table = append(table, group...)
	}
	return table
}
