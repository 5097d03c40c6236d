package storetest

import (
	"context"
	"net/netip"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// scene is one tenant with one object of every kind, in states in which every
// column holds something.
type scene struct {
	tenant              *kms.Tenant
	key, pending        *kms.Key
	credential, revoked *kms.Credential
	approval            *kms.Approval
	node                *kms.NodeSetting
	policy              *kms.PolicyVersion
	deleted             *kms.Tenant
	webhook             *kms.Webhook
	secret              *kms.ProviderSecret
	route               *kms.ProviderRoute
	job                 *kms.Job
	incident            *kms.CostIncident
	prefix              string
}

// The names of a scene's objects, after its prefix, so that they are unique in
// the database and a row can be found by them.
const (
	sceneProject = "-project"
	sceneAlias   = "-alias"
	sceneEnded   = "-ended"
)

func makeScene(t *testing.T, e *env, prefix string) *scene {
	t.Helper()
	ctx := t.Context()
	s := &scene{prefix: prefix, tenant: e.tenant(t, prefix+"-tenant")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.CreateProject(ctx, &kms.Project{Tenant: s.tenant.ID, Name: prefix + sceneProject, Created: start}))

	s.key = sampleKey(s.tenant, prefix+"-key")
	s.key.Project, s.key.Spec, s.key.Usage = prefix+sceneProject, kms.SpecRSA2048, kms.UsageSignVerify
	s.key.Description, s.key.Tags = "described", map[string]string{"a": "b"}
	s.key.Versions[0].PublicKey = []byte(prefix + " first")
	must(e.CreateKey(ctx, s.key))
	second := sampleVersion(2)
	second.PublicKey = []byte(prefix + " second")
	_, err := e.AddVersion(ctx, s.tenant.ID, s.key.ID, 1, second)
	must(err)
	_, err = e.UpdateVersion(ctx, s.tenant.ID, s.key.ID, 2, 1,
		kms.VersionChange{State: kms.VersionPendingDestruction, DestroyAt: start.Add(time.Hour)})
	must(err)
	s.key, err = e.SetRotation(ctx, s.tenant.ID, s.key.ID, 3, 24*time.Hour, start.Add(2*time.Hour))
	must(err)
	_, err = e.LeaseNonces(ctx, s.tenant.ID, s.key.ID, 1, 1000)
	must(err)
	must(e.SetAlias(ctx, s.tenant.ID, s.key.ID, prefix+sceneAlias))

	s.pending = e.key(t, s.tenant, prefix+"-pending")
	state, date := kms.KeyPendingDeletion, start.Add(time.Hour)
	s.pending, err = e.UpdateKey(ctx, s.tenant.ID, s.pending.ID, 1, kms.KeyChange{State: &state, DeletionDate: &date})
	must(err)

	s.credential = sampleCredential(s.tenant.ID, prefix+"-credential")
	s.credential.Project, s.credential.Component = prefix+sceneProject, "checkout"
	s.credential.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	s.credential.Expires = start.Add(time.Hour)
	s.credential.Secrets = []kms.CredentialSecret{
		{Hash: hashOf(prefix + " new"), PepperVersion: 1, Created: start},
		{Hash: hashOf(prefix + " old"), PepperVersion: 1, Created: start, Expires: start.Add(time.Minute)}}
	must(e.CreateCredential(ctx, s.credential))
	s.credential, err = e.UpdateCredential(ctx, s.tenant.ID, s.credential.ID, 1, kms.CredentialChange{Guard: sampleGuard()})
	must(err)
	must(e.PutBaselines(ctx, []kms.StoredBaseline{{Tenant: s.tenant.ID, Credential: s.credential.ID, Document: []byte(prefix)}}))
	s.revoked = e.credential(t, s.tenant.ID, prefix+"-revoked")
	now := start
	_, err = e.UpdateCredential(ctx, s.tenant.ID, s.revoked.ID, 1, kms.CredentialChange{Revoked: &now})
	must(err)

	s.approval = e.approval(t)
	s.node, err = e.SetNodeMode(ctx, kms.NodeID(prefix+"-node"), 0, kms.NodeDrained)
	must(err)
	s.policy = e.policy(t, prefix+" document")
	s.webhook = e.webhook(t, s.tenant.ID)
	e.enqueue(t, sampleDelivery(s.webhook, ""))
	s.secret = e.inRollout(t, e.secret(t, s.tenant.ID, prefix+"/secret"))
	must(e.AddOutcomes(ctx, s.tenant.ID, []kms.SecretOutcome{{Secret: s.secret.ID, Version: 2, OK: 1}}))
	s.route = e.route(t, s.tenant.ID, prefix+"-route")
	e.route(t, s.tenant.ID, prefix+sceneEnded)
	must(e.DeleteRoute(ctx, s.tenant.ID, prefix+sceneEnded))
	s.job = e.job(t, s.tenant.ID)
	s.incident = e.incident(t, s.tenant.ID)
	s.deleted = e.deleted(t, prefix+"-deleted")
	s.deleted, err = e.AdvanceDeletion(ctx, s.deleted.ID, s.deleted.Revision, kms.TenantDeleted, start.Add(time.Minute))
	must(err)
	return s
}

func hashOf(text string) (hash [32]byte) {
	copy(hash[:], text)
	return hash
}

// Fill makes a tenant with an object of every kind and returns its id.
func Fill(t *testing.T, store *keystore.Store, prefix string) uuid.UUID {
	t.Helper()
	s := makeScene(t, &env{Store: store}, prefix)
	claim := kms.IdempotencyKey{Tenant: s.tenant.ID, Credential: s.credential.ID, Key: prefix}
	if _, err := store.Begin(t.Context(), claim, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	if err := store.StoreRecords(t.Context(), []kms.RequestRecord{sampleRecord(s.tenant.ID)}); err != nil {
		t.Fatal(err)
	}
	if err := store.Ship(t.Context(), batchOf(prefix, kms.TrailHead{}, trailEntry(s.tenant.ID, 0))); err != nil {
		t.Fatal(err)
	}
	return s.tenant.ID
}

// victim is an object of a scene whose row is tampered with.
type victim struct {
	table string
	// key and value find the row.
	key   string
	value any
	// read reads the object through the store.
	read func(context.Context, *env) error
	// takes lists other victims that cannot be read without this one.
	takes []string
}

// victims returns the objects of a scene by the names that the tests use.
func (s *scene) victims() map[string]victim {
	tenant := s.tenant.ID
	lookup := func(ref string) func(context.Context, *env) error {
		return func(ctx context.Context, e *env) error { _, err := e.Lookup(ctx, tenant, ref); return err }
	}
	credential := func(id uuid.UUID) func(context.Context, *env) error {
		return func(ctx context.Context, e *env) error {
			if _, err := e.CredentialForAuthentication(ctx, id); err != nil {
				return err
			}
			_, err := e.Credential(ctx, tenant, id)
			return err
		}
	}
	first := s.key.Version(1)
	hash := s.credential.Secrets[0].Hash
	return map[string]victim{
		"tenant": {"tenants", "id", tenant[:], func(ctx context.Context, e *env) error {
			_, err := e.Tenant(ctx, tenant)
			return err
		}, []string{"key", "pending", "version", "name", "alias"}},
		"deleted": {"tenants", "id", s.deleted.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.Tenant(ctx, s.deleted.ID)
			return err
		}, nil},
		"project": {"projects", "name", s.prefix + sceneProject, func(ctx context.Context, e *env) error {
			_, err := e.Project(ctx, tenant, s.prefix+sceneProject)
			return err
		}, nil},
		"key":     {"keys", "id", s.key.ID[:], lookup(s.key.ID.String()), []string{"version", "name", "alias"}},
		"pending": {"keys", "id", s.pending.ID[:], lookup(s.pending.Name), nil},
		"version": {"key_versions", "id", first.ID[:], lookup(s.key.Name), []string{"key", "name", "alias", "nonces"}},
		// No nonce is taken by this.
		"nonces": {"key_versions", "id", first.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.LeaseNonces(ctx, tenant, s.key.ID, 1, 0)
			return err
		}, nil},
		"name":       {"key_names", "name", s.prefix + sceneAlias, lookup(s.prefix + sceneAlias), []string{"alias"}},
		"alias":      {"alias_revisions", "name", s.prefix + sceneAlias, lookup(s.prefix + sceneAlias), []string{"name"}},
		"credential": {"credentials", "id", s.credential.ID[:], credential(s.credential.ID), []string{"secret"}},
		"secret":     {"credential_secrets", "hash", hash[:], credential(s.credential.ID), []string{"credential"}},
		"revoked":    {"credentials", "id", s.revoked.ID[:], credential(s.revoked.ID), nil},
		"approval": {"approvals", "id", s.approval.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.Approval(ctx, s.approval.ID)
			return err
		}, nil},
		"node": {"node_settings", "node", string(s.node.Node), func(ctx context.Context, e *env) error {
			_, err := e.NodeSetting(ctx, s.node.Node)
			return err
		}, nil},
		"webhook": {"webhooks", "id", s.webhook.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.Webhook(ctx, tenant, s.webhook.ID)
			return err
		}, nil},
		"provider": {"secrets", "id", s.secret.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.Secret(ctx, tenant, s.secret.ID)
			return err
		}, []string{"value", "revision"}},
		"value": {"secret_versions", "value", []byte("sealed value 1 " + s.prefix), func(ctx context.Context, e *env) error {
			_, err := e.Secret(ctx, tenant, s.secret.ID)
			return err
		}, []string{"provider"}},
		"revision": {"secret_revisions", "tenant", tenant[:], func(ctx context.Context, e *env) error {
			_, err := e.SecretsRevision(ctx, tenant)
			return err
		}, []string{"provider", "value"}},
		"route": {"routes", "name", s.route.Name, func(ctx context.Context, e *env) error {
			_, err := e.Route(ctx, tenant, s.route.Name)
			return err
		}, nil},
		"end": {"route_ends", "name", s.prefix + sceneEnded, func(ctx context.Context, e *env) error {
			_, err := e.RouteRevision(ctx, tenant, s.prefix+sceneEnded)
			return err
		}, nil},
		"job": {"jobs", "id", s.job.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.Job(ctx, tenant, s.job.ID)
			return err
		}, nil},
		"incident": {"cost_incidents", "id", s.incident.ID[:], func(ctx context.Context, e *env) error {
			_, err := e.CostIncident(ctx, tenant, s.incident.ID)
			return err
		}, nil},
		"lift": {"cost_lifts", "tenant", tenant[:], func(ctx context.Context, e *env) error {
			_, err := e.CostLifted(ctx, tenant)
			return err
		}, nil},
		"policy": {"policies", "version", int64(s.policy.Version), func(ctx context.Context, e *env) error {
			_, err := e.Policy(ctx, s.policy.Version)
			return err
		}, nil},
	}
}

// lists reads the lists of the scene's tenant, which must work whatever is in
// them, and returns what they hold by victim.
func (s *scene) lists(t *testing.T, e *env) map[string]bool {
	t.Helper()
	ctx, page := t.Context(), kms.Page{Size: kms.MaxPageSize}
	held := map[string]bool{}
	keys, _, err := e.ListKeys(ctx, s.tenant.ID, "", page)
	for _, k := range keys {
		held["key"] = held["key"] || k.ID == s.key.ID
		held["pending"] = held["pending"] || k.ID == s.pending.ID
	}
	held["version"] = held["key"]
	wantList(t, "ListKeys", err)
	credentials, _, err := e.ListCredentials(ctx, s.tenant.ID, page)
	for _, c := range credentials {
		held["credential"] = held["credential"] || c.ID == s.credential.ID
		held["revoked"] = held["revoked"] || c.ID == s.revoked.ID
	}
	held["secret"] = held["credential"]
	wantList(t, "ListCredentials", err)
	aliases, _, err := e.ListAliases(ctx, s.tenant.ID, page)
	held["name"] = len(aliases) > 0
	held["alias"] = held["name"]
	wantList(t, "ListAliases", err)
	projects, _, err := e.ListProjects(ctx, s.tenant.ID, page)
	for _, p := range projects {
		held["project"] = held["project"] || p.Name == s.prefix+sceneProject
	}
	wantList(t, "ListProjects", err)
	approvals, _, err := e.ListApprovals(ctx, page)
	for _, a := range approvals {
		held["approval"] = held["approval"] || a.ID == s.approval.ID
	}
	wantList(t, "ListApprovals", err)
	settings, err := e.NodeSettings(ctx)
	for _, n := range settings {
		held["node"] = held["node"] || n.Node == s.node.Node
	}
	wantList(t, "NodeSettings", err)
	policies, _, err := e.ListPolicies(ctx, page)
	for _, p := range policies {
		held["policy"] = held["policy"] || p.Version == s.policy.Version
	}
	wantList(t, "ListPolicies", err)
	webhooks, _, err := e.ListWebhooks(ctx, s.tenant.ID, page)
	for _, w := range webhooks {
		held["webhook"] = held["webhook"] || w.ID == s.webhook.ID
	}
	wantList(t, "ListWebhooks", err)
	routes, _, err := e.ListRoutes(ctx, s.tenant.ID, page)
	for _, r := range routes {
		held["route"] = held["route"] || r.ID == s.route.ID
	}
	wantList(t, "ListRoutes", err)
	jobs, _, err := e.ListJobs(ctx, s.tenant.ID, uuid.Nil(), page)
	for _, j := range jobs {
		held["job"] = held["job"] || j.ID == s.job.ID
	}
	wantList(t, "ListJobs", err)
	incidents, _, err := e.ListCostIncidents(ctx, s.tenant.ID, page)
	for _, i := range incidents {
		held["incident"] = held["incident"] || i.ID == s.incident.ID
	}
	wantList(t, "ListCostIncidents", err)
	secrets, _, err := e.ListSecrets(ctx, s.tenant.ID, "", page)
	for _, p := range secrets {
		held["provider"] = held["provider"] || p.ID == s.secret.ID
	}
	wantList(t, "ListSecrets", err)
	return held
}

func wantList(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// tampering is one way of changing a victim's row behind the service's back.
type tampering struct {
	victim string
	column string
	value  any
	// also holds what goes with it, so that the row still makes sense.
	also map[string]any
	// spoils lists victims that the row is put to and that are refused too.
	spoils []string
	// moves: the row is where nobody looks for it any more, so the object is
	// missing; elsewhere reads it where it is now.
	moves     bool
	elsewhere func(context.Context, *env) error
}

// tamperings changes every column on which something depends to a value that
// would be a good one. other is a second scene.
func (s *scene) tamperings(other *scene) []tampering {
	id := uuid.NewV7()
	micro := func(d time.Duration) int64 { return start.Add(d).UnixMicro() }
	text := func(victim string, values map[string]any) (list []tampering) {
		for column, value := range values {
			list = append(list, tampering{victim: victim, column: column, value: value})
		}
		return list
	}
	lookup := func(tenant uuid.UUID, ref string) func(context.Context, *env) error {
		return func(ctx context.Context, e *env) error { _, err := e.Lookup(ctx, tenant, ref); return err }
	}
	theirs := other.tenant.ID
	list := []tampering{
		{victim: "tenant", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Tenant(ctx, id)
			return err
		}},
		{victim: "tenant", column: "name", value: "renamed-tenant", elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.TenantByRef(ctx, "renamed-tenant")
			return err
		}},
		{victim: "project", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Project(ctx, theirs, s.prefix+sceneProject)
			return err
		}},
		{victim: "project", column: "name", value: "renamed-project", moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Project(ctx, s.tenant.ID, "renamed-project")
			return err
		}},
		{victim: "key", column: "tenant", value: theirs[:], moves: true, elsewhere: lookup(theirs, s.key.ID.String())},
		{victim: "key", column: "id", value: id[:], moves: true, elsewhere: lookup(s.tenant.ID, id.String())},
		{victim: "key", column: "state", value: "DESTROYED"},
		{victim: "pending", column: "deletion_date", value: micro(2 * time.Hour), also: map[string]any{"due": micro(2 * time.Hour)}},
		{victim: "version", column: "tenant", value: theirs[:]},
		{victim: "version", column: "key_id", value: s.pending.ID[:], also: map[string]any{"number": int64(9)},
			spoils: []string{"pending"}},
		{victim: "version", column: "number", value: int64(9)},
		{victim: "version", column: "state", value: "DISABLED", also: map[string]any{"destroy_at": nil}},
		{victim: "version", column: "destroy_at", value: micro(90 * time.Minute)},
		{victim: "version", column: "blob", value: nil, also: map[string]any{"state": "DESTROYED", "destroy_at": nil}},
		{victim: "name", column: "tenant", value: theirs[:], moves: true, elsewhere: lookup(theirs, s.prefix+sceneAlias)},
		{victim: "name", column: "name", value: "renamed-alias", moves: true, elsewhere: lookup(s.tenant.ID, "renamed-alias")},
		{victim: "credential", column: "tenant", value: theirs[:], elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Credential(ctx, theirs, s.credential.ID)
			return err
		}},
		{victim: "credential", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.CredentialForAuthentication(ctx, id)
			return err
		}},
		{victim: "revoked", column: "revoked", value: nil},
		{victim: "secret", column: "tenant", value: theirs[:]},
		{victim: "secret", column: "credential", value: s.revoked.ID[:], also: map[string]any{"position": int64(9)},
			spoils: []string{"revoked"}},
		{victim: "secret", column: "position", value: int64(7)},
		{victim: "approval", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Approval(ctx, id)
			return err
		}},
		{victim: "node", column: "node", value: "another-node", moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.NodeSetting(ctx, "another-node")
			return err
		}},
		{victim: "webhook", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Webhook(ctx, other.tenant.ID, s.webhook.ID)
			return err
		}},
		{victim: "webhook", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Webhook(ctx, s.tenant.ID, id)
			return err
		}},
		{victim: "provider", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Secret(ctx, other.tenant.ID, s.secret.ID)
			return err
		}},
		{victim: "provider", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Secret(ctx, s.tenant.ID, id)
			return err
		}},
		{victim: "value", column: "tenant", value: theirs[:]},
		{victim: "value", column: "secret_id", value: id[:]},
		{victim: "route", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Route(ctx, other.tenant.ID, s.route.Name)
			return err
		}},
		{victim: "route", column: "name", value: "another-route", moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Route(ctx, s.tenant.ID, "another-route")
			return err
		}},
		{victim: "job", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Job(ctx, other.tenant.ID, s.job.ID)
			return err
		}},
		{victim: "job", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Job(ctx, s.tenant.ID, id)
			return err
		}},
		{victim: "incident", column: "tenant", value: theirs[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.CostIncident(ctx, other.tenant.ID, s.incident.ID)
			return err
		}},
		{victim: "incident", column: "id", value: id[:], moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.CostIncident(ctx, s.tenant.ID, id)
			return err
		}},
		{victim: "policy", column: "version", value: int64(9), moves: true, elsewhere: func(ctx context.Context, e *env) error {
			_, err := e.Policy(ctx, 9)
			return err
		}},
	}
	list = append(list, text("credential", map[string]any{"guard": nil})...)
	list = append(list, text("credential", map[string]any{"guard": []byte(`{}`)})...)
	list = append(list, text("node", map[string]any{"mode": "active", "changed": micro(time.Second), "revision": int64(2)})...)
	list = append(list, text("webhook", map[string]any{"url": "https://attacker.example/", "types": `["node.down"]`, "secret": []byte("another"),
		"state": "DISABLED", "created": micro(time.Second), "revision": int64(2)})...)
	list = append(list, text("provider", map[string]any{"path": "another/path", "state": "DESTROYED", "document": []byte(`{"provider":"x"}`),
		"due": micro(time.Hour), "revision": int64(9)})...)
	list = append(list, text("value", map[string]any{"number": int64(7), "data_key": []byte("another"), "value": []byte("another")})...)
	list = append(list, text("revision", map[string]any{"revision": int64(9)})...)
	list = append(list, text("route", map[string]any{"document": []byte(`{"models":["x"]}`), "revision": int64(9)})...)
	list = append(list, text("end", map[string]any{"revision": int64(1)})...)
	list = append(list, text("job", map[string]any{"credential": id[:], "state": "DONE", "expires": micro(time.Hour), "document": []byte(`{"items":1}`),
		"revision": int64(9)})...)
	list = append(list, text("incident", map[string]any{"document": []byte(`{"id":"x"}`), "ended": micro(time.Second)})...)
	list = append(list, text("lift", map[string]any{"lifted": micro(time.Hour)})...)
	list = append(list, text("policy", map[string]any{"document": []byte("another document"), "digest": make([]byte, 32), "comment": "other",
		"created": micro(time.Second), "created_by": id[:]})...)
	list = append(list, text("tenant", map[string]any{
		"tier": "platinum", "state": "SUSPENDED", "allow_sealed": int64(1), "sealing_id": id[:], "sealing_domain": id[:],
		"sealing_generation": int64(2), "sealing_wrapped": []byte("another key"), "created": micro(time.Second), "revision": int64(2)})...)
	list = append(list, text("deleted", map[string]any{
		"state": "DELETING", "sealing_id": id[:], "sealing_domain": id[:], "sealing_generation": int64(2),
		"sealing_wrapped": []byte("a key put back"), "deleted_at": micro(time.Second), "void_at": micro(time.Hour),
		"erased_at": micro(time.Second), "shredded_at": micro(time.Hour)})...)
	list = append(list, tampering{victim: "deleted", column: "shredded_at", value: micro(time.Hour), also: map[string]any{"state": "SHREDDED"}})
	list = append(list, text("project", map[string]any{"created": micro(time.Second)})...)
	list = append(list, text("key", map[string]any{
		"project": kms.DefaultProject, "name": "renamed-key", "spec": string(kms.SpecRSA3072),
		"usage": string(kms.UsageEncryptDecrypt), "protection": string(kms.ProtectionSealed), "state": "DISABLED",
		"description": "other", "tags": `{"a":"c"}`, "created": micro(time.Second), "deletion_protection": int64(1),
		"origin": string(kms.OriginImportedProcess), "rotation_period": int64(1), "next_rotation": micro(3 * time.Hour),
		"due": micro(3 * time.Hour), "primary_version": int64(1), "highest_version": int64(9), "revision": int64(9)})...)
	list = append(list, text("version", map[string]any{
		"id": id[:], "created": micro(time.Second), "public_key": []byte("another's"), "blob": []byte("another's")})...)
	list = append(list, text("nonces", map[string]any{"nonces": int64(0)})...)
	list = append(list, text("name", map[string]any{"kind": keystore.KindName, "key_id": s.pending.ID[:]})...)
	list = append(list, text("alias", map[string]any{"key_id": s.pending.ID[:], "revision": int64(1)})...)
	list = append(list, tampering{victim: "alias", column: "key_id", value: nil})
	list = append(list, text("credential", map[string]any{
		"project": kms.DefaultProject, "name": "renamed", "component": "other", "scopes": `["key:*","tenant:*"]`, "networks": `[]`,
		"created": micro(time.Second), "expires": nil, "revoked": micro(0), "revision": int64(3)})...)
	list = append(list, text("secret", map[string]any{
		"hash": make([]byte, 32), "pepper_version": int64(2), "created": micro(time.Second), "expires": micro(time.Hour)})...)
	list = append(list, tampering{victim: "approval", column: "used", value: int64(1), also: map[string]any{"approved_by": other.tenant.ID[:]}})
	list = append(list, text("approval", map[string]any{
		"op": string(kms.OpUpdateTenant), "resource": "other", "fingerprint": make([]byte, 32), "requested_by": id[:],
		"approved_by": id[:], "created": micro(time.Second), "expires": micro(2 * time.Hour), "revision": int64(9)})...)
	return append(list, codeTamperings()...)
}

// codeTamperings changes the codes of all victims.
func codeTamperings() (list []tampering) {
	for victim, prefix := range map[string]string{"tenant": "", "project": "", "key": "", "version": "", "nonces": "nonces_",
		"name": "", "alias": "", "credential": "", "approval": "", "node": "", "policy": "", "webhook": "", "provider": "", "value": "", "revision": "", "route": "", "end": "", "job": "", "incident": "", "lift": ""} {
		mac, version := prefix+"mac", prefix+"mac_version"
		list = append(list,
			tampering{victim: victim, column: mac, value: make([]byte, 32)},
			tampering{victim: victim, column: mac, value: nil},
			tampering{victim: victim, column: mac, value: nil, also: map[string]any{version: nil}},
			tampering{victim: victim, column: version, value: int64(1)},
			tampering{victim: victim, column: version, value: int64(3)},
			tampering{victim: victim, column: version, value: int64(0)},
			tampering{victim: victim, column: version, value: nil})
	}
	return list
}

// unauthenticated lists the columns that may be changed without being noticed,
// and why. "*" stands for all columns of a table.
var unauthenticated = map[string]string{
	"alias_revisions.tenant":   "the row is found by it; without it the alias has its first revision: ARevisionThatIsGoneIsFound",
	"alias_revisions.name":     "the row is found by it; without it the alias has its first revision: ARevisionThatIsGoneIsFound",
	"keys.last_used":           "nothing is decided by it",
	"keys.last_used_op":        "nothing is decided by it",
	"credentials.last_used":    "nothing is decided by it",
	"credentials.last_address": "nothing is decided by it",
	"journal_heads.*":          "signed by the HSM; who verifies the journal checks that",
	"system_secrets.*":         "sealed by the HSM, which binds name and version",
	"secret_changes.*":         "TamperedChangesOfSecretsAreGaps",
	"secret_outcomes.*":        "can end or hold up a rollout; who can write them could change nothing else",
	"secret_revisions.tenant":  "the row is found by it; moved to another tenant its code is wrong",
	"cost_lifts.tenant":        "the row is found by it; moved to another tenant its code is wrong",
	"endpoint_probes.*":        "can hold calls of a target back that nobody gets through to it; calls that do overrule it",
	"route_ends.tenant":        "the row is found by it; without it the route is one that never was: ARevisionThatIsGoneIsFound",
	"route_ends.name":          "the row is found by it; without it the route is one that never was: ARevisionThatIsGoneIsFound",
	"route_health.*":           "TamperedHealthIsForgotten",
	"jobs.due":                 "says before when no item is run, and decides nothing else",
	"jobs.waits":               "nothing is decided by it",
	"jobs.claim":               "finds a job, of which credential and items are compared",
	"job_chunks.*":             "TamperedChunksAreRefused; what is sealed does not open, and the date says who takes it when",
	"credential_baselines.*":   "TamperedBaselinesAreForgotten",
	"webhooks.failing_since":   "tells of attempts; who can write it could remove the webhook as well",
	"webhooks.delivered":       "nothing is decided by it",
	"deliveries.*":             "TamperedDeliveriesAreNotHandedOut",
	"request_records.*":        "says what a request waited for, for minutes; nothing is decided by it",
	"audit_entries.*":          "a copy of the journals, which are what counts and have a hash chain",
	"usage_rollups.*":          "follows from the journals and decides nothing; bills can be checked against them",
	"shipped.*":                "the journal's hash chain says what can follow",
	"shipping.*":               "the order in which entries are listed",
	"idempotency.*":            "an answer's status and id for a day, no state of an object",
	"changes.*":                "tells what to read again, and nothing of what is there",
	"row_authentication.id":    "there is one row",
	"row_authentication.adopt": "TamperedDatabaseRowsStopTheStart",
	"row_authentication.mac":   "TamperedDatabaseRowsStopTheStart",

	"row_authentication.mac_version": "TamperedDatabaseRowsStopTheStart",
}
