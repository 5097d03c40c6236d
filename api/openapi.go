package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

// documentPath is where the OpenAPI document is served.
const documentPath = "/openapi.json"

func documentRoutes() []Route {
	return []Route{{Name: "openapi", Group: "Document", Method: http.MethodGet, Path: documentPath, Public: true,
		Success: http.StatusOK, Summary: "Get this document",
		serve: func(c *call) (*buffer, error) {
			if err := refuseBody(c.request); err != nil {
				return nil, err
			}
			c.answerRaw(contentJSON, c.server.document)
			return c.raw, nil
		}}}
}

// commonErrors are the problems that every route behind a credential can give.
var commonErrors = []kms.Kind{
	kms.KindInternal, kms.KindMalformed, kms.KindUnauthenticated, kms.KindPermissionDenied,
	kms.KindQuotaExceeded, kms.KindQuotaExhausted, kms.KindUnsatisfiable,
	kms.KindReducedCapacity, kms.KindHSMUnavailable, kms.KindAuditUnavailable, kms.KindStoreUnavailable,
	kms.KindWaitExceeded, kms.KindSecondFactor, kms.KindCredentialSuspended,
}

// bodyErrors are those of routes with a body.
var bodyErrors = []kms.Kind{kms.KindTooLarge, kms.KindUnsupportedMedia, kms.KindInvalidArgument}

// claimErrors are those of an Idempotency-Key.
var claimErrors = []kms.Kind{kms.KindConflict, kms.KindInvalidArgument}

var introduction = `Sluice is a key management service that many tenants share.

Bytes are standard base64 with padding. Times are RFC 3339. Ids are UUIDs. A field that is not given is left out: null is refused, as are unknown fields, repeated names and unknown query parameters. The tenant is that of the credential; nothing else names it.

{key} is a key's id, name or alias, {version} the number of one of its versions, {alias} an alias, {tenant} a tenant's id or name, {credential} a credential's id, {approval} an approval's, {request} a request's. A slash in a name is written %2F; paths hold no other escape.

Operations are safe to repeat; each run is charged. A call that changes state takes the header Idempotency-Key, with which it happens once: for 24 hours the same request with the same key, from the same credential, is answered with the first answer's status and the object as it is now, after the caller was authorised anew. Where the first answer showed a secret, the repetition is a conflict that names the id. The same key with another request is refused, and while the first one is under way the repetition is told to wait.

Some acts of operators can be set to take two of them: deleting a tenant, minting an operator's credential, and giving another's a new secret. Then the request is refused with approval_required and the id of an approval; another operator approves that; and who asked repeats the same request with the header Sluice-Approval. An approval is good once and for a day.

A credential that is used in an unusual way is flagged: what follows is the policy's. Its calls may be limited (quota_exceeded, ABUSE_THROTTLED), refused until it is cleared (credential_suspended), or refused unless another credential of the tenant comes with them in the header Sluice-Second-Credential or a one-time code in Sluice-One-Time-Code (second_factor_required); the reasons say what was unusual.

A scope can be the name of a role, which stands for scopes: ` + roleDocs() + `.

The routes of the group Vault are for clients of HashiCorp Vault: they have its paths, its envelope and its errors. They take PUT for POST, any Content-Type and unknown fields and parameters.

With the query dry_run=true an operation or a change is checked and priced but not done.

Requests may give a CRC32C (Castagnoli) of their bytes, which is checked before anything is done; the answer says which ones were, and gives those of its own bytes.`

// roleDocs says what each role is.
func roleDocs() string {
	list := make([]string, len(kms.Roles()))
	for i, r := range kms.Roles() {
		list[i] = "role:" + r.Name + " (" + strings.Join(r.Scopes, ", ") + ") " + r.Doc
	}
	return strings.Join(list, "; ")
}

// buildDocument makes the OpenAPI 3.1 document of a table of routes.
func buildDocument(table []Route, version string) []byte {
	s := &schemas{components: node{}}
	s.reference(reflect.TypeFor[Problem](), false)
	s.reference(reflect.TypeFor[Decision](), false)
	paths := node{}
	var groups []any
	for i := range table {
		r := &table[i]
		if r.Method == methodList {
			continue // no method of OpenAPI; GET with list=true is documented
		}
		item, ok := paths[r.Path].(node)
		if !ok {
			item = node{}
			paths[r.Path] = item
		}
		item[strings.ToLower(r.Method)] = s.operation(r)
		if tag := (node{"name": r.Group}); !slices.ContainsFunc(groups, func(g any) bool { return g.(node)["name"] == r.Group }) {
			groups = append(groups, tag)
		}
	}
	document := node{
		"openapi": "3.1.0",
		"info": node{"title": "Sluice", "version": version, "description": introduction,
			"license": node{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"tags":  groups,
		"paths": paths,
		"components": node{
			"schemas":    s.components,
			"parameters": requestHeaders,
			"headers":    answerHeaders,
			"securitySchemes": node{"credential": node{"type": "http", "scheme": "bearer",
				"description": "Authorization: Bearer slk_…"},
				"vault": node{"type": "apiKey", "in": "header", "name": headerVaultToken,
					"description": "A credential, or the token of vault-login. It may stand in Authorization as well"}},
		},
	}
	body, err := json.Marshal(document, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		// It is made of strings, numbers, maps and slices.
		panic(err)
	}
	return body
}

func (s *schemas) operation(r *Route) node {
	o := node{
		"operationId": r.Name, "tags": []string{r.Group}, "summary": r.Summary,
		"parameters": parameters(r), "responses": s.responses(r),
	}
	if r.Description != "" {
		o["description"] = r.Description
	}
	if !r.Public {
		o["security"] = []any{node{"credential": []string{}}}
	}
	if !r.Public && r.Vault != nil {
		o["security"] = []any{node{"vault": []string{}}, node{"credential": []string{}}}
	}
	if r.Request != nil {
		o["requestBody"] = node{"required": r.shape.required,
			"content": node{contentJSON: node{"schema": s.reference(r.Request, true)}}}
	}
	if r.Body != "" {
		o["requestBody"] = node{"required": true, "content": node{r.Body: node{"schema": node{"type": "string",
			"description": "Lines of JSON, each an item as in a batch"}}}}
	}
	return o
}

func (s *schemas) responses(r *Route) node {
	if r.Vault != nil {
		return s.vaultResponses(r)
	}
	schema := node{"type": "object"}
	if r.Response != nil {
		schema = s.reference(r.Response, false)
	}
	var dry node
	if r.takesDryRun() {
		dry = s.reference(reflect.TypeFor[DryRunResponse](), false)
		if r.Success == http.StatusOK {
			schema = node{"oneOf": []any{schema, dry}}
		}
	}
	content := node{contentJSON: node{"schema": schema}}
	if r.Stream {
		content = node{contentEvents: node{"schema": node{"type": "string",
			"description": "Events, of which each has an event, an id and data: a JSON object as follows", "x-data": schema}}}
	}
	if r.Lines {
		content = node{contentLines: node{"schema": node{"type": "string",
			"description": "Lines, each of which is a JSON object as follows", "x-data": schema}}}
	}
	for _, media := range r.Media {
		content[media] = node{}
	}
	responses := node{strconv.Itoa(r.Success): node{
		"description": http.StatusText(r.Success), "content": content, "headers": headersOf(r, r.Success)}}
	if dry != nil && r.Success != http.StatusOK {
		responses[strconv.Itoa(http.StatusOK)] = node{
			"description": "Of a dry run", "content": node{contentJSON: node{"schema": dry}}, "headers": headersOf(r, http.StatusOK)}
	}
	for status, codes := range r.problems() {
		responses[strconv.Itoa(status)] = node{
			"description": http.StatusText(status) + ": " + strings.Join(codes, ", "),
			"content":     node{contentProblem: node{"schema": s.reference(reflect.TypeFor[Problem](), false)}},
			"headers":     headersOf(r, status),
		}
	}
	return responses
}

// problems lists the codes of the problems that a route can give, by status.
func (r *Route) problems() map[int][]string {
	kinds := slices.Clone(commonErrors)
	if r.Public {
		kinds = []kms.Kind{kms.KindInternal, kms.KindMalformed}
	}
	if r.Request != nil || r.Body != "" {
		kinds = append(kinds, bodyErrors...)
	}
	if r.changes() {
		kinds = append(kinds, claimErrors...)
	}
	if !r.Public && r.Op.Info().TwoOperators {
		kinds = append(kinds, kms.KindApprovalRequired)
	}
	kinds = append(kinds, r.Errors...)
	slices.Sort(kinds)
	byStatus := make(map[int][]string)
	for _, k := range slices.Compact(kinds) {
		byStatus[ProblemStatus(k)] = append(byStatus[ProblemStatus(k)], k.String())
	}
	return byStatus
}

func parameters(r *Route) []any {
	var list []any
	for _, o := range r.Objects() {
		list = append(list, node{"name": string(o), "in": "path", "required": true, "description": objectDocs[o],
			"schema": node{"type": "string", "minLength": 1}})
	}
	for _, p := range r.Query {
		schema := node{"type": "string"}
		doc := p.Doc
		switch {
		case p.Max > 0:
			schema = node{"type": "integer", "minimum": 1, "maximum": p.Max}
		case p.Values != nil:
			schema["enum"] = p.Values
		}
		if p.Default != "" {
			doc += ". Absent: " + p.Default
		}
		list = append(list, node{"name": p.Name, "in": "query", "description": doc, "schema": schema})
	}
	list = append(list, parameterReference(headerRequestID))
	switch {
	case r.Op == "":
	case r.Vault != nil:
		list = append(list, parameterReference(headerVaultNamespace), parameterReference(headerUrgency), parameterReference(headerDeadline), parameterReference(headerTrace))
	case !r.Public:
		list = append(list, parameterReference(headerUrgency), parameterReference(headerDeadline), parameterReference(headerDebug), parameterReference(headerTrace),
			parameterReference(headerSecond), parameterReference(headerOneTime))
	}
	if r.changes() {
		list = append(list, parameterReference(headerIdempotency))
	}
	if !r.Public && r.Op.Info().TwoOperators {
		list = append(list, parameterReference(headerApproval))
	}
	return list
}

func parameterReference(name string) node { return node{"$ref": "#/components/parameters/" + name} }

var objectDocs = map[Object]string{
	ObjectKey:        "A key's id, name or alias; a slash in a name is written %2F",
	ObjectVersion:    "Number of a version of the key",
	ObjectAlias:      "A further name of a key: 1 to 128 letters, digits and -_./, as for a key; a slash is written %2F",
	ObjectTenant:     "A tenant's id or name; a slash in a name is written %2F",
	ObjectCredential: "A credential's id",
	ObjectApproval:   "An approval's id",
	ObjectNode:       "A node's id",
	ObjectWebhook:    "A webhook's id",
	ObjectSecret:     "A secret's id",
	ObjectPath:       "A secret's path or the beginning of one. Its slashes may stand as they are",
	ObjectRoute:      "A route's name",
	ObjectJob:        "A job's id",
	ObjectRequest:    "A request's id, as its answer's X-Request-Id and request_id have it",
	ObjectPolicy:     "Number of a version of the policy; 0 is the policy that Sluice comes with",
}

// requestHeaders are the headers that requests may carry.
var requestHeaders = node{
	headerRequestID: node{"name": headerRequestID, "in": "header", "schema": node{"type": "string"},
		"description": "The client's own id of the request: recorded, at most 128 characters; the answer carries ours"},
	headerUrgency: node{"name": headerUrgency, "in": "header",
		"schema":      node{"type": "string", "enum": values(urgencies...), "default": string(kms.UrgencyNormal)},
		"description": "How urgent the request is among those of the tenant"},
	headerDeadline: node{"name": headerDeadline, "in": "header",
		"schema":      node{"type": "integer", "minimum": 1, "maximum": MaxDeadline.Milliseconds()},
		"description": "Milliseconds that the client will wait for a slot. Absent: what the tier allows"},
	headerIdempotency: node{"name": headerIdempotency, "in": "header",
		"schema":      node{"type": "string", "minLength": 1, "maxLength": kms.MaxIdempotencyKey},
		"description": "A key of the client's choice, in ASCII, one for each logical request and the same for its repetitions. On operations, which change nothing, it is accepted and has no effect"},
	headerSecond: node{"name": headerSecond, "in": "header", "schema": node{"type": "string"},
		"description": "Another live credential of the tenant, which proves a flagged one for a while; looked at only then"},
	headerOneTime: node{"name": headerOneTime, "in": "header", "schema": node{"type": "string", "pattern": "^[0-9]{6}$"},
		"description": "A one-time code (RFC 6238) of the credential, which proves it while it is flagged; looked at only then"},
	headerApproval: node{"name": headerApproval, "in": "header", "schema": node{"type": "string", "format": "uuid"},
		"description": "The approval of a second operator, which the first request was answered to ask for"},
	headerDebug: node{"name": headerDebug, "in": "header", "schema": node{"type": "string", "enum": []string{"1"}},
		"description": "Asks for the whole decision in Sluice-Decision. It has no effect without the scope debug"},
	headerVaultNamespace: node{"name": headerVaultNamespace, "in": "header", "schema": node{"type": "string"},
		"description": "The name of the caller's tenant, or nothing. It may stand before the path as well: /v1/acme/secret/data/…"},
	headerTrace: node{"name": headerTrace, "in": "header", "schema": node{"type": "string"},
		"description": "W3C Trace Context; its trace id is recorded"},
}

// answerHeaders are the headers that answers carry.
var answerHeaders = node{
	headerRequestID: node{"required": true, "schema": node{"type": "string", "format": "uuid"}, "description": "Names the request in the journal and in logs"},
	headerCost:      node{"required": true, "schema": node{"type": "number", "minimum": 0}, "description": "Credits charged"},
	headerPolicy: node{"schema": node{"type": "string"},
		"description": "The tenant's limits in credits: q of them in w seconds (RateLimit header fields for HTTP, draft 10; the unit hsm-credits is ours)"},
	headerLimit: node{"schema": node{"type": "string"},
		"description": "What is left of each limit: r credits, and t seconds until the day resets"},
	headerWeighted: node{"schema": node{"type": "string"},
		"description": "cost: credits reserved for this call, base(operation, spec) + max(0, ceil(bytes / 4096) - 1); remaining: credits left in the tenant's bucket; burst: what it holds at most"},
	headerCostWarning: node{"schema": node{"type": "string"},
		"description": "exhausted_at: when nothing is left of the day or month if the use goes on as it is. Sent while the cost breaker marks answers"},
	headerProtection: node{"required": true, "schema": node{"type": "string", "enum": enums[reflect.TypeFor[kms.Protection]()]}, "description": "Of the key that was used"},
	headerTiming: node{"required": true, "schema": node{"type": "string"},
		"description": "queue, hsm and total in milliseconds (W3C Server Timing)"},
	headerWaitReason: node{"schema": node{"type": "string"},
		"description": "What the request waited for, the longest first, each with its milliseconds as dur; they add up to queue. Absent when it did not wait"},
	headerDecision: node{"schema": node{"type": "string", "contentMediaType": contentJSON},
		"description": "With Sluice-Debug and the scope debug: the decision with the numbers of every gate, as JSON: see Decision"},
	headerReplayed: node{"schema": node{"type": "string", "enum": []string{"true"}},
		"description": "The request was carried out before, under the same Idempotency-Key; this time nothing was done"},
	"Retry-After":      node{"schema": node{"type": "integer", "minimum": 1}, "description": "Seconds after which a retry can succeed"},
	"WWW-Authenticate": node{"required": true, "schema": node{"type": "string"}, "description": "Bearer"},
	headerComplete: node{"required": true, "schema": node{"type": "string", "enum": []string{"true", "false"}},
		"description": "Whether these are all results that there will be"},
	"Link": node{"schema": node{"type": "string"},
		"description": "Of refusals of requests at bulk urgency, and of batches of which items were refused for now: where work is taken that can wait"},
	"Location": node{"schema": node{"type": "string"}, "description": "Path of what was created"},
}

func headersOf(r *Route, status int) node {
	names := []string{headerRequestID}
	switch status {
	case r.Success, http.StatusOK:
		if r.Public {
			break
		}
		names = append(names, headerCost, headerTiming, headerWaitReason, headerDecision, headerPolicy, headerLimit, headerWeighted, headerCostWarning)
		if r.Op.Info().PerKey || r.Op == kms.OpCreateKey {
			names = append(names, headerProtection)
		}
		if r.Lines {
			names = append(names, headerComplete)
		}
		if status == http.StatusCreated || status == http.StatusAccepted {
			names = append(names, "Location")
		}
		if r.changes() && status == r.Success {
			names = append(names, headerReplayed)
		}
	case http.StatusUnauthorized:
		names = append(names, "WWW-Authenticate")
	case http.StatusConflict:
		if r.changes() {
			names = append(names, "Retry-After")
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		names = append(names, "Retry-After")
	}
	if reasoned(status) && !r.Public {
		names = append(names, headerWaitReason, headerDecision)
	}
	if refusedForNow(status) && !r.Public || r.Op == kms.OpBatch && status == r.Success {
		names = append(names, "Link")
	}
	headers := node{}
	for _, name := range names {
		headers[name] = node{"$ref": "#/components/headers/" + name}
	}
	if reasoned(status) && !r.Public {
		headers[headerTiming] = node{"schema": node{"type": "string"},
			"description": "As with success; absent when the problem has no reasons"}
	}
	return headers
}
