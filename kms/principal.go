package kms

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"uuid"
)

// Principal is who is calling: the verified credential with its tenant. It is
// made by Authenticator only and shared by concurrent requests of the same
// credential; it must not be changed.
type Principal struct {
	Tenant     *Tenant
	Project    string
	Credential uuid.UUID
	Component  string // which consumer inside the tenant; "" when none was given
	Subject    string // a verified subject; "" for plain credentials
	Scopes     Scopes
	Guard      *Guard // nil: nothing was ever known against the credential
}

// Operator tells whether the principal belongs to the system tenant.
func (p *Principal) Operator() bool { return p.Tenant.Name == SystemTenantName }

// Allowed tells whether the principal may run op on key; key is nil for
// operations that act on no existing key.
func (p *Principal) Allowed(op Op, key *Key) bool {
	info := op.Info()
	if info == nil {
		return false
	}
	if info.Family == "operator" && !p.Operator() {
		return false
	}
	name := ""
	if key != nil {
		name = key.Name
	}
	return p.Scopes.allow(info, name)
}

// AllowedSecret tells whether the principal may run op on the secret of a path.
func (p *Principal) AllowedSecret(op Op, path string) bool {
	info := op.Info()
	return info != nil && p.Scopes.allow(info, path)
}

// Sees tells whether an object of a project is visible to the principal: a
// credential sees its own project, and all of them with the scope
// "tenant:admin" or a "project:*".
func (p *Principal) Sees(project string) bool {
	return p.Project == project || p.Scopes.allProjects
}

// Scopes is a parsed, immutable set of scopes.
type Scopes struct {
	given       []string
	list        []scope // roles expanded
	allProjects bool
	debug       bool
}

type scope struct {
	family, operation, glob string
}

// MaxScopes is the number of scopes that one credential may carry; matching
// is linear in it and happens on every request.
const MaxScopes = 64

// ParseScopes parses scopes of the form
//
//	<family>:<operation>[:<glob of key name or secret path>]    or    debug
//
// Families are key, secret, tenant, operator, project, usage and audit, and
// role, which stands for the scopes of a role. Operations are the names of the Op
// constants of the family, "*" or, for keys, "use" (and read), "manage",
// "destroy" (schedule and cancel the end of keys and versions) and "import"; for
// secrets "read" (the values), "list" (which there are, and what is not secret
// of them), "manage", "destroy" and "report", none of which holds another;
// tenant and operator know "admin" and operator "auditor"; project knows only
// "*". In a glob "*" matches any run of characters, "/" included.
func ParseScopes(scopes []string) (Scopes, error) {
	if len(scopes) == 0 || len(scopes) > MaxScopes {
		return Scopes{}, Errorf(KindInvalidArgument, "scopes: give 1 to %d of them", MaxScopes)
	}
	set := Scopes{given: slices.Clone(scopes)}
	for i, s := range scopes {
		expanded, isRole := expandRole(s)
		if !isRole {
			expanded = []string{s}
		}
		for _, s := range expanded {
			sc, err := parseScope(s)
			if err != nil {
				return Scopes{}, Errorf(KindInvalidArgument, "scopes[%d]: %v", i, err)
			}
			set.add(sc)
		}
	}
	return set, nil
}

func (s *Scopes) add(sc scope) {
	switch {
	case sc.family == "debug":
		s.debug = true
	case sc.family == "project", sc.family == "tenant" && sc.operation == "admin":
		s.allProjects = true
	}
	s.list = append(s.list, sc)
}

func parseScope(s string) (scope, error) {
	if len(s) > 2*MaxNameLength {
		return scope{}, fmt.Errorf("is longer than %d bytes", 2*MaxNameLength)
	}
	if s == "debug" {
		return scope{family: "debug"}, nil
	}
	family, rest, ok := strings.Cut(s, ":")
	if !ok {
		return scope{}, fmt.Errorf("has not the form family:operation[:glob]")
	}
	operation, glob, hasGlob := strings.Cut(rest, ":")
	if !hasGlob {
		glob = "*"
	}
	if glob == "" || strings.ContainsAny(glob, ": \t\r\n") {
		return scope{}, fmt.Errorf("has an empty or malformed glob")
	}
	if !knownScope(family, operation) {
		return scope{}, fmt.Errorf("names an unknown family or operation")
	}
	if hasGlob && family != "key" && !secretGlob(family, operation) {
		return scope{}, fmt.Errorf("has a glob, which only scopes of keys and of single secrets take")
	}
	return scope{family, operation, glob}, nil
}

// secretGlob tells whether a scope is about single secrets.
func secretGlob(family, operation string) bool {
	return family == "secret" && operation != "list" && operation != string(OpListSecrets) &&
		operation != "report" && operation != string(OpReportSecrets)
}

func knownScope(family, operation string) bool {
	switch family {
	case "project":
		return operation == "*"
	case "usage", "audit":
		return operation == "read"
	case "operator":
		if operation == "auditor" {
			return true
		}
		fallthrough
	case "tenant":
		if operation == "admin" {
			return true
		}
	case "key":
		if operation == "*" || operation == "use" || operation == "manage" {
			return true
		}
	case "secret", "route":
		if classes(family, operation) != nil {
			return true
		}
	}
	info := Op(operation).Info()
	return info != nil && info.Family == family
}

// Debug tells whether the set holds the scope "debug".
func (s Scopes) Debug() bool { return s.debug }

// Strings returns the scopes in the form in which they were given.
func (s Scopes) Strings() []string { return slices.Clone(s.given) }

// Covers tells whether every operation that other allows is allowed by s
// too, judged scope by scope: a scope is covered by one of the same family
// whose operation is the same or wider and whose glob is the same or "*".
// It is what keeps a tenant administrator from minting a credential that may
// more than himself.
func (s Scopes) Covers(other Scopes) bool {
	for _, want := range other.list {
		if !s.coversOne(want) {
			return false
		}
	}
	return true
}

func (s Scopes) coversOne(want scope) bool {
	for _, have := range s.list {
		if have.family != want.family {
			// The administrator of a tenant may hand out any right inside it.
			if have.family == "tenant" && have.operation == "admin" && want.family != "operator" {
				return true
			}
			continue
		}
		if covers(have.family, have.operation, want.operation) && (have.glob == "*" || have.glob == want.glob) {
			return true
		}
	}
	return false
}

// covers tells whether a scope's operation allows all that another one of the
// same family does.
func covers(family, have, want string) bool {
	if have == want || have == "admin" {
		return true
	}
	allowed := classes(family, have)
	if wanted := classes(family, want); wanted != nil {
		return !slices.ContainsFunc(wanted, func(c OpClass) bool { return !slices.Contains(allowed, c) })
	}
	info := Op(want).Info()
	return info != nil && slices.Contains(allowed, info.Class)
}

// classes are the classes of operations that the operation of a scope stands
// for; nil for a single operation and for "admin", which stands for all.
func classes(family, operation string) []OpClass {
	switch family {
	case "secret":
		return secretClasses[operation]
	case "route":
		return routeClasses[operation]
	}
	switch operation {
	case "*":
		return classesOfStar
	case "use":
		return classesOfUse
	case "manage":
		return classesOfManage
	case "auditor", "read":
		return classesOfRead
	case "destroy":
		return classesOfDestroy
	case "import":
		return classesOfImport
	}
	return nil
}

var (
	classesOfStar    = []OpClass{ClassUse, ClassRead, ClassCreate}
	classesOfUse     = []OpClass{ClassUse, ClassRead}
	classesOfManage  = []OpClass{ClassRead, ClassCreate, ClassManage}
	classesOfRead    = []OpClass{ClassRead}
	classesOfDestroy = []OpClass{ClassDestroy}
	classesOfImport  = []OpClass{ClassImport}

	// Of secrets reading is using, and none of the others holds it.
	secretClasses = map[string][]OpClass{
		"*":       {ClassUse, ClassRead, ClassCreate, ClassManage, ClassList, ClassReport},
		"read":    {ClassUse},
		"list":    {ClassList, ClassRead},
		"manage":  {ClassRead, ClassCreate, ClassManage},
		"destroy": {ClassDestroy},
		"report":  {ClassReport},
	}

	// Of routes: gateways report, and get the order with the answer.
	routeClasses = map[string][]OpClass{
		"*":      {ClassRead, ClassManage, ClassReport},
		"read":   {ClassRead},
		"manage": {ClassRead, ClassManage},
		"report": {ClassReport},
	}
)

func (s Scopes) allow(info *OpInfo, name string) bool {
	for i := range s.list {
		sc := &s.list[i]
		if sc.family != info.Family {
			continue
		}
		if sc.permits(info) && (!info.PerKey && !info.PerSecret || MatchGlob(sc.glob, name)) {
			return true
		}
	}
	return false
}

// permits tells whether a scope of the operation's family allows it on some
// object.
func (sc *scope) permits(info *OpInfo) bool {
	return sc.operation == "admin" || sc.operation == string(info.Op) || slices.Contains(classes(sc.family, sc.operation), info.Class)
}

// reaches tells whether the set allows an operation on some object.
func (s Scopes) reaches(info *OpInfo) bool {
	return slices.ContainsFunc(s.list, func(sc scope) bool { return sc.family == info.Family && sc.permits(info) })
}

// MatchGlob tells whether name matches the glob, in which "*" stands for any
// run of characters, "/" included, and everything else for itself. It takes
// time linear in len(glob)·len(name) at worst, which MaxNameLength bounds.
func MatchGlob(glob, name string) bool {
	var g, n, star, mark int
	star = -1
	for n < len(name) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, n
			g++
		case g < len(glob) && glob[g] == name[n]:
			g++
			n++
		case star >= 0:
			mark++
			g, n = star+1, mark
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// Credential is what a caller authenticates with, as stored: never its
// secret, only hashes under the pepper.
type Credential struct {
	ID        uuid.UUID
	Tenant    uuid.UUID
	Project   string
	Name      string
	Component string
	Scopes    []string
	Networks  []netip.Prefix // empty: any address
	Secrets   []CredentialSecret
	Created   time.Time
	Expires   time.Time // zero: never
	Revoked   time.Time // zero: not revoked
	Revision  uint64    // grows by one with every change, from 1
	// LastUsed and LastAddress tell of the last use, as of the last time that
	// uses were stored; zero: never.
	LastUsed    time.Time
	LastAddress string
	// Guard is what is known against it; nil: nothing ever was, and no key of
	// one-time codes is enrolled.
	Guard *Guard
}

// CredentialSecret is one live secret of a credential; there are at most two,
// so that clients can change over.
type CredentialSecret struct {
	Hash          [32]byte // see CredentialHash
	PepperVersion uint32
	Created       time.Time
	Expires       time.Time // zero: with the credential
}
