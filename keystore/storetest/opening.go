package storetest

import (
	"context"
	"reflect"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testOpening(t *testing.T, open func(*testing.T) keystore.Driver) {
	t.Run("BeforeItOnlyBootstrapWorks", func(t *testing.T) { testUnopened(t, open(t)) })
	t.Run("TamperedDatabaseRowsStopTheStart", func(t *testing.T) { testStart(t, open) })
	t.Run("OldRowsAreAdoptedOnce", func(t *testing.T) { testAdoption(t, open(t)) })
	t.Run("ItHappensOnce", func(t *testing.T) {
		e := newEnv(t, open(t))
		wantKind(t, "a second time", e.Authenticate(t.Context(), testRows()), kms.KindInternal)
	})
	t.Run("AnotherRowKeyIsRefused", func(t *testing.T) {
		driver := open(t)
		newEnv(t, driver)
		another, err := kms.NewRowKey(map[uint32][]byte{1: make([]byte, kms.MACKeySize), 2: make([]byte, kms.MACKeySize)})
		if err != nil {
			t.Fatal(err)
		}
		wantKind(t, "start", newUnopened(t, driver).Authenticate(t.Context(), another), kms.KindInternal)
	})
	t.Run("TwoFirstStartsAtOnce", func(t *testing.T) {
		driver := open(t)
		results := make(chan error, 4)
		for range cap(results) {
			e := newUnopened(t, driver)
			go func() { results <- Bootstrap(t.Context(), e.Store, nil) }()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// unopened calls every method that must wait for the row key.
var unopened = map[string]func(context.Context, *env) error{
	"Tenant":       func(ctx context.Context, e *env) error { _, err := e.Tenant(ctx, unopenedID); return err },
	"CreateTenant": func(ctx context.Context, e *env) error { return e.CreateTenant(ctx, sampleTenant("early")) },
	"UpdateTenant": func(ctx context.Context, e *env) error {
		_, err := e.UpdateTenant(ctx, unopenedID, 1, kms.TenantChange{})
		return err
	},
	"DeleteTenant": func(ctx context.Context, e *env) error {
		_, err := e.DeleteTenant(ctx, unopenedID, 1, start, start)
		return err
	},
	"AdvanceDeletion": func(ctx context.Context, e *env) error {
		_, err := e.AdvanceDeletion(ctx, unopenedID, 1, kms.TenantDeleted, start)
		return err
	},
	"DueDeletions": func(ctx context.Context, e *env) error {
		_, err := e.DueDeletions(ctx, start, unopenedID, 1)
		return err
	},
	"CountObjects": func(ctx context.Context, e *env) error {
		_, err := e.CountObjects(ctx, unopenedID)
		return err
	},
	"CountTenants": func(ctx context.Context, e *env) error {
		_, err := e.CountTenants(ctx)
		return err
	},
	"ListTenants": func(ctx context.Context, e *env) error {
		_, _, err := e.ListTenants(ctx, kms.Page{Size: 1})
		return err
	},
	"CreateProject": func(ctx context.Context, e *env) error {
		return e.CreateProject(ctx, &kms.Project{Tenant: unopenedID, Name: "early", Created: start})
	},
	"Project": func(ctx context.Context, e *env) error { _, err := e.Project(ctx, unopenedID, "default"); return err },
	"ListProjects": func(ctx context.Context, e *env) error {
		_, _, err := e.ListProjects(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"Lookup": func(ctx context.Context, e *env) error { _, err := e.Lookup(ctx, unopenedID, "key"); return err },
	"CreateKey": func(ctx context.Context, e *env) error {
		return e.CreateKey(ctx, sampleKey(sampleTenant("early"), "early"))
	},
	"AddVersion": func(ctx context.Context, e *env) error {
		_, err := e.AddVersion(ctx, unopenedID, unopenedID, 1, sampleVersion(2))
		return err
	},
	"UpdateKey": func(ctx context.Context, e *env) error {
		_, err := e.UpdateKey(ctx, unopenedID, unopenedID, 1, kms.KeyChange{})
		return err
	},
	"ListKeys": func(ctx context.Context, e *env) error {
		_, _, err := e.ListKeys(ctx, unopenedID, "", kms.Page{Size: 1})
		return err
	},
	"UpdateVersion": func(ctx context.Context, e *env) error {
		_, err := e.UpdateVersion(ctx, unopenedID, unopenedID, 1, 1, kms.VersionChange{State: kms.VersionDisabled})
		return err
	},
	"DestroyVersion": func(ctx context.Context, e *env) error {
		_, err := e.DestroyVersion(ctx, unopenedID, unopenedID, 1, 1)
		return err
	},
	"RewrapTenant": func(ctx context.Context, e *env) error {
		return e.RewrapTenant(ctx, unopenedID, func(*kms.Tenant) (*kms.SealingKey, error) { return nil, nil })
	},
	"RewrapKey": func(ctx context.Context, e *env) error {
		return e.RewrapKey(ctx, unopenedID, unopenedID, func(*kms.Key) (map[uint32][]byte, error) { return nil, nil })
	},
	"DestroyKey": func(ctx context.Context, e *env) error { return e.DestroyKey(ctx, unopenedID, unopenedID, 1) },
	"SetRotation": func(ctx context.Context, e *env) error {
		_, err := e.SetRotation(ctx, unopenedID, unopenedID, 1, time.Hour, start)
		return err
	},
	"DueKeys": func(ctx context.Context, e *env) error { _, err := e.DueKeys(ctx, start, kms.DueKey{}, 1); return err },
	"LeaseNonces": func(ctx context.Context, e *env) error {
		_, err := e.LeaseNonces(ctx, unopenedID, unopenedID, 1, 1)
		return err
	},
	"TouchKeys":        func(ctx context.Context, e *env) error { return e.TouchKeys(ctx, []kms.KeyUse{{}}) },
	"TouchCredentials": func(ctx context.Context, e *env) error { return e.TouchCredentials(ctx, []kms.CredentialUse{{}}) },
	"SetAlias":         func(ctx context.Context, e *env) error { return e.SetAlias(ctx, unopenedID, unopenedID, "early") },
	"DeleteAlias":      func(ctx context.Context, e *env) error { return e.DeleteAlias(ctx, unopenedID, "early") },
	"RouteRevision": func(ctx context.Context, e *env) error {
		_, err := e.RouteRevision(ctx, unopenedID, "early")
		return err
	},
	"AliasRevision": func(ctx context.Context, e *env) error {
		_, err := e.AliasRevision(ctx, unopenedID, "early")
		return err
	},
	"KeyAliases": func(ctx context.Context, e *env) error {
		_, err := e.KeyAliases(ctx, unopenedID, unopenedID)
		return err
	},
	"ListAliases": func(ctx context.Context, e *env) error {
		_, _, err := e.ListAliases(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"CredentialForAuthentication": func(ctx context.Context, e *env) error {
		_, err := e.CredentialForAuthentication(ctx, unopenedID)
		return err
	},
	"Credential": func(ctx context.Context, e *env) error {
		_, err := e.Credential(ctx, unopenedID, unopenedID)
		return err
	},
	"CreateCredential": func(ctx context.Context, e *env) error {
		return e.CreateCredential(ctx, sampleCredential(unopenedID, "early"))
	},
	"UpdateCredential": func(ctx context.Context, e *env) error {
		_, err := e.UpdateCredential(ctx, unopenedID, unopenedID, 1, kms.CredentialChange{})
		return err
	},
	"ListCredentials": func(ctx context.Context, e *env) error {
		_, _, err := e.ListCredentials(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"CreateApproval": func(ctx context.Context, e *env) error { return e.CreateApproval(ctx, sampleApproval()) },
	"Approval":       func(ctx context.Context, e *env) error { _, err := e.Approval(ctx, unopenedID); return err },
	"Approve":        func(ctx context.Context, e *env) error { _, err := e.Approve(ctx, unopenedID, unopenedID); return err },
	"UseApproval":    func(ctx context.Context, e *env) error { return e.UseApproval(ctx, unopenedID) },
	"NodeSetting":    func(ctx context.Context, e *env) error { _, err := e.NodeSetting(ctx, "early"); return err },
	"NodeSettings":   func(ctx context.Context, e *env) error { _, err := e.NodeSettings(ctx); return err },
	"SetNodeMode": func(ctx context.Context, e *env) error {
		_, err := e.SetNodeMode(ctx, "early", 0, kms.NodeActive)
		return err
	},
	"NewestPolicy": func(ctx context.Context, e *env) error { _, err := e.NewestPolicy(ctx); return err },
	"Policy":       func(ctx context.Context, e *env) error { _, err := e.Policy(ctx, 1); return err },
	"PutPolicy":    func(ctx context.Context, e *env) error { return e.PutPolicy(ctx, samplePolicy(1, "{}")) },
	"ListPolicies": func(ctx context.Context, e *env) error {
		_, _, err := e.ListPolicies(ctx, kms.Page{Size: 1})
		return err
	},
	"CreateWebhook": func(ctx context.Context, e *env) error { return e.CreateWebhook(ctx, sampleWebhook(unopenedID)) },
	"Webhook":       func(ctx context.Context, e *env) error { _, err := e.Webhook(ctx, unopenedID, unopenedID); return err },
	"ListWebhooks": func(ctx context.Context, e *env) error {
		_, _, err := e.ListWebhooks(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"DisableWebhook": func(ctx context.Context, e *env) error { return e.DisableWebhook(ctx, unopenedID, unopenedID, 1) },
	"DeleteWebhook":  func(ctx context.Context, e *env) error { return e.DeleteWebhook(ctx, unopenedID, unopenedID) },
	"Route":          func(ctx context.Context, e *env) error { _, err := e.Route(ctx, unopenedID, "early"); return err },
	"ListRoutes": func(ctx context.Context, e *env) error {
		_, _, err := e.ListRoutes(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"PutRoute":        func(ctx context.Context, e *env) error { return e.PutRoute(ctx, sampleRoute(unopenedID, "early")) },
	"AddCostIncident": func(ctx context.Context, e *env) error { return e.AddCostIncident(ctx, sampleCostIncident(unopenedID)) },
	"CostIncident": func(ctx context.Context, e *env) error {
		_, err := e.CostIncident(ctx, unopenedID, unopenedID)
		return err
	},
	"ListCostIncidents": func(ctx context.Context, e *env) error {
		_, _, err := e.ListCostIncidents(ctx, unopenedID, kms.Page{Size: 1})
		return err
	},
	"NoteCostLift": func(ctx context.Context, e *env) error { return e.NoteCostLift(ctx, unopenedID) },
	"CostLifted":   func(ctx context.Context, e *env) error { _, err := e.CostLifted(ctx, unopenedID); return err },
	"DeleteRoute":  func(ctx context.Context, e *env) error { return e.DeleteRoute(ctx, unopenedID, "early") },
	"HealthOfRoute": func(ctx context.Context, e *env) error {
		_, _, err := e.HealthOfRoute(ctx, sampleRoute(unopenedID, "early"))
		return err
	},
	"SetHealthOfRoute": func(ctx context.Context, e *env) error {
		return e.SetHealthOfRoute(ctx, sampleRoute(unopenedID, "early"), []byte("{}"), 0)
	},
	"CreateJob": func(ctx context.Context, e *env) error { return e.CreateJob(ctx, sampleJob(unopenedID)) },
	"Job":       func(ctx context.Context, e *env) error { _, err := e.Job(ctx, unopenedID, unopenedID); return err },
	"JobByClaim": func(ctx context.Context, e *env) error {
		_, err := e.JobByClaim(ctx, unopenedID, [32]byte{1})
		return err
	},
	"ListJobs": func(ctx context.Context, e *env) error {
		_, _, err := e.ListJobs(ctx, unopenedID, unopenedID, kms.Page{Size: 1})
		return err
	},
	"UpdateJob": func(ctx context.Context, e *env) error { return e.UpdateJob(ctx, sampleJob(unopenedID)) },
	"DelayJob":  func(ctx context.Context, e *env) error { return e.DelayJob(ctx, unopenedID, unopenedID, start, "") },
	"DeleteJob": func(ctx context.Context, e *env) error { return e.DeleteJob(ctx, unopenedID, unopenedID, true) },
	"JobProgress": func(ctx context.Context, e *env) error {
		_, err := e.JobProgress(ctx, unopenedID, unopenedID)
		return err
	},
	"DueJobs": func(ctx context.Context, e *env) error {
		_, err := e.DueJobs(ctx, start, unopenedID, nil, 1)
		return err
	},
	"ExpiredJobs": func(ctx context.Context, e *env) error { _, err := e.ExpiredJobs(ctx, start, 1); return err },
	"AddChunk":    func(ctx context.Context, e *env) error { return e.AddChunk(ctx, sampleChunk(sampleJob(unopenedID), 0)) },
	"Chunk":       func(ctx context.Context, e *env) error { _, err := e.Chunk(ctx, unopenedID, unopenedID, 0); return err },
	"ChunkOf": func(ctx context.Context, e *env) error {
		_, err := e.ChunkOf(ctx, unopenedID, unopenedID, 0)
		return err
	},
	"DueChunks": func(ctx context.Context, e *env) error {
		_, err := e.DueChunks(ctx, unopenedID, unopenedID, start, 1)
		return err
	},
	"UpdateChunk": func(ctx context.Context, e *env) error {
		return e.UpdateChunk(ctx, &kms.ChunkUpdate{JobChunk: *sampleChunk(sampleJob(unopenedID), 0)})
	},
	"RenewChunk": func(ctx context.Context, e *env) error {
		return e.RenewChunk(ctx, sampleChunk(sampleJob(unopenedID), 0), start)
	},
	"ReleaseChunks":  func(ctx context.Context, e *env) error { return e.ReleaseChunks(ctx, "early", start) },
	"ComputedChunks": func(ctx context.Context, e *env) error { _, err := e.ComputedChunks(ctx, "early", 1); return err },
	"Enqueue":        func(ctx context.Context, e *env) error { _, err := e.Enqueue(ctx, unopenedID, nil); return err },
	"ClaimDeliveries": func(ctx context.Context, e *env) error {
		_, err := e.ClaimDeliveries(ctx, time.Minute, nil, 1)
		return err
	},
	"EndDelivery":   func(ctx context.Context, e *env) error { return e.EndDelivery(ctx, &kms.Delivery{}) },
	"RetryDelivery": func(ctx context.Context, e *env) error { return e.RetryDelivery(ctx, &kms.Delivery{}, start) },
	"NoteDelivery":  func(ctx context.Context, e *env) error { return e.NoteDelivery(ctx, unopenedID, unopenedID, true) },
	"ListApprovals": func(ctx context.Context, e *env) error {
		_, _, err := e.ListApprovals(ctx, kms.Page{Size: 1})
		return err
	},
	"Begin": func(ctx context.Context, e *env) error { _, err := e.Begin(ctx, unopenedClaim, [32]byte{}); return err },
	"Finish": func(ctx context.Context, e *env) error {
		return e.Finish(ctx, unopenedClaim, kms.IdempotencyRecord{Status: 200})
	},
	"Abandon": func(ctx context.Context, e *env) error { return e.Abandon(ctx, unopenedClaim) },
	"StoreRecords": func(ctx context.Context, e *env) error {
		return e.StoreRecords(ctx, []kms.RequestRecord{sampleRecord(unopenedID)})
	},
	"RequestRecord": func(ctx context.Context, e *env) error {
		_, err := e.RequestRecord(ctx, unopenedID, unopenedID)
		return err
	},
	"CreateSecret": func(ctx context.Context, e *env) error { return e.CreateSecret(ctx, sampleSecret(unopenedID, "early")) },
	"UpdateSecret": func(ctx context.Context, e *env) error {
		s := sampleSecret(unopenedID, "early")
		return e.UpdateSecret(ctx, s, s.Clone(), kms.SecretChanged)
	},
	"Secret": func(ctx context.Context, e *env) error { _, err := e.Secret(ctx, unopenedID, unopenedID); return err },
	"SecretByPath": func(ctx context.Context, e *env) error {
		_, err := e.SecretByPath(ctx, unopenedID, "early")
		return err
	},
	"ListSecrets": func(ctx context.Context, e *env) error {
		_, _, err := e.ListSecrets(ctx, unopenedID, "", kms.Page{Size: 1})
		return err
	},
	"DueSecrets": func(ctx context.Context, e *env) error {
		_, err := e.DueSecrets(ctx, start, kms.DueSecret{}, 1)
		return err
	},
	"SecretsRevision": func(ctx context.Context, e *env) error { _, err := e.SecretsRevision(ctx, unopenedID); return err },
	"AwaitSecretsRevision": func(ctx context.Context, e *env) error {
		_, err := e.AwaitSecretsRevision(ctx, unopenedID, 1)
		return err
	},
	"ChangesOfSecrets": func(ctx context.Context, e *env) error {
		_, _, err := e.ChangesOfSecrets(ctx, unopenedID, 0, 1)
		return err
	},
	"AddOutcomes":      func(ctx context.Context, e *env) error { return e.AddOutcomes(ctx, unopenedID, nil) },
	"Outcomes":         func(ctx context.Context, e *env) error { _, err := e.Outcomes(ctx, unopenedID, unopenedID); return err },
	"Baseline":         func(ctx context.Context, e *env) error { _, err := e.Baseline(ctx, unopenedID, unopenedID); return err },
	"PutBaselines":     func(ctx context.Context, e *env) error { return e.PutBaselines(ctx, nil) },
	"AnyRequestRecord": func(ctx context.Context, e *env) error { _, err := e.AnyRequestRecord(ctx, unopenedID); return err },
}

// unopenedWork lists the methods that work without the row key, and why.
var unopenedWork = map[string]string{
	"Close":           "ends everything",
	"Authenticate":    "brings the row key",
	"Invalidate":      "only forgets",
	"InvalidateName":  "only forgets",
	"TenantByRef":     "finds the system tenant",
	"SystemSecrets":   "hold the row key",
	"PutJournalHead":  "the HSM has signed it",
	"JournalHeads":    "the HSM has signed them",
	"PutSystemSecret": "holds the row key",
	"Ship":            "the trail has no codes: the journal counts",
	"Shipped":         "the trail has no codes",
	"ShippedNodes":    "the trail has no codes",
	"TrailEntries":    "the trail has no codes",
	"TrimTrail":       "the trail has no codes",
	"WantEndpoints":   "probes have no codes",
	"Endpoints":       "probes have no codes",
	"ClaimEndpoints":  "probes have no codes",
	"EndProbe":        "probes have no codes",
	"Usage":           "the trail has no codes",
	"KnowRevisions":   "asks nothing of the database",
	"FollowSecrets":   "asks nothing of the database",
	"OldRows":         "of nothing is anything known",
	"EntriesOf":       "the trail has no codes",
}

var (
	// unopenedID is that of a tenant which is there, for methods that would
	// otherwise find nothing.
	unopenedID    = uuid.MustParse("0198c2a0-0000-7000-8000-00000000000a")
	unopenedClaim = kms.IdempotencyKey{Tenant: unopenedID, Credential: unopenedID, Key: "early"}
)

func testUnopened(t *testing.T, driver keystore.Driver) {
	ctx := t.Context()
	before := newEnv(t, driver)
	there := sampleTenant("there")
	there.ID, there.Sealing.Tenant = unopenedID, unopenedID
	if err := before.CreateTenant(ctx, there); err != nil {
		t.Fatal(err)
	}
	e := newUnopened(t, driver)
	for method := range reflect.TypeFor[*keystore.Store]().Methods() {
		call, waits := unopened[method.Name]
		_, works := unopenedWork[method.Name]
		if waits == works {
			t.Errorf("%s: must be in exactly one of the tables", method.Name)
		}
		if waits {
			wantKind(t, method.Name, call(ctx, e), kms.KindStoreUnavailable)
		}
	}
	for _, ref := range []string{"there", unopenedID.String()} {
		_, err := e.TenantByRef(ctx, ref)
		wantKind(t, "another tenant", err, kms.KindStoreUnavailable)
	}
	system, err := e.TenantByRef(ctx, kms.SystemTenantName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Tenant(ctx, system.ID); err != nil {
		t.Errorf("the system tenant by its id: %v", err)
	}
	if err := e.Authenticate(ctx, testRows()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.TenantByRef(ctx, "there"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// testStart tampers with what the start reads.
func testStart(t *testing.T, open func(*testing.T) keystore.Driver) {
	system := func(column string, value any) Damage {
		return Damage{Table: "tenants", Column: column, Value: value, Key: "name", KeyValue: kms.SystemTenantName}
	}
	database := func(column string, value any) Damage {
		return Damage{Table: "row_authentication", Column: column, Value: value, Key: "id", KeyValue: int64(1)}
	}
	for name, damages := range map[string][]Damage{
		"the system tenant is changed":      {system("sealing_generation", int64(7))},
		"the system tenant has no code":     {system("mac", nil), system("mac_version", nil)},
		"the system tenant is another":      {system("sealing_wrapped", []byte("other"))},
		"the mark is false":                 {database("mac", make([]byte, 32))},
		"the mark has no key":               {database("mac_version", nil)},
		"the mark is for another past":      {database("adopt", int64(1))},
		"never marked, with other tenants":  {database("mac", nil), database("mac_version", nil)},
		"never marked, and nothing coded":   {database("mac", nil), database("mac_version", nil), system("mac", nil), system("mac_version", nil)},
		"never marked, and of unclear past": {database("mac", nil), database("mac_version", nil), database("adopt", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			driver := open(t)
			newEnv(t, driver).tenant(t, "other")
			for _, d := range damages {
				driver.(Damager).Damage(t, d)
			}
			e := newUnopened(t, driver)
			wantKind(t, "start", e.Authenticate(t.Context(), testRows()), kms.KindInternal)
			_, err := e.TenantByRef(t.Context(), "other")
			wantKind(t, "a store that did not open", err, kms.KindStoreUnavailable)
		})
	}
	t.Run("the mark is missing", func(t *testing.T) {
		driver := open(t)
		newEnv(t, driver)
		driver.(Damager).Delete(t, "row_authentication", "id", int64(1))
		if err := newUnopened(t, driver).Authenticate(t.Context(), testRows()); err == nil {
			t.Error("it started")
		}
	})
}

// testAdoption makes a database look as one from before there were codes.
func testAdoption(t *testing.T, driver keystore.Driver) {
	ctx, db := t.Context(), driver.(Damager)
	s := makeScene(t, newEnv(t, driver), "old")
	uncode := func(table, key string, value any, prefix string) {
		for _, column := range []string{prefix + "mac", prefix + "mac_version"} {
			db.Damage(t, Damage{Table: table, Column: column, Key: key, KeyValue: value})
		}
	}
	db.Damage(t, Damage{Table: "row_authentication", Column: "adopt", Value: int64(1), Key: "id", KeyValue: int64(1)})
	uncode("row_authentication", "id", int64(1), "")
	uncode("tenants", "name", kms.SystemTenantName, "")
	victims := s.victims()
	for name, v := range victims {
		switch name {
		case "secret": // has none
		case "name", "alias", "approval", "node", "policy", "webhook", "provider", "value", "revision", "route", "end", "job", "incident", "lift": // there were none
		case "nonces":
			uncode(v.table, v.key, v.value, "nonces_")
		default:
			uncode(v.table, v.key, v.value, "")
		}
	}
	uncode("key_names", "name", s.key.Name, "")
	// One object is damaged.
	lost := victims["pending"]
	db.Damage(t, Damage{Table: lost.table, Column: "primary_version", Value: int64(0), Key: lost.key, KeyValue: lost.value})
	// And one was tampered with after an attempt that was cut short.
	forged := victims["revoked"]
	db.Damage(t, Damage{Table: forged.table, Column: "mac", Value: make([]byte, 32), Key: forged.key, KeyValue: forged.value})

	check := func(e *env, refused ...string) {
		t.Helper()
		for name, v := range victims {
			bad := name == "pending" || name == "revoked"
			for _, r := range refused {
				bad = bad || name == r
			}
			if err := v.read(ctx, e); bad {
				wantRefused(t, name, err, false)
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	e := newEnv(t, driver)
	check(e)
	if _, err := e.Lookup(ctx, s.tenant.ID, s.key.Name); err != nil {
		t.Errorf("by its name: %v", err)
	}
	// What has no code now was put there: nothing is adopted twice.
	uncode("credentials", "id", s.credential.ID[:], "")
	check(newEnv(t, driver), "credential", "secret")
}
