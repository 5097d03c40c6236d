package quota

import (
	"encoding"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// maxOverrides bounds the tenants that a document sets apart, and their
// projects, credentials and keys, so that validating and swapping one stays a
// matter of moments.
const maxOverrides = 100_000

// PolicyError is a mistake in a document.
type PolicyError struct {
	Path string // of the field, as "tiers.gold.burst_credits"; "" of the whole
	What string
}

// Error names the place and the mistake; it holds nothing of the document but
// names of fields.
func (e *PolicyError) Error() string {
	if e.Path == "" {
		return "policy: " + e.What
	}
	return "policy: " + e.Path + ": " + e.What
}

func mistake(path, format string, args ...any) error {
	return &PolicyError{path, fmt.Sprintf(format, args...)}
}

// decodeError tells where a document could not be decoded.
func decodeError(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		path := dotted(semantic.JSONPointer)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return mistake(path, "is not a field")
		case semantic.GoType != nil:
			return mistake(path, "is not what the field takes")
		}
		return mistake(path, "cannot be decoded")
	}
	return mistake("", "is not a JSON object as it has to be: %v", err)
}

// dotted writes a pointer as paths are written here.
func dotted(p jsontext.Pointer) string {
	return strings.Join(slices.Collect(p.Tokens()), ".")
}

// Validate checks every range and what fields have to do with each other. It
// returns the first mistake.
func (p *Policy) Validate() error {
	if err := checkRanges("", reflect.ValueOf(p).Elem(), ""); err != nil {
		return err
	}
	if p.Costs.Version == "" {
		return mistake("costs.version", "is empty")
	}
	for _, tier := range kms.Tiers() {
		if p.Tiers[tier] == nil {
			return mistake("tiers."+string(tier), "is missing")
		}
	}
	for tier, limits := range p.Tiers {
		if !slices.Contains(kms.Tiers(), tier) {
			return mistake("tiers", "has a tier that is not known")
		}
		if err := limits.check("tiers." + string(tier)); err != nil {
			return err
		}
	}
	if err := p.checkRules(); err != nil {
		return err
	}
	return p.checkTenants()
}

// checkRanges walks the document and compares every number and name with the
// tag of its field.
func checkRanges(path string, v reflect.Value, tag reflect.StructTag) error {
	switch v.Kind() {
	case reflect.Int64:
		return checkRange(path, v.Int(), tag.Get("range"))
	case reflect.String:
		if names := tag.Get("oneof"); names != "" && !slices.Contains(strings.Fields(names), v.String()) {
			return mistake(path, "is none of %s", names)
		}
	case reflect.Pointer:
		if v.IsNil() {
			if _, optional := tag.Lookup("range"); optional || strings.Contains(tag.Get("json"), "omitzero") {
				return nil
			}
			return mistake(path, "is null")
		}
		return checkRanges(path, v.Elem(), tag)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if err := checkRanges(join(path, name), value, field.Tag); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkRanges(join(path, strconv.Itoa(i)), v.Index(i), tag); err != nil {
				return err
			}
		}
	case reflect.Map:
		if v.Len() > maxOverrides {
			return mistake(path, "has more than %d members", maxOverrides)
		}
		tag = reflect.StructTag(strings.ReplaceAll(string(tag), "omitzero", "")) // is the map's
		for key, value := range v.Seq2() {
			if err := checkRanges(join(path, keyName(key)), value, tag); err != nil {
				return err
			}
		}
	}
	return nil
}

func keyName(key reflect.Value) string {
	if named, ok := key.Interface().(encoding.TextMarshaler); ok {
		if text, err := named.MarshalText(); err == nil {
			return string(text)
		}
	}
	return key.String()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// checkRange compares n with a range of the form "least:most".
func checkRange(path string, n int64, bounds string) error {
	if bounds == "" {
		return nil // an override: checked as what it overrides
	}
	least, most, _ := strings.Cut(bounds, ":")
	low, _ := strconv.ParseInt(least, 10, 64)
	high, _ := strconv.ParseInt(most, 10, 64)
	if n < low || n > high {
		return mistake(path, "is not from %d to %d", low, high)
	}
	return nil
}

// check compares the limits of a tier, or of a tenant, with each other.
func (l *TierLimits) check(path string) error {
	switch {
	case l.BurstCredits < l.CreditsPerSecond:
		return mistake(path+".burst_credits", "is less than credits_per_second: a second's credits would not fit")
	case l.OverdraftCredits > l.BurstCredits:
		return mistake(path+".overdraft_credits", "is more than burst_credits")
	case (l.RequestsPerSecond == 0) != (l.BurstRequests == 0) || l.BurstRequests < l.RequestsPerSecond:
		return mistake(path+".burst_requests", "is less than requests_per_second, or only one of them is 0")
	case l.DayCredits < l.BurstCredits:
		return mistake(path+".day_credits", "is less than burst_credits")
	case l.PoolCredits > l.DayCredits:
		return mistake(path+".pool_credits", "is more than day_credits")
	case l.MaxWait.Normal < l.MaxWait.Interactive:
		return mistake(path+".max_wait_ms.normal", "is less than that of interactive")
	case l.MaxWait.Bulk < l.MaxWait.Normal:
		return mistake(path+".max_wait_ms.bulk", "is less than that of normal")
	}
	return nil
}

func (p *Policy) checkRules() error {
	for _, b := range []struct {
		path  string
		rules BreakerRules
	}{{"hot_spot_breaker", p.HotSpot}, {"failure_breaker", p.Failures}} {
		switch {
		case b.rules.MinBad > b.rules.MinCalls:
			return mistake(b.path+".min_bad", "is more than min_calls")
		case b.rules.MaxOpenSeconds < b.rules.OpenSeconds:
			return mistake(b.path+".max_open_seconds", "is less than open_seconds")
		}
	}
	s := p.Secrets
	switch {
	case p.Gate.SafePercent >= p.Gate.HardPercent:
		return mistake("gate.safe_percent", "is not below hard_percent")
	case p.Gate.HysteresisPercent >= p.Gate.SafePercent:
		return mistake("gate.hysteresis_percent", "is not below safe_percent")
	case p.CostBreaker.RecoverPercent >= p.CostBreaker.RiskPercent:
		return mistake("cost_breaker.recover_percent", "is not below risk_percent")
	case p.Leases.PeriodMs < 2*p.Leases.TickMs:
		return mistake("leases.period_ms", "is less than two ticks: one late exchange would end a lease")
	case p.Leases.SlotsTTLMs < 2*p.Leases.TickMs:
		return mistake("leases.slots_ttl_ms", "is less than two ticks")
	case p.Leases.DownMs < p.Leases.PeriodMs:
		return mistake("leases.down_ms", "is less than period_ms")
	case s.ClientExpirySeconds < s.ClientFreshSeconds:
		return mistake("secrets.client_expiry_seconds", "is less than client_fresh_seconds")
	case s.BreakerMaxSeconds < s.BreakerOpenSeconds:
		return mistake("secrets.breaker_max_seconds", "is less than breaker_open_seconds")
	case !s.SwitchPercents.ascend():
		return mistake("secrets.switch_percents", "do not ascend to 100")
	case !s.FailbackPercents.ascend():
		return mistake("secrets.failback_percents", "do not ascend to 100")
	case p.Alerts.UtilisationLowPercent >= p.Alerts.UtilisationHighPercent:
		return mistake("alerts.utilisation_low_percent", "is not below utilisation_high_percent")
	}
	return nil
}

func (s Steps) ascend() bool {
	for i := 1; i < len(s); i++ {
		if s[i] <= s[i-1] {
			return false
		}
	}
	return len(s) > 0 && s[len(s)-1] == 100
}

// checkTenants checks what is set for single tenants, under every tier that
// they may have.
func (p *Policy) checkTenants() error {
	for id, t := range p.Tenants {
		path := "tenants." + id.String()
		if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "Local" {
			return mistake(path+".time_zone", "is not a time zone that is known here")
		}
		if err := checkPacks(path+".packs", t.Packs); err != nil {
			return err
		}
		for _, tier := range kms.Tiers() {
			limits := t.Limits.over(p.Tiers[tier])
			if err := checkRanges(path+".limits", reflect.ValueOf(limits).Elem(), ""); err != nil {
				return err
			}
			if err := limits.check(path + ".limits"); err != nil {
				return fmt.Errorf("%w (with tier %s)", err, tier)
			}
		}
		if err := t.checkScopes(path); err != nil {
			return err
		}
	}
	return nil
}

func checkPacks(path string, packs []Pack) error {
	seen := make(map[string]bool, len(packs))
	for i, pack := range packs {
		at := fmt.Sprintf("%s.%d", path, i)
		switch {
		case pack.ID == "" || len(pack.ID) > kms.MaxNameLength || seen[pack.ID]:
			return mistake(at+".id", "is empty, too long, or there twice")
		case pack.Expires.IsZero():
			return mistake(at+".expires", "is missing")
		}
		seen[pack.ID] = true
	}
	return nil
}

func (t *TenantPolicy) checkScopes(path string) error {
	for name, limits := range t.Projects {
		if name == "" || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || len(name) > kms.MaxNameLength {
			return mistake(path+".projects", "has a name that no project has")
		}
		if err := limits.check(path + ".projects." + name); err != nil {
			return err
		}
	}
	for id, limits := range t.Credentials {
		if err := limits.check(path + ".credentials." + id.String()); err != nil {
			return err
		}
	}
	for id, limits := range t.Keys {
		if err := limits.check(path + ".keys." + id.String()); err != nil {
			return err
		}
	}
	return nil
}

func (l *ScopeLimits) check(path string) error {
	switch {
	case (l.CreditsPerSecond == 0) != (l.BurstCredits == 0) || l.BurstCredits < l.CreditsPerSecond:
		return mistake(path+".burst_credits", "is less than credits_per_second, or only one of them is 0")
	case (l.RequestsPerSecond == 0) != (l.BurstRequests == 0) || l.BurstRequests < l.RequestsPerSecond:
		return mistake(path+".burst_requests", "is less than requests_per_second, or only one of them is 0")
	}
	return nil
}

// over returns the limits with those of o that are set in their place.
func (o *TierOverride) over(limits *TierLimits) *TierLimits {
	merged := *limits
	target := reflect.ValueOf(&merged).Elem()
	for field, value := range reflect.ValueOf(o).Elem().Fields() {
		if !value.IsNil() {
			target.FieldByName(field.Name).SetInt(value.Elem().Int())
		}
	}
	return &merged
}
