package kms

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"
	"uuid"
)

// CreateTenantInput is the input of Service.CreateTenant.
type CreateTenantInput struct {
	Name        string
	Tier        Tier // "": free, the most conservative
	AllowSealed bool
	Domain      string // id or name of the domain that its keys live in; "": the default one
	Force       bool   // make it although the pool cannot keep its baseline
}

// CreateTenant makes a tenant with its sealing key and its default project.
// KindConflict, with ReasonCapacity, when the pool cannot keep its baseline,
// unless it is forced.
func (s *Service) CreateTenant(ctx context.Context, t *Ticket, in CreateTenantInput) (*Tenant, error) {
	tenant := &Tenant{ID: newID(), Name: in.Name, Tier: in.Tier, State: TenantActive, AllowSealed: in.AllowSealed, Revision: 1}
	var domain uuid.UUID
	sale := s.tenantSale(func(b *Baselines) int64 { return b.Of(tenant.ID, tenant.Tier) })
	err := s.run(ctx, t, &task{op: OpCreateTenant,
		prepare: func(t *Ticket) (err error) {
			if !ValidName(in.Name) {
				return errName("name")
			}
			if tenant.Tier == "" {
				tenant.Tier = TierFree
			}
			t.Target, t.Resource = tenant.ID, tenant.ID.String()
			if err = checkTier(tenant.Tier); err == nil {
				domain, err = s.domain(in.Domain)
			}
			if err != nil {
				return err
			}
			return s.refuseSale(ctx, in.Force, sale)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			if tenant.Sealing, err = s.device.NewSealingKey(ctx, tenant.ID, domain); err != nil {
				return err
			}
			tenant.Created = s.clock()
			return s.sell(ctx, t, in.Force, sale, func() error { return s.tenants.CreateTenant(ctx, tenant) })
		},
	})
	if err != nil {
		return nil, err
	}
	return tenant, nil
}

func checkTier(tier Tier) error {
	for _, known := range Tiers() {
		if tier == known {
			return nil
		}
	}
	return Errorf(KindInvalidArgument, "tier: must be one of %v", Tiers())
}

// DescribeTenant returns a tenant by id or name.
func (s *Service) DescribeTenant(ctx context.Context, t *Ticket, ref string) (*Tenant, error) {
	var tenant *Tenant
	err := s.run(ctx, t, &task{op: OpReadTenant, store: func(ctx context.Context, t *Ticket) (err error) {
		if tenant, err = s.tenants.TenantByRef(ctx, ref); err == nil {
			t.onTenant(tenant)
		}
		return err
	}})
	if err != nil {
		return nil, err
	}
	return tenant, nil
}

// ListTenants returns a page of tenants ordered by name.
func (s *Service) ListTenants(ctx context.Context, t *Ticket, page Page) (tenants []*Tenant, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadTenant,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			tenants, next, err = s.tenants.ListTenants(ctx, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return tenants, next, nil
}

// UpdateTenant changes a tenant's tier, state or consent to SEALED keys. The
// system tenant cannot be suspended: nobody could resume it. KindConflict, with
// ReasonCapacity, when the pool cannot keep a higher tier's baseline, unless it
// is forced. A suspended tenant's baseline stays sold, so that it can always be
// resumed.
func (s *Service) UpdateTenant(ctx context.Context, t *Ticket, ref string, change TenantChange, force bool) (*Tenant, error) {
	var tenant *Tenant
	sale := s.tenantSale(func(b *Baselines) int64 {
		if change.Tier == nil || tenant.Name == SystemTenantName {
			return 0
		}
		return b.Of(tenant.ID, *change.Tier) - b.Of(tenant.ID, tenant.Tier)
	})
	err := s.run(ctx, t, &task{op: change.op(),
		prepare: func(t *Ticket) (err error) {
			if change.Tier != nil {
				if err := checkTier(*change.Tier); err != nil {
					return err
				}
			}
			if tenant, err = s.tenants.TenantByRef(ctx, ref); err != nil {
				return err
			}
			t.onTenant(tenant)
			if tenant.Deleted() {
				return errTenantDeleted
			}
			if tenant.Name == SystemTenantName && change.State != nil && *change.State != TenantActive {
				return Errorf(KindConflict, "the system tenant cannot be suspended")
			}
			return s.refuseSale(ctx, force, sale)
		},
		store: func(ctx context.Context, t *Ticket) error {
			return s.sell(ctx, t, force, sale, func() error {
				changed, err := s.tenants.UpdateTenant(ctx, tenant.ID, tenant.Revision, change)
				if err == nil {
					tenant = changed
				}
				return concurrently(err)
			})
		}})
	if err != nil {
		return nil, err
	}
	return tenant, nil
}

// target finds the tenant that an administrative call acts on: "" is the
// caller's own; another one takes an operator.
func (s *Service) target(ctx context.Context, t *Ticket, ref string) (*Tenant, error) {
	if ref == "" {
		return t.By.Tenant, nil
	}
	if !t.By.Operator() {
		return nil, ErrPermissionDenied
	}
	return s.tenants.TenantByRef(ctx, ref)
}

// livingTarget is target for calls that make something in the tenant.
func (s *Service) livingTarget(ctx context.Context, t *Ticket, ref string) (*Tenant, error) {
	tenant, err := s.target(ctx, t, ref)
	if err == nil && tenant.Deleted() {
		return nil, errTenantDeleted
	}
	return tenant, err
}

// administers decides on op in the tenant that ref names: inside the own
// tenant by the scopes, in another one by being an operator whose scopes
// allow the same class of operation on tenants.
func administers(op Op, ref string) func(*Ticket) bool {
	return func(t *Ticket) bool {
		if ref == "" {
			return t.By.Allowed(op, nil)
		}
		return t.By.Operator() && t.By.Scopes.allow(&OpInfo{Op: op, Class: op.Info().Class, Family: "operator"}, "")
	}
}

// MaxProjectDepth bounds how deep projects lie in each other: a company's
// divisions, departments, teams and their services leave room in it.
const MaxProjectDepth = 8

// checkParent refuses a project that lies too deep, or in one that does not
// exist.
func (s *Service) checkParent(ctx context.Context, tenant *Tenant, name string) error {
	depth := strings.Count(name, "/") + 1
	if depth > MaxProjectDepth {
		return Errorf(KindInvalidArgument, "name: projects lie at most %d deep in each other", MaxProjectDepth)
	}
	if depth == 1 {
		return nil
	}
	_, err := s.tenants.Project(ctx, tenant.ID, name[:strings.LastIndexByte(name, '/')])
	if KindOf(err) == KindNotFound && err != nil {
		return Errorf(KindInvalidArgument, "name: the project that it lies in does not exist; create that first")
	}
	return err
}

// CreateProject makes a project in the tenant that ref names, "" for the own.
// A name with a slash is that of a project inside another, which must exist:
// "payments/cards" lies in "payments". A credential of the one does not see
// the other.
func (s *Service) CreateProject(ctx context.Context, t *Ticket, ref, name string) (*Project, error) {
	p := &Project{Name: name}
	err := s.run(ctx, t, &task{op: OpCreateProject, allowed: administers(OpCreateProject, ref),
		prepare: func(t *Ticket) error {
			if !ValidName(name) {
				return errName("name")
			}
			tenant, err := s.livingTarget(ctx, t, ref)
			if err != nil {
				return err
			}
			p.Tenant, t.Target, t.Resource = tenant.ID, tenant.ID, name
			return s.checkParent(ctx, tenant, name)
		},
		store: func(ctx context.Context, t *Ticket) error {
			p.Created = s.clock()
			return s.tenants.CreateProject(ctx, p)
		}})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ListProjects returns a page of a tenant's projects ordered by name.
func (s *Service) ListProjects(ctx context.Context, t *Ticket, ref string, page Page) (projects []*Project, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadProject, allowed: administers(OpReadProject, ref),
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) error {
			tenant, err := s.target(ctx, t, ref)
			if err != nil {
				return err
			}
			projects, next, err = s.tenants.ListProjects(ctx, tenant.ID, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return projects, next, nil
}

// Bounds of a credential.
const (
	// MaxNetworks bounds the source networks that every authentication checks.
	MaxNetworks = 32
	// DefaultOverlap is how long the old secret lives after a rotation.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap is the longest that it may live.
	MaxOverlap = 30 * 24 * time.Hour
)

// CreateCredentialInput is the input of Service.CreateCredential.
type CreateCredentialInput struct {
	Name      string
	Project   string // "": default
	Component string
	Scopes    []string
	Expires   time.Time // zero: never
	Networks  []netip.Prefix
}

// CreateCredential mints a credential in the tenant that ref names, "" for
// the own, and returns its token, which is shown this once. Nobody but an
// operator can mint a credential that may more than the own one.
func (s *Service) CreateCredential(ctx context.Context, t *Ticket, ref string, in CreateCredentialInput) (c *Credential, token string, err error) {
	err = s.run(ctx, t, &task{op: OpCreateCredential, allowed: administers(OpCreateCredential, ref),
		prepare: func(t *Ticket) (err error) {
			c, err = s.newCredential(ctx, t, ref, in)
			return err
		},
		act: func(ctx context.Context, t *Ticket) (*act, error) {
			return s.operatorsAct(ctx, t, c, mintArguments(c)...)
		},
		store: func(ctx context.Context, t *Ticket) error {
			c.Created = s.clock()
			c.Secrets, token = s.mint(c)
			return s.credentials.CreateCredential(ctx, c)
		}})
	if err != nil {
		return nil, "", err
	}
	return c, token, nil
}

// mintArguments are all that a credential is minted with.
func mintArguments(c *Credential) [][]byte {
	list := [][]byte{[]byte(c.Project), []byte(c.Component), binary.BigEndian.AppendUint64(nil, uint64(c.Expires.UnixMicro())),
		binary.BigEndian.AppendUint64(nil, uint64(len(c.Scopes)))}
	for _, scope := range c.Scopes {
		list = append(list, []byte(scope))
	}
	for _, network := range c.Networks {
		list = append(list, []byte(network.String()))
	}
	return list
}

func (s *Service) newCredential(ctx context.Context, t *Ticket, ref string, in CreateCredentialInput) (*Credential, error) {
	if !ValidName(in.Name) {
		return nil, errName("name")
	}
	if in.Component != "" && !ValidName(in.Component) {
		return nil, errName("component")
	}
	if in.Project == "" {
		in.Project = DefaultProject
	}
	if !ValidName(in.Project) {
		return nil, errName("project")
	}
	if !in.Expires.IsZero() && !in.Expires.After(s.clock()) {
		return nil, Errorf(KindInvalidArgument, "expires_at: must lie in the future")
	}
	if len(in.Networks) > MaxNetworks {
		return nil, Errorf(KindInvalidArgument, "networks: at most %d", MaxNetworks)
	}
	tenant, err := s.livingTarget(ctx, t, ref)
	if err != nil {
		return nil, err
	}
	scopes, err := ParseScopes(in.Scopes)
	if err != nil {
		return nil, err
	}
	if err := s.mayGrant(t, tenant, scopes); err != nil {
		return nil, err
	}
	// Only who sees a project can hand out what is in it.
	if ref == "" && !t.By.Sees(in.Project) {
		return nil, ErrNotFound
	}
	if _, err := s.tenants.Project(ctx, tenant.ID, in.Project); err != nil {
		return nil, err
	}
	c := &Credential{
		ID: newID(), Tenant: tenant.ID, Project: in.Project, Name: in.Name, Component: in.Component,
		Scopes: in.Scopes, Networks: in.Networks, Expires: in.Expires, Revision: 1,
	}
	t.Target, t.Resource = c.Tenant, c.ID.String()
	return c, nil
}

// mayGrant refuses scopes wider than the caller's own. Operators may grant
// anything inside an ordinary tenant, since they could suspend it as well;
// scopes of operators exist in the system tenant only.
func (s *Service) mayGrant(t *Ticket, tenant *Tenant, scopes Scopes) error {
	for i := range scopes.list {
		if scopes.list[i].family == "operator" && tenant.Name != SystemTenantName {
			return Errorf(KindInvalidArgument, "scopes[%d]: operator scopes exist in the system tenant only", i)
		}
	}
	if t.By.Operator() && tenant.Name != SystemTenantName {
		return nil
	}
	if !t.By.Scopes.Covers(scopes) {
		return &Error{Kind: KindPermissionDenied, Detail: "a credential cannot be given more than the one that mints it"}
	}
	return nil
}

func (s *Service) mint(c *Credential) ([]CredentialSecret, string) {
	token, hash := s.pepper.newToken(c.ID, c.Tenant)
	return []CredentialSecret{{Hash: hash, PepperVersion: s.pepper.Current(), Created: s.clock()}}, token
}

// DescribeCredential returns a credential of the tenant that ref names.
func (s *Service) DescribeCredential(ctx context.Context, t *Ticket, ref, id string) (*Credential, error) {
	var c *Credential
	err := s.run(ctx, t, &task{op: OpReadCredential, allowed: administers(OpReadCredential, ref),
		store: func(ctx context.Context, t *Ticket) (err error) {
			c, err = s.credential(ctx, t, ref, id)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Service) credential(ctx context.Context, t *Ticket, ref, id string) (*Credential, error) {
	tenant, err := s.target(ctx, t, ref)
	if err != nil {
		return nil, err
	}
	parsed, ok := parseRef(id)
	if !ok {
		return nil, ErrNotFound
	}
	c, err := s.credentials.Credential(ctx, tenant.ID, parsed)
	if err == nil {
		t.onCredential(c)
	}
	return c, err
}

// ListCredentials returns a page of a tenant's credentials ordered by name.
func (s *Service) ListCredentials(ctx context.Context, t *Ticket, ref string, page Page) (list []*Credential, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadCredential, allowed: administers(OpReadCredential, ref),
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) error {
			tenant, err := s.target(ctx, t, ref)
			if err != nil {
				return err
			}
			list, next, err = s.credentials.ListCredentials(ctx, tenant.ID, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// RotateCredential gives a credential a new secret, shown this once; the old
// one lives on for overlap, so that clients can change over. With an overlap
// of zero it dies at once. A third secret cannot be had: the older of two
// goes.
func (s *Service) RotateCredential(ctx context.Context, t *Ticket, ref, id string, overlap time.Duration) (c *Credential, token string, err error) {
	err = s.changeCredential(ctx, t, OpRotateCredential, ref, id, &c, func(old *Credential) (CredentialChange, error) {
		if overlap < 0 || overlap > MaxOverlap {
			return CredentialChange{}, Errorf(KindInvalidArgument, "overlap: must be 0 to %d hours", int(MaxOverlap.Hours()))
		}
		if !old.live(s.clock()) {
			return CredentialChange{}, Errorf(KindConflict, "the credential is revoked or expired")
		}
		// Nobody turns the credential of someone mightier into his own.
		scopes, err := ParseScopes(old.Scopes)
		if err != nil {
			return CredentialChange{}, Wrap(KindInternal, err, "the credential's record is not usable")
		}
		own := old.Tenant == t.By.Tenant.ID
		if own && old.ID != t.By.Credential && !(t.By.Scopes.Covers(scopes) && t.By.Sees(old.Project)) {
			return CredentialChange{}, ErrPermissionDenied
		}
		var secrets []CredentialSecret
		secrets, token = s.mint(old)
		if overlap > 0 && len(old.Secrets) > 0 {
			last := old.Secrets[0] // the newest is first
			if end := s.clock().Add(overlap); last.Expires.IsZero() || end.Before(last.Expires) {
				last.Expires = end
			}
			secrets = append(secrets, last)
		}
		return CredentialChange{Secrets: secrets}, nil
	})
	if err != nil {
		return nil, "", err
	}
	return c, token, nil
}

// RevokeCredential ends a credential at once and for good.
func (s *Service) RevokeCredential(ctx context.Context, t *Ticket, ref, id string) (c *Credential, err error) {
	err = s.changeCredential(ctx, t, OpRevokeCredential, ref, id, &c, func(old *Credential) (CredentialChange, error) {
		if !old.Revoked.IsZero() {
			return CredentialChange{}, Errorf(KindConflict, "the credential is revoked already")
		}
		now := s.clock()
		return CredentialChange{Revoked: &now}, nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Service) changeCredential(ctx context.Context, t *Ticket, op Op, ref, id string, out **Credential,
	plan func(*Credential) (CredentialChange, error)) error {
	var old *Credential
	var change CredentialChange
	return s.run(ctx, t, &task{op: op, allowed: administers(op, ref),
		act: func(ctx context.Context, t *Ticket) (*act, error) {
			return s.operatorsAct(ctx, t, old, old.ID[:])
		},
		prepare: func(t *Ticket) (err error) {
			if old, err = s.credential(ctx, t, ref, id); err != nil {
				return err
			}
			change, err = plan(old)
			return err
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			*out, err = s.credentials.UpdateCredential(ctx, old.Tenant, old.ID, old.Revision, change)
			return concurrently(err)
		}})
}
