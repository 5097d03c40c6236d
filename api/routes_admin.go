package api

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// administration says whose tenant a group of routes acts on.
type administration struct {
	prefix string // of paths
	name   string // prefix of route names
	group  string
	// tenantAt is whether the first object of the path names the tenant.
	tenantAt bool
}

// Projects and credentials are administered by a tenant itself and, in any
// tenant, by operators.
var (
	ownTenant = administration{prefix: "/v1", group: "Administration"}
	anyTenant = administration{prefix: "/v1/tenants/{tenant}", name: "tenant-", group: "Operators", tenantAt: true}
)

// tenant is the reference to the tenant acted on, "" for the caller's.
func (a administration) tenant(c *call) string {
	if a.tenantAt {
		return c.object(0)
	}
	return ""
}

// credential is the id of the credential acted on: the last object.
func (a administration) credential(c *call) string {
	if a.tenantAt {
		return c.object(1)
	}
	return c.object(0)
}

func projectRoutes(a administration) []Route {
	return []Route{
		change(Route{Name: a.name + "create-project", Group: a.group, Method: http.MethodPost, Path: a.prefix + "/projects", Op: kms.OpCreateProject,
			Success: http.StatusCreated, Errors: makeErrors, Summary: "Create a project"},
			func(c *call, in *CreateProjectRequest) (*ProjectResponse, error) {
				p, err := c.service.CreateProject(c.context, &c.ticket, a.tenant(c), in.Name)
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &ProjectResponse{projectOf(p), c.charge()}, nil
			},
			func(c *call, name string) (*ProjectResponse, error) {
				p, err := c.service.ReplayProject(c.context, &c.ticket, c.route.Op, a.tenant(c), name)
				if err != nil {
					return nil, err
				}
				return &ProjectResponse{projectOf(p), c.charge()}, nil
			}),
		define(Route{Name: a.name + "list-projects", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/projects", Op: kms.OpReadProject,
			Errors: makeErrors, Query: pageParameters, Summary: "List projects"},
			func(c *call, _ *NoBody) (*ProjectListResponse, error) {
				projects, next, err := c.service.ListProjects(c.context, &c.ticket, a.tenant(c), c.page())
				if err != nil {
					return nil, err
				}
				out := &ProjectListResponse{Projects: make([]Project, len(projects)), NextPageToken: next, Charge: c.charge()}
				for i, p := range projects {
					out.Projects[i] = projectOf(p)
				}
				return out, nil
			}),
	}
}

func projectOf(p *kms.Project) Project {
	return Project{Name: p.Name, CreatedAt: p.Created.UTC()}
}

func credentialRoutes(a administration) []Route {
	one := a.prefix + "/credentials/{credential}"
	return []Route{
		change(Route{Name: a.name + "create-credential", Group: a.group, Method: http.MethodPost, Path: a.prefix + "/credentials", Op: kms.OpCreateCredential,
			Success: http.StatusCreated, Secret: true, Errors: makeErrors, Summary: "Mint a credential",
			Description: "The answer shows the credential this once."}, a.createCredential, a.replayMinted),
		define(Route{Name: a.name + "list-credentials", Group: a.group, Method: http.MethodGet, Path: a.prefix + "/credentials", Op: kms.OpReadCredential,
			Errors: makeErrors, Query: pageParameters, Summary: "List credentials"},
			func(c *call, _ *NoBody) (*CredentialListResponse, error) {
				list, next, err := c.service.ListCredentials(c.context, &c.ticket, a.tenant(c), c.page())
				if err != nil {
					return nil, err
				}
				out := &CredentialListResponse{Credentials: make([]Credential, len(list)), NextPageToken: next, Charge: c.charge()}
				for i, cr := range list {
					out.Credentials[i] = c.credential(cr)
				}
				return out, nil
			}),
		define(Route{Name: a.name + "describe-credential", Group: a.group, Method: http.MethodGet, Path: one, Op: kms.OpReadCredential,
			Errors: keyErrors, Summary: "Describe a credential"},
			func(c *call, _ *NoBody) (*CredentialResponse, error) {
				cr, err := c.service.DescribeCredential(c.context, &c.ticket, a.tenant(c), a.credential(c))
				if err != nil {
					return nil, err
				}
				return &CredentialResponse{c.credential(cr), c.charge()}, nil
			}),
		change(Route{Name: a.name + "rotate-credential", Group: a.group, Method: http.MethodPost, Path: one + "/rotate", Op: kms.OpRotateCredential,
			Secret: true, Errors: makeErrors, Summary: "Give a credential a new secret",
			Description: "The answer shows it this once. The old secret stays valid for the overlap, so that clients can change over."}, a.rotateCredential, a.replayMinted),
		change(Route{Name: a.name + "revoke-credential", Group: a.group, Method: http.MethodPost, Path: one + "/revoke", Op: kms.OpRevokeCredential,
			Errors: makeErrors, Summary: "End a credential at once and for good"},
			func(c *call, _ *Empty) (*CredentialResponse, error) {
				cr, err := c.service.RevokeCredential(c.context, &c.ticket, a.tenant(c), a.credential(c))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &CredentialResponse{c.credential(cr), c.charge()}, nil
			},
			a.replayCredential),
		change(Route{Name: a.name + "clear-credential", Group: a.group, Method: http.MethodPost, Path: one + "/clear", Op: kms.OpClearCredential,
			Errors: makeErrors, Summary: "End a credential's flag",
			Description: "The credential is no longer held to be used by somebody else, and what was unusual is usual from now on. No credential clears itself."},
			func(c *call, _ *Empty) (*CredentialResponse, error) {
				cr, err := c.service.ClearCredential(c.context, &c.ticket, a.tenant(c), a.credential(c))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &CredentialResponse{c.credential(cr), c.charge()}, nil
			},
			a.replayCredential),
		change(Route{Name: a.name + "enrol-one-time-code", Group: a.group, Method: http.MethodPost, Path: one + "/one-time-code", Op: kms.OpEnrolCode,
			Secret: true, Errors: makeErrors, Summary: "Give a credential a key of one-time codes",
			Description: "The answer shows the key this once; the one that the credential may have is replaced. It is a conflict while a flag of the credential is open."},
			func(c *call, _ *Empty) (*EnrolledCodeResponse, error) {
				cr, code, err := c.service.EnrolCode(c.context, &c.ticket, a.tenant(c), a.credential(c))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &EnrolledCodeResponse{c.credential(cr), code.Key, code.URI, c.charge()}, nil
			},
			func(c *call, id string) (*EnrolledCodeResponse, error) {
				r, err := a.replayCredential(c, id)
				if err != nil {
					return nil, err
				}
				return &EnrolledCodeResponse{Credential: r.Credential, Charge: r.Charge}, nil
			}),
	}
}

// guardOf tells what is known against a credential.
func guardOf(g *kms.Guard, now time.Time) *CredentialGuard {
	if g == nil {
		return nil
	}
	out := &CredentialGuard{Open: g.Open(now), FlaggedAt: g.Flagged.UTC(), Action: g.Action, EndsAt: g.Ends.UTC(), ClearedAt: g.Cleared.UTC(), ProvenTo: g.Proven.UTC()}
	if g.Code != nil {
		out.CodeSince = g.Code.Created.UTC()
	}
	for i := range g.Readings {
		reason := g.Readings[i].Reason()
		text, _ := reason.Explain()
		out.Signals = append(out.Signals, AbuseReading{Signal: g.Readings[i].Signal, Gross: g.Readings[i].Gross, Value: reason.Need, Usual: reason.Limit, Text: text})
	}
	return out
}

func (a administration) createCredential(c *call, in *CreateCredentialRequest) (*MintedCredentialResponse, error) {
	networks := make([]netip.Prefix, len(in.Networks))
	for i, text := range in.Networks {
		n, err := netip.ParsePrefix(text)
		if err != nil || n != n.Masked() || n.Addr().Is4In6() {
			return nil, kms.Errorf(kms.KindInvalidArgument, "networks[%d]: must be a network in CIDR notation without host bits", i)
		}
		networks[i] = n
	}
	cr, token, err := c.service.CreateCredential(c.context, &c.ticket, a.tenant(c), kms.CreateCredentialInput{
		Name: in.Name, Project: in.Project, Component: in.Component, Scopes: in.Scopes,
		Expires: in.ExpiresAt, Networks: networks,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.created(cr.ID)
	return &MintedCredentialResponse{c.credential(cr), token, c.charge()}, nil
}

// maxOverlapHours is kms.MaxOverlap in the unit of overlap_hours.
const maxOverlapHours = int(kms.MaxOverlap / time.Hour)

func (a administration) rotateCredential(c *call, in *RotateCredentialRequest) (*MintedCredentialResponse, error) {
	overlap := kms.DefaultOverlap
	if in.OverlapHours != nil {
		// Checked before it is multiplied, which could overflow.
		if *in.OverlapHours < 0 || *in.OverlapHours > maxOverlapHours {
			return nil, kms.Errorf(kms.KindInvalidArgument, "overlap_hours: must be 0 to %d", maxOverlapHours)
		}
		overlap = time.Duration(*in.OverlapHours) * time.Hour
	}
	cr, token, err := c.service.RotateCredential(c.context, &c.ticket, a.tenant(c), a.credential(c), overlap)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &MintedCredentialResponse{c.credential(cr), token, c.charge()}, nil
}

// replayCredential is the credential as it is now.
func (a administration) replayCredential(c *call, id string) (*CredentialResponse, error) {
	cr, err := c.service.ReplayCredential(c.context, &c.ticket, c.route.Op, a.tenant(c), id)
	if err != nil {
		return nil, err
	}
	return &CredentialResponse{c.credential(cr), c.charge()}, nil
}

// replayMinted is the credential without its secret, which nobody has any
// more.
func (a administration) replayMinted(c *call, id string) (*MintedCredentialResponse, error) {
	r, err := a.replayCredential(c, id)
	if err != nil {
		return nil, err
	}
	return &MintedCredentialResponse{Credential: r.Credential, Charge: r.Charge}, nil
}

func (c *call) credential(cr *kms.Credential) Credential { return credentialOf(cr, c.server.clock()) }

func credentialOf(c *kms.Credential, now time.Time) Credential {
	out := Credential{
		ID: c.ID, Name: c.Name, Project: c.Project, Component: c.Component, Scopes: c.Scopes,
		Secrets:   make([]CredentialSecret, len(c.Secrets)),
		CreatedAt: c.Created.UTC(), ExpiresAt: c.Expires.UTC(), RevokedAt: c.Revoked.UTC(), Revision: c.Revision,
	}
	out.Guard = guardOf(c.Guard, now)
	for _, n := range c.Networks {
		out.Networks = append(out.Networks, n.String())
	}
	for i, s := range c.Secrets {
		out.Secrets[i] = CredentialSecret{CreatedAt: s.Created.UTC(), ExpiresAt: s.Expires.UTC()}
	}
	return out
}
