package storetest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// objects is what one tenant has and another one tries to reach.
type objects struct {
	tenant     *kms.Tenant
	project    string
	key        *kms.Key
	alias      string
	credential *kms.Credential
	claim      kms.IdempotencyKey
	webhook    *kms.Webhook
	secret     *kms.ProviderSecret
	route      *kms.ProviderRoute
	job        *kms.Job
	incident   *kms.CostIncident
	request    uuid.UUID
}

// attempt calls a method for a tenant with the names and ids in o.
type attempt func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error

// reaching lists, for every method that takes a tenant and a name or an id,
// how it is tried on what belongs to another tenant.
var reaching = map[string][]attempt{
	"Lookup": {
		func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
			_, err := s.Lookup(ctx, tenant.ID, o.key.ID.String())
			return err
		},
		func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
			_, err := s.Lookup(ctx, tenant.ID, o.key.Name)
			return err
		},
		func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
			_, err := s.Lookup(ctx, tenant.ID, o.alias)
			return err
		},
	},
	"CreateKey": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		k := sampleKey(tenant, "intruder")
		k.Project = o.project
		return s.CreateKey(ctx, k)
	}},
	"AddVersion": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.AddVersion(ctx, tenant.ID, o.key.ID, 1, sampleVersion(2))
		return err
	}},
	"UpdateKey": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		state := kms.KeyDisabled
		_, err := s.UpdateKey(ctx, tenant.ID, o.key.ID, 1, kms.KeyChange{State: &state})
		return err
	}},
	"UpdateVersion": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.UpdateVersion(ctx, tenant.ID, o.key.ID, 1, 1, kms.VersionChange{State: kms.VersionDisabled})
		return err
	}},
	"DestroyVersion": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.DestroyVersion(ctx, tenant.ID, o.key.ID, 1, 1)
		return err
	}},
	"DestroyKey": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DestroyKey(ctx, tenant.ID, o.key.ID, 1)
	}},
	"RewrapKey": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.RewrapKey(ctx, tenant.ID, o.key.ID, func(*kms.Key) (map[uint32][]byte, error) { return nil, nil })
	}},
	"SetRotation": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.SetRotation(ctx, tenant.ID, o.key.ID, 1, time.Hour, start)
		return err
	}},
	"LeaseNonces": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.LeaseNonces(ctx, tenant.ID, o.key.ID, 1, 1)
		return err
	}},
	"SetAlias": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.SetAlias(ctx, tenant.ID, o.key.ID, "intruder")
	}},
	"DeleteAlias": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DeleteAlias(ctx, tenant.ID, o.alias)
	}},
	"KeyAliases": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.KeyAliases(ctx, tenant.ID, o.key.ID)
		return err
	}},
	"Project": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Project(ctx, tenant.ID, o.project)
		return err
	}},
	"Credential": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Credential(ctx, tenant.ID, o.credential.ID)
		return err
	}},
	"CreateCredential": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		c := sampleCredential(tenant.ID, "intruder")
		c.Project = o.project
		return s.CreateCredential(ctx, c)
	}},
	"UpdateCredential": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		now := start
		_, err := s.UpdateCredential(ctx, tenant.ID, o.credential.ID, 1, kms.CredentialChange{Revoked: &now})
		return err
	}},
	"Webhook": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Webhook(ctx, tenant.ID, o.webhook.ID)
		return err
	}},
	"DisableWebhook": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DisableWebhook(ctx, tenant.ID, o.webhook.ID, 1)
	}},
	"DeleteWebhook": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DeleteWebhook(ctx, tenant.ID, o.webhook.ID)
	}},
	"Secret": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Secret(ctx, tenant.ID, o.secret.ID)
		return err
	}},
	"SecretByPath": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.SecretByPath(ctx, tenant.ID, o.secret.Path)
		return err
	}},
	"Route": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Route(ctx, tenant.ID, o.route.Name)
		return err
	}},
	"CostIncident": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.CostIncident(ctx, tenant.ID, o.incident.ID)
		return err
	}},
	"DeleteRoute": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DeleteRoute(ctx, tenant.ID, o.route.Name)
	}},
	"SetHealthOfRoute": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		r := *o.route
		r.Tenant = tenant.ID
		return s.SetHealthOfRoute(ctx, &r, []byte("{}"), 0)
	}},
	"Job": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Job(ctx, tenant.ID, o.job.ID)
		return err
	}},
	"DeleteJob": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		return s.DeleteJob(ctx, tenant.ID, o.job.ID, true)
	}},
	"Chunk": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.Chunk(ctx, tenant.ID, o.job.ID, 0)
		return err
	}},
	"ChunkOf": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.ChunkOf(ctx, tenant.ID, o.job.ID, 0)
		return err
	}},
	"AddChunk": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		c := sampleChunk(o.job, 5)
		c.Tenant, c.First = tenant.ID, 10
		return s.AddChunk(ctx, c)
	}},
	"RequestRecord": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		_, err := s.RequestRecord(ctx, tenant.ID, o.request)
		return err
	}},
	"Finish": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		o.claim.Tenant = tenant.ID
		return s.Finish(ctx, o.claim, kms.IdempotencyRecord{Status: 200})
	}},
	"Abandon": {func(ctx context.Context, s *keystore.Store, tenant *kms.Tenant, o objects) error {
		o.claim.Tenant = tenant.ID
		return s.Abandon(ctx, o.claim)
	}},
}

// withoutTenant lists the methods that name no object inside a tenant, with
// the reason or the test that covers them.
var withoutTenant = map[string]string{
	"Close":                       "no object",
	"Authenticate":                "no object",
	"Invalidate":                  "reads and writes nothing",
	"InvalidateName":              "reads and writes nothing",
	"Tenant":                      "the object is the tenant: UnknownTenantIsNotFoundEverywhere",
	"TenantByRef":                 "operators only",
	"CreateTenant":                "operators only",
	"UpdateTenant":                "the object is the tenant: UnknownTenantIsNotFoundEverywhere",
	"ListTenants":                 "operators only",
	"CountTenants":                "operators only",
	"DeleteTenant":                "the object is the tenant: UnknownTenantIsNotFoundEverywhere",
	"AdvanceDeletion":             "the object is the tenant: UnknownTenantIsNotFoundEverywhere",
	"CountObjects":                "the object is the tenant: Counts",
	"Ship":                        "the service's own journals",
	"Shipped":                     "the service's own journals",
	"ShippedNodes":                "the service's own journals",
	"TrimTrail":                   "the service's own",
	"TrailEntries":                "names the tenant in its query: Trail",
	"Usage":                       "names the tenant in its query: Usage",
	"KnowRevisions":               "the service's own",
	"OldRows":                     "the service's own row watch looks at all tenants",
	"EntriesOf":                   "the service's own row watch looks at all tenants",
	"DueDeletions":                "the service's own keeper acts for all tenants",
	"CreateProject":               "a new name in the own tenant: UnknownTenantIsNotFoundEverywhere",
	"ListProjects":                "ListsHoldTheTenantsOwnObjects",
	"ListKeys":                    "ListsHoldTheTenantsOwnObjects",
	"ListCredentials":             "ListsHoldTheTenantsOwnObjects",
	"AliasRevision":               "a name in the own tenant: TenantsHaveTheirOwn",
	"RouteRevision":               "a name in the own tenant: a route that never was has none",
	"ListAliases":                 "ListsHoldTheTenantsOwnObjects",
	"TouchKeys":                   "says nothing of what it found: UsesOfAnotherTenantsObjectsChangeNothing",
	"TouchCredentials":            "says nothing of what it found: UsesOfAnotherTenantsObjectsChangeNothing",
	"DueKeys":                     "the service's own keeper acts for all tenants",
	"CreateApproval":              "operators only",
	"Approval":                    "operators only",
	"Approve":                     "operators only",
	"UseApproval":                 "operators only",
	"ListApprovals":               "operators only",
	"NodeSetting":                 "operators only",
	"RewrapTenant":                "operators only",
	"NodeSettings":                "operators only",
	"SetNodeMode":                 "operators only",
	"NewestPolicy":                "operators only",
	"Policy":                      "operators only",
	"ListPolicies":                "operators only",
	"PutPolicy":                   "operators only",
	"CreateSecret":                "a new id in the own tenant: UnknownTenantIsNotFoundEverywhere",
	"UpdateSecret":                "AnotherTenantsSecretIsNotChanged",
	"ListSecrets":                 "ListsHoldTheTenantsOwnObjects",
	"DueSecrets":                  "the service's own keeper acts for all tenants",
	"SecretsRevision":             "a number of the own tenant: Secrets",
	"AwaitSecretsRevision":        "a number of the own tenant: Secrets",
	"ChangesOfSecrets":            "the own tenant's: Secrets",
	"FollowSecrets":               "reads and writes nothing",
	"AddOutcomes":                 "says nothing of what it found: AnotherTenantsSecretIsNotChanged",
	"Outcomes":                    "says nothing of what it found: AnotherTenantsSecretIsNotChanged",
	"WantEndpoints":               "one for all tenants",
	"Endpoints":                   "one for all tenants",
	"ClaimEndpoints":              "one for all tenants",
	"EndProbe":                    "one for all tenants",
	"Baseline":                    "says nothing of what it found: BaselinesOfAnotherTenantsCredentialsAreLeftOut",
	"PutBaselines":                "says nothing of what it found: BaselinesOfAnotherTenantsCredentialsAreLeftOut",
	"AddCostIncident":             "a new id in the own tenant: UnknownTenantIsNotFoundEverywhere",
	"ListCostIncidents":           "ListsHoldTheTenantsOwnObjects",
	"NoteCostLift":                "of the own tenant: UnknownTenantIsNotFoundEverywhere",
	"CostLifted":                  "says nothing of what it found: ListsHoldTheTenantsOwnObjects",
	"PutRoute":                    "of the own tenant: AnotherTenantsRouteIsNotChanged",
	"ListRoutes":                  "ListsHoldTheTenantsOwnObjects",
	"HealthOfRoute":               "says nothing of what it found: AnotherTenantsRouteIsNotChanged",
	"CreateJob":                   "a new id in the own tenant: UnknownTenantIsNotFoundEverywhere",
	"ListJobs":                    "ListsHoldTheTenantsOwnObjects",
	"JobByClaim":                  "Jobs/AClaimIsOneJobs",
	"UpdateJob":                   "AnotherTenantsJobIsNotChanged",
	"DelayJob":                    "says nothing of what it found: AnotherTenantsJobIsNotChanged",
	"JobProgress":                 "says nothing of what it found: AnotherTenantsJobIsNotChanged",
	"DueChunks":                   "says nothing of what it found: AnotherTenantsJobIsNotChanged",
	"UpdateChunk":                 "AnotherTenantsJobIsNotChanged",
	"RenewChunk":                  "AnotherTenantsJobIsNotChanged",
	"DueJobs":                     "the service's own job runner acts for all tenants",
	"ExpiredJobs":                 "the service's own job runner acts for all tenants",
	"ReleaseChunks":               "the service's own job runner acts for all tenants",
	"ComputedChunks":              "the service's own job runner acts for all tenants",
	"CreateWebhook":               "a new id in the own tenant: UnknownTenantIsNotFoundEverywhere",
	"ListWebhooks":                "ListsHoldTheTenantsOwnObjects",
	"Enqueue":                     "says nothing of what it found: AnotherTenantsWebhookGetsNothing",
	"ClaimDeliveries":             "the service's own sender acts for all tenants",
	"EndDelivery":                 "says nothing of what it found: AnotherTenantsDeliveryStays",
	"RetryDelivery":               "says nothing of what it found: AnotherTenantsDeliveryStays",
	"NoteDelivery":                "says nothing of what it found: AnotherTenantsWebhookGetsNothing",
	"CredentialForAuthentication": "finds out the tenant",
	"PutJournalHead":              "operators only",
	"JournalHeads":                "operators only",
	"SystemSecrets":               "the service's own",
	"PutSystemSecret":             "the service's own",
	"StoreRecords":                "the service's own, of all tenants: RecordsOfUnknownTenantsAreLeftOut",
	"AnyRequestRecord":            "operators only",
	"Begin":                       "claims of tenants never meet: ClaimsOfTenantsNeverMeet",
}

func testIsolation(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	owner, intruder := e.tenant(t, "owner"), e.tenant(t, "intruder")
	theirs := makeObjects(t, e, owner)
	missing := objects{
		tenant: sampleTenant("missing"), project: "missing-project", key: sampleKey(owner, "missing"),
		alias: "missing-alias", credential: sampleCredential(owner.ID, "missing"), webhook: sampleWebhook(owner.ID), secret: sampleSecret(owner.ID, "missing"), route: sampleRoute(owner.ID, "missing"), job: sampleJob(owner.ID), incident: sampleCostIncident(owner.ID),
		claim: kms.IdempotencyKey{Credential: uuid.NewV7(), Key: "missing"}, request: uuid.NewV7(),
	}

	t.Run("EveryMethodIsCovered", func(t *testing.T) {
		for method := range reflect.TypeFor[*keystore.Store]().Methods() {
			_, tried := reaching[method.Name]
			_, excused := withoutTenant[method.Name]
			if tried == excused {
				t.Errorf("%s: must be in exactly one of the tables", method.Name)
			}
		}
	})

	for name, attempts := range reaching {
		t.Run("AnotherTenantsObjectIsMissing/"+name, func(t *testing.T) {
			for _, try := range attempts {
				// Twice, the second time perhaps from the cache, and the
				// owner's own use in between must not show.
				for range 2 {
					notThere := try(ctx, e.Store, intruder, missing)
					notTheirs := try(ctx, e.Store, intruder, theirs)
					if notTheirs != kms.ErrNotFound || !errors.Is(notTheirs, notThere) {
						t.Errorf("another tenant's: %v, missing: %v; want both to be kms.ErrNotFound", notTheirs, notThere)
					}
					e.lookup(t, owner.ID, theirs.key.Name)
				}
			}
		})
	}

	t.Run("TheOwnerNoticesNothing", func(t *testing.T) {
		if got := e.lookup(t, owner.ID, theirs.key.Name); !reflect.DeepEqual(got, theirs.key) {
			t.Errorf("the key is now %+v", got)
		}
		if got, err := e.Credential(ctx, owner.ID, theirs.credential.ID); err != nil || !reflect.DeepEqual(got, theirs.credential) {
			t.Errorf("the credential is now %+v, %v", got, err)
		}
		_, err := e.Begin(ctx, theirs.claim, [32]byte{1})
		wantKind(t, "the claim in flight", err, kms.KindConflict)
		if got, err := e.Webhook(ctx, owner.ID, theirs.webhook.ID); err != nil || !reflect.DeepEqual(got, theirs.webhook) {
			t.Errorf("the webhook is now %+v, %v", got, err)
		}
	})
	t.Run("ClaimsOfTenantsNeverMeet", func(t *testing.T) {
		k := theirs.claim
		k.Tenant = intruder.ID
		if r, err := e.Begin(ctx, k, [32]byte{1}); r != nil || err != nil {
			t.Errorf("Begin = %v, %v; want a new claim", r, err)
		}
	})
	t.Run("ListsHoldTheTenantsOwnObjects", func(t *testing.T) {
		page := kms.Page{Size: kms.MaxPageSize}
		if list, _, err := e.ListKeys(ctx, intruder.ID, "", page); err != nil || len(list) != 0 {
			t.Errorf("ListKeys = %v, %v", list, err)
		}
		if list, _, err := e.ListCredentials(ctx, intruder.ID, page); err != nil || len(list) != 0 {
			t.Errorf("ListCredentials = %v, %v", list, err)
		}
		if list, _, err := e.ListSecrets(ctx, intruder.ID, "", page); err != nil || len(list) != 0 {
			t.Errorf("ListSecrets = %v, %v", list, err)
		}
		if list, _, err := e.ListCostIncidents(ctx, intruder.ID, page); err != nil || len(list) != 0 {
			t.Errorf("ListCostIncidents = %v, %v", list, err)
		}
		if at, err := e.CostLifted(ctx, intruder.ID); err != nil || !at.IsZero() {
			t.Errorf("CostLifted = %v, %v", at, err)
		}
		if list, _, err := e.ListRoutes(ctx, intruder.ID, page); err != nil || len(list) != 0 {
			t.Errorf("ListRoutes = %v, %v", list, err)
		}
		if list, _, err := e.ListJobs(ctx, intruder.ID, uuid.Nil(), page); err != nil || len(list) != 0 {
			t.Errorf("ListJobs = %v, %v", list, err)
		}
		if list, _, err := e.ListWebhooks(ctx, intruder.ID, page); err != nil || len(list) != 0 {
			t.Errorf("ListWebhooks = %v, %v", list, err)
		}
		if list, _, err := e.ListAliases(ctx, intruder.ID, page); err != nil || len(list) != 0 {
			t.Errorf("ListAliases = %v, %v", list, err)
		}
		if list, _, err := e.ListProjects(ctx, intruder.ID, page); err != nil || len(list) != 1 {
			t.Errorf("ListProjects = %v, %v; want the default one", list, err)
		}
	})
	t.Run("AnotherTenantsSecretIsNotChanged", func(t *testing.T) {
		was := theirs.secret.Clone()
		was.Tenant = intruder.ID
		next := was.Clone()
		next.Provider = "stolen"
		if err := e.UpdateSecret(ctx, was, next, kms.SecretChanged); err == nil {
			t.Error("UpdateSecret succeeds")
		}
		if err := e.AddOutcomes(ctx, intruder.ID, []kms.SecretOutcome{{Secret: was.ID, Version: 2, Credential: 100}}); err != nil {
			t.Error(err)
		}
		for _, tenant := range []uuid.UUID{owner.ID, intruder.ID} {
			if list, err := e.Outcomes(ctx, tenant, was.ID); err != nil || len(list) != 0 {
				t.Errorf("Outcomes: %+v, %v", list, err)
			}
		}
		if got, err := e.Secret(ctx, owner.ID, was.ID); err != nil || !reflect.DeepEqual(got, theirs.secret) {
			t.Errorf("the secret is now %+v, %v", got, err)
		}
	})
	t.Run("AnotherTenantsRouteIsNotChanged", func(t *testing.T) {
		r := *theirs.route
		r.Tenant, r.Residency, r.Revision = intruder.ID, "us", r.Revision+1
		wantKind(t, "PutRoute", e.PutRoute(ctx, &r), kms.KindInvalidArgument) // no target is in it
		r.Residency = theirs.route.Residency
		wantKind(t, "PutRoute", e.PutRoute(ctx, &r), kms.KindPreconditionFailed)
		wantKind(t, "SetHealthOfRoute", e.SetHealthOfRoute(ctx, &r, []byte("{}"), 1), kms.KindPreconditionFailed)
		if health, revision, err := e.HealthOfRoute(ctx, &r); err != nil || health != nil || revision != 0 {
			t.Errorf("HealthOfRoute = %s, %d, %v", health, revision, err)
		}
		if got, err := e.Route(ctx, owner.ID, r.Name); err != nil || !reflect.DeepEqual(got, theirs.route) {
			t.Errorf("the route is now %+v, %v", got, err)
		}
		if health, revision, err := e.HealthOfRoute(ctx, theirs.route); err != nil || string(health) != "{}" || revision != 1 {
			t.Errorf("its health is now %s, %d, %v", health, revision, err)
		}
	})
	t.Run("AnotherTenantsJobIsNotChanged", func(t *testing.T) {
		was := e.chunk(t, theirs.job, 0)
		j := *theirs.job
		j.Tenant, j.Revision = intruder.ID, j.Revision+1
		wantKind(t, "UpdateJob", e.UpdateJob(ctx, &j), kms.KindPreconditionFailed)
		u := &kms.ChunkUpdate{JobChunk: *was}
		u.Tenant, u.Revision = intruder.ID, was.Revision+1
		wantKind(t, "UpdateChunk", e.UpdateChunk(ctx, u), kms.KindPreconditionFailed)
		wantKind(t, "RenewChunk", e.RenewChunk(ctx, &u.JobChunk, start), kms.KindPreconditionFailed)
		if err := e.DelayJob(ctx, intruder.ID, j.ID, start.Add(time.Hour), "any"); err != nil {
			t.Error(err)
		}
		if p, err := e.JobProgress(ctx, intruder.ID, j.ID); err != nil || p != (kms.JobProgress{}) {
			t.Errorf("JobProgress = %+v, %v", p, err)
		}
		if numbers, err := e.DueChunks(ctx, intruder.ID, j.ID, start, 10); err != nil || len(numbers) > 0 {
			t.Errorf("DueChunks = %v, %v", numbers, err)
		}
		if got, err := e.Job(ctx, owner.ID, j.ID); err != nil || !reflect.DeepEqual(got, theirs.job) {
			t.Errorf("the job is now %+v, %v", got, err)
		}
		if got := e.chunk(t, theirs.job, 0); !reflect.DeepEqual(got, was) {
			t.Errorf("its chunk is now %+v", got)
		}
	})
	t.Run("UnknownTenantIsNotFoundEverywhere", func(t *testing.T) { testUnknownTenant(t, e, missing.tenant) })
}

func makeObjects(t *testing.T, e *env, tenant *kms.Tenant) objects {
	o := objects{tenant: tenant, project: "secret-project"}
	if err := e.CreateProject(t.Context(), &kms.Project{Tenant: tenant.ID, Name: o.project, Created: start}); err != nil {
		t.Fatal(err)
	}
	o.key, o.alias = e.key(t, tenant, "secret-key"), "secret-alias"
	if err := e.SetAlias(t.Context(), tenant.ID, o.key.ID, o.alias); err != nil {
		t.Fatal(err)
	}
	o.credential = e.credential(t, tenant.ID, "secret-credential")
	o.webhook = e.webhook(t, tenant.ID)
	o.secret = e.inRollout(t, e.secret(t, tenant.ID, "secret/path"))
	o.route = e.route(t, tenant.ID, "secret-route")
	o.job = e.job(t, tenant.ID)
	o.incident = e.incident(t, tenant.ID)
	o.claim = kms.IdempotencyKey{Tenant: tenant.ID, Credential: o.credential.ID, Key: "secret-claim"}
	if _, err := e.Begin(t.Context(), o.claim, [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	o.request = uuid.NewV7()
	if err := e.StoreRecords(t.Context(), []kms.RequestRecord{{Tenant: tenant.ID, RequestID: o.request, Time: start}}); err != nil {
		t.Fatal(err)
	}
	return o
}

func testUnknownTenant(t *testing.T, e *env, missing *kms.Tenant) {
	ctx := t.Context()
	page := kms.Page{Size: 1}
	calls := map[string]func() error{
		"Tenant":       func() error { _, err := e.Tenant(ctx, missing.ID); return err },
		"UpdateTenant": func() error { _, err := e.UpdateTenant(ctx, missing.ID, 1, kms.TenantChange{}); return err },
		"DeleteTenant": func() error { _, err := e.DeleteTenant(ctx, missing.ID, 1, start, start); return err },
		"AdvanceDeletion": func() error {
			_, err := e.AdvanceDeletion(ctx, missing.ID, 1, kms.TenantDeleted, start)
			return err
		},
		"Lookup":      func() error { _, err := e.Lookup(ctx, missing.ID, "any"); return err },
		"CreateKey":   func() error { return e.CreateKey(ctx, sampleKey(missing, "any")) },
		"AddVersion":  func() error { _, err := e.AddVersion(ctx, missing.ID, uuid.NewV7(), 1, sampleVersion(2)); return err },
		"UpdateKey":   func() error { _, err := e.UpdateKey(ctx, missing.ID, uuid.NewV7(), 1, kms.KeyChange{}); return err },
		"ListAliases": func() error { _, _, err := e.ListAliases(ctx, missing.ID, page); return err },
		"ListKeys":    func() error { _, _, err := e.ListKeys(ctx, missing.ID, "", page); return err },
		"CreateProject": func() error {
			return e.CreateProject(ctx, &kms.Project{Tenant: missing.ID, Name: "any", Created: start})
		},
		"Project":           func() error { _, err := e.Project(ctx, missing.ID, kms.DefaultProject); return err },
		"ListProjects":      func() error { _, _, err := e.ListProjects(ctx, missing.ID, page); return err },
		"CreateCredential":  func() error { return e.CreateCredential(ctx, sampleCredential(missing.ID, "any")) },
		"CreateSecret":      func() error { return e.CreateSecret(ctx, sampleSecret(missing.ID, "any")) },
		"ListSecrets":       func() error { _, _, err := e.ListSecrets(ctx, missing.ID, "", page); return err },
		"PutRoute":          func() error { return e.PutRoute(ctx, sampleRoute(missing.ID, "any")) },
		"ListRoutes":        func() error { _, _, err := e.ListRoutes(ctx, missing.ID, page); return err },
		"CreateJob":         func() error { return e.CreateJob(ctx, sampleJob(missing.ID)) },
		"ListJobs":          func() error { _, _, err := e.ListJobs(ctx, missing.ID, uuid.Nil(), page); return err },
		"CreateWebhook":     func() error { return e.CreateWebhook(ctx, sampleWebhook(missing.ID)) },
		"ListWebhooks":      func() error { _, _, err := e.ListWebhooks(ctx, missing.ID, page); return err },
		"ListCredentials":   func() error { _, _, err := e.ListCredentials(ctx, missing.ID, page); return err },
		"AddCostIncident":   func() error { return e.AddCostIncident(ctx, sampleCostIncident(missing.ID)) },
		"ListCostIncidents": func() error { _, _, err := e.ListCostIncidents(ctx, missing.ID, page); return err },
		"NoteCostLift":      func() error { return e.NoteCostLift(ctx, missing.ID) },
		"Begin": func() error {
			_, err := e.Begin(ctx, kms.IdempotencyKey{Tenant: missing.ID, Credential: uuid.NewV7(), Key: "any"}, [32]byte{})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); err != kms.ErrNotFound {
			t.Errorf("%s: %v, want kms.ErrNotFound", name, err)
		}
	}
}
