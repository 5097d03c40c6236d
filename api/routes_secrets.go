package api

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"strconv"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// secretErrors are those of changes of a secret that its state can forbid.
var secretErrors = append([]kms.Kind{kms.KindPreconditionFailed, kms.KindPendingDeletion}, makeErrors...)

// secretRoutes are about provider secrets.
func secretRoutes() []Route {
	const group, all, one = "Secrets", "/v1/secrets", "/v1/secrets/{secret}"
	const version = one + "/versions/{version}"
	return []Route{
		change(Route{Name: "create-secret", Group: group, Method: http.MethodPost, Path: all, Op: kms.OpCreateSecret,
			Success: http.StatusCreated, Errors: makeErrors, Summary: "Store a provider's key",
			Description: "Its version 1 is in use. The value is handed out by fetch-secrets alone."}, createSecret, replaySecret),
		define(Route{Name: "list-secrets", Group: group, Method: http.MethodGet, Path: all, Op: kms.OpListSecrets, Errors: makeErrors,
			Query:   append([]Parameter{{Name: "prefix", Doc: "What the paths begin with"}}, pageParameters...),
			Summary: "List secrets"}, listSecrets),
		define(Route{Name: "describe-secret", Group: group, Method: http.MethodGet, Path: one, Op: kms.OpReadSecret, Errors: keyErrors,
			Summary: "Describe a secret", Description: "With all its versions and its rollout, and no value."},
			func(c *call, _ *NoBody) (*SecretResponse, error) {
				return c.secret(c.service.DescribeSecret(c.context, &c.ticket, c.object(0)))
			}),
		change(Route{Name: "update-secret", Group: group, Method: http.MethodPatch, Path: one, Op: kms.OpUpdateSecret, Errors: secretErrors,
			Summary: "Change what is said of a secret"},
			func(c *call, in *UpdateSecretRequest) (*SecretResponse, error) {
				return c.secret(c.service.UpdateSecret(c.context, &c.ticket, c.secretRef(in.ExpectedRevision),
					kms.UpdateSecretInput{Metadata: in.Metadata, Fresh: seconds(in.FreshSeconds), Lease: seconds(in.LeaseSeconds)}))
			}, replaySecret),
		change(Route{Name: "delete-secret", Group: group, Method: http.MethodDelete, Path: one, Op: kms.OpDeleteSecret, Errors: secretErrors,
			Summary:     "Take a secret out of use and destroy it in 30 days",
			Description: "At once nobody gets a value of it any more. Restoring a version before the date takes it back."},
			func(c *call, _ *NoBody) (*SecretResponse, error) {
				return c.secret(c.service.DeleteSecret(c.context, &c.ticket, c.secretRef(0), kms.DefaultDeletionDays))
			}, replaySecret),
		change(Route{Name: "add-secret-version", Group: group, Method: http.MethodPost, Path: one + "/versions", Op: kms.OpAddSecretVersion,
			Success: http.StatusCreated, Errors: secretErrors, Summary: "Stage a new value",
			Description: "It is not in use until it is activated. When a version has that value already, whatever its state, the answer is that one and nothing changes."},
			addSecretVersion, func(c *call, resource string) (*AddedSecretVersionResponse, error) {
				id, number := splitVersion(resource)
				s, err := c.service.ReplaySecret(c.context, &c.ticket, c.route.Op, id)
				if err != nil {
					return nil, err
				}
				return &AddedSecretVersionResponse{secretOf(s, true), number, c.charge()}, nil
			}),
		change(Route{Name: "activate-secret", Group: group, Method: http.MethodPost, Path: one + "/activate", Op: kms.OpActivateSecret,
			Errors: secretErrors, Summary: "Bring a version into use",
			Description: "With steps it takes over from the version in use step by step, each of step_interval seconds, if it is not refused: " +
				"3 or more credential errors in a step, in a part of its calls that is more than twice the old version's plus 1 %, roll it back. " +
				"If anything is reported in a step, the step lasts until the new version has had a success."},
			func(c *call, in *ActivateSecretRequest) (*SecretResponse, error) {
				return c.secret(c.service.ActivateSecret(c.context, &c.ticket, c.secretRef(in.ExpectedRevision),
					kms.ActivateInput{Version: in.Version, Steps: in.Steps, Interval: given(in.StepInterval), Observe: given(in.Observe)}))
			}, replaySecret),
		change(Route{Name: "rollback-secret", Group: group, Method: http.MethodPost, Path: one + "/rollback", Op: kms.OpRollbackSecret,
			Errors: secretErrors, Summary: "Go back to the version before",
			Description: "A running rollout ends; else the version that was retired last is in use again."},
			func(c *call, in *SecretRevisionRequest) (*SecretResponse, error) {
				return c.secret(c.service.RollbackSecret(c.context, &c.ticket, c.secretRef(in.ExpectedRevision)))
			}, replaySecret),
		change(Route{Name: "disable-secret-version", Group: group, Method: http.MethodPost, Path: version + "/disable", Op: kms.OpDisableSecret,
			Errors: secretErrors, Summary: "Take a version out of use at once",
			Description: "Whatever its state, and though it be the last one. Watches are told within a second."},
			func(c *call, in *SecretRevisionRequest) (*SecretResponse, error) {
				return c.onSecretVersion(c.service.DisableSecretVersion, in.ExpectedRevision)
			}, replaySecret),
		change(Route{Name: "destroy-secret-version", Group: group, Method: http.MethodPost, Path: version + "/destroy", Op: kms.OpDestroySecret,
			Errors: secretErrors, Summary: "Schedule a version's destruction",
			Description: "Of one that is not in use. It can be restored until the date."}, destroySecretVersion, replaySecret),
		change(Route{Name: "restore-secret-version", Group: group, Method: http.MethodPost, Path: version + "/restore", Op: kms.OpRestoreSecret,
			Errors: secretErrors, Summary: "Take a disabled or retired version back",
			Description: "It is STAGED afterwards, and the deletion of the secret is cancelled."},
			func(c *call, in *SecretRevisionRequest) (*SecretResponse, error) {
				return c.onSecretVersion(c.service.RestoreSecretVersion, in.ExpectedRevision)
			}, replaySecret),
		define(Route{Name: "secret-grants", Group: group, Method: http.MethodGet, Path: one + "/grants", Op: kms.OpReadSecretGrants,
			Errors: keyErrors, Summary: "List who may read a secret"},
			func(c *call, _ *NoBody) (*SecretGrantsResponse, error) {
				return c.grants(c.service.SecretGrants(c.context, &c.ticket, c.object(0)))
			}),
		change(Route{Name: "set-secret-grants", Group: group, Method: http.MethodPut, Path: one + "/grants", Op: kms.OpSetSecretGrants,
			Errors: makeErrors, Summary: "Say which credentials may read a secret",
			Description: "A grant is the scope secret:read:<path>. Each credential is changed by itself: after an error, some are."},
			setSecretGrants, func(c *call, id string) (*SecretGrantsResponse, error) {
				return c.grants(c.service.ReplaySecretGrants(c.context, &c.ticket, id))
			}),
	}
}

// secretValueRoutes are for gateways.
func secretValueRoutes() []Route {
	const group = "Secret values"
	return []Route{
		define(Route{Name: "fetch-secrets", Group: group, Method: http.MethodPost, Path: "/v1/secret-values/fetch", Op: kms.OpFetchSecrets,
			Errors: []kms.Kind{kms.KindStaleReplica}, Summary: "Fetch the values of secrets",
			Description: "1 to 100 items, each decided on and recorded by itself. A path that the caller may not read looks like one that is missing, " +
				"unless it may list secrets. An item that the client has already costs nothing. stale_replica: this API node does not know of min_revision yet."},
			fetchSecrets),
		define(Route{Name: "report-secrets", Group: group, Method: http.MethodPost, Path: "/v1/secret-values/report", Op: kms.OpReportSecrets,
			Summary:     "Report what calls with versions came to",
			Description: "1 to 100 items. What is not about the versions of a running rollout decides nothing."}, reportSecrets),
		stream(Route{Name: "watch-secrets", Group: group, Method: http.MethodGet, Path: "/v1/secret-values/watch", Op: kms.OpWatchSecrets,
			Query:   []Parameter{{Name: "from_revision", Doc: "The revision after which to begin; the header Last-Event-ID says the same. Absent: now"}},
			Summary: "Watch for changes of secrets",
			Description: "Server-sent events, of the secrets that the caller may read: changed and revoked name a path, resync says that changes may have been missed, " +
				"heartbeat comes every 15 seconds, or as the policy says, with the current revision. The id of an event is its revision. " +
				"The stream ends when the credential changes in any way: begin again with the last id."}, watchSecrets),
	}
}

func seconds(n *int) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * time.Second
	return &d
}

// given is a number of seconds where 0 stands for one that is absent: what is
// given as 0 is out of range, and not the default.
func given(n *int) time.Duration {
	if n == nil {
		return 0
	}
	return max(time.Duration(*n)*time.Second, time.Nanosecond)
}

func (c *call) secretRef(expected uint64) kms.SecretRef {
	return kms.SecretRef{ID: c.object(0), Expected: expected}
}

// secret is the answer of a verb that returns a secret.
func (c *call) secret(s *kms.ProviderSecret, err error) (*SecretResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &SecretResponse{secretOf(s, true), c.charge()}, nil
}

func replaySecret(c *call, id string) (*SecretResponse, error) {
	s, err := c.service.ReplaySecret(c.context, &c.ticket, c.route.Op, id)
	if err != nil {
		return nil, err
	}
	if c.route.Success == http.StatusCreated {
		c.created(s.ID)
	}
	return &SecretResponse{secretOf(s, true), c.charge()}, nil
}

func createSecret(c *call, in *CreateSecretRequest) (*SecretResponse, error) {
	defer clear(in.Value)
	input := kms.CreateSecretInput{Path: in.Path, Provider: in.Provider, Value: in.Value, Metadata: in.Metadata,
		Fresh: given(in.FreshSeconds), Lease: given(in.LeaseSeconds)}
	if in.NotAfter != nil {
		input.NotAfter = *in.NotAfter
	}
	s, err := c.service.CreateSecret(c.context, &c.ticket, input)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.created(s.ID)
	return &SecretResponse{secretOf(s, true), c.charge()}, nil
}

func listSecrets(c *call, _ *NoBody) (*SecretListResponse, error) {
	list, next, err := c.service.ListSecrets(c.context, &c.ticket, c.query["prefix"], c.page())
	if err != nil {
		return nil, err
	}
	out := &SecretListResponse{Secrets: make([]Secret, len(list)), NextPageToken: next, Charge: c.charge()}
	for i, s := range list {
		out.Secrets[i] = secretOf(s, false)
	}
	return out, nil
}

func addSecretVersion(c *call, in *AddSecretVersionRequest) (*AddedSecretVersionResponse, error) {
	defer clear(in.Value)
	var notAfter time.Time
	if in.NotAfter != nil {
		notAfter = *in.NotAfter
	}
	s, number, err := c.service.AddSecretVersion(c.context, &c.ticket, c.secretRef(in.ExpectedRevision), in.Value, notAfter)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.named = s.ID.String() + "/" + strconv.FormatUint(uint64(number), 10)
	return &AddedSecretVersionResponse{secretOf(s, true), number, c.charge()}, nil
}

// splitVersion takes apart how addSecretVersion names what it made.
func splitVersion(resource string) (id string, number uint32) {
	const text = 36 // of an id
	if len(resource) > text {
		n, _ := strconv.ParseUint(resource[text+1:], 10, 32)
		return resource[:text], uint32(n)
	}
	return resource, 0
}

// versionNumber is the version that the path names; false for what is none.
func (c *call) versionNumber() (uint32, bool) {
	text := c.object(1)
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// onSecretVersion runs a verb on the version that the path names.
func (c *call) onSecretVersion(verb func(context.Context, *kms.Ticket, kms.SecretRef, uint32) (*kms.ProviderSecret, error),
	expected uint64) (*SecretResponse, error) {
	number, _ := c.versionNumber() // no secret has a version 0
	return c.secret(verb(c.context, &c.ticket, c.secretRef(expected), number))
}

func destroySecretVersion(c *call, in *DestroySecretVersionRequest) (*SecretResponse, error) {
	days := kms.DefaultDeletionDays
	if in.Days != nil {
		days = *in.Days
	}
	return c.onSecretVersion(func(ctx context.Context, t *kms.Ticket, ref kms.SecretRef, number uint32) (*kms.ProviderSecret, error) {
		return c.service.DestroySecretVersion(ctx, t, ref, number, days)
	}, in.ExpectedRevision)
}

func (c *call) grants(list []kms.SecretGrant, err error) (*SecretGrantsResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	out := &SecretGrantsResponse{Grants: make([]SecretGrant, len(list)), Charge: c.charge()}
	for i, g := range list {
		out.Grants[i] = SecretGrant(g)
	}
	return out, nil
}

func setSecretGrants(c *call, in *SetSecretGrantsRequest) (*SecretGrantsResponse, error) {
	ids := make([]uuid.UUID, len(in.Credentials))
	for i, text := range in.Credentials {
		var err error
		if ids[i], err = uuid.Parse(text); err != nil {
			return nil, kms.Errorf(kms.KindInvalidArgument, "credentials[%d]: must be an id", i)
		}
	}
	return c.grants(c.service.SetSecretGrants(c.context, &c.ticket, c.object(0), ids))
}

// secretOf shows a secret, in lists without its versions.
func secretOf(s *kms.ProviderSecret, whole bool) Secret {
	out := Secret{ID: s.ID, Path: s.Path, Provider: s.Provider, Metadata: s.Metadata, State: s.State, CreatedAt: s.Created.UTC(),
		DeletionDate: s.DeletionDate.UTC(), FreshSeconds: int(s.Fresh / time.Second), LeaseSeconds: int(s.Lease / time.Second), Revision: s.Revision}
	if r := s.Rollout; r != nil {
		out.Rollout = &Rollout{State: r.State, From: r.From, To: r.To, Steps: r.Steps, Step: r.Step + 1,
			StepInterval: int(r.Interval / time.Second), Observe: int(r.Observe / time.Second), Since: r.Since.UTC()}
	}
	if !whole {
		return out
	}
	for _, v := range s.Versions {
		out.Versions = append(out.Versions, SecretVersion{Version: v.Number, State: v.State, Weight: v.Weight, CreatedAt: v.Created.UTC(),
			NotAfter: v.NotAfter.UTC(), RetiredAt: v.Retired.UTC(), DestroyAt: v.DestroyAt.UTC()})
	}
	return out
}

func fetchSecrets(c *call, in *FetchSecretsRequest) (*FetchSecretsResponse, error) {
	input := kms.FetchInput{Items: make([]kms.FetchItem, len(in.Items)), MinRevision: in.MinRevision}
	for i, item := range in.Items {
		input.Items[i] = kms.FetchItem{Path: item.Path, Have: item.HaveRevision}
	}
	list, revision, err := c.service.FetchSecrets(c.context, &c.ticket, input)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	out := &FetchSecretsResponse{Revision: revision, Items: make([]FetchedItem, len(list)), Charge: c.charge()}
	for i := range list {
		out.Items[i] = fetchedItem(&list[i])
	}
	return out, nil
}

func fetchedItem(f *kms.Fetched) FetchedItem {
	out := FetchedItem{Path: f.Path, Status: f.Status, RetryAfterMS: f.RetryAfter.Milliseconds()}
	if f.Status == kms.FetchUnavailable || f.Secret == nil {
		return out
	}
	out.Revision = f.Secret.Revision
	if f.Status == kms.FetchDisabled {
		return out
	}
	out.SecretID, out.FreshUntil, out.LeaseEnd = f.Secret.ID, f.FreshUntil.UTC(), f.LeaseEnd.UTC()
	if f.Status == kms.FetchUnchanged {
		return out
	}
	out.Provider, out.Metadata = f.Secret.Provider, f.Secret.Metadata
	for _, v := range f.Values {
		out.Versions = append(out.Versions, FetchedVersion{v.Version, v.Weight, SecretText(v.Value)})
	}
	return out
}

// appendTo writes the answer, whose values go into a buffer that is wiped, and
// nowhere else.
func (r *FetchSecretsResponse) appendTo(w *writer) {
	w.number64("revision", r.Revision)
	w.name("items")
	w.raw("[")
	for i := range r.Items {
		if i > 0 {
			w.raw(",")
		}
		r.Items[i].appendTo(w)
	}
	w.raw("]")
}

func (f *FetchedItem) appendTo(w *writer) {
	w.raw("{")
	w.text("path", f.Path)
	w.text("status", string(f.Status))
	if f.SecretID != (uuid.UUID{}) {
		w.text("secret_id", f.SecretID.String())
	}
	if f.Provider != "" {
		w.text("provider", f.Provider)
	}
	if f.Revision != 0 {
		w.number64("revision", f.Revision)
	}
	if len(f.Metadata) > 0 {
		w.texts("metadata", f.Metadata)
	}
	w.time("fresh_until", f.FreshUntil)
	w.time("lease_end", f.LeaseEnd)
	if len(f.Versions) > 0 {
		w.name("versions")
		for i, v := range f.Versions {
			w.raw([]string{"[", ","}[min(i, 1)])
			w.raw("{")
			w.number("version", v.Version)
			w.number("weight", v.Weight)
			w.secret("value", v.Value)
			w.raw("}")
		}
		w.raw("]")
	}
	if f.RetryAfterMS != 0 {
		w.number64("retry_after_ms", uint64(f.RetryAfterMS))
	}
	w.raw("}")
}

func (w *writer) number64(name string, v uint64) {
	w.name(name)
	w.b.bytes = strconv.AppendUint(w.b.bytes, v, 10)
}

// time writes a time, nothing for none.
func (w *writer) time(name string, t time.Time) {
	if !t.IsZero() {
		w.text(name, t.Format(time.RFC3339Nano))
	}
}

func (w *writer) texts(name string, m map[string]string) {
	w.name(name)
	w.object(m)
}

func (w *writer) object(m map[string]string) {
	text, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		panic(err) // metadata is UTF-8
	}
	w.raw(string(text))
}

// escapedByte is the most that a byte of a string takes in JSON.
const escapedByte = 6

// secret writes a value and wipes it.
func (w *writer) secret(name string, v SecretText) {
	w.quoted(name, v)
	clear(v)
}

// quoted writes a value.
func (w *writer) quoted(name string, v []byte) {
	w.name(name)
	// Room for all, so that no append moves the bytes.
	w.b.reserve(escapedByte*len(v) + 2)
	quoted, err := jsontext.AppendQuote(w.b.bytes, v)
	if err != nil {
		panic(err) // values are UTF-8
	}
	w.b.bytes = quoted
}

func reportSecrets(c *call, in *ReportSecretsRequest) (*ReportSecretsResponse, error) {
	list := make([]kms.SecretOutcome, len(in.Items))
	for i, o := range in.Items {
		id, err := uuid.Parse(o.SecretID)
		if err != nil {
			return nil, kms.Errorf(kms.KindInvalidArgument, "items[%d]: secret_id must be an id", i)
		}
		list[i] = kms.SecretOutcome{Secret: id, Version: o.Version, OK: int64(o.OK), Credential: int64(o.Credential), Quota: int64(o.Quota),
			RateLimit: int64(o.RateLimit), Transient: int64(o.Transient)}
	}
	if err := c.service.ReportSecrets(c.context, &c.ticket, list); err != nil {
		return nil, err
	}
	return &ReportSecretsResponse{c.charge()}, nil
}
