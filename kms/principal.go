package kms

import (
	"fmt"
	"net/netip"
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

// Sees tells whether an object of a project is visible to the principal: a
// credential sees its own project, and all of them with the scope
// "tenant:admin" or a "project:*".
func (p *Principal) Sees(project string) bool {
	return p.Project == project || p.Scopes.allProjects
}

// Scopes is a parsed, immutable set of scopes.
type Scopes struct {
	list        []scope
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
//	<family>:<operation>[:<glob of key name>]    or    debug
//
// Families are key, tenant, operator, project, usage and audit. Operations
// are the names of the Op constants of the family, "*" or, for keys,
// "manage", "destroy" (schedule and cancel the end of keys and versions) and
// "import"; tenant and operator know "admin" and operator "auditor"; project
// knows only "*". In a glob "*" matches any run of characters, "/" included.
func ParseScopes(scopes []string) (Scopes, error) {
	if len(scopes) == 0 || len(scopes) > MaxScopes {
		return Scopes{}, Errorf(KindInvalidArgument, "scopes: give 1 to %d of them", MaxScopes)
	}
	var set Scopes
	for i, s := range scopes {
		sc, err := parseScope(s)
		if err != nil {
			return Scopes{}, Errorf(KindInvalidArgument, "scopes[%d]: %v", i, err)
		}
		switch {
		case sc.family == "debug":
			set.debug = true
		case sc.family == "project", sc.family == "tenant" && sc.operation == "admin":
			set.allProjects = true
		}
		set.list = append(set.list, sc)
	}
	return set, nil
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
	if hasGlob && family != "key" {
		return scope{}, fmt.Errorf("has a glob, which only key scopes take")
	}
	return scope{family, operation, glob}, nil
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
		if operation == "*" || operation == "manage" {
			return true
		}
	}
	info := Op(operation).Info()
	return info != nil && info.Family == family
}

// Debug tells whether the set holds the scope "debug".
func (s Scopes) Debug() bool { return s.debug }

// Strings returns the scopes in the form in which they were given.
func (s Scopes) Strings() []string {
	out := make([]string, len(s.list))
	for i, sc := range s.list {
		switch {
		case sc.family == "debug":
			out[i] = "debug"
		case sc.family == "key" && sc.glob != "*":
			out[i] = sc.family + ":" + sc.operation + ":" + sc.glob
		default:
			out[i] = sc.family + ":" + sc.operation
		}
	}
	return out
}

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
		wider := have.operation == want.operation || have.operation == "admin" ||
			have.operation == "*" && opAllowedByStar(want.operation)
		if wider && (have.glob == "*" || have.glob == want.glob) {
			return true
		}
	}
	return false
}

func opAllowedByStar(operation string) bool {
	info := Op(operation).Info()
	return info != nil && starCovers(info.Class)
}

func starCovers(c OpClass) bool { return c == ClassUse || c == ClassRead || c == ClassCreate }

func manageCovers(c OpClass) bool { return c == ClassRead || c == ClassCreate || c == ClassManage }

func (s Scopes) allow(info *OpInfo, name string) bool {
	for i := range s.list {
		sc := &s.list[i]
		if sc.family != info.Family {
			continue
		}
		var ok bool
		switch sc.operation {
		case "*":
			ok = starCovers(info.Class)
		case "manage":
			ok = manageCovers(info.Class)
		case "admin":
			ok = true
		case "auditor", "read":
			ok = info.Class == ClassRead
		case "destroy":
			ok = info.Class == ClassDestroy
		case "import":
			ok = info.Class == ClassImport
		default:
			ok = sc.operation == string(info.Op)
		}
		if ok && (!info.PerKey || MatchGlob(sc.glob, name)) {
			return true
		}
	}
	return false
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
}

// CredentialSecret is one live secret of a credential; there are at most two,
// so that clients can change over.
type CredentialSecret struct {
	Hash          [32]byte // see CredentialHash
	PepperVersion uint32
	Created       time.Time
	Expires       time.Time // zero: with the credential
}
