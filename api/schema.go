package api

import (
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The tags of request and response types:
//
//	json      the name; in answers "omitzero" and "omitempty" make it optional
//	api       "required": the field must be given (requests)
//	doc       what it is, in words
//	min, max  range of a number
//	minlen    least length of a string in characters
//	maxlen    greatest length of a string in characters, of Bytes in bytes, of
//	          an array in elements
//	example   an example, in JSON unless it is a string
//
//	          "null": it may be null (answers of the Vault facade)
//
// A bound is a number or the name of a row in bounds.

// bounds are the limits that other packages enforce, so that the document
// cannot name another number than the code has.
var bounds = map[string]int{
	"MaxInput":         kms.MaxInput,
	"MaxBatch":         kms.MaxBatch,
	"MaxUserID":        kms.MaxUserID,
	"MaxImportToken":   kms.MaxImportToken,
	"MaxImportKey":     kms.MaxImportKey,
	"MaxNameLength":    kms.MaxNameLength,
	"MaxDescription":   kms.MaxDescription,
	"MinDataKey":       kms.MinDataKey,
	"MaxDataKey":       kms.MaxDataKey,
	"MaxRandom":        kms.MaxRandom,
	"MinDeletionDays":  kms.MinDeletionDays,
	"MaxDeletionDays":  kms.MaxDeletionDays,
	"MaxScopes":        kms.MaxScopes,
	"MaxNetworks":      kms.MaxNetworks,
	"MaxWebhookURL":    kms.MaxWebhookURL,
	"MaxEventTypes":    len(kms.EventTypes()),
	"MaxOverlapHours":  maxOverlapHours,
	"MaxRotationDays":  maxRotationDays,
	"MaxCSRNames":      kms.MaxCSRNames,
	"MaxSubjectValue":  maxSubjectValue,
	"MaxSubjectValues": maxSubjectValues,
	"MaxWrap":          kms.MaxWrap,
	"MaxWrapped":       maxWrapped,
	"MaxDeriveContext": kms.MaxDeriveContext,
	"MinDerived":       kms.MinDerived,
	"MaxDerived":       kms.MaxDerived,
	"MaxPolicyComment": kms.MaxPolicyComment,
	"MaxSecretPath":    kms.MaxSecretPath,
	"MaxRouteModels":   kms.MaxRouteModels,
	"MaxFallbacks":     kms.MaxRouteTargets - 1,
	"MaxRouteName":     kms.MaxRouteName,
	"MaxRegion":        kms.MaxRegion,
	"MaxModel":         kms.MaxModel,

	"MaxRouteReportItems": kms.MaxRouteReportItems,
	"MaxProvider":         kms.MaxProvider,
	"MaxSecretValue":      kms.MaxSecretValue,
	"MaxLease":            int(kms.MaxLease / time.Second),
	"MaxRolloutSteps":     kms.MaxRolloutSteps,
	"MaxStepInterval":     int(kms.MaxInterval / time.Second),
	"MinObserve":          int(kms.MinObserve / time.Second),
	"MaxObserve":          int(kms.MaxObserve / time.Second),
	"MaxGrants":           kms.MaxPageSize,
	"MaxFetchItems":       kms.MaxFetchItems,
	"MaxReportItems":      kms.MaxReportItems,
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func isRequired(f reflect.StructField) bool { return f.Tag.Get("api") == "required" }

// enums are the values of the types that have a table.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[kms.Spec]():               collect(kms.Specs(), func(i kms.SpecInfo) string { return string(i.Spec) }),
	reflect.TypeFor[kms.Family]():             collect(kms.Specs(), func(i kms.SpecInfo) string { return string(i.Family) }),
	reflect.TypeFor[kms.Usage]():              usages(),
	reflect.TypeFor[kms.Algorithm]():          algorithms(),
	reflect.TypeFor[kms.Protection]():         values(kms.ProtectionHSM, kms.ProtectionSealed),
	reflect.TypeFor[kms.KeyState]():           values(kms.KeyEnabled, kms.KeyDisabled, kms.KeyPendingDeletion),
	reflect.TypeFor[kms.VersionState]():       values(kms.VersionEnabled, kms.VersionDisabled, kms.VersionPendingDestruction, kms.VersionDestroyed),
	reflect.TypeFor[kms.Origin]():             values(kms.OriginGenerated, kms.OriginImportedProcess),
	reflect.TypeFor[kms.ImportWrapping]():     values(kms.ImportWrappings()...),
	reflect.TypeFor[kms.Tier]():               values(kms.Tiers()...),
	reflect.TypeFor[kms.TenantState]():        values(kms.TenantActive, kms.TenantSuspended, kms.TenantDeleting, kms.TenantDeleted, kms.TenantShredded),
	reflect.TypeFor[kms.NodeMode]():           values(kms.NodeModes()...),
	reflect.TypeFor[kms.NodeState]():          values(kms.NodeUp, kms.NodeWarming, kms.NodeDraining, kms.NodeClosed, kms.NodeDown, kms.NodeOut),
	reflect.TypeFor[kms.BreakerState]():       values(kms.BreakerClosed, kms.BreakerOpen, kms.BreakerHalfOpen),
	reflect.TypeFor[kms.EventType]():          collect(kms.EventTypes(), func(i kms.EventInfo) string { return string(i.Type) }),
	reflect.TypeFor[kms.AbuseAction]():        values(kms.AbuseActions()...),
	reflect.TypeFor[kms.AbuseSignal]():        values(kms.AbuseSignals()...),
	reflect.TypeFor[kms.WebhookState]():       values(kms.WebhookActive, kms.WebhookDisabled),
	reflect.TypeFor[kms.SecretState]():        values(kms.SecretInUse, kms.SecretPendingDeletion),
	reflect.TypeFor[kms.SecretVersionState](): values(kms.SecretVersionStates()...),
	reflect.TypeFor[kms.RolloutState]():       values(kms.RolloutRunning, kms.RolloutDone, kms.RolloutRolledBack, kms.RolloutCancelled),
	reflect.TypeFor[kms.TargetState]():        values(kms.TargetStates()...),
	reflect.TypeFor[kms.TargetCause]():        values(kms.CauseEndpoint, kms.CauseLatency, kms.CauseProbe, kms.CauseRateLimit, kms.CauseKey),
	reflect.TypeFor[kms.ProviderKeyState]():   values(kms.KeyOK, kms.KeyRefused, kms.KeyInvalid, kms.KeyExhausted),
	reflect.TypeFor[kms.RouteReason]():        values(kms.RouteReasons()...),
	reflect.TypeFor[JobState]():               jobStates(),
	reflect.TypeFor[kms.FetchStatus]():        values(kms.FetchStatuses()...),
	reflect.TypeFor[kms.Phase]():              values(kms.PhaseIntent, kms.PhaseOutcome),
	reflect.TypeFor[kms.Granularity]():        values(kms.Granularities()...),
	reflect.TypeFor[kms.SM2Order]():           values(kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1),
	reflect.TypeFor[kms.SignatureFormat]():    values(kms.FormatDER, kms.FormatRaw),
	reflect.TypeFor[kms.Digest]():             values(kms.DigestSHA224, kms.DigestSHA256, kms.DigestSHA384, kms.DigestSHA512, kms.DigestSM3),
	reflect.TypeFor[StageName]():              collect([]kms.CostStage{kms.CostCalm, kms.CostNoBulk, kms.CostMarked, kms.CostStopped}, kms.CostStage.String),
	reflect.TypeFor[Code]():                   append(collect(kms.Kinds(), kms.Kind.String), string(CodeMethodNotAllowed)),
}

// values turns named strings into plain ones.
func values[T ~string](list ...T) []string {
	return collect(list, func(v T) string { return string(v) })
}

// collect lists each value of a column of a table once, in order.
func collect[T any](rows []T, column func(T) string) []string {
	var list []string
	for _, row := range rows {
		if v := column(row); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

func usages() []string {
	var list []kms.UsageAlgorithms
	for _, spec := range kms.Specs() {
		list = append(list, spec.Usages...)
	}
	return collect(list, func(u kms.UsageAlgorithms) string { return string(u.Usage) })
}

func algorithms() []string {
	var list []kms.Algorithm
	for _, spec := range kms.Specs() {
		for _, usage := range spec.Usages {
			list = append(list, usage.Algorithms...)
		}
	}
	return values(list...)
}

// node is a JSON object of the document.
type node = map[string]any

// schemas collects the components of a document.
type schemas struct{ components node }

// reference returns a reference to the schema of a struct, which it adds to
// the components. Requests refuse what they do not know; answers may grow.
func (s *schemas) reference(t reflect.Type, request bool) node {
	if _, done := s.components[t.Name()]; !done {
		s.components[t.Name()] = node{} // for types that hold themselves
		s.components[t.Name()] = s.object(t, request)
	}
	return node{"$ref": "#/components/schemas/" + t.Name()}
}

func (s *schemas) object(t reflect.Type, request bool) node {
	properties := node{}
	var required []string
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		properties[jsonName(f)] = s.property(f, request)
		optional := strings.Contains(f.Tag.Get("json"), ",omit")
		if request && isRequired(f) || !request && !optional {
			required = append(required, jsonName(f))
		}
	}
	o := node{"type": "object", "properties": properties}
	if required != nil {
		o["required"] = required
	}
	if request {
		o["additionalProperties"] = false
	}
	return o
}

func (s *schemas) property(f reflect.StructField, request bool) node {
	p := s.value(f.Type, request)
	if f.Tag.Get("api") == "null" {
		p = orNull(p)
	}
	tag := func(name, key string) {
		if text, given := f.Tag.Lookup(name); given {
			p[key] = bound(text)
		}
	}
	if doc, given := f.Tag.Lookup("doc"); given {
		p["description"] = doc
	}
	tag("min", "minimum")
	tag("max", "maximum")
	switch {
	case f.Type == reflect.TypeFor[SecretText]():
		tag("minlen", "minLength")
		tag("maxlen", "maxLength")
	case f.Type == reflect.TypeFor[Bytes]():
		if text, given := f.Tag.Lookup("maxlen"); given {
			p["maxLength"] = base64.StdEncoding.EncodedLen(bound(text))
		}
	case f.Type.Kind() == reflect.Slice:
		tag("maxlen", "maxItems")
	default:
		tag("minlen", "minLength")
		tag("maxlen", "maxLength")
	}
	if text, given := f.Tag.Lookup("example"); given {
		p["examples"] = []any{example(text, p["type"] == "string")}
	}
	return p
}

// orNull is the schema of what may be null as well.
func orNull(p node) node {
	if t, plain := p["type"].(string); plain && t != "null" {
		p["type"] = []string{t, "null"}
	} else if !plain {
		p = node{"oneOf": []any{p, node{"type": "null"}}}
	}
	return p
}

// bound reads the number of a tag.
func bound(text string) int {
	if n, named := bounds[text]; named {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("api: a tag names the unknown bound %q", text))
	}
	return n
}

func example(text string, isString bool) any {
	if isString {
		return text
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(fmt.Sprintf("api: the example %q is not JSON", text))
	}
	return v
}

// value is the schema of a type.
func (s *schemas) value(t reflect.Type, request bool) node {
	switch t {
	case reflect.TypeFor[Bytes]():
		return node{"type": "string", "contentEncoding": "base64"}
	case reflect.TypeFor[SecretText]():
		return node{"type": "string"}
	case reflect.TypeFor[PolicyDocument]():
		return node{"type": "object", "additionalProperties": true}
	case reflect.TypeFor[*Null]():
		return node{"type": "null"}
	case reflect.TypeFor[BatchItem]():
		return s.batchItem()
	case reflect.TypeFor[BatchOutcome]():
		return s.batchOutcome()
	case reflect.TypeFor[Cost]():
		return node{"type": "number", "minimum": 0, "multipleOf": 0.000001}
	case reflect.TypeFor[time.Time]():
		return node{"type": "string", "format": "date-time"}
	case reflect.TypeFor[uuid.UUID]():
		return node{"type": "string", "format": "uuid"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.value(t.Elem(), request)
	case reflect.String:
		if enum := enums[t]; enum != nil {
			return node{"type": "string", "enum": enum}
		}
		return node{"type": "string"}
	case reflect.Bool:
		return node{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return node{"type": "integer"}
	case reflect.Uint32, reflect.Uint64:
		return node{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return node{"type": "number", "minimum": 0}
	case reflect.Slice:
		return node{"type": "array", "items": s.value(t.Elem(), request)}
	case reflect.Map:
		return node{"type": "object", "additionalProperties": s.value(t.Elem(), request)}
	case reflect.Struct:
		return s.reference(t, request)
	}
	panic(fmt.Sprintf("api: %v has no schema", t))
}

// batchItem is the schema of an item: the body of one of the operations' own
// routes, with op and key.
func (s *schemas) batchItem() node {
	var variants []any
	mapping := node{}
	table := itemRoutes()
	for i := range table {
		r := &table[i]
		reference := "#/components/schemas/" + itemComponent(r)
		variants, mapping[itemOp(r)] = append(variants, node{"$ref": reference}), reference
		item := s.object(r.Request, true)
		required, _ := item["required"].([]string)
		properties := item["properties"].(node)
		properties["op"] = node{"type": "string", "enum": []string{itemOp(r)}}
		required = append(required, "op")
		if r.Objects() != nil {
			properties["key"] = node{"type": "string", "minLength": 1, "description": "A key's id, name or alias"}
			required = append(required, "key")
		}
		item["required"] = required
		s.components[itemComponent(r)] = item
	}
	return node{"oneOf": variants, "discriminator": node{"propertyName": "op", "mapping": mapping}}
}

// itemComponent names the schema of the items that a route's requests can be.
func itemComponent(r *Route) string {
	name := "BatchItem"
	for word := range strings.SplitSeq(r.Name, "-") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// batchOutcome is the schema of what an item's own route answers. Two
// operations can have answers of the same form.
func (s *schemas) batchOutcome() node {
	variants := []any{s.reference(reflect.TypeFor[DryRunResponse](), false)}
	for _, r := range itemRoutes() {
		if v := s.reference(r.Response, false); !slices.ContainsFunc(variants, func(o any) bool { return o.(node)["$ref"] == v["$ref"] }) {
			variants = append(variants, v)
		}
	}
	return node{"anyOf": variants}
}
