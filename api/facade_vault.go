package api

import (
	"encoding/json/v2"
	"net/http"
	"net/url"
	"reflect"

	"github.com/sluice-kms/sluice/kms"
)

// Gateways and secret operators that read HashiCorp Vault's KV engine can read
// provider secrets without a change: these routes speak its language, as its
// API documentation has it and as its clients really call it. They are a second
// way to the verbs that the native routes call, under the same authentication,
// limits, prices and journal; nothing can be written here.
//
// What the facade keeps, since its clients act on it:
//
//   - The tenant is the credential's. A namespace, in a header or before the
//     path, may name it and nothing else: anything else is denied.
//   - A denial is 403 and an outage 503. Neither is ever 404, upon which
//     operators delete what they had copied, or 401, which Vault does not use.
//   - A path that is missing and one that is denied are the same 403 for who may
//     not list secrets.
//   - A secret that has no version to use is 404 with its metadata, as a deleted
//     one is.
//   - Every answer is a whole envelope of the types that strict clients decode.

// vaultRoute is what a route of the facade has of its own.
type vaultRoute struct {
	serve func(*vaultCall) (*buffer, error)
	// also is a second form of the answer; nil: there is none.
	also reflect.Type
	// absent tells that a 404 can have data.
	absent bool
}

// vaultCall is a call of the facade.
type vaultCall struct {
	*call
	namespace string // before the path; "" for none
	path      string // of what is asked for, unescaped once and not checked
	login     *kms.Login
}

// methodList is the method by which clients ask for a directory, where it is not
// GET with the query list=true.
const methodList = "LIST"

// headers of requests.
const (
	headerVaultToken     = "X-Vault-Token"
	headerVaultNamespace = "X-Vault-Namespace"
)

// vaulted completes a route of the facade, which answers with a Resp.
func vaulted[Req, Resp any](r Route, v vaultRoute) Route {
	r.Group, r.Vault = "Vault", &v
	return complete[Req, Resp](r)
}

func vaultRoutes() []Route {
	const directory = "With list=true, or the method LIST, the names in a directory, which may be the empty path; those with more behind end with a slash."
	version := Parameter{Name: "version", Doc: "Number of the version; absent or 0: the one that the caller is to use"}
	list := Parameter{Name: "list", Values: []string{"true", "false", "1", "0", "t", "f", "T", "F", "TRUE", "FALSE", "True", "False"},
		Doc: "true, or another spelling of it: list a directory", Default: "false"}
	listing := vaultRoute{serve: listVault}
	read := func(serve func(*vaultCall) (*buffer, error)) vaultRoute {
		return vaultRoute{serve: serve, also: reflect.TypeFor[VaultListResponse]()}
	}
	return []Route{
		vaulted[VaultLoginRequest, VaultLoginResponse](Route{Name: "vault-login", Method: http.MethodPost, Path: "/v1/auth/approle/login",
			Op: kms.OpLogin, Public: true, Summary: "Log in with the two parts of a credential",
			Description: "PUT does the same. The token lasts an hour and dies with its secret."}, vaultRoute{serve: vaultLogin}),
		vaulted[NoBody, VaultTokenResponse](Route{Name: "vault-lookup-self", Method: http.MethodGet, Path: "/v1/auth/token/lookup-self",
			Op: kms.OpReadSelf, Summary: "Describe the caller's token"}, vaultRoute{serve: vaultLookup}),
		vaulted[NoBody, VaultLoginResponse](Route{Name: "vault-renew-self", Method: http.MethodPost, Path: "/v1/auth/token/renew-self",
			Op: kms.OpReadSelf, Summary: "Ask how long the caller's token lasts",
			Description: "PUT does the same. A token cannot outlive its hour: the answer has what is left of it."}, vaultRoute{serve: vaultRenew}),
		vaulted[NoBody, Null](Route{Name: "vault-revoke-self", Method: http.MethodPost, Path: "/v1/auth/token/revoke-self",
			Op: kms.OpLogout, Success: http.StatusNoContent, Summary: "End the caller's token",
			Description: "PUT does the same. On this API node at once; on others it ends with its hour. A credential is not ended here."}, vaultRoute{serve: vaultRevoke}),
		vaulted[NoBody, VaultReadResponse](Route{Name: "vault-read", Method: http.MethodGet, Path: "/v1/secret/data/{path}",
			Op: kms.OpFetchSecrets, Query: []Parameter{version}, Summary: "Read the value of a secret (KV version 2)",
			Description: "While two versions share the calls the caller always gets the same one, so shares are of gateways. " +
				"A path that the caller may not read looks like one that is missing, unless it may list secrets. 404 with data: no version is to be used."},
			vaultRoute{serve: readVault, absent: true}),
		vaulted[NoBody, VaultMetadataResponse](Route{Name: "vault-metadata", Method: http.MethodGet, Path: "/v1/secret/metadata/{path}",
			Op: kms.OpReadSecret, Query: []Parameter{list}, Summary: "Describe a secret, or list a directory (KV version 2)", Description: directory}, read(describeVault)),
		vaulted[NoBody, VaultListResponse](Route{Name: "vault-list", Method: methodList, Path: "/v1/secret/metadata/{path}",
			Op: kms.OpListSecrets, Summary: "List a directory"}, listing),
		vaulted[NoBody, VaultFlatResponse](Route{Name: "vault-read-flat", Method: http.MethodGet, Path: "/v1/kv/{path}",
			Op: kms.OpFetchSecrets, Query: []Parameter{list}, Summary: "Read the value of a secret, or list a directory (KV version 1)", Description: directory}, read(readVaultFlat)),
		vaulted[NoBody, VaultListResponse](Route{Name: "vault-list-flat", Method: methodList, Path: "/v1/kv/{path}",
			Op: kms.OpListSecrets, Summary: "List a directory"}, listing),
		vaulted[NoBody, VaultMountResponse](Route{Name: "vault-mount", Method: http.MethodGet, Path: "/v1/sys/internal/ui/mounts/{path}",
			Op: kms.OpReadSelf, Summary: "Tell which mount a path is in"}, vaultRoute{serve: vaultMount}),
		vaulted[NoBody, VaultHealthResponse](Route{Name: "vault-health", Method: http.MethodGet, Path: "/v1/sys/health",
			Public: true, Summary: "Tell whether secrets can be read now", Description: "503: they cannot.",
			Query: []Parameter{{Name: queryActiveCode, Doc: "The status when they can", Default: "200"}, {Name: querySealedCode, Doc: "The status when they cannot", Default: "503"}}}, vaultRoute{serve: vaultHealth}),
		vaulted[NoBody, VaultSealResponse](Route{Name: "vault-seal-status", Method: http.MethodGet, Path: "/v1/sys/seal-status",
			Public: true, Summary: "Tell the same, with status 200"}, vaultRoute{serve: vaultSeal}),
	}
}

// serveVault answers a request that the facade is meant by.
func (s *Server) serveVault(x *exchange, r *http.Request, m *vaultMatch) {
	if m.route == nil {
		if m.allow != "" {
			x.Header().Set("Allow", m.allow)
		}
		x.writeVaultErrors(m.status, m.text)
		return
	}
	x.route = m.route
	c := &vaultCall{call: &call{exchange: x, service: s.service, server: s, request: r, media: contentJSON, success: m.route.Success},
		namespace: m.namespace, path: m.path}
	body, err := c.travel()
	if err != nil {
		if x.ticket.Op == "" && x.route.Op != "" {
			// It reached no verb: the journal has no entry of it yet.
			err = s.service.Refuse(x.context, &x.ticket, x.route.Op, err)
		}
		s.failVault(x, err)
		return
	}
	if !x.route.Public {
		s.describeCharge(x)
	}
	if body == nil {
		x.WriteHeader(c.success)
		return
	}
	defer body.release()
	x.write(c.success, c.media, body.bytes)
}

// travel authenticates the caller, reads the request and runs the handler.
func (c *vaultCall) travel() (body *buffer, err error) {
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, panicked(p)
		}
	}()
	if !c.route.Public {
		if err := c.authenticate(); err != nil {
			return nil, err
		}
	}
	if err := c.server.readDirectives(&c.ticket, c.request.Header); err != nil {
		return nil, err
	}
	if err := c.readQuery(); err != nil {
		return nil, err
	}
	return c.route.Vault.serve(c)
}

// readQuery takes the parameters that the route knows. Others mean nothing.
func (c *vaultCall) readQuery() error {
	values, err := url.ParseQuery(c.request.URL.RawQuery)
	if err != nil {
		return kms.Errorf(kms.KindMalformed, "query: is not well-formed")
	}
	c.query = make(map[string]string)
	for _, p := range c.route.Query {
		switch given := values[p.Name]; len(given) {
		case 0:
		case 1:
			c.query[p.Name] = given[0]
		default:
			return kms.Errorf(kms.KindMalformed, "query: %s is given more than once", p.Name)
		}
	}
	return nil
}

// wholeNulls writes what is absent as null, as Vault does.
var wholeNulls = json.JoinOptions(json.Deterministic(true), json.FormatNilSliceAsNull(true), json.FormatNilMapAsNull(true))

// write writes an answer that holds no value of a secret into a buffer, which
// the caller releases.
func (c *vaultCall) write(out any) (*buffer, error) {
	b := newBuffer(smallBuffer)
	if err := json.MarshalWrite(b, out, wholeNulls); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// envelope is the frame of an answer.
func (c *vaultCall) envelope(mountType string) VaultEnvelope {
	return VaultEnvelope{RequestID: c.ticket.RequestID, MountType: mountType}
}
