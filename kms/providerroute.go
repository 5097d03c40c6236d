package kms

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"
)

// ProviderRoute says over which providers the calls of some models go, and over
// which they may go when those fail. Values that the store returns are shared
// and must not be changed.
type ProviderRoute struct {
	ID     uuid.UUID
	Tenant uuid.UUID
	Name   string // unique in the tenant, immutable; see ValidRouteName
	// Models are those whose calls take the route.
	Models []string
	// AuthHeader is where the provider's key goes: "authorization: bearer", or
	// the name of a header that holds it alone, such as "x-api-key".
	AuthHeader string
	// Residency is the region that no call may leave: every target's region is
	// it, or begins with it and "-". "": the fallbacks have the primary's.
	Residency string
	// Targets are the primary, the fallbacks in the order in which they are
	// tried, and the last resort, if there is one.
	Targets []RouteTarget
	// LastResort tells that the last target is the tenant's own, which gets
	// calls when no other can take them.
	LastResort bool
	Created    time.Time
	Revision   uint64 // grows by one with every change, from 1
}

// RouteTarget is a provider's endpoint with the key for it.
type RouteTarget struct {
	Name     string // unique in the route; see ValidProvider
	Provider string // as outcome.Provider has it
	BaseURL  string
	Region   string
	// RetentionDays is for how long the provider keeps what it is sent; 0: not
	// at all.
	RetentionDays int
	// Capabilities are what the provider may do with a call, such as "tools".
	Capabilities []string
	Secret       string // path of the key; "": it needs none
	// Weight is the part of the calls that it gets while all is well, in
	// hundredths.
	Weight uint32
}

// AuthBearer is the AuthHeader of most providers.
const AuthBearer = "authorization: bearer"

// Bounds of routes.
const (
	// MaxRoutes is how many routes a tenant has at most: each can have a
	// document of health that is rewritten with every report.
	MaxRoutes           = 100
	MaxRouteName        = 64 // bytes
	MaxRouteModels      = 64
	MaxModel            = 128 // bytes
	MaxRouteTargets     = 8
	MaxRegion           = 32 // bytes
	MaxBaseURL          = 512
	MaxRetentionDays    = 3650
	MaxCapabilities     = 16
	MaxRouteReportItems = 100
)

// maxRouteLatency bounds a reported latency: longer than any provider answers.
const maxRouteLatency = time.Hour

// ValidRouteName tells whether s can name a route: 1 to MaxRouteName lower-case
// letters, digits and -_.
func ValidRouteName(s string) bool { return ValidProvider(s) && s != "." && s != ".." }

// ValidModel tells whether s can name a model: 1 to MaxModel visible ASCII
// characters without quotes.
func ValidModel(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(`"\`, s[i]) >= 0 {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxModel
}

// validWord tells whether s is a region, a capability or the like: 1 to most
// lower-case letters, digits and -.
func validWord(s string, most int) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= most
}

// validHeader tells whether s can be an AuthHeader.
func validHeader(s string) bool { return s == AuthBearer || validWord(s, MaxRouteName) }

// Check checks a route; the addresses of its targets are for others to check.
func (r *ProviderRoute) Check() error {
	switch {
	case !ValidRouteName(r.Name):
		return Errorf(KindInvalidArgument, "name: must be 1 to %d lower-case letters, digits and -_.", MaxRouteName)
	case len(r.Models) == 0 || len(r.Models) > MaxRouteModels:
		return Errorf(KindInvalidArgument, "models: must be 1 to %d", MaxRouteModels)
	case !validHeader(r.AuthHeader):
		return Errorf(KindInvalidArgument, "auth_header: must be %q or the lower-case name of a header", AuthBearer)
	case r.Residency != "" && !validWord(r.Residency, MaxRegion):
		return Errorf(KindInvalidArgument, "residency: must be at most %d lower-case letters, digits and -", MaxRegion)
	case len(r.Targets) == 0 || len(r.Targets) > MaxRouteTargets:
		return Errorf(KindInvalidArgument, "fallbacks: a route has at most %d targets in all", MaxRouteTargets)
	}
	for i, m := range r.Models {
		if !ValidModel(m) || slices.Contains(r.Models[:i], m) {
			return Errorf(KindInvalidArgument, "models[%d]: must be 1 to %d visible ASCII characters without quotes, and not given twice", i, MaxModel)
		}
	}
	weight := uint32(0)
	for i := range r.Targets {
		if err := r.checkTarget(i); err != nil {
			return err
		}
		weight += min(r.Targets[i].Weight, 101)
	}
	if weight != 100 {
		return Errorf(KindInvalidArgument, "weights: must add up to 100")
	}
	return nil
}

// field names a target in messages as the API does.
func (r *ProviderRoute) field(i int) string {
	switch {
	case i == 0:
		return "primary"
	case r.LastResort && i == len(r.Targets)-1:
		return "local_last_resort"
	}
	return "fallbacks[" + strconv.Itoa(i-1) + "]"
}

func (r *ProviderRoute) checkTarget(i int) error {
	t, field := &r.Targets[i], r.field(i)
	switch {
	case !ValidProvider(t.Name) || r.Target(t.Name) != t:
		return Errorf(KindInvalidArgument, "%s.name: must be 1 to %d lower-case letters, digits and -_., and not another's", field, MaxProvider)
	case !ValidProvider(t.Provider):
		return Errorf(KindInvalidArgument, "%s.provider: must be 1 to %d lower-case letters, digits and -_.", field, MaxProvider)
	case t.BaseURL == "" || len(t.BaseURL) > MaxBaseURL || strings.ContainsAny(t.BaseURL, "?#"):
		// A key in a query would be in every log on the way.
		return Errorf(KindInvalidArgument, "%s.base_url: must have 1 to %d bytes and no query", field, MaxBaseURL)
	case !validWord(t.Region, MaxRegion):
		return Errorf(KindInvalidArgument, "%s.region: must be 1 to %d lower-case letters, digits and -", field, MaxRegion)
	case t.RetentionDays < 0 || t.RetentionDays > MaxRetentionDays:
		return Errorf(KindInvalidArgument, "%s.retention_days: must be 0 to %d", field, MaxRetentionDays)
	case len(t.Capabilities) > MaxCapabilities:
		return Errorf(KindInvalidArgument, "%s.capabilities: at most %d", field, MaxCapabilities)
	case t.Secret != "" && !ValidSecretPath(t.Secret):
		return errSecretPath(field + ".secret")
	}
	for j, c := range t.Capabilities {
		if !validWord(c, MaxRegion) || slices.Contains(t.Capabilities[:j], c) {
			return Errorf(KindInvalidArgument, "%s.capabilities[%d]: must be 1 to %d lower-case letters, digits and -, and not given twice", field, j, MaxRegion)
		}
	}
	return r.checkWidening(i)
}

// checkWidening refuses a target that may do more with a call than the primary:
// nobody would notice that calls went there.
func (r *ProviderRoute) checkWidening(i int) error {
	t, primary, field := &r.Targets[i], &r.Targets[0], r.field(i)
	switch {
	case r.Residency != "" && t.Region != r.Residency && !strings.HasPrefix(t.Region, r.Residency+"-"):
		return Errorf(KindInvalidArgument, "%s.region: is not in the residency of the route", field)
	case r.Residency == "" && t.Region != primary.Region:
		return Errorf(KindInvalidArgument, "%s.region: is another than the primary's; name a residency that holds both", field)
	case t.RetentionDays > primary.RetentionDays:
		return Errorf(KindInvalidArgument, "%s.retention_days: is longer than the primary's", field)
	}
	for _, c := range t.Capabilities {
		if !slices.Contains(primary.Capabilities, c) {
			return Errorf(KindInvalidArgument, "%s.capabilities: the primary has no %s", field, c)
		}
	}
	return nil
}

// Target returns the target of a name, nil when there is none.
func (r *ProviderRoute) Target(name string) *RouteTarget {
	if i := r.index(name); i >= 0 {
		return &r.Targets[i]
	}
	return nil
}

func (r *ProviderRoute) index(name string) int {
	return slices.IndexFunc(r.Targets, func(t RouteTarget) bool { return t.Name == name })
}
