package kms

import "strings"

// A role is a named set of scopes, given where scopes are: "role:key-user", or
// "role:key-user:orders-*" for the roles that use keys. A set of scopes is
// parsed with its roles expanded, so that enforcement knows scopes only; what is
// stored and shown is the role, so that a role that a later version changes
// means the same for everybody who has it.

// Role is a row of the table of roles.
type Role struct {
	Name string
	// Scopes are what it stands for. A role for use with keys has one, which
	// takes the role's glob.
	Scopes []string
	// Glob tells whether the role takes a glob.
	Glob bool
	// Operator tells whether it exists in the system tenant only.
	Operator bool
	Doc      string
}

// roles has each role's least: an operator cannot use keys, an auditor changes
// nothing, who administers a tenant uses no key unless he gives himself the
// right, which the journal shows.
var roles = []Role{
	{Name: "operator-admin", Operator: true, Scopes: []string{"operator:admin", "tenant:admin", "audit:read", "usage:read"},
		Doc: "runs the service: tenants, operators, approvals, HSMs"},
	{Name: "operator-auditor", Operator: true, Scopes: []string{"operator:auditor", "audit:read", "usage:read"},
		Doc: "reads tenants, audit and usage, and changes nothing"},
	{Name: "tenant-admin", Scopes: []string{"tenant:admin", "usage:read"},
		Doc: "administers the tenant's projects and credentials"},
	{Name: "tenant-auditor", Scopes: []string{"audit:read", "usage:read", "project:*"},
		Doc: "reads the audit trail and usage of all projects, and changes nothing"},
	{Name: "key-user", Glob: true, Scopes: []string{"key:use"},
		Doc: "uses keys and reads their metadata; creates, changes and destroys none"},
}

// Roles returns the table of roles. The caller must not change it.
func Roles() []Role { return roles }

const rolePrefix = "role:"

// expandRole returns the scopes that a role stands for. ok is false when s has
// not the form of a role or names none that there is.
func expandRole(s string) (scopes []string, ok bool) {
	rest, isRole := strings.CutPrefix(s, rolePrefix)
	if !isRole {
		return nil, false
	}
	name, glob, hasGlob := strings.Cut(rest, ":")
	for i := range roles {
		switch r := &roles[i]; {
		case r.Name != name:
		case !hasGlob:
			return r.Scopes, true
		case r.Glob:
			return []string{r.Scopes[0] + ":" + glob}, true
		}
	}
	return nil, false
}
